"""The interface of CUTLASS' mainloops to the routes: the mainloop of each native type, and products by it."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import torch
from torch import Tensor

from gemmsim.arithmetic import GemmSpec
from gemmsim.hardware.devices import CAPABILITIES
from gemmsim.lowering.refusal import Refusal

from ..cublas.matching import native_type
from ..decoded_product import decoded_product
from ..product import Product, Ran

__all__ = ["explain", "mainloop_of", "multiply", "refuses"]

#: The mainloop of each native type (``cublas.types``): formats of the operands, terms between promotions.
_MAINLOOPS: Final[dict[str, tuple[str, str, int]]] = {
    "bf16/fp32": ("bf16", "bf16", 0),
    "fp16/fp32": ("f16", "f16", 0),
    "e4m3*e4m3 promoted": ("e4m3", "e4m3", 128),
    "e4m3*e5m2 promoted": ("e4m3", "e5m2", 128),
    "e5m2*e4m3 promoted": ("e5m2", "e4m3", 128),
    "e4m3*e4m3 fast": ("e4m3", "e4m3", 0),
    "e4m3*e5m2 fast": ("e4m3", "e5m2", 0),
    "e5m2*e4m3 fast": ("e5m2", "e4m3", 0),
}


@lru_cache(maxsize=4096)
def mainloop_of(spec: GemmSpec, a_dtype: torch.dtype, b_dtype: torch.dtype) -> tuple[str, str, int] | Refusal:
    """Return the mainloop that ``spec`` names for operands of these dtypes, or why it names none.

    The result has the formats and the number of terms between promotions. It does not depend on a GPU.

    Example:
        >>> from gemmsim.backends import cutlass
        >>> spec = gs.GemmSpec.parse("e4m3 : promote(hw(hopper, wgmma, e4m3), 128)")
        >>> cutlass.mainloop_of(spec, torch.float32, torch.float32)
        ('e4m3', 'e4m3', 128)
    """
    found = native_type(spec, a_dtype, b_dtype)
    if isinstance(found, Refusal):
        return found
    if found.capabilities and found.capabilities != CAPABILITIES["hopper"]:
        return Refusal("the spec names another architecture than Hopper, whose mainloops these are")
    mainloop = _MAINLOOPS.get(found.name)
    if mainloop is None:
        return Refusal(f"no mainloop of CUTLASS is built for native type {found}; there are {', '.join(_MAINLOOPS)}")
    return mainloop


def refuses(product: Product) -> Refusal | None:
    """Return why CUTLASS does not compute ``product``, or ``None``. Nothing is compiled."""
    a, b = product.a, product.b
    if not isinstance(a, Tensor) or not isinstance(b, Tensor):
        return Refusal("its mainloops take values, not codes and scales")
    found = mainloop_of(product.named, a.dtype, b.dtype)
    if isinstance(found, Refusal):
        return found
    from ..cuda.tensor_cores import cutlass_mainloop

    return cutlass_mainloop.device_refuses(product.out.device) or cutlass_mainloop.refuses_collective(a, product.out)


def multiply(product: Product) -> Ran:
    """Write ``product`` to its ``out``. Call ``refuses`` first.

    Raises:
        CudaError: if the kernel cannot be compiled or launched.
    """
    from ..cuda.tensor_cores.cutlass_mainloop import Collective, gemm_collective

    a, b = product.a, product.b
    assert isinstance(a, Tensor) and isinstance(b, Tensor)
    found = mainloop_of(product.named, a.dtype, b.dtype)
    assert isinstance(found, tuple)
    one = Collective(*found)
    source = gemm_collective(a, b, product.spec, product.out, product.seed, one)
    return Ran("cutlass", f"{one} by {source}: sums as the chip makes them")


def explain(spec: GemmSpec) -> str | None:
    """Return the line that says which mainloop ``spec`` names for operands in float32, or ``None``.

    Example:
        >>> from gemmsim.backends import cutlass
        >>> cutlass.explain(gs.GemmSpec.parse("e4m3 : hw(hopper, wgmma, e4m3)"))
        'cutlass: mainloop e4m3 by e4m3, on Hopper under gemmsim.cutlass_acceleration (operands in float32)'
    """
    decoded = decoded_product(spec)
    named, dtype = decoded or (spec, torch.float32)
    found = mainloop_of(named, dtype, dtype)
    if isinstance(found, Refusal):
        return None
    a, b, promoted = found
    how = f"{a} by {b}" + (f", promoted every {promoted} terms" if promoted else "")
    held = "" if decoded is None else f" of the operands' values, if {str(dtype)[6:]} holds them"
    return f"cutlass: mainloop {how}{held}, on Hopper under gemmsim.cutlass_acceleration (operands in float32)"
