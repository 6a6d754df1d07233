"""The switch of native speed: ``gemmsim.cublas_acceleration``."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from gemmsim.arithmetic import SpecError
from gemmsim.backends.acceleration import Setting, active, current, entries, put

from .errors import message

__all__ = ["FAST_MODES", "cublas_acceleration"]

#: The values of ``fast_mode``; backends.cublas.types has what they mean. Said again here because looking up a switch
#: should not load the tables of a backend; a test compares the two.
FAST_MODES = ("f32", "tf32", "f16", "bf16", "pedantic")
_ALIASES = {"fp32": "f32", "fp16": "f16"}

F = TypeVar("F", bound=Callable[..., Any])
_OFF = Setting(False)


def _setting(enabled: object, fast_mode: object) -> Setting:
    if not isinstance(enabled, bool):
        asked = f"cublas_acceleration: enabled={enabled!r}"
        raise SpecError(message(asked, "True or False", "Say which."))
    if fast_mode is None:
        return Setting(enabled)
    name = _ALIASES.get(fast_mode, fast_mode) if isinstance(fast_mode, str) else fast_mode
    if name not in FAST_MODES:
        asked = f"cublas_acceleration: fast_mode={fast_mode!r}"
        do = "None is float32 without shortcuts; 'tf32' is what tensor cores do with float32 operands."
        raise SpecError(message(asked, f"None, {', '.join(FAST_MODES)}", do))
    return Setting(enabled, str(name))


class _Switch(type):
    """``cublas_acceleration.enabled`` and ``.fast_mode``: those in force here, and assignable."""

    @property
    def enabled(cls) -> bool:
        return current() is not None

    @enabled.setter
    def enabled(cls, value: bool) -> None:
        cublas_acceleration.enable(value, cls.fast_mode)

    @property
    def fast_mode(cls) -> str | None:
        setting = active()
        return None if setting is None else setting.fast_mode

    @fast_mode.setter
    def fast_mode(cls, value: str | None) -> None:
        cublas_acceleration.enable(cls.enabled, value)


class cublas_acceleration(metaclass=_Switch):
    """Native products inside: where a spec has a native type, cuBLAS (on CPU tensors PyTorch's BLAS) computes it.

    Operand and output casts stay those of the spec, bit for bit; the sum is then whatever the library and the silicon
    do: its order, alignment and rounding are theirs and may differ between shapes, versions and devices. A spec
    without a native type runs as ever, and ``last_backend()`` says why. docs/howto/native_speed.md has the table.

    Args:
        enabled: whether products inside take native types; False switches an outer one off.
        fast_mode: how products of float32 operands in float32 are computed on CUDA: None or "f32" as such, "tf32",
            "f16" or "bf16" through operands cut to these; "pedantic" is the form of every type without shortcuts.

    A context manager and a decorator, re-entrant, in force in the thread or asyncio task that enters it (and in tasks
    started inside) and in no other. Blocks may be left in any order. A decorated generator or coroutine function has it
    while it runs and not while it is suspended; a ``with`` inside a generator stays in force between its steps.
    Backward products run with the setting of their forward product.

    Raises:
        SpecError: for another ``enabled`` or ``fast_mode``.
    """

    def __init__(self, enabled: bool, fast_mode: str | None = None) -> None:
        self._setting = _setting(enabled, fast_mode)

    def __enter__(self) -> cublas_acceleration:
        put((*entries(), (self, self._setting)))
        return self

    def __exit__(self, *_: object) -> None:
        entered = entries()
        for i in range(len(entered) - 1, -1, -1):
            if entered[i][0] is self:
                put(entered[:i] + entered[i + 1 :])
                return

    def __call__(self, function: F) -> F:
        """``function`` with this setting while it runs.

        Raises:
            SpecError: for an asynchronous generator.
        """
        if inspect.isasyncgenfunction(function):
            asked = f"cublas_acceleration on the asynchronous generator {function.__qualname__}"
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

    @classmethod
    def enable(cls, status: bool = True, fast_mode: str | None = None) -> None:
        """Switch native products on (or off) from here on, in this thread or task, until a surrounding ``with`` ends.

        Raises:
            SpecError: as the constructor.
        """
        setting = _setting(status, fast_mode)
        entered = entries()
        owner = entered[-1][0] if entered else cls
        nothing = owner is cls and setting == _OFF
        put(() if nothing else (*entered[:-1], (owner, setting)))

    @classmethod
    def disable(cls) -> None:
        """``enable(False)``."""
        cls.enable(False)

    @property
    def enabled(self) -> bool:
        """Whether this one switches native products on or off."""
        return self._setting.enabled

    @property
    def fast_mode(self) -> str | None:
        """The mode that this one asks for."""
        return self._setting.fast_mode

    def __repr__(self) -> str:
        return f"cublas_acceleration({self.enabled}, fast_mode={self.fast_mode!r})"
