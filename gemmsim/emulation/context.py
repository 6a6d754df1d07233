"""``emulate``: the context manager and decorator that computes PyTorch's products in other arithmetic."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from threading import get_ident
from typing import Any

import torch
from torch import nn

from gemmsim._keywords import takes_spec
from gemmsim.ops.errors import SeedError, message
from gemmsim.ops.seeds import check_seed

from .dynamo_configs import config_of, needs_of, text_inside, text_of, text_with_unknown
from .dynamo_support import is_from, raised
from .mode import Emulation
from .rules import Config, ConfigError, ConfigLike
from .steps import StepLike, steps_of

__all__ = ["emulate", "seed_of"]


class emulate:
    """Computes products of PyTorch as ``spec`` says: a context manager, and a decorator of functions.

        with gs.emulate("e4m3 : e5m10"):
            loss = model(x).square().mean()
        loss.backward()  # in the same arithmetic, inside or after the context

    Every product of matrices that PyTorch's functions, methods, operators and modules make (docs/howto/emulate.md has
    the list) is replaced. Everything else is PyTorch's: additions, norms, activations, random streams of dropout,
    optimizers. An emulated model computes what PyTorch computes with each product replaced: operands, their order and
    dtypes are PyTorch's, autocast's casts come first, and the bias's gradient is PyTorch's sum.

    Args:
        spec: a string, ``GemmSpec``, accumulator, format, ``QAffineFormats``, recipe or library
            (``gemmsim.libraries``) for all products; or a list of pairs (pattern of module paths, one of these or
            None), ``Rule`` objects, or a ``Config``. The first rule that matches applies. Products that no rule matches
            are native. Paths are relative to the outermost module called. (``config``, the former keyword, is
            deprecated.)
        seed: of all random bits, 0 to 2**64 - 1. Each product draws its own, which depend on the seed, the module's
            path, the kind of product, its number among such calls of this step, and the step. torch's generator is not
            touched.
        root: the module that paths are relative to, if several are called.
        step: the number of the first step. Each call of an outermost module is one step; outside modules the first
            product in a context begins one. None: the process continues the count of the last context of the same
            config and seed (``gemmsim.emulation.state_dict`` saves its counts). A function without arguments gives the
            number of the present step instead, as a trainer counts it.
        unknown: what happens where it is not known what a library chooses or computes. "raise" (as None): UnknownPlan.
            "chain": one chain of the library's instruction, which an audit lists as assumed.

    Contexts nest; inside the inner one, only the inner one applies. A context applies in this thread only
    (``gemmsim.emulation.carry`` takes it into another). It sees only calls through PyTorch's Python API: not
    TorchScript, NumPy, or extensions.

    Raises:
        ConfigError, SpecError, FormatError: for a spec or rules that mean nothing; when the outermost module is called,
            for patterns that match none of its modules.
        SeedError: for an invalid seed or step.
        UnsupportedSpec, GradError: in the context, for products that a spec has no meaning for, naming call and module.
        UnknownPlan: in the context and in backward passes, for products whose plan by a library is not known:
            shapes that its table lacks, float32 operands, batches, convolutions.

    Example:
        >>> with gs.emulate("e4m3 : bf16"):  # sums of ones stagnate where the spacing of bf16 is 2
        ...     torch.nn.functional.linear(torch.ones(1, 600), torch.ones(1, 600))
        tensor([[256.]])
    """

    @takes_spec("config")
    def __init__(
        self,
        spec: ConfigLike = None,
        seed: int = 0,
        root: nn.Module | None = None,
        step: StepLike = None,
        unknown: str | None = None,
    ) -> None:
        if torch.compiler.is_compiling():
            self.text = text_inside(spec)
        else:
            self.text = text_of(spec) if spec is None or isinstance(spec, str) else Config.of(spec).text
        if unknown is not None:
            self.text = text_with_unknown(self.text, unknown)
        self.seed = seed_of("emulate", seed)
        if root is not None and not isinstance(root, nn.Module):
            asked = f"emulate: root={root!r} of type {type(root).__name__}"
            do = "Give the model that paths are relative to, or leave it out."
            raise raised(ConfigError, message(asked, "a module", do))
        self.root = root
        self._steps = steps_of(self.text, self.seed, step) if step is not None or needs_of(self.text)[1] else None
        self._modes: list[tuple[int, Emulation]] = []  # each with the thread that entered it

    @property
    def config(self) -> Config:
        """The rules of this context, as a ``Config``.

        Example:
            >>> print(gs.emulate([("head", None), ("*", "e4m3 : fp32")]).config)
            head                     *            PyTorch's own
            *                        *            e4m3 : e8m23
        """
        return config_of(self.text)

    def caused(self, error: BaseException) -> bool:
        """Return whether this config caused ``error``: a rule that matches no module, or a spec that has no meaning
        for a call.

        The result is False if the program itself called gemmsim, and for errors in a backward pass.

        Example:
            >>> context = gs.emulate([("head", "e4m3 : fp32")])
            >>> try:
            ...     with context:
            ...         torch.nn.Linear(4, 2)(torch.ones(4))  # a model without a module "head"
            ... except gs.emulation.ConfigError as error:
            ...     print(context.caused(error))
            True
        """
        return is_from(error, self.text)

    def __enter__(self) -> Emulation:
        mode = Emulation(self.text, self.seed, self.root, steps=self._steps).__enter__()
        self._modes.append((_thread(), mode))
        return mode

    def __exit__(self, *error: Any) -> None:
        thread, at = _thread(), len(self._modes) - 1
        while at and self._modes[at][0] != thread:
            at -= 1
        if self._modes[at][0] != thread:  # a generator that continues in another thread: any of them
            at = len(self._modes) - 1
        self._modes.pop(at)[1].__exit__(*error)

    def __repr__(self) -> str:
        return f"emulate(seed={self.seed})\n{self.config}"

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """``function``, made to run in a context of its own at each call; a generator, whenever its own code runs.

        Raises:
            ConfigError: for functions written with ``async``, whose code alternates with that of others.
        """
        if not torch.compiler.is_compiling():
            if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
                asked = f"emulate as the decorator of {function.__qualname__}, an async function"
                do = "Try `with gemmsim.emulate(...)` around code in it that does not await."
                raise ConfigError(message(asked, "functions and generator functions", do))
            if inspect.isgeneratorfunction(function):
                return self._generator(function)

        @wraps(function)
        def emulated(*args: Any, **kwargs: Any) -> Any:
            with Emulation(self.text, self.seed, self.root, steps=self._steps):
                return function(*args, **kwargs)

        return emulated

    def _generator(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A generator function whose code runs in one context, which is not in force while the generator waits."""

        @wraps(function)
        def emulated(*args: Any, **kwargs: Any) -> Any:
            mode = Emulation(self.text, self.seed, self.root, steps=self._steps)
            generator = function(*args, **kwargs)
            go_on, given = generator.send, None
            while True:
                try:
                    with mode:
                        out = go_on(given)
                except StopIteration as stop:
                    return stop.value
                try:
                    go_on, given = generator.send, (yield out)
                except BaseException as error:  # also when it is closed
                    go_on, given = generator.throw, error

        return emulated


def _thread() -> int:
    """Identifier of the running thread; 0 in compiled code, which runs in one thread."""
    return 0 if torch.compiler.is_compiling() else get_ident()


def seed_of(owner: str, seed: object) -> int:
    """``seed`` as a signed 64-bit integer. Unlike seeds of single operations it never comes from torch's generator.

    Raises:
        SeedError: for anything but an integer from 0 to 2**64 - 1.
    """
    try:
        found = check_seed(owner, seed)
    except SeedError:
        found = None
    if found is None:
        do = "Give an int. Equal seeds give equal results; torch's generator is not used."
        raise raised(SeedError, message(f"{owner}: seed={seed!r}", "an integer from 0 to 2**64 - 1", do))
    return found
