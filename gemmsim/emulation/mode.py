"""The context in which PyTorch's products are computed in other arithmetic."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Sequence
from functools import lru_cache, wraps
from hashlib import sha256
from threading import get_ident
from typing import Any

import torch
from torch import Tensor, nn
from torch._ops import HigherOrderOperator

from gemmsim.ops import subnormals
from gemmsim.ops.errors import SeedError, message
from gemmsim.ops.seeds import check_seed
from gemmsim.ops.tracing import assume_constant_result

from . import (  # noqa: F401  # they fill tables
    addmm,
    attention,
    compiled,
    contract,
    convolve,
    count,
    einsum,
    formulas,
    later,
    moments,
    places,
    products,
    recurrent,
    replaced,
    scaled,
)
from .blame import is_from
from .casts import untouched
from .compiled import raised
from .inside import text_inside
from .operands import are_ours, handlers_of
from .places import Placed, Places, await_first, path_running, paths_of, unwatch, watch
from .rules import Config, ConfigError, ConfigLike, config_of, formats_at, needs_of, problem, reachable, text_of
from .table import TABLE, Entry, Site, adopt, bound, unseen

__all__ = ["Emulation", "emulate", "seed_of"]


class emulate:
    """Products of PyTorch computed as ``config`` says: a context manager, and a decorator of functions.

        with gs.emulate("e4m3 : e5m10"):
            loss = model(x).square().mean()
        loss.backward()  # in the same arithmetic, inside or after the context

    Every product of matrices that PyTorch's functions, methods, operators and modules make (docs/howto/emulate.md has
    the list) is replaced; everything else is PyTorch's: additions, norms, activations, random streams of dropout,
    optimizers. An emulated model computes what PyTorch computes with each product replaced: operands, their order and
    dtypes are PyTorch's, autocast's casts come first, the bias's gradient is PyTorch's sum.

    Args:
        config: a spec (string, ``GemmSpec``, accumulator, format), ``QAffineFormats``, a recipe, a list of pairs
            (pattern of module paths, formats or None) of which the first that matches holds, ``Rule`` objects, or a
            ``Config``. What no rule matches is PyTorch's. Paths are relative to the outermost module called.
        seed: of all random bits, 0 to 2**64 - 1. Each product draws its own, which depend on the seed, the module's
            path, the kind of product, its number among such calls of this step, and the step: the number of calls of
            outermost modules in this context before. torch's generator is not touched.
        root: the module that paths are relative to, where several are called.

    Contexts nest; the inner one holds inside, alone. It holds in this thread only (``gemmsim.emulation.carry`` takes it
    into another); nothing outside PyTorch's Python API is seen: TorchScript, NumPy, and extensions are not.

    Raises:
        ConfigError, SpecError, FormatError: for a config that means nothing; when the outermost module is called, for
            patterns that match none of its modules.
        SeedError: for a seed that is none.
        UnsupportedSpec, GradError: in the context, for products that a spec has no meaning for, naming call and module.
    """

    def __init__(self, config: ConfigLike = None, seed: int = 0, root: nn.Module | None = None) -> None:
        if torch.compiler.is_compiling():
            self.text = text_inside(config)
        else:
            self.text = text_of(config) if config is None or isinstance(config, str) else Config.of(config).text
        self.seed = seed_of("emulate", seed)
        if root is not None and not isinstance(root, nn.Module):
            asked = f"emulate: root={root!r} of type {type(root).__name__}"
            do = "Give the model that paths are relative to, or leave it out."
            raise raised(ConfigError, message(asked, "a module", do))
        self.root = root
        self._modes: list[tuple[int, Emulation]] = []  # each with the thread that entered it

    @property
    def config(self) -> Config:
        """The rules."""
        return config_of(self.text)

    def caused(self, error: BaseException) -> bool:
        """Whether the reason for ``error`` is this config: a rule that matches no module, a spec that a call has no
        meaning for. Not where the program itself called gemmsim, nor in a backward pass."""
        return is_from(error, self.text)

    def __enter__(self) -> Emulation:
        mode = Emulation(self.text, self.seed, self.root).__enter__()
        self._modes.append((_thread(), mode))
        return mode

    def __exit__(self, *error: Any) -> None:
        thread, at = _thread(), len(self._modes) - 1
        while at and self._modes[at][0] != thread:
            at -= 1
        if self._modes[at][0] != thread:  # a generator that goes on in another thread: any of them
            at = len(self._modes) - 1
        self._modes.pop(at)[1].__exit__(*error)

    def __repr__(self) -> str:
        return f"emulate(seed={self.seed})\n{self.config}"

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """``function`` that runs in a context of its own at each call; of a generator, whenever its own code runs.

        Raises:
            ConfigError: for functions written with ``async``, whose code runs among that of others.
        """
        if not torch.compiler.is_compiling():
            if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
                asked = f"emulate as the decorator of {function.__qualname__}, an async function"
                do = "Try `with gemmsim.emulate(...)` around code inside it that awaits nothing."
                raise ConfigError(message(asked, "functions and generator functions", do))
            if inspect.isgeneratorfunction(function):
                return self._generator(function)

        @wraps(function)
        def emulated(*args: Any, **kwargs: Any) -> Any:
            with emulate(self.text, self.seed, self.root):
                return function(*args, **kwargs)

        return emulated

    def _generator(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A generator function whose code runs in one context, which holds no longer while it waits."""

        @wraps(function)
        def emulated(*args: Any, **kwargs: Any) -> Any:
            mode = Emulation(self.text, self.seed, self.root)
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
                except BaseException as error:  # of its end, too
                    go_on, given = generator.throw, error

        return emulated


def _thread() -> int:
    """Which thread runs; compiled code runs in one."""
    return 0 if torch.compiler.is_compiling() else get_ident()


class Emulation(Placed):
    """The mode behind ``emulate``: what holds, and where the program is. Made by ``emulate`` alone.

    ``shadowed``: how many contexts are open inside this one; the innermost one holds alone. ``owner``: the conversion
    of a model that opened it. ``pushed``: whether PyTorch asks the mode at all: not where every rule is PyTorch's own
    and no other context is open around this one.
    """

    def __init__(self, text: str, seed: int, root: nn.Module | None = None, owner: object = None) -> None:
        super().__init__()
        self.owner = owner
        self.text, self.seed = text, seed
        named, self.draws, self.native = needs_of(text)
        self.pushed = True
        self.shadowed = self.depth = 0
        self._outer: list[Emulation] = []
        self._stop: Callable[[], None] | None = None
        if named or self.draws:
            self.places = Places(root, self._check if named and root is None else None)
            if root is not None and named and owner is None:  # a conversion has looked at them already
                self._check(type(root).__name__, "\n".join(self.places.paths.values()), "")

    def at(self, places: Places | None) -> Emulation:
        """The same emulation at other places, to run a part of the forward pass again."""
        found = Emulation(self.text, self.seed, None, self.owner)
        found.places = places
        return found

    def part(self) -> Emulation:
        """The same emulation with places of its own, for a part of the program inside this context."""
        places = None if self.places is None else self.places.copy()
        if places is not None:
            places.paths = dict(places.paths)
        found = self.at(places)
        found.depth = 1  # opened already
        return found

    def _check(self, owner: str, paths: str, first: str) -> None:
        """The patterns of the rules against the modules of a model, of which there may be one only."""
        if first or self.places is None or not self.places.first or self.places.rooted:
            found = problem(self.text, paths, owner, first)
            if found:
                raise raised(ConfigError, found, self.text)

    def __enter__(self) -> Emulation:
        """In force; again where a handler runs code of the model, which is part of the same context."""
        if not self.depth:
            self._open()
        self.depth += 1
        if self.pushed:
            super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        if self.pushed:
            self._leave(error)
        self.depth -= 1
        if not self.depth:
            self._close()

    def _leave(self, error: tuple[Any, ...]) -> None:
        """In force no longer: a generator may leave its context before one that was entered since, and elsewhere."""
        if torch.compiler.is_compiling() or torch.overrides._get_current_function_mode() is self:
            super().__exit__(*error)
            return
        if not any(mode is self for mode in torch.overrides._get_current_function_mode_stack()):
            self.gone = True  # the thread that entered it keeps it, to no effect
            self.shadowed += 1
            return
        above = []
        while (mode := torch.overrides._pop_mode()) is not self:
            above.append(mode)
        for mode in reversed(above):
            torch.overrides._push_mode(mode)

    def _open(self) -> None:
        self._outer = _open_emulations()
        for mode in self._outer:
            mode.shadowed += 1
        traced = torch.compiler.is_compiling()
        self.pushed = not self.native or bool(self._outer) or (traced and self.places is not None)
        if not self.pushed:  # nothing is replaced: what is left is to say that a pattern matches nothing
            if self.places is not None and not self.places.rooted:
                self._stop = await_first(self._check_first)
            return
        if traced:
            if not self._outer:
                _begin_traced()
        else:
            _prepare()
            later.opened()
        if self.places is not None:
            watch()

    def _check_first(self, module: nn.Module) -> None:
        """The rules' patterns against the first model called."""
        self._check(type(module).__name__, "\n".join(paths_of(module).values()), "")

    def _close(self) -> None:
        if not self.pushed:
            if self._stop is not None:
                self._stop()
                self._stop = None
            return
        if self.places is not None:
            unwatch()
        for mode in self._outer:
            mode.shadowed -= 1
        if not torch.compiler.is_compiling():
            later.closed()
        elif not self._outer:
            _end_traced()
        self._outer = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = {} if kwargs is None else kwargs
        entry = TABLE.get(func)
        if entry is None:
            if type(func) in _BUILT_IN and not torch.compiler.is_compiling():  # nearly every call that is no product
                return func(*args, **kwargs)
            if later.is_engine(func) or isinstance(func, HigherOrderOperator) or func == _UNFLATTEN:
                return self.other(func, args, kwargs)
            return func(*args, **kwargs)
        if self.shadowed or compiled.leave_alone(func, kwargs, self.text):
            return func(*args, **kwargs)
        return self.lower(entry, func, types, args, kwargs)

    def other(self, func: Any, args: Any, kwargs: Any) -> Any:
        """A call that is no product, but may run code of the model."""
        if later.is_engine(func):
            with self:
                return unseen(func)(*args, **kwargs)
        if isinstance(func, HigherOrderOperator) and not self.shadowed:
            return self._higher(func, args, kwargs)
        if torch.compiler.is_compiling() and func == _UNFLATTEN:  # whose body cannot be traced under a mode
            return torch.unflatten(*args, **kwargs)
        return func(*args, **kwargs)

    def _higher(self, func: Any, args: Any, kwargs: Any) -> Any:
        """An operator that is given functions: they run under the mode, which a tracer would leave out otherwise."""
        if func in _OPAQUE and not later.leaves_attention(self):
            raise later.unseen_products(_OPAQUE[func], self)
        if not torch.compiler.is_compiling():
            return func(*args, **kwargs)
        with self:  # the tracer takes a change of modes inside a body only where the stack was changed before
            pass
        result = func(*(_under(self, a) for a in args), **{k: _under(self, v) for k, v in kwargs.items()})
        if self.places is not None and not self.places.stack:
            self.places.counter = self.places.counter + 1  # of the outermost module in the body
        return result

    def lower(self, entry: Entry, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """One call of the table.

        Raises:
            UnsupportedSpec, GradError, SelectError, ShapeError: those of the product, naming the call and the module.
        """
        if entry.body:
            with self:
                return entry.run(*args, **kwargs)
        path = "" if self.places is None else self.places.path
        sites = self.sites(path, entry.kinds)
        if sites is None or not are_ours(args, kwargs):
            if sites is not None and (handlers := handlers_of(types)):
                return self._handled(handlers, func, types, args, kwargs)
            if torch.compiler.is_compiling() and reachable(self.text, "/".join(entry.kinds)):
                compiled.note_native(self.text)
            return func(*args, **kwargs)
        given, rest = bound(entry, args, kwargs)
        out = rest.pop("out", None)
        if self.draws:
            sites = [self.drawn(path, site) for site in sites]
        run = untouched(entry.run) if entry.inplace or out is not None else entry.run
        try:
            flushed = not torch.compiler.is_compiling() and subnormals.are_flushed()
            result = subnormals.kept(run, *sites, *given, **rest) if flushed else run(*sites, *given, **rest)
        except (ValueError, TypeError, RuntimeError) as error:
            raise _located(error, path, entry.kinds, self.text) from error.__cause__
        if result is NotImplemented:
            return func(*args, **kwargs)
        if entry.inplace:
            return given[0].copy_(result)
        if out is None:
            return result
        if result.requires_grad or out.requires_grad or out.dtype != result.dtype:  # PyTorch refuses, in its words
            return func(*args, **kwargs)
        return _written(out, result)

    def _handled(self, handlers: Sequence[type], func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """A call with operands of classes that handle calls themselves: what they call in turn is seen again."""
        with self:
            for kind in handlers:
                result = kind.__torch_function__(func, types, args, kwargs)  # type: ignore[attr-defined]
                if result is not NotImplemented:
                    return result
        return func(*args, **kwargs)

    def sites(self, path: str, kinds: tuple[str, ...]) -> Sequence[Site] | None:
        """What holds for products of these kinds at this path, but for their random bits; None: all are PyTorch's."""
        if not torch.compiler.is_compiling():
            return _sites(self.text, path, kinds)
        plans = [formats_at(self.text, path, kind) for kind in kinds]
        if all(formats is None for formats in plans):
            return None
        return [_site(path, kind, formats) for kind, formats in zip(kinds, plans, strict=True)]

    def drawn(self, path: str, site: Site) -> Site:
        """The site with the seed of its next call."""
        if self.places is None or site.plan is None:
            return site
        seed = (self.seed + call_hash(path, site.kind, self.places.count(f"{path}|{site.kind}"))) & _MASK
        return site._replace(seed=seed, counter=self.places.counter)


def seed_of(owner: str, seed: object) -> int:
    """``seed`` as a signed 64-bit integer. Unlike those of single operations it never comes from torch's generator.

    Raises:
        SeedError: for anything but an integer from 0 to 2**64 - 1.
    """
    try:
        found = check_seed(owner, seed)
    except SeedError:
        found = None
    if found is None:
        do = "Give an int: a run repeats with its seed, and torch's generator is left alone."
        raise raised(SeedError, message(f"{owner}: seed={seed!r}", "an integer from 0 to 2**64 - 1", do))
    return found


def _site(path: str, kind: str, formats: Any) -> Site:
    return Site(kind, None if formats is None else formats.plan, None, None, f"{path}|{kind}")


@lru_cache(maxsize=65536)
def _sites(text: str, path: str, kinds: tuple[str, ...]) -> tuple[Site, ...] | None:
    """``Emulation.sites``, which are made once."""
    plans = [formats_at(text, path, kind) for kind in kinds]
    if all(formats is None for formats in plans):
        return None
    return tuple(_site(path, kind, formats) for kind, formats in zip(kinds, plans, strict=True))


#: Classes of PyTorch's functions, methods and properties that are written in C++: they run no code of the model.
_BUILT_IN = frozenset(map(type, (torch.add, Tensor.add, Tensor.__add__, Tensor.shape.__get__)))  # type: ignore[attr-defined]
_UNFLATTEN = Tensor.unflatten
#: Operators with products inside that nobody can replace, and their names; filled when a context opens.
_OPAQUE: dict[Any, str] = {}
_MASK = (1 << 63) - 1


_prepared = False


def _prepare() -> None:
    """What is done once, and for what other packages have loaded since."""
    global _prepared
    new = adopt()
    if not _prepared:
        _prepared = True
        compiled.ask_about(TABLE)
        compiled.skip((Emulation.__torch_function__, places.before, places.after, later.apply))
    elif new:
        compiled.ask_about(new)
    if "torch._higher_order_ops.flex_attention" in sys.modules:
        for name in ("flex_attention", "flex_attention_backward"):
            _OPAQUE[getattr(torch.ops.higher_order, name)] = name


@assume_constant_result
def _begin_traced() -> None:
    """The compiler learns what it must ask about before it follows the first context's calls, too."""
    _prepare()
    replaced.trace_begins(compiled.wanted)


@assume_constant_result
def _end_traced() -> None:
    replaced.trace_ends()


def _under(mode: Emulation, value: Any) -> Any:
    """``value``, which runs under the mode if it is a function."""
    if not callable(value) or isinstance(value, Tensor):
        return value

    def run(*args: Any, **kwargs: Any) -> Any:
        # A traced body may change nothing outside itself: it keeps places of its own.
        with mode if mode.places is None else mode.part():
            return value(*args, **kwargs)

    return run


@assume_constant_result
def call_hash(path: str, kind: str, n: int) -> int:
    """62 bits that differ from call to call within a step."""
    return _call_hash(path, kind, n)


@lru_cache(maxsize=65536)
def _call_hash(path: str, kind: str, n: int) -> int:
    return int.from_bytes(sha256(f"{path}|{kind}|{n}".encode()).digest()[:8], "little") >> 2


def _open_emulations() -> list[Emulation]:
    """Those in force in this thread that no inner one shadows yet."""
    stack = torch.overrides._get_current_function_mode_stack()
    return [mode for mode in stack if isinstance(mode, Emulation)]


def _written(out: Tensor, result: Tensor) -> Tensor:
    """``out`` with the result, as PyTorch's ``out=`` does it."""
    if out.shape != result.shape:
        out.resize_(result.shape)
    return out.copy_(result)


def _located(error: Exception, path: str, kinds: Sequence[str], text: str) -> Exception:
    """``error`` of a call of these kinds, which names the call and the module if it is one of ours."""
    if not type(error).__module__.startswith("gemmsim.") or getattr(error, "located", False):
        return error
    path = path or path_running()
    where = f"in {'/'.join(kinds)} of module {path!r}" if path else f"in {'/'.join(kinds)}"
    try:
        found = raised(type(error), where + ": " + str(error), text)  # what the compiler takes as constant
    except TypeError:  # an error that is made of more than its words
        return error
    if not torch.compiler.is_dynamo_compiling():
        found.located = True  # type: ignore[attr-defined]
    return found
