"""Counts steps, which are calls of models. Random bits depend on the seed and on the step.

A process has one count for each config and seed, which continues from context to context. Each converted model has its
own. A call takes the next number at once, so that threads never take the same one.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from threading import Lock
from typing import Any, TypeAlias

import torch
from torch import Tensor

from gemmsim.ops.errors import SeedError, message
from gemmsim.ops.lazy_dynamo import assume_constant_result

from .amax_histories import Histories, as_lists, from_lists
from .dynamo_bodies import refuse_steps
from .dynamo_support import raised
from .rules import ConfigError

__all__ = ["SPREAD", "StepLike", "Steps", "Taken", "all_histories", "counts", "load_counts", "steps_of"]

#: The number of a context's first step, or a function that gives the number of each step. None: the process's count.
StepLike: TypeAlias = "int | Callable[[], int] | None"

#: Seeds of consecutive steps differ by this odd number, modulo 2**64, so that those of another seed are not among them.
SPREAD = 0x9E3779B97F4A7C15 - (1 << 64)
_MOST = 1 << 62
_lock = Lock()


class Steps:
    """A count of steps.

    ``counter``: the number of the last step, -1 before the first. It is an int64 tensor without dimensions, so that
    compiled code does not depend on the number. ``ask``: gives the number of each step, if the count is external.
    ``lasts``: whether it outlives one context, as a process's or a model's count. ``histories``: of delayed scales.
    """

    lasts = False

    def __init__(self, last: Tensor, ask: Callable[[], int] | None = None) -> None:
        self.counter, self.ask = last, ask
        self.asked = -1
        self.histories: Histories = {}

    def next(self) -> Tensor:
        """The number of the next step; of the present one, if the count is external.

        Raises:
            SeedError: for a function of steps that gives no step.
        """
        if self.ask is not None:
            self.asked = checked("emulate", self.ask())
            return torch.full((), self.asked, dtype=torch.int64)
        if torch.compiler.is_compiling():
            if self.lasts:
                refuse_steps()
            self.counter = self.counter + 1
            return self.counter
        with _lock:
            number = self.number + 1
            found = torch.full((), number, dtype=torch.int64)
            if type(found) is Tensor:  # a run without values takes no step
                self.number = number
        return found

    def is_same(self) -> bool:
        """Whether the count is external and says that the last step continues."""
        return self.ask is not None and checked("emulate", self.ask()) == self.asked

    def copy(self) -> Steps:
        """A count that continues by itself; an external count stays at the present step."""
        if self.ask is None:
            found = Steps(self.counter)
        else:
            now = checked("emulate", self.ask())
            found = Steps(self.counter, lambda: now)
            found.asked = self.asked
        found.histories = self.histories
        return found

    @property
    def number(self) -> int:
        """Number of the last step."""
        with _plain():
            return int(self.counter)

    @number.setter
    def number(self, number: int) -> None:
        with _plain():
            self.counter = torch.full((), number, dtype=torch.int64)


class Taken:
    """A step that a context took, and the step after it.

    Code that is computed again takes the same steps once more.
    """

    def __init__(self, number: Tensor | None = None) -> None:
        self.number: Any = number
        self.next: Taken | None = None


@contextmanager
def _plain() -> Iterator[None]:
    """Makes tensors real inside the context, whatever modes and transforms of ``torch.func`` are in force."""
    guard = torch._C._DisableTorchDispatch()
    try:
        if torch._C._functorch.peek_interpreter_stack() is None:
            yield
        else:
            from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack

            with temporarily_clear_interpreter_stack():
                yield
    finally:
        del guard


#: "seed|text of the config" -> the process's count for it.
_STEPS: dict[str, Steps] = {}


def steps_of(text: str, seed: int, step: StepLike) -> Steps:
    """The count of a context: the process's, or one that begins at ``step`` or calls it.

    Raises:
        SeedError: for a step that is neither a number nor a function.
    """
    if step is None:
        key = f"{seed}|{text}"
        _make(key)
        return _STEPS[key]
    if callable(step):
        return Steps(torch.full((), -1, dtype=torch.int64), step)
    return Steps(torch.full((), checked("emulate", step) - 1, dtype=torch.int64))


@assume_constant_result
def _make(key: str) -> None:
    with _lock:
        if key not in _STEPS:
            fresh = Steps.__new__(Steps)
            fresh.ask, fresh.asked, fresh.lasts, fresh.histories = None, -1, True, {}
            fresh.number = -1
            _STEPS[key] = fresh


def checked(owner: str, step: object) -> int:
    """``step`` as an integer.

    Raises:
        SeedError: for anything but an integer from 0 to 2**62.
    """
    if isinstance(step, torch.SymInt):
        return step  # type: ignore[return-value]  # inside torch.compile
    try:
        number = -1 if isinstance(step, bool) else operator.index(step)  # type: ignore[arg-type]
    except TypeError:
        number = -1
    if not 0 <= number <= _MOST:
        do = "Give the number of the training step, or a function without arguments that returns it."
        raise raised(SeedError, message(f"{owner}: step={step!r}", "None, an integer from 0 to 2**62, a function", do))
    return number


def counts() -> list[dict[str, Any]]:
    """The process's counts: config, seed and number of steps taken, and histories of delayed scales."""
    with _lock:
        known = list(_STEPS.items())
    found = []
    for key, steps in known:
        seed, _, text = key.partition("|")
        more = {"amax_histories": as_lists(steps.histories)} if steps.histories else {}
        found.append({"config": text, "seed": int(seed), "steps": steps.number + 1, **more})
    return found


def all_histories() -> list[Tensor]:
    """The histories of delayed scales of the process's counts, in one order in every process."""
    with _lock:
        known = sorted(_STEPS.items())
    return [history for _, steps in known for _, history in sorted(steps.histories.items())]


def load_counts(stored: list[Mapping[str, Any]]) -> None:
    """Restores the process's counts that ``counts`` returned; counts that are not among them begin anew.

    Raises:
        ConfigError: for anything else.
    """
    try:
        keys = [f"{int(one['seed'])}|{one['config']}" for one in stored]
        taken = {key: checked("load_state_dict", one["steps"]) for key, one in zip(keys, stored, strict=True)}
    except (TypeError, KeyError, ValueError) as error:
        asked = f"load_state_dict: counts of steps {stored!r}: {type(error).__name__}"
        do = "Give what gemmsim.emulation.state_dict returned."
        raise ConfigError(message(asked, "a list of config, seed and steps", do)) from None
    histories = {key: from_lists(one.get("amax_histories", {})) for key, one in zip(keys, stored, strict=True)}
    for key in taken:
        _make(key)
    for key, steps in _STEPS.items():
        steps.number = taken.get(key, 0) - 1
        steps.histories.clear()
        steps.histories.update(histories.get(key, {}))
