"""What several test files share: comparing tensors bit by bit, and running code in a fresh interpreter."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

ROOT = Path(__file__).resolve().parent.parent.parent
GOLDEN = ROOT / "tests" / "golden"

#: Whether this is a long run (``make test-long``), which looks at more of what a short one samples.
LONG = os.environ.get("GEMMSIM_TESTS_LONG") == "1"

#: Takes what would be compared, where not all is computed (support.traces).
compared: Callable[[Tensor, Tensor, bool], None] | None = None

_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def bits(x: Tensor) -> Tensor:
    """The raw bits of ``x`` as integers of the same width."""
    return x.detach().contiguous().view(_BITS[x.element_size()])


def assert_bitwise_equal(got: Tensor, want: Tensor, *, nan_is_nan: bool = False, context: str = "") -> None:
    """Fails at the first element whose bits differ, with its coordinates, bytes and values.

    Shapes and dtypes must agree. -0 differs from +0. NaNs are compared by their bits, unless ``nan_is_nan``.
    """
    if compared is not None:
        return compared(got, want, nan_is_nan)
    assert got.shape == want.shape, f"{context} shape {tuple(got.shape)}, expected {tuple(want.shape)}"
    assert got.dtype == want.dtype, f"{context} dtype {got.dtype}, expected {want.dtype}"
    differ = bits(got) != bits(want)
    if nan_is_nan and got.is_floating_point():
        differ &= ~(got.isnan() & want.isnan())
    count = int(differ.sum())
    if count:
        where = tuple(int(i) for i in differ.nonzero()[0])
        g, w = got[where], want[where]
        raise AssertionError(
            f"{context} {count} of {got.numel()} elements differ; the first at {list(where)}: "
            f"got {_show(g)}, expected {_show(w)}"
        )


def assert_values_equal(got: Tensor, want: Tensor, valid: Tensor | None = None, *, context: str = "") -> None:
    """Fails at the first element (where ``valid``) whose value differs; NaN equals NaN, -0 equals +0."""
    same = (got == want) | (got.isnan() & want.isnan())
    if valid is not None:
        same |= ~valid
    if not bool(same.all()):
        where = tuple(int(i) for i in (~same).nonzero()[0])
        raise AssertionError(
            f"{context} {int((~same).sum())} of {got.numel()} elements differ; the first at {list(where)}: "
            f"got {_show(got[where])}, expected {_show(want[where])}"
        )


def _show(x: Tensor) -> str:
    pattern = int(bits(x.reshape(1))[0]) & ((1 << (8 * x.element_size())) - 1)
    value = x.item()
    text = value.hex() if isinstance(value, float) else str(value)
    return f"{value!r} ({text}, bits {pattern:#0{2 + 2 * x.element_size()}x})"


def run_python(code: str, *, cwd: Path | None = None, timeout: float = 120) -> subprocess.CompletedProcess[str]:
    """Runs ``code`` in a fresh interpreter that finds this gemmsim; the caller checks the exit code."""
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
