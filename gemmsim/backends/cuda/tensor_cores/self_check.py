"""Compares a device's matrix instruction with its model: both run once, on operands that test every rule of the model.

The verdict is valid in this process, for a device and the machine code that ran. ``equal`` is the result of the
comparison and no proof; docs/design/cuda.md says what the operands cover.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import CudaError
from ..jit.cache import kernel_cache
from ..jit.source import KernelSource

__all__ = ["Problem", "Verdict", "known_verdict", "verdict_for", "verdicts"]

_LOG = logging.getLogger("gemmsim.cuda")
_verdicts: dict[tuple[int, KernelSource], Verdict] = {}
_lock = threading.Lock()
#: Number of pairs of factors that a report of a difference shows.
_SHOWN = 6


@dataclass(frozen=True)
class Problem:
    """One product to compute by both ways.

    ``native`` and ``model`` return registers (M, N) in binary32. ``factors`` returns the two lines of numbers of an
    output, for the report of a difference.
    """

    native: Callable[[], Tensor]
    model: Callable[[], Tensor]
    factors: Callable[[int, int], tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class Verdict:
    """Whether all bits agreed, and in words the number of outputs, the first difference, or the failure.

    ``digest`` is that of the machine code, hexadecimal; empty where there was none.

    Example:
        >>> from gemmsim.backends import cuda
        >>> cuda.Verdict(True, "4,096 outputs").equal
        True
    """

    equal: bool
    words: str
    digest: str = ""


def known_verdict(device: int, source: KernelSource) -> Verdict | None:
    """Return the verdict if there is one already."""
    return _verdicts.get((device, source))


def verdicts() -> dict[tuple[int, str], Verdict]:
    """Return all verdicts of this process, by device and name of the kernel.

    Example:
        >>> from gemmsim.backends import cuda
        >>> isinstance(cuda.verdicts(), dict)  # empty before the first use of an instruction
        True
    """
    return {(device, source.name): found for (device, source), found in _verdicts.items()}


def verdict_for(device: int, arch: str, source: KernelSource, problems: Iterable[Problem]) -> Verdict:
    """Return the verdict. The first call makes it and waits for the device.

    A kernel that cannot be compiled, loaded or launched, or that fails while it runs, is not equal. The verdict is
    logged once in ``gemmsim.cuda``: at level INFO where it is equal, WARNING where not.
    """
    found = _verdicts.get((device, source))
    if found is not None:
        return found
    with _lock:
        found = _verdicts.get((device, source))
        if found is None:
            found = _judge(arch, source, problems)
            _verdicts[device, source] = found
            level = logging.INFO if found.equal else logging.WARNING
            _LOG.log(level, "%s on device %d (%s): %s", source, device, arch, found.words)
    return found


def _judge(arch: str, source: KernelSource, problems: Iterable[Problem]) -> Verdict:
    digest = ""
    try:
        digest = hashlib.sha256(kernel_cache().get(source, arch).cubin).hexdigest()[:16]
        outputs = 0
        for problem in problems:
            native, model = problem.native(), problem.model()
            different = native.view(torch.int32) != model.view(torch.int32)
            if bool(different.any()):
                return Verdict(False, _difference(problem, native, model, different), digest)
            outputs += model.numel()
    except CudaError as error:
        return Verdict(False, f"not checked, the model is used: {_first_line(error)}", digest)
    except RuntimeError as error:  # torch raises this for a fault of the instruction when it waits for the result
        words = f"failed while it was checked, the model is used: {type(error).__name__}: {_first_line(error)}"
        return Verdict(False, f"{words}; after such a GPU fault this process can no longer use the GPU", digest)
    return Verdict(True, f"the instruction's bits are those of its model in all {outputs} outputs of the check", digest)


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or ["no reason given"])[0]


def _difference(problem: Problem, native: Tensor, model: Tensor, different: Tensor) -> str:
    """Describe the first output that differs, its factors, and the result of each way."""
    row, col = (int(i) for i in different.nonzero()[0])
    a, b = (x.cpu().double() for x in problem.factors(row, col))
    used = [i for i in range(a.numel()) if float(a[i]) != 0 or float(b[i]) != 0]
    shown = ", ".join(f"{i}: {float(a[i]).hex()} * {float(b[i]).hex()}" for i in used[:_SHOWN])
    more = "" if len(used) <= _SHOWN else f" and {len(used) - _SHOWN} more"
    got, want = (float(x[row, col]) for x in (native, model))
    count = f"{int(different.sum())} of {different.numel()} outputs over K = {a.numel()}"
    return (
        f"the instruction differs from its model, which is used instead: in {count}; the first, of {shown}{more}, "
        f"is {got.hex()} instead of {want.hex()}"
    )
