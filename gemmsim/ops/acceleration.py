"""The switches of native speed: ``gemmsim.cublas_acceleration`` and ``gemmsim.cutlass_acceleration``."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

from gemmsim.arithmetic import SpecError
from gemmsim.backends.acceleration import Setting, current, entries, put, said

from .errors import message

__all__ = ["FAST_MODES", "cublas_acceleration", "cutlass_acceleration"]

#: The values of ``fast_mode``; backends.cublas.types has what they mean. Said again here because looking up a switch
#: should not load the tables of a backend; a test compares the two.
FAST_MODES = ("f32", "tf32", "f16", "bf16", "pedantic")
_ALIASES = {"fp32": "f32", "fp16": "f16"}

F = TypeVar("F", bound=Callable[..., Any])
S = TypeVar("S", bound="_Acceleration")


def _said(enabled: object, library: str) -> bool:
    if not isinstance(enabled, bool):
        asked = f"{library}_acceleration: enabled={enabled!r}"
        raise SpecError(message(asked, "True or False", "Say which."))
    return enabled


def _setting(enabled: object, fast_mode: object, rounds_operands: bool = False) -> Setting:
    enabled = _said(enabled, "cublas")
    if fast_mode is None:
        return Setting(enabled, None, "cublas", rounds_operands)
    name = _ALIASES.get(fast_mode, fast_mode) if isinstance(fast_mode, str) else fast_mode
    if name not in FAST_MODES:
        asked = f"cublas_acceleration: fast_mode={fast_mode!r}"
        do = "None is float32 without shortcuts; 'tf32' is what tensor cores do with float32 operands."
        raise SpecError(message(asked, f"None, {', '.join(FAST_MODES)}", do))
    return Setting(enabled, str(name), "cublas", rounds_operands)


class _Switch(type):
    """``enabled`` of a class of switches: what is in force here, and assignable."""

    _LIBRARY: str

    @property
    def enabled(cls) -> bool:
        setting = current()
        return setting is not None and setting.library == cls._LIBRARY

    @enabled.setter
    def enabled(cls, value: bool) -> None:
        cls._put(cls._changed(value))

    def _changed(cls, enabled: bool) -> Setting:
        """What was said last, with another ``enabled``."""
        return Setting(_said(enabled, cls._LIBRARY), None, cls._LIBRARY)

    def _put(cls, setting: Setting) -> None:
        """``setting`` from here on, until the innermost ``with`` around this ends."""
        entered = entries()
        owner: object = cls
        if entered and not isinstance(entered[-1][0], type):
            owner = entered[-1][0]
        at = len(entered) - 1
        while at >= 0 and not (entered[at][0] is owner and entered[at][1].library == cls._LIBRARY):
            at = at - 1 if entered[at][0] is owner or isinstance(entered[at][0], type) else -1
        rest = entered if at < 0 else entered[:at] + entered[at + 1 :]
        nothing = owner is cls and setting == Setting(False, None, cls._LIBRARY)
        put(rest if nothing else (*rest, (owner, setting)))


class _ModeSwitch(_Switch):
    """The same with ``fast_mode``."""

    _ROUNDS_OPERANDS: bool

    @property
    def fast_mode(cls) -> str | None:
        setting = said(cls._LIBRARY)
        return None if setting is None else setting.fast_mode

    @fast_mode.setter
    def fast_mode(cls, value: str | None) -> None:
        cls._put(_setting(cls.enabled, value, cls._ROUNDS_OPERANDS))

    def _changed(cls, enabled: bool) -> Setting:
        return _setting(enabled, cls.fast_mode, cls._ROUNDS_OPERANDS)


class _Acceleration(metaclass=_Switch):
    """A context manager and a decorator that asks for a library's products inside."""

    _LIBRARY: ClassVar[str]
    _setting: Setting

    def __enter__(self: S) -> S:
        put((*entries(), (self, self._setting)))
        return self

    def __exit__(self, *_: object) -> None:
        kept, own = [], 0
        for entry in reversed(entries()):
            mine = entry[0] is self
            own += mine and entry[1].library == self._LIBRARY
            if not mine or own > 1:  # with the last entry goes what ``enable`` of another library said inside
                kept.append(entry)
        put(tuple(reversed(kept)))

    def __call__(self, function: F) -> F:
        """``function`` with this setting while it runs.

        Raises:
            SpecError: for an asynchronous generator.
        """
        if inspect.isasyncgenfunction(function):
            asked = f"{type(self).__name__} on the asynchronous generator {function.__qualname__}"
            raise SpecError(message(asked, "functions, generators and coroutines", "Use `with` inside."))
        if inspect.iscoroutinefunction(function):
            return self._around_coroutine(function)  # type: ignore[return-value]
        if inspect.isgeneratorfunction(function):
            return self._around_generator(function)  # type: ignore[return-value]

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            with self:
                return function(*args, **kwargs)

        return call  # type: ignore[return-value]

    def _around_coroutine(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        async def call(*args: Any, **kwargs: Any) -> Any:
            with self:  # a coroutine is suspended with its task, whose context this is
                return await function(*args, **kwargs)

        return call

    def _around_generator(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            generator = function(*args, **kwargs)
            step: Callable[[], Any] = functools.partial(next, generator)
            while True:
                try:
                    with self:
                        value = step()
                except StopIteration as stop:
                    return stop.value
                try:
                    sent = yield value
                except GeneratorExit:
                    with self:
                        generator.close()
                    raise
                except BaseException as error:
                    step = functools.partial(generator.throw, error)
                else:
                    step = functools.partial(generator.send, sent)

        return call

    @property
    def enabled(self) -> bool:
        """Whether this one switches native products on or off."""
        return self._setting.enabled

    @classmethod
    def disable(cls) -> None:
        """``enable(False)``."""
        cls._put(Setting(False, None, cls._LIBRARY))


class cublas_acceleration(_Acceleration, metaclass=_ModeSwitch):
    """Native products inside the block: cuBLAS (PyTorch's BLAS for CPU tensors) computes specs that have a native type.

    Operand and output casts stay those of the spec, bit for bit. The library and the chip decide the order, alignment
    and rounding of the sum, which may differ between shapes, versions and devices. A spec without a native type is
    computed as without this context, and ``last_backend()`` says why. docs/howto/native_speed.md has the table.

    Args:
        enabled: whether products inside take native types; False switches an outer one off.
        fast_mode: how CUDA computes products of float32 operands in float32: None or "f32" as such; "tf32", "f16" or
            "bf16" with operands converted to these; "pedantic" is the form of every type without shortcuts.

    You can use it as a context manager and as a decorator, and nest it. It holds in the thread or asyncio task that
    enters it (and in tasks started inside) and in no other. Blocks may be left in any order. A decorated generator or
    coroutine function has it while it runs and not while it is suspended; a ``with`` inside a generator holds between
    its steps. Backward products run with the setting of their forward product. If this and ``cutlass_acceleration`` are
    both on, the innermost one decides.

    Raises:
        SpecError: for another ``enabled`` or ``fast_mode``.

    Example:
        >>> with gs.cublas_acceleration(True):
        ...     product = gs.qmatmul(torch.ones(2, 2), torch.ones(2, 2), "bf16 : fp32")
        >>> gs.last_backend().backend  # CPU tensors: PyTorch's BLAS
        'blas'
    """

    _LIBRARY = "cublas"
    #: Whether a register in fp16 makes cuBLAS' product of fp16 out of operands in a wider dtype, whatever they hold.
    _ROUNDS_OPERANDS = False

    def __init__(self, enabled: bool, fast_mode: str | None = None) -> None:
        self._setting = _setting(enabled, fast_mode, self._ROUNDS_OPERANDS)

    @classmethod
    def enable(cls, status: bool = True, fast_mode: str | None = None) -> None:
        """Switches native products on (or off) from here on, in this thread or task, until a surrounding ``with`` ends.

        Raises:
            SpecError: as the constructor.

        Example:
            >>> with gs.cublas_acceleration(True):
            ...     gs.cublas_acceleration.enable(False)  # off until the block ends
        """
        cls._put(_setting(status, fast_mode, cls._ROUNDS_OPERANDS))

    @property
    def fast_mode(self) -> str | None:
        """The requested mode."""
        return self._setting.fast_mode

    def __repr__(self) -> str:
        return f"cublas_acceleration({self.enabled}, fast_mode={self.fast_mode!r})"


class cutlass_acceleration(_Acceleration):
    """Products by CUTLASS inside the block: on a Hopper GPU its mainloop computes specs that have a native type.

    Native types are those of ``cublas_acceleration``. CUTLASS takes fp16 and bf16 operands in fp32, and FP8 in fp32
    with promotion every 128 terms or, where the spec says ``hw(hopper, wgmma, ...)``, without promotion. Operand and
    output casts stay those of the spec, bit for bit; the sum is that of wgmma instructions for ascending k in whole
    tiles. Anything else, CPU tensors included, is computed as without this context, and ``last_backend()`` says why.
    docs/howto/native_speed.md has the table.

    Args:
        enabled: whether products inside go to CUTLASS; False switches an outer one off.

    It holds where ``cublas_acceleration`` would; the innermost of the two that is on decides. Without either, gemmsim
    uses the mainloop for a spec only if it was found to give the spec's bits on the device.

    Raises:
        SpecError: for another ``enabled``.

    Example:
        >>> with gs.cutlass_acceleration():  # CPU tensors: computed by gemmsim's own kernels
        ...     product = gs.qmatmul(torch.ones(2, 2), torch.ones(2, 2), "bf16 : fp32")
        >>> gs.last_backend().backend
        'cpu'
    """

    _LIBRARY = "cutlass"

    def __init__(self, enabled: bool = True) -> None:
        self._setting = Setting(_said(enabled, "cutlass"), None, "cutlass")

    @classmethod
    def enable(cls, status: bool = True) -> None:
        """Switches CUTLASS products on (or off) in this thread or task, until a surrounding ``with`` ends.

        Raises:
            SpecError: as the constructor.

        Example:
            >>> with gs.cutlass_acceleration():
            ...     gs.cutlass_acceleration.enable(False)  # off until the block ends
        """
        cls._put(Setting(_said(status, "cutlass"), None, "cutlass"))

    def __repr__(self) -> str:
        return f"cutlass_acceleration({self.enabled})"
