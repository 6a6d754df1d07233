"""The function mode behind ``emulate``, which replaces PyTorch's products by products in other arithmetic."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Sequence
from functools import lru_cache
from hashlib import sha256
from typing import Any

import torch
from torch import Tensor, nn
from torch._ops import HigherOrderOperator
from torch.fx import Proxy

from gemmsim.libraries.errors import UnknownPlan
from gemmsim.ops import forward_mode, subnormals
from gemmsim.ops.lazy_dynamo import assume_constant_result

from . import (
    deferred_contexts,
    dynamo_bodies,
    dynamo_support,
    flop_counter,  # noqa: F401  # importing it registers FLOP formulas
    replaced,
)
from . import module_paths as places
from .amax_histories import Delayed, refuse_compiled
from .autocast import untouched
from .dynamo_configs import formats_at, lengths_at, needs_of, problem, reachable
from .dynamo_support import raised
from .hidden import hiding_too
from .module_paths import Placed, Places, await_first, install_hooks, path_running, paths_of, remove_hooks
from .overrides import (  # noqa: F401  # importing these registers overrides
    addmm,
    attention,
    convolution,
    covariance,
    custom_backward,
    einsum,
    matmul,
    optimizer_steps,
    recurrent,
    scaled_mm,
    tensordot,
    torchscript,
)
from .overrides.operands import are_ours, handlers_of
from .overrides.table import TABLE, Entry, Site, adopt, bound, unseen
from .rules import ConfigError
from .steps import Steps

__all__ = ["Emulation"]


class Emulation(Placed):
    """The function mode behind ``emulate``: the rules in force and the program's position.

    Only ``emulate`` and converted models make it. ``shadowed``: how many contexts are open inside this one; only the
    innermost context applies. ``owner``: the arithmetic of the converted model that opened it. ``pushed``: whether
    PyTorch calls the mode at all. It does not if every rule makes its products native and no other context is open
    around this one, except in traced code that needs places.

    Example:
        >>> with gs.emulate("e4m3 : fp32") as emulation:
        ...     print(type(emulation).__name__, torch.ones(4) @ torch.ones(4))
        Emulation tensor(4.)
    """

    def __init__(
        self,
        text: str,
        seed: int,
        root: nn.Module | None = None,
        owner: object = None,
        steps: Steps | None = None,
    ) -> None:
        super().__init__()
        self.owner = owner
        self.text, self.seed = text, seed
        named, self.draws, self.native = needs_of(text)
        self.pushed = True
        self.shadowed = self.depth = 0
        self._outer: list[Emulation] = []
        self._stop: Callable[[], None] | None = None
        if named or self.draws:
            check = self._check if named and root is None else None
            self.places = Places(root, check, steps if self.draws else None)
            if root is not None and named and owner is None:  # a conversion has checked them already
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
        """Checks the patterns of the rules against the modules of a model.

        A context without a root allows one model only. Raises ``ConfigError`` for a pattern without a match.
        """
        if first or self.places is None or not self.places.first or self.places.rooted:
            found = problem(self.text, paths, owner, first)
            if found:
                raise raised(ConfigError, found, self.text)

    def __enter__(self) -> Emulation:
        """Puts the emulation in force.

        It is entered again, in the same context, if an override runs code of the model.
        """
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
        """Takes the mode off the stack.

        A generator may leave its context before one that was entered after it, and in another thread.
        """
        if torch.compiler.is_compiling() or torch.overrides._get_current_function_mode() is self:
            super().__exit__(*error)
            return
        if not any(mode is self for mode in torch.overrides._get_current_function_mode_stack()):
            self.gone = True  # it stays on the stack of the thread that entered it, without effect
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
        if not self.pushed:  # No product is replaced. Patterns that match nothing are still reported.
            if self.places is not None and not self.places.rooted:
                self._stop = await_first(self._check_first)
            return
        if traced:
            dynamo_bodies.let_modes_change()
            if not self._outer:
                _begin_traced()
        else:
            _prepare()
            deferred_contexts.opened()
            optimizer_steps.install_hooks()
        if self.places is not None:
            install_hooks()

    def _check_first(self, module: nn.Module) -> None:
        """Checks the rules' patterns against the first model called."""
        self._check(type(module).__name__, "\n".join(paths_of(module).values()), "")

    def _close(self) -> None:
        if not self.pushed:
            if self._stop is not None:
                self._stop()
                self._stop = None
            return
        if self.places is not None:
            remove_hooks()
        for mode in self._outer:
            mode.shadowed -= 1
        if not torch.compiler.is_compiling():
            deferred_contexts.closed()
            optimizer_steps.remove_hooks()
        elif not self._outer:
            _end_traced()
        self._outer = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = {} if kwargs is None else kwargs
        entry = TABLE.get(func)
        if entry is None:
            if type(func) in _BUILT_IN and not torch.compiler.is_compiling():  # nearly every call that is no product
                return func(*args, **kwargs)
            if deferred_contexts.is_engine(func) or isinstance(func, HigherOrderOperator) or func == _UNFLATTEN:
                return self.other(func, args, kwargs)
            return func(*args, **kwargs)
        if self.shadowed or _below_autograd() or dynamo_support.leave_alone(func, kwargs, self.text):
            return func(*args, **kwargs)
        if self.steppers and optimizer_steps.is_stepping(self):
            if torch.compiler.is_compiling():
                dynamo_support.note_native(self.text)
            return func(*args, **kwargs)
        return self.lower(entry, func, types, args, kwargs)

    def other(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Handles a call that is no product, but may run code of the model."""
        if deferred_contexts.is_engine(func):
            with self:
                return hiding_too(unseen(func))(*args, **kwargs)
        if isinstance(func, HigherOrderOperator) and not self.shadowed:
            return self._higher(func, args, kwargs)
        if torch.compiler.is_compiling() and func == _UNFLATTEN:  # its body cannot be traced under a mode
            return torch.unflatten(*args, **kwargs)
        return func(*args, **kwargs)

    def _higher(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Calls a higher-order operator.

        The functions that it takes run under the mode, which a tracer would otherwise omit.
        """
        if func in _OPAQUE and not deferred_contexts.leaves_attention(self):
            raise deferred_contexts.unseen_products(_OPAQUE[func], self)
        if not torch.compiler.is_compiling():
            return func(*args, **kwargs)
        with self:  # the tracer accepts a change of modes inside a body only if the stack was changed before
            pass
        named = {k: v if k == "context_fn" else _under(self, v) for k, v in kwargs.items()}
        result = func(*(_under(self, a) for a in args), **named)
        if self.places is not None and not self.places.stack:
            self.places.next_step()  # the step that the outermost module in the body took
        return result

    def lower(self, entry: Entry, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """Computes one call of the table.

        Raises:
            UnsupportedSpec, GradError, SelectError, ShapeError: those of the product, naming the call and the module.
        """
        if entry.body:
            with self:
                return entry.run(*args, **kwargs)
        if types and any(issubclass(kind, Proxy) for kind in types):  # torch.fx records the program's own call
            return func(*args, **kwargs)
        path = "" if self.places is None else self.places.path
        sites = self.sites(path, entry.kinds)
        if sites is None or not are_ours(args, kwargs):
            if sites is not None and (handlers := handlers_of(types)):
                return self._handled(handlers, func, types, args, kwargs)
            if torch.compiler.is_compiling() and reachable(self.text, "/".join(entry.kinds)):
                dynamo_support.note_native(self.text)
            return func(*args, **kwargs)
        if not torch.compiler.is_compiling() and torchscript.is_traced():
            raise torchscript.refused_trace("/".join(entry.kinds), self.text)
        given, rest = bound(entry, args, kwargs)
        out = rest.pop("out", None)
        if self.draws:
            sites = [self.drawn(path, site) for site in sites]
        run = untouched(entry.run) if entry.inplace or out is not None else entry.run
        try:
            result = run(*sites, *given, **rest) if torch.compiler.is_compiling() else _guarded(run, sites, given, rest)
        except (ValueError, TypeError, RuntimeError, UnknownPlan) as error:
            raise _located(error, path, entry.kinds, self.text) from error.__cause__
        if result is NotImplemented:
            return func(*args, **kwargs)
        if entry.inplace:
            return given[0].copy_(result)
        if out is None:
            return result
        if result.requires_grad or out.requires_grad or out.dtype != result.dtype:  # PyTorch raises its own error
            return func(*args, **kwargs)
        return _written(out, result)

    def _handled(self, handlers: Sequence[type], func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """Computes a call with operands of classes that handle calls themselves.

        The calls that these make in turn reach the emulation again.
        """
        with self:
            for kind in handlers:
                result = kind.__torch_function__(func, types, args, kwargs)  # type: ignore[attr-defined]
                if result is not NotImplemented:
                    return result
        return func(*args, **kwargs)

    def sites(self, path: str, kinds: tuple[str, ...]) -> Sequence[Site] | None:
        """The call sites of these kinds at this path, without their random bits; None if all of them are native."""
        if not torch.compiler.is_compiling():
            return _sites(self.text, path, kinds)
        plans = [formats_at(self.text, path, kind) for kind in kinds]
        if all(formats is None for formats in plans):
            return None
        return [_site(path, kind, formats) for kind, formats in zip(kinds, plans, strict=True)]

    def drawn(self, path: str, site: Site) -> Site:
        """``site`` with the seed of its next call."""
        if self.places is None or site.plan is None:
            return site
        if torch.compiler.is_exporting():
            _warn_of_one_step()
        counter = self.places.begun()  # must come before the calls of this step are counted
        number = self.places.count(f"{path}|{site.kind}")
        seed = (self.seed + call_hash(path, site.kind, number)) & _MASK
        return site._replace(seed=seed, counter=counter, delayed=self._delayed(path, site.kind, number))

    def _delayed(self, path: str, kind: str, number: int) -> Delayed | None:
        """Where the scales of a call are kept, if they are delayed."""
        lengths = lengths_at(self.text, path, kind)
        if lengths is None:
            return None
        if torch.compiler.is_compiling():
            refuse_compiled()
        assert self.places is not None and self.places.steps is not None
        training = self.places.training[-1] if self.places.training else torch.is_grad_enabled()
        return Delayed(self.places.steps.histories, f"{path}|{kind}|{number}", lengths, training)


@assume_constant_result
def _warn_of_one_step() -> None:
    text = (
        "torch.export of a model that draws random bits: the exported program has no count of steps and draws the bits "
        "of one step, those of its export, at every call. Export one program for each step, or call the model itself "
        "where the bits must differ from step to step."
    )
    warnings.warn(text, UserWarning, stacklevel=2)


def _site(path: str, kind: str, formats: Any) -> Site:
    return Site(kind, None if formats is None else formats.plan, None, None, f"{path}|{kind}")


@lru_cache(maxsize=65536)
def _sites(text: str, path: str, kinds: tuple[str, ...]) -> tuple[Site, ...] | None:
    """``Emulation.sites``, cached."""
    plans = [formats_at(text, path, kind) for kind in kinds]
    if all(formats is None for formats in plans):
        return None
    return tuple(_site(path, kind, formats) for kind, formats in zip(kinds, plans, strict=True))


#: Classes of PyTorch's functions, methods and properties that are written in C++. They run no code of the model.
_BUILT_IN = frozenset(map(type, (torch.add, Tensor.add, Tensor.__add__, Tensor.shape.__get__)))  # type: ignore[attr-defined]
_UNFLATTEN = Tensor.unflatten
#: A dispatch key that PyTorch excludes only while a ``__torch_dispatch__`` handler runs.
_HANDLED = torch._C.DispatchKey.FuncTorchVmapMode
#: Operators with products inside that cannot be replaced -> their names. Contexts fill it when they open.
_OPAQUE: dict[Any, str] = {}
_MASK = (1 << 63) - 1


def _guarded(run: Any, sites: Sequence[Site], given: Sequence[Any], rest: Any) -> Any:
    """Calls ``run`` as PyTorch's state requires: subnormals are kept, and derivatives in forward mode are refused."""
    if subnormals.are_flushed():
        return subnormals.kept(run, *sites, *given, **rest)
    if forward_mode.is_on():
        with forward_mode.refused(f"{'/'.join(site.kind for site in sites)} under emulate", given, rest):
            return run(*sites, *given, **rest)
    return run(*sites, *given, **rest)


def _below_autograd() -> bool:
    """Whether a dispatch mode, or the operators of a tensor subclass, made the call.

    An observer runs PyTorch's own operator again, which is no call of the program. Compiled code has no such handlers.
    """
    return not torch.compiler.is_dynamo_compiling() and torch._C._dispatch_tls_is_dispatch_key_excluded(_HANDLED)


_prepared = False


def _prepare() -> None:
    """Makes the preparations that are needed once, and those for operators that other packages have added since."""
    global _prepared
    new = adopt()
    if not _prepared:
        _prepared = True
        dynamo_support.ask_about(TABLE)
        dynamo_support.skip((Emulation.__torch_function__, places.before, places.after, deferred_contexts.apply))
    elif new:
        dynamo_support.ask_about(new)
    if "torch._higher_order_ops.flex_attention" in sys.modules:
        for name in ("flex_attention", "flex_attention_backward"):
            _OPAQUE[getattr(torch.ops.higher_order, name)] = name


@assume_constant_result
def _begin_traced() -> None:
    """Prepares the compiler before it follows the calls in the first context: it learns what to ask modes about."""
    _prepare()
    replaced.trace_begins(dynamo_support.wanted)


@assume_constant_result
def _end_traced() -> None:
    replaced.trace_ends()


def _under(mode: Emulation, value: Any) -> Any:
    """``value``; if it is a function, it runs under the mode."""
    if not callable(value) or isinstance(value, Tensor):
        return value

    def run(*args: Any, **kwargs: Any) -> Any:
        # A traced body may change nothing outside itself, so it gets a mode and places of its own.
        with mode.part():
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
    """All emulations on this thread's stack of modes, outermost first."""
    stack = torch.overrides._get_current_function_mode_stack()
    return [mode for mode in stack if isinstance(mode, Emulation)]


def _written(out: Tensor, result: Tensor) -> Tensor:
    """``out`` with the values of ``result``, as PyTorch's ``out=`` gives it."""
    if out.shape != result.shape:
        out.resize_(result.shape)
    return out.copy_(result)


def _located(error: Exception, path: str, kinds: Sequence[str], text: str) -> Exception:
    """``error`` of a call of these kinds.

    If it is an error of this package, its message names the call and the module.
    """
    if not type(error).__module__.startswith("gemmsim.") or getattr(error, "located", False):
        return error
    path = path or path_running()
    where = f"in {'/'.join(kinds)} of module {path!r}" if path else f"in {'/'.join(kinds)}"
    if isinstance(error, UnknownPlan):
        return _marked(UnknownPlan(f"{where}: {error.asked}", error.known, error.do))
    try:
        found = raised(type(error), where + ": " + str(error), text)  # the compiler takes this form as constant
    except TypeError:  # the error takes more than a message
        return error
    return _marked(found)


def _marked(found: Exception) -> Exception:
    """``found``, which outer contexts do not locate again."""
    if not torch.compiler.is_dynamo_compiling():
        found.located = True  # type: ignore[attr-defined]
    return found
