"""Converts models, so that they open the context of ``emulate`` themselves; saves and loads their arithmetic."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import local
from typing import Any
from weakref import finalize

import torch
from torch import Tensor, nn

from gemmsim._files import write_text
from gemmsim._keywords import takes_spec
from gemmsim.nn.instance_class import Made, blank, derived
from gemmsim.ops.errors import message
from gemmsim.ops.lazy_dynamo import assume_constant_result

from . import deferred_contexts
from .context import seed_of
from .mode import Emulation
from .module_paths import unwrapped
from .rules import Config, ConfigError, ConfigLike
from .steps import Steps, Taken, checked, steps_of

__all__ = ["Arithmetic", "arithmetic_of", "convert", "from_pretrained", "load", "save", "undo"]

#: Name of the file next to a model's weights.
FILE = "gemmsim.json"
_VERSION = 1


class Arithmetic:
    """The arithmetic of a converted model, which all its modules share.

    ``config`` and ``seed``: as ``emulate`` takes them. ``step``: the number of the next step, which can be set.

    Example:
        >>> model = gs.convert(torch.nn.Linear(4, 2), "e4m3 : fp32", seed=7)
        >>> gs.emulation.arithmetic_of(model)
        Arithmetic(seed=7)
        *                        *            e4m3 : e8m23
    """

    def __init__(self, model: nn.Module, text: str, seed: int, steps: Steps) -> None:
        self.model, self.text, self.seed, self.steps = model, text, seed, steps
        self._here = _Here()
        steps.lasts = True
        self._install_hooks()

    def _install_hooks(self) -> None:
        """Makes snapshots include the steps of a model that draws random bits, as long as it is converted.

        Checkpoints restore them when they compute the model again.
        """
        self._close: Callable[[], Any] | None = None
        if self.config.draws:
            deferred_contexts.OWNERS.add(self)
            deferred_contexts.opened()
            self._close = finalize(self, deferred_contexts.closed)

    def release(self) -> None:
        """Ends the use of this arithmetic: no model computes with it afterwards."""
        if self._close is not None:
            deferred_contexts.OWNERS.discard(self)
            self._close()

    def __getstate__(self) -> dict[str, Any]:
        found = {"model": self.model, "seed": self.seed, "step": self.step, "config": self.config}
        return {**found, "histories": self.steps.histories}

    def __setstate__(self, state: dict[str, Any]) -> None:
        text = state["config"].text
        Arithmetic.__init__(self, state["model"], text, state["seed"], steps_of(text, state["seed"], state["step"]))
        self.steps.histories = state.get("histories", {})

    @property
    def step(self) -> int:
        """The number of the next step: how many calls of the model, in all threads, came before it.

        Only a config that draws random bits or delays scales counts steps.

        Example:
            >>> model = gs.convert(torch.nn.Linear(4, 2), "e4m3 : fp32/sr16")
            >>> model(torch.ones(4)).shape, gs.emulation.arithmetic_of(model).step
            (torch.Size([2]), 1)
        """
        return self.steps.number + 1

    @step.setter
    def step(self, step: int) -> None:
        self.steps.number = checked("step", step) - 1

    @property
    def config(self) -> Config:
        """The rules of the model, as a ``Config``.

        Example:
            >>> print(gs.emulation.arithmetic_of(gs.convert(torch.nn.Linear(4, 2), "e4m3 : fp32")).config)
            *                        *            e4m3 : e8m23
        """
        return Config.of(self.text)

    def open(self) -> Emulation:
        """A context for a call of one of the model's modules."""
        mode = Emulation(self.text, self.seed, self.model, self, self.steps)
        if mode.places is not None and mode.draws:
            if torch.compiler.is_compiling():
                _note_compiled()
            else:
                here = self._here
                mode.places.taken, mode.places.repeats = here.taken, here.repeats
                mode.places.steps = self.steps if here.steps is None else here.steps
        return mode

    def close(self, mode: Emulation) -> None:
        """Ends that call: the next one in this thread takes the steps after it."""
        if mode.draws and mode.places is not None and not torch.compiler.is_compiling():
            self._here.taken = mode.places.taken

    def mark(self) -> tuple[Taken, Tensor]:
        """The step that this thread took last, and the step that all threads took last."""
        return self._here.taken, self.steps.counter

    def advance(self) -> None:
        """Takes a step in this thread; calls that repeat from an earlier mark take it as well."""
        self._here.taken.next = Taken(self.steps.next())
        self._here.taken = self._here.taken.next

    @contextmanager
    def repeating(self, mark: tuple[Taken, Tensor]) -> Iterator[None]:
        """Makes calls in this thread take the steps after the mark again, inside the context."""
        here, last = self._here, self.steps.counter
        before = here.taken, here.repeats, here.steps
        again = Steps(mark[1])
        again.histories = self.steps.histories
        here.taken, here.repeats, here.steps = mark[0], True, again
        if _COMPILED:  # compiled code reads the model's only count
            self.steps.counter = mark[1]
        try:
            yield
        finally:
            here.taken, here.repeats, here.steps = before
            if _COMPILED:
                self.steps.counter = last

    def __repr__(self) -> str:
        return f"Arithmetic(seed={self.seed})\n{self.config}"


class _Here(local):
    """The steps of a model's count that one thread takes."""

    def __init__(self) -> None:
        self.taken, self.repeats = Taken(), False
        self.steps: Steps | None = None


#: Not empty once compiled code has called a converted model that draws random bits.
_COMPILED: list[bool] = []


@assume_constant_result
def _note_compiled() -> None:
    _COMPILED[:] = [True]


class _Converted(Made):
    """Mixin of the class of a converted module.

    A call from outside the model opens the context; a call from inside is already in it.
    """

    _gemmsim: Arithmetic

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        arithmetic = self.__dict__["_gemmsim"]
        for mode in torch.overrides._get_current_function_mode_stack():
            if isinstance(mode, Emulation) and mode.owner is arithmetic:
                return super().__call__(*args, **kwargs)  # type: ignore[misc]
        mode = arithmetic.open()
        with mode:
            result = super().__call__(*args, **kwargs)  # type: ignore[misc]
        arithmetic.close(mode)
        return result

    @property
    def __jit_ignored_attributes__(self) -> list[str]:
        """The attribute that ``torch.jit.script`` and ``torch.jit.trace`` read first.

        Raises:
            ConfigError: TorchScript would compute the products natively.
        """
        asked = f"torch.jit of a {type(self).__name__} that gemmsim.convert converted"
        do = "Use torch.compile or torch.export, which keep emulated products, or gemmsim.emulation.undo(model) first."
        raise ConfigError(message(asked, "models that are not converted", do))

    def __reduce_ex__(self, protocol: Any) -> Any:
        reduced = super().__reduce_ex__(protocol)
        if reduced[0] is not blank:
            asked = f"pickling a converted {type(self).__name__}, which has its own pickling"
            raise ConfigError(message(asked, "modules that use nn.Module's pickling", "Call gemmsim.emulation.undo."))
        return reduced


def _class_of(base: type) -> Any:
    """A subclass of ``base`` under the same name, with a context around its calls."""
    return derived(base, _class_of, (_Converted, base), _gemmsim_base=base)


@takes_spec("config")
def convert(model: nn.Module, spec: ConfigLike, seed: int = 0, step: int = 0) -> nn.Module:
    """Makes ``model`` compute its products as ``spec`` says from now on, and returns the same object.

    It computes what ``emulate(spec, seed, root=model)`` around all its calls computes, bit for bit, random bits
    included. That covers every product in it, also those without a module of their own. Its parameters, buffers,
    hooks, state keys and the names of its classes stay as they are. Modules can be called one by one, and keep their
    paths. The model can be copied, pickled, wrapped and compiled. Converting it again replaces its config.

    Args:
        model: any module.
        spec, seed: as ``emulate`` takes them; paths are relative to ``model``. (``config``, the former keyword for
            ``spec``, is deprecated.)
        step: the number of the first call; the model counts its calls from there, in all threads together
            (``gemmsim.emulation.arithmetic_of(model).step``).

    Raises:
        ConfigError, SpecError, FormatError: for a spec or rules that mean nothing, or that name modules which do not
            exist.
        SeedError: for an invalid seed or step.

    Example:
        >>> layer = torch.nn.utils.skip_init(torch.nn.Linear, 600, 1, bias=False).requires_grad_(False)
        >>> gs.convert(layer, "e4m3 : bf16").weight.fill_(1).sum()  # weights stay what they are
        tensor(600.)
        >>> layer(torch.ones(1, 600))
        tensor([[256.]])
    """
    if not isinstance(model, nn.Module):
        asked = f"convert: model={model!r} of type {type(model).__name__}"
        raise ConfigError(message(asked, "a module", "Use gemmsim.emulate for functions."))
    found, valid = Config.of(spec), seed_of("convert", seed)
    _check_paths(model, found)
    steps = steps_of(found.text, valid, checked("convert", step))
    arithmetic = Arithmetic(model, found.text, valid, steps)
    undo(model)
    for module in model.modules():
        if hasattr(type(module), "_gemmsim_base"):
            continue  # a part that was converted by itself keeps its own arithmetic
        module.__class__ = _class_of(type(module))
        module.__dict__["_gemmsim"] = arithmetic
    return model


def undo(model: nn.Module) -> nn.Module:
    """Undoes ``convert`` and returns ``model``; a model that was not converted does not change.

    Example:
        >>> layer, x = torch.nn.Linear(600, 1, bias=False).requires_grad_(False), torch.ones(600)
        >>> weight = gs.convert(layer, "e4m3 : bf16").weight.fill_(1)
        >>> layer(x), gs.emulation.undo(layer)(x)
        (tensor([256.]), tensor([600.]))
    """
    mine = model.__dict__.get("_gemmsim")
    for module in model.modules() if mine is not None else ():
        base = getattr(type(module), "_gemmsim_base", None)
        if base is not None and module.__dict__.get("_gemmsim") is mine:
            module.__class__ = base
            del module.__dict__["_gemmsim"]
    if mine is not None and mine.model is model:
        mine.release()
    return model


def arithmetic_of(model: nn.Module) -> Arithmetic | None:
    """Return the arithmetic of a converted model; None for other models.

    Example:
        >>> gs.emulation.arithmetic_of(torch.nn.Linear(4, 2)) is None
        True
        >>> gs.emulation.arithmetic_of(gs.convert(torch.nn.Linear(4, 2), "e4m3 : fp32", seed=7)).seed
        7
    """
    found: Arithmetic | None = unwrapped(model).__dict__.get("_gemmsim")
    return found


def save(model: nn.Module, folder: str | os.PathLike[str]) -> Path:
    """Writes the arithmetic of a converted model to ``gemmsim.json`` in ``folder`` and returns the path of that file.

    Raises:
        ConfigError: for a model that is not converted.
        FormatError: for quantisers that are functions, which no file can name.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     print(gs.emulation.save(gs.convert(torch.nn.Linear(4, 2), "e4m3 : fp32"), folder).name)
        gemmsim.json
    """
    arithmetic = arithmetic_of(model)
    if arithmetic is None:
        asked = f"save of a {type(model).__name__} that is not converted"
        raise ConfigError(message(asked, "models that gemmsim.convert converted", "Convert it first."))
    data = {"version": _VERSION, "seed": arithmetic.seed, "step": arithmetic.step, **arithmetic.config.to_dict()}
    path = Path(folder) / FILE
    write_text(path, json.dumps(data, indent=2) + "\n")
    return path


def load(model: nn.Module, folder: str | os.PathLike[str]) -> nn.Module:
    """Converts ``model`` as ``gemmsim.json`` in ``folder`` says, and returns it.

    Raises:
        ConfigError: for a folder without that file, an invalid file, or one of a later version.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     path = gs.emulation.save(gs.convert(torch.nn.Linear(4, 2), "e4m3 : fp32", seed=7), folder)
        ...     print(gs.emulation.arithmetic_of(gs.emulation.load(torch.nn.Linear(4, 2), folder)).seed)
        7
    """
    path = Path(folder) / FILE
    try:
        data = json.loads(path.read_text())
        version = data.pop("version")
        seed, step = data.pop("seed"), data.pop("step", 0)
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        asked = f"load: {path}: {type(error).__name__}"
        raise ConfigError(message(asked, "a file that gemmsim.emulation.save wrote", "Check the folder.")) from None
    if version != _VERSION:
        asked = f"load: {path} of version {version!r}"
        raise ConfigError(message(asked, f"version {_VERSION}", "Use the version of gemmsim that wrote it."))
    return convert(model, Config.from_dict(data), seed, step)


def from_pretrained(kind: Any, folder: str | os.PathLike[str], **options: Any) -> nn.Module:
    """Return ``kind.from_pretrained(folder, **options)``, converted as ``gemmsim.json`` in that folder says.

    ``kind`` is a class with that method, such as one of Hugging Face's model classes.

    Raises:
        ConfigError: as ``load``.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> from types import SimpleNamespace
        >>> with TemporaryDirectory() as folder:
        ...     path = gs.emulation.save(gs.convert(torch.nn.Linear(4, 2), "e4m3 : fp32", seed=7), folder)
        ...     kind = SimpleNamespace(from_pretrained=lambda folder: torch.nn.Linear(4, 2))
        ...     print(gs.emulation.arithmetic_of(gs.emulation.from_pretrained(kind, folder)).seed)
        7
    """
    model: nn.Module = kind.from_pretrained(folder, **options)
    return load(model, folder)


def _check_paths(model: nn.Module, config: Config) -> None:
    if config.names_modules:
        config.check([name for name, _ in unwrapped(model).named_modules()], type(model).__name__)
