"""A function as a matrix product of one shape: calls it, and refuses what is none, with the evidence."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..formats.errors import shortened
from .errors import probe_error

__all__ = ["BlackBox", "Shape", "name_of"]

#: Calls after which it is looked whether operands were changed.
_LOOKED_AT = 8
#: Dtypes whose elements are integers.
_INTEGERS = (torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64)


class Shape(NamedTuple):
    """Of a product: (M, K) times (K, N)."""

    M: int
    N: int
    K: int

    def __str__(self) -> str:
        return f"{self.M}x{self.K} @ {self.K}x{self.N}"


def name_of(f: Callable[..., Any]) -> str:
    """How messages call the function."""
    module, name = getattr(f, "__module__", None), getattr(f, "__qualname__", None) or getattr(f, "__name__", None)
    if name is None:
        return shortened(repr(f))
    if isinstance(f, np.ufunc):
        module = "numpy"
    if getattr(torch, str(name).rpartition(".")[2], None) is f:
        module, name = "torch", str(name).rpartition(".")[2]
    elif getattr(torch.nn.functional, str(name), None) is f:
        module = "torch.nn.functional"
    return f"{module}.{name}" if module and module != "__main__" else str(name)


class BlackBox:
    """The function, called with operands in float64 and answering in float64.

    ``f`` takes tensors of shapes (M, K) and (K, N) and returns one of (M, N). A few functions with another calling
    convention are known: ``torch.bmm``, ``torch.nn.functional.linear`` and numpy's own functions, which take arrays. A
    function of one's own may return arrays.
    """

    def __init__(self, f: Callable[..., Any], shape: Shape, dtype: torch.dtype, device: str = "cpu") -> None:
        if not callable(f):
            raise probe_error(f"f={f!r}", "a function of two matrices", "Give a function, such as torch.mm.")
        if min(shape) < 1:
            raise probe_error(f"the shape {shape}", "M, N and K of 1 or more", "Give other numbers.")
        if not isinstance(dtype, torch.dtype) or dtype.is_complex or dtype == torch.bool:
            raise probe_error(f"dtype={dtype!r}", "torch dtypes of real numbers", "Give one, such as torch.float32.")
        self.f, self.shape, self.dtype, self.device = f, shape, dtype, _usable(device)
        self.name = name_of(f)
        self.calls = 0
        self.out_dtype: str | None = None
        self._call = _convention(f)

    @property
    def integers(self) -> bool:
        """Whether operands are of an integer dtype."""
        return self.dtype in _INTEGERS

    @property
    def results_in(self) -> torch.dtype:
        """The dtype of results; float64 before the first call, and for integers."""
        found = getattr(torch, (self.out_dtype or "torch.float64").removeprefix("torch."))
        return found if found.is_floating_point else torch.float64

    def __call__(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """The function's result for operands (M, K) and (K, N), which their dtype should hold, as float64.

        Raises:
            ProbeError: where the function raises, or returns another shape, dtype or kind of thing than before.
        """
        return self.raw(self.tensor(a), self.tensor(b))

    def tensor(self, x: np.ndarray) -> Tensor:
        """Numbers in the dtype and on the device of the operands."""
        return torch.from_numpy(np.ascontiguousarray(x)).to(self.dtype).to(self.device)

    def raw(self, a: Tensor, b: Tensor) -> np.ndarray:
        """As a call, with operands as they are."""
        self.calls += 1
        before = (a.clone(), b.clone()) if self.calls <= _LOOKED_AT else None
        try:
            with torch.no_grad(), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # operands are extreme on purpose
                result = self._call(a, b)
        except Exception as error:
            words = f"{type(error).__name__}: {error}"
            raise probe_error(
                f"{self.name} raised for {self._operands()}: {shortened(words)}",
                "a function that returns the product of any finite operands",
                "Give the shape and dtype that it takes; a lambda may adapt the arguments.",
            ) from error
        if before is not None and not (torch.equal(a, before[0]) and torch.equal(b, before[1])):
            raise probe_error(
                f"{self.name} changed its operands in call {self.calls}",
                "a function that leaves its operands as they are",
                "Give one that works on copies.",
            )
        return self._numbers(result)

    def _operands(self) -> str:
        M, N, K = self.shape
        return f"operands {M}x{K} and {K}x{N} of {self.dtype}"

    def _numbers(self, result: Any) -> np.ndarray:
        if isinstance(result, (np.ndarray, np.generic)):
            result = torch.from_numpy(np.ascontiguousarray(result))
        M, N, _ = self.shape
        if not isinstance(result, Tensor):
            raise probe_error(
                f"{self.name} returned {shortened(repr(result))} for {self._operands()}",
                f"a tensor of shape ({M}, {N})",
                "Give a function that returns the product alone.",
            )
        if tuple(result.shape) != (M, N):
            raise probe_error(
                f"{self.name} returned the shape {tuple(result.shape)} for {self._operands()}",
                f"({M}, {N})",
                "Give the shapes that it takes; a lambda may transpose or reshape.",
            )
        kind = str(result.dtype)
        if result.dtype.is_complex or result.dtype == torch.bool:
            raise probe_error(f"{self.name} returned {kind}", "real numbers", "Give a product of real numbers.")
        if self.out_dtype not in (None, kind):
            raise probe_error(
                f"{self.name} returned {self.out_dtype} first and {kind} in call {self.calls}",
                "one dtype for all values of the operands",
                "Give a function whose dtype does not depend on the numbers.",
            )
        self.out_dtype = kind
        return result.detach().to("cpu", torch.float64).numpy()


def _usable(device: str) -> torch.device:
    """The device of a name, which has to be there."""
    try:
        return torch.empty(0, device=device).device
    except (RuntimeError, AssertionError, TypeError) as error:
        said = shortened(str(error).splitlines()[0]) if str(error) else type(error).__name__
        raise probe_error(
            f"device={device!r}: {said}", "a device that this PyTorch and this machine have", "Try device='cpu'."
        ) from None


def _convention(f: Callable[..., Any]) -> Callable[[Tensor, Tensor], Any]:
    """``f`` as a function of (M, K) and (K, N)."""
    if f is torch.bmm:
        return lambda a, b: torch.bmm(a[None], b[None])[0]
    if f is torch.nn.functional.linear:
        return lambda a, b: torch.nn.functional.linear(a, b.T.contiguous())
    module = inspect.getmodule(f)
    if isinstance(f, np.ufunc) or (module is not None and module.__name__.split(".")[0] == "numpy"):
        return lambda a, b: f(a.cpu().numpy(), b.cpu().numpy())
    return f
