"""Decides which native type a spec names, by formats and accumulator."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Final

import torch
from torch import Tensor

from gemmsim.arithmetic import Accumulator, GemmSpec, Hardware, Integer, Promote, Sequential
from gemmsim.formats import BF16, E2M1, E4M3, E5M2, E8M0, FP16, FP32, FP64, INT8, TF32, BlockFormat, Cast, Format
from gemmsim.hardware.devices import CAPABILITIES
from gemmsim.lowering.refusal import Refusal

from ..convert import FORMATS
from ..dtypes import fits
from .types import TYPES, NativeType

__all__ = ["assumed_type", "holds_numbers_of", "native_type", "rounded_type"]

_PLAIN: dict[Format, str] = {FP16: "fp16", FP32: "fp32", FP64: "fp64"}
#: The unit that cuBLAS uses for large products.
_UNITS = {"hopper": "wgmma", "blackwell": "tcgen05"}
_BLOCK_SCALED = {"mxf8f6f4": "mxfp8", "mxf4": "mxfp4", "mxf4nvf4": "nvfp4"}
#: Native types by operand formats and register, for types that one row of the table defines.
_ROWS: dict[tuple[Format, Format, str], str] = {
    (FP16, FP16, "fp16"): "fp16/fp16",
    (FP16, FP16, "fp32"): "fp16/fp32",
    (BF16, BF16, "fp32"): "bf16/fp32",
    (FP32, FP32, "fp32"): "fp32",
    (TF32, TF32, "fp32"): "tf32/fp32",
    (FP64, FP64, "fp64"): "fp64",
}
_FP8: dict[tuple[Format, Format], str] = {
    (E4M3, E4M3): "e4m3*e4m3",
    (E4M3, E5M2): "e4m3*e5m2",
    (E5M2, E4M3): "e5m2*e4m3",
}
#: Number of terms between promotions in CUTLASS' two-level accumulation of FP8 on Hopper.
_PROMOTION = 128


@lru_cache(maxsize=4096)
def native_type(
    spec: GemmSpec, a_dtype: torch.dtype, b_dtype: torch.dtype, fast_mode: str | None = None
) -> NativeType | Refusal:
    """Return the native type that ``spec`` names for operands of these dtypes, or why it names none.

    Operand formats are those of the spec's casts, or of the dtypes where it has none. They must be exactly those of the
    type. If the register is fp16, any formats whose numbers are all fp16 numbers will do.

    These accumulators name a type: ``fp16``, ``fp32``, ``fp64`` (plain, sequential, fused), ``int(32)``, and the chains
    of ``hw`` with the unit that cuBLAS uses there (``cublas_fp32``, ``fp16_accumulate``, ``hopper_fp8_fast``,
    ``hopper_fp8_2xacc``). ``fast_mode`` (``FAST_MODES``) chooses among the types of float32 products, and "pedantic"
    the pedantic form of any type. The spec's output cast has no influence, because it is applied afterwards.

    Example:
        >>> from gemmsim.backends import cublas
        >>> cublas.native_type(gs.GemmSpec.parse("bf16 : fp32"), torch.float32, torch.float32).name
        'bf16/fp32'
        >>> cublas.native_type(gs.GemmSpec.parse("bf16 : e6m9"), torch.float32, torch.float32).reason
        'no native accumulator in e6m9; there are fp16, fp32, fp64 and int(32)'
    """
    if spec.has_blocks:
        return _block_scaled(spec, fast_mode)
    a = FORMATS.get(a_dtype) if spec.cast_a is None else spec.cast_a.format
    b = FORMATS.get(b_dtype) if spec.cast_b is None else spec.cast_b.format
    if a is None or b is None:
        return Refusal(f"operands of dtype {a_dtype} and {b_dtype} have no native type")
    found = _of_accumulator(spec.accumulator, a, b)
    if isinstance(found, Refusal) or fast_mode in (None, "f32"):
        return found
    name = found.name
    if fast_mode == "pedantic":
        pedantic = TYPES.get(f"{name} pedantic")
        if pedantic is None:
            return Refusal(f"native type {name} has no pedantic form")
        return replace(pedantic, capabilities=found.capabilities)
    return TYPES[f"fp32 fast {fast_mode}"] if name == "fp32" else found


def _block_scaled(spec: GemmSpec, fast_mode: str | None) -> NativeType | Refusal:
    """Return the type for operands in block formats: elements and scales as they are stored, sums in fp32."""
    a, b, accumulator = spec.a, spec.b, spec.accumulator
    if not isinstance(a, BlockFormat) or not isinstance(b, BlockFormat):
        return Refusal("one operand in a block format and one without: the library takes two with scales")
    pair, scales = (a.element, b.element), {(x.scale, x.block_size) for x in (a, b)}
    if scales == {(E8M0, 32)} and pair in _FP8:
        found = TYPES["mxfp8" if pair == (E4M3, E4M3) else f"mxfp8 {_FP8[pair]}"]
    elif scales == {(E4M3, 16)} and pair == (E2M1, E2M1):
        found = TYPES["nvfp4"]
    else:
        return Refusal(f"there is no native product of {a} by {b}; there are MXFP8 (except e5m2 by e5m2) and NVFP4")
    if fast_mode == "pedantic":
        return Refusal(f"native type {found} has no pedantic form")
    if isinstance(accumulator, Hardware):
        return replace(found, capabilities=CAPABILITIES[accumulator.arch])
    if accumulator != Sequential(Cast(FP32)):
        return Refusal(f"no native product of block formats has the accumulator {accumulator}; there is fp32")
    return found


def _of_accumulator(accumulator: Accumulator, a: Format, b: Format) -> NativeType | Refusal:
    if isinstance(accumulator, Hardware):
        return _hardware(accumulator, a, b)
    if isinstance(accumulator, Promote) and isinstance(accumulator.inner, Hardware):
        return _promoted(accumulator, a, b)
    if isinstance(accumulator, Integer):
        return _integer(accumulator, a, b)
    if not isinstance(accumulator, Sequential):
        return Refusal(f"native products have no accumulator {accumulator}: they use their own order of additions")
    if accumulator.init != "zero":
        return Refusal(f"init={accumulator.init!r}: native products take no addend here")
    if accumulator.mul is not None:
        return Refusal("native products are fused: they do not round products separately")
    register = _PLAIN.get(accumulator.add.format)
    if register is None or accumulator.add != Cast(accumulator.add.format):
        return Refusal(f"no native accumulator in {accumulator.add}; there are fp16, fp32, fp64 and int(32)")
    return _row(a, b, register)


def _row(a: Format, b: Format, register: str) -> NativeType | Refusal:
    if register == "fp32" and (a, b) in _FP8:
        return TYPES[f"{_FP8[a, b]} promoted"]
    name = _ROWS.get((a, b, register))
    if name is not None:
        return TYPES[name]
    if register == "fp16" and all(fits(fmt, torch.float16) for fmt in (a, b)):
        return TYPES["fp16/fp16"]  # formats such as e4m3 have no type with an fp16 register, but their numbers are fp16
    if a == E5M2 and b == E5M2:
        return Refusal("there is no native product of e5m2 by e5m2; one of them must be e4m3")
    return Refusal(f"no native type multiplies {a} by {b} in {register}")


def _integer(accumulator: Integer, a: Format, b: Format) -> NativeType | Refusal:
    if accumulator != Integer(32):
        return Refusal(f"no native accumulator {accumulator}; there is int(32), which wraps")
    if a != INT8 or b != INT8:
        return Refusal(f"no native type multiplies {a} by {b} in int(32); there is int8 by int8")
    return TYPES["int8/int32"]


def _hardware(accumulator: Hardware, a: Format, b: Format) -> NativeType | Refusal:
    if accumulator.op in _BLOCK_SCALED:
        return replace(TYPES[_BLOCK_SCALED[accumulator.op]], capabilities=CAPABILITIES[accumulator.arch])
    if accumulator.arch not in CAPABILITIES:
        return Refusal(f"{accumulator.arch} is not an NVIDIA architecture")
    capabilities, unit = CAPABILITIES[accumulator.arch], _UNITS.get(accumulator.arch, "mma")
    if accumulator.op != unit:
        return Refusal(f"native products on {accumulator.arch} use {unit}, not {accumulator.op}")
    out = _PLAIN.get(accumulator.add_cast.format, "")
    found = TYPES[f"{_FP8[a, b]} fast"] if out == "fp32" and (a, b) in _FP8 else _row(a, b, out)
    return found if isinstance(found, Refusal) else replace(found, capabilities=capabilities)


def _promoted(accumulator: Promote, a: Format, b: Format) -> NativeType | Refusal:
    inner = accumulator.inner
    assert isinstance(inner, Hardware)
    if inner.arch != "hopper" or (a, b) not in _FP8 or accumulator.outer != Cast(FP32) or accumulator.n != _PROMOTION:
        return Refusal(f"native products promote FP8 on Hopper every {_PROMOTION} terms to fp32 and nothing else")
    found = _hardware(inner, a, b)
    if isinstance(found, Refusal):
        return found
    return replace(TYPES[f"{_FP8[a, b]} promoted"], capabilities=found.capabilities)


_DTYPES: Final = {FP16: torch.float16, INT8: torch.int8}
#: Number of elements that are checked before all of them.
_GLANCE: Final = 64


def _operand_format(accumulator: Accumulator) -> Format | None:
    """Return the operand format of the native type with this register, where a wider dtype may contain its numbers."""
    if accumulator == Sequential(Cast(FP16)):
        return FP16
    return INT8 if accumulator == Integer(32) else None


def assumed_type(
    spec: GemmSpec, a_dtype: torch.dtype, b_dtype: torch.dtype, fast_mode: str | None
) -> tuple[NativeType, tuple[Format | None, Format | None]] | None:
    """Return the native type that ``spec`` would name if its operands have numbers of that type's operand format.

    The second result is the format that the numbers of each operand must belong to for this; None where nothing needs
    checking. The function returns None where no such type exists.
    """
    wanted = _operand_format(spec.accumulator)
    if wanted is None or spec.has_blocks:
        return None
    asked: list[Format | None] = []
    for cast, dtype in ((spec.cast_a, a_dtype), (spec.cast_b, b_dtype)):
        asked.append(wanted if cast is None and dtype in FORMATS and FORMATS[dtype] != wanted else None)
    a, b = (Cast(wanted) if ask is not None else operand for ask, operand in zip(asked, (spec.a, spec.b), strict=True))
    found = native_type(replace(spec, a=a, b=b), a_dtype, b_dtype, fast_mode)
    return None if isinstance(found, Refusal) or not any(asked) else (found, (asked[0], asked[1]))


def rounded_type(
    spec: GemmSpec, a_dtype: torch.dtype, b_dtype: torch.dtype, fast_mode: str | None
) -> NativeType | None:
    """Return the native type of ``spec`` by mptorch's rule: a register in fp16 rounds wider operands to fp16.

    Source: docs/design/native.md#mptorchs-rule.
    """
    found = assumed_type(spec, a_dtype, b_dtype, fast_mode)
    return found[0] if found is not None and spec.accumulator == Sequential(Cast(FP16)) else None


def holds_numbers_of(t: Tensor, fmt: Format) -> bool:
    """Whether every element of ``t`` is a number of ``fmt`` (NaN and infinities too, if it has them).

    The function reads ``t``, so that on a GPU the caller waits for the queued work.
    """
    if fits(FORMATS[t.dtype], _DTYPES[fmt]):
        return True
    flat = t if t.numel() <= _GLANCE else t[..., :1, :_GLANCE]
    return _all_held(flat, _DTYPES[fmt]) and (flat is t or _all_held(t, _DTYPES[fmt]))


def _all_held(t: Tensor, dtype: torch.dtype) -> bool:
    back = t.to(dtype).to(t.dtype)
    same = back.eq(t)
    if dtype.is_floating_point:
        same |= t.isnan()
    return bool(same.all())
