"""Checks of tensor arguments, shared by the public functions, the kernels and their fake versions."""

from __future__ import annotations

from numbers import Integral, Real

import torch
from torch import Tensor

from .arrays import takes_arrays_too
from .errors import DeviceError, DTypeError, ShapeError, message

__all__ = [
    "FLOAT_DTYPES",
    "check_device",
    "check_flags",
    "check_float",
    "check_ints",
    "check_integers",
    "check_numbers",
    "check_out_dtype",
    "check_same_inner",
    "check_tensor",
]

#: Storage dtypes of operands and results.
FLOAT_DTYPES = frozenset({torch.float32, torch.float64, torch.float16, torch.bfloat16})
_FLOAT_NAMES = "float32, float64, float16 and bfloat16"
#: Device types with a kernel; ``meta`` computes shapes only.
_DEVICES = ("cpu", "cuda", "meta")


def check_tensor(owner: str, name: str, tensor: object) -> None:
    """``DTypeError`` unless ``tensor`` is a tensor, of whatever dtype."""
    if not isinstance(tensor, Tensor):
        allowed = "a torch.Tensor or a numpy array" if takes_arrays_too(owner) else "a torch.Tensor"
        # float64 is what Python's own numbers are
        do = f"Convert it first: torch.as_tensor({name}, dtype=torch.float64)."
        raise DTypeError(message(f"{owner}: {name} is a {type(tensor).__name__}", allowed, do))


def check_float(owner: str, name: str, tensor: object) -> None:
    """``DTypeError`` unless ``tensor`` is a strided tensor of a supported float dtype."""
    check_tensor(owner, name, tensor)
    assert isinstance(tensor, Tensor)
    if tensor.dtype not in FLOAT_DTYPES:
        do = f"Convert it first: {name}.to({_holding(tensor.dtype)})"
        if tensor.is_complex():
            do = f"Use {name}.real and {name}.imag, or torch.view_as_real({name})"
        raise DTypeError(message(f"{owner}: {name} has dtype {tensor.dtype}", _FLOAT_NAMES, do + "."))
    # torch.compile takes no sparse tensors, and refuses to look at the layout in a backward pass
    if not torch.compiler.is_compiling() and tensor.layout is not torch.strided:
        raise DTypeError(
            message(f"{owner}: {name} has layout {tensor.layout}", "torch.strided", f"Use {name}.to_dense().")
        )


def _holding(dtype: torch.dtype) -> torch.dtype:
    """The dtype to advise for numbers of another: float32 holds integers up to 2^24 alone, float64 up to 2^53."""
    wide = not dtype.is_floating_point and dtype.itemsize > 2
    return torch.float64 if wide else torch.float32


def check_integers(owner: str, name: str, tensor: object) -> None:
    """``DTypeError`` unless ``tensor`` is a strided tensor of an integer dtype."""
    if not isinstance(tensor, Tensor):
        what = f"a {type(tensor).__name__}"
    elif tensor.is_floating_point() or tensor.is_complex() or tensor.dtype is torch.bool:
        what = f"a tensor of {tensor.dtype}"
    elif tensor.layout is not torch.strided:
        what = f"a tensor of layout {tensor.layout}"
    else:
        return
    do = f"Convert it: torch.as_tensor({name}).to(torch.uint8)."
    raise DTypeError(message(f"{owner}: {name} is {what}", "a strided tensor of integers", do))


def _wrong_kind(owner: str, name: str, value: object, allowed: str) -> DTypeError:
    shown = f"a {type(value).__name__}" if isinstance(value, Tensor) else repr(value)
    return DTypeError(message(f"{owner}: {name}={shown}", allowed, f"Give {name} as {allowed}."))


def check_flags(owner: str, **values: object) -> None:
    """``DTypeError`` unless each value is a bool, as PyTorch asks for: a number there is an argument out of place."""
    for name, value in values.items():
        if not isinstance(value, (bool, torch.SymBool)):
            raise _wrong_kind(owner, name, value, "True or False")


def check_ints(owner: str, **values: object) -> None:
    """``DTypeError`` unless each value is an integer and no bool."""
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, (int, torch.SymInt, Integral)):
            raise _wrong_kind(owner, name, value, "an integer")


def check_numbers(owner: str, **values: object) -> None:
    """``DTypeError`` unless each value is a real number."""
    for name, value in values.items():
        if not isinstance(value, (int, float, torch.SymInt, torch.SymFloat, Real)):
            raise _wrong_kind(owner, name, value, "a number")


def check_out_dtype(owner: str, dtype: object) -> None:
    """``DTypeError`` unless ``dtype`` is one of the supported float dtypes."""
    if dtype not in FLOAT_DTYPES:
        raise DTypeError(message(f"{owner}: out_dtype={dtype}", _FLOAT_NAMES, "Give one of these, or leave it out."))


def check_device(owner: str, a: Tensor, b: Tensor | None = None, c: Tensor | None = None, names: str = "a b c") -> None:
    """``DeviceError`` unless all tensors are on one device and that device has a kernel; ``names`` for the message."""
    device = a.device
    same = (b is None or b.device == device) and (c is None or c.device == device)
    if same and device.type in _DEVICES:
        return
    given = [(name, t.device) for name, t in zip(names.split(), (a, b, c), strict=False) if t is not None]
    if not same:
        where = ", ".join(f"{name} on {device}" for name, device in given)
        raise DeviceError(message(f"{owner}: {where}", "all tensors on one device", "Move them with .to(device)."))
    do = f"Use {given[0][0]}.cpu() and move the result back."
    raise DeviceError(message(f"{owner}: {given[0][0]} is on {device}", "tensors on the CPU or an NVIDIA GPU", do))


def check_same_inner(owner: str, a: Tensor, b: Tensor) -> None:
    """``ShapeError`` unless the last dimension of ``a`` equals the contracted dimension of ``b`` (its last but one)."""
    inner = b.shape[-2] if b.dim() > 1 else b.shape[-1]
    if a.shape[-1] != inner:
        raise ShapeError(
            message(
                f"{owner}: shapes {tuple(a.shape)} and {tuple(b.shape)}, contracted sizes {a.shape[-1]} and {inner}",
                "equal contracted sizes, (..., M, K) and (..., K, N)",
                "Transpose one operand with .mT if its matrix is stored the other way round.",
            )
        )
