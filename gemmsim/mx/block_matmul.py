"""Matrix products of operands in block formats, encoded already or not."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor

from gemmsim._keywords import takes_spec
from gemmsim.arithmetic import Accumulator, GemmSpec, SpecError
from gemmsim.formats import TENSOR_FORMATS, BlockFormat, Cast, Format, TensorFormat
from gemmsim.formats.lru import remembered
from gemmsim.ops import qmatmul
from gemmsim.ops.arrays import takes_arrays
from gemmsim.ops.checks import check_device, check_float, check_out_dtype
from gemmsim.ops.errors import DTypeError, GradError, ShapeError, message
from gemmsim.ops.lazy_dynamo import assume_constant_result
from gemmsim.ops.seeds import check_seed

from .arguments import BlockLike, block_of, check_codes, check_packing, code_shape, scale_shape
from .convert import Encoded
from .matmul_operator import MMOperand, mm_op

__all__ = ["matmul"]

AccumulatorLike: TypeAlias = str | Format | Cast | Accumulator | GemmSpec


@takes_arrays
@takes_spec("accumulator")
def matmul(
    a: Any,
    b: Any,
    spec: AccumulatorLike = "fp32",
    *,
    a_format: BlockLike | None = None,
    b_format: BlockLike | None = None,
    out_dtype: torch.dtype | None = None,
    seed: int | None = None,
) -> Tensor:
    """``a @ b`` of operands in block formats, (..., M, K) and (..., K, N); batch dimensions broadcast.

    Args:
        a, b: plain tensors, which are encoded here along K; or what ``encode`` returned (a with ``dim=-1``, b with
            ``dim=-2``, default packing) with its format in ``a_format``, ``b_format``; or encoded tensors that know
            their format and ``dim`` (``codes``, ``scales``, ``tensor_scale``, ``format``, ``dim``, ``packing``,
            ``shape``).
        spec: the accumulator, from ``gemmsim.acc`` or as a string: "fp32" (each product is scaled), "scaled(fp32)"
            (the sum of each block is scaled), "hw(blackwell, mxf8f6f4, e4m3)". A whole spec ("mxfp8_e4m3 * mxfp4 :
            fp32") also names the formats of plain tensors. The former keyword ``accumulator`` is deprecated.
        a_format, b_format: block formats of plain tensors and of ``Encoded``; None takes a tensor as it is.
        out_dtype: dtype of the result; by default the promoted dtype of the operands, float32 for ``Encoded``.
        seed: seed of stochastic roundings.

    Values, scales, special values and rounding are those of ``gemmsim.qmatmul`` with the spec ``"a_format * b_format
    : spec"``. For two plain tensors the function is that call, including gradients. Encoded operands have no
    gradients.

    Raises:
        SpecError, FormatError: for unknown formats and accumulators, and for those that do not fit together.
        ShapeError: for shapes that do not fit, and for blocks that do not lie along K: encode again.
        DTypeError, DeviceError, SeedError: as ``gemmsim.qmatmul``.
        GradError: for a plain operand that requires grad together with an encoded one.

    Example:
        >>> a, b = torch.full((1, 64), 1.1), torch.ones(64, 1)
        >>> gs.mx.matmul(a, b, a_format="mxfp8_e4m3", b_format="mxfp4")  # 1.1 becomes 1.125
        tensor([[72.]])
        >>> gs.mx.matmul(a, b, "mxfp4 : scaled(fp32)")  # 1.1 becomes 1
        tensor([[64.]])
    """
    if _is_plain(a) and _is_plain(b):
        # a string of its own, so that the tracer takes it for a constant
        spec_text = f"{_plain_spec(spec, a_format, b_format)}"
        return qmatmul(a, b, spec_text, seed=seed, out_dtype=out_dtype)
    meaning = _spec(spec, a_format, b_format, _own("a", a, a_format), _own("b", b, b_format))
    formats = meaning.a, meaning.b
    if any(isinstance(fmt, TENSOR_FORMATS) for fmt in formats):
        asked = f"mx.matmul: {meaning} with an encoded operand"
        raise SpecError(message(asked, "block floating point together with plain tensors", "Decode the other operand."))
    left = _coded("a", a, formats[0], -1, _size(b, formats[1], -2))
    right = _coded("b", b, formats[1], -2, _size(a, formats[0], -1))
    if left.size != right.size:
        asked = f"mx.matmul: contracted sizes {left.size} and {right.size}"
        raise ShapeError(message(asked, "equal ones, (..., M, K) and (..., K, N)", "Check the operands."))
    if out_dtype is not None:
        check_out_dtype("mx.matmul", out_dtype)
    dtype = torch.promote_types(_dtype(a), _dtype(b)) if out_dtype is None else out_dtype
    return mm_op(left, right, meaning.key, check_seed("mx.matmul", seed), dtype)


class _Named(NamedTuple):
    """What the accumulator argument says: of a whole spec all of it, else the accumulator alone."""

    accumulator: Accumulator
    a: Cast | BlockFormat | TensorFormat | None = None
    b: Cast | BlockFormat | TensorFormat | None = None
    out: Cast | None = None
    arithmetic: str = "exact"


def _named(accumulator: AccumulatorLike) -> _Named:
    if isinstance(accumulator, Accumulator):
        return _Named(accumulator)
    if isinstance(accumulator, str) and ":" not in accumulator and "->" not in accumulator:
        return _Named(Accumulator.parse(accumulator))
    spec = GemmSpec.of(accumulator)
    return _Named(spec.accumulator, spec.a, spec.b, spec.out, spec.arithmetic)


def _knows_format(x: Any) -> bool:
    return isinstance(getattr(x, "format", None), BlockFormat) and hasattr(x, "codes")


def _is_plain(x: Any) -> bool:
    return isinstance(x, Tensor) and not _knows_format(x)


def _own(name: str, x: Any, given: BlockLike | None) -> BlockFormat | None:
    """The format an encoded operand knows; ``SpecError`` for one that has none at all."""
    if _knows_format(x):
        own: BlockFormat = x.format
        return own
    if x is None:
        raise DTypeError(message(f"mx.matmul: {name} is None", "a tensor, or an encoded one", f"Give {name}."))
    if not isinstance(x, Tensor) and given is None:
        asked = f"mx.matmul: {name} is encoded, without its format"
        raise SpecError(message(asked, f"{name}_format, as given to encode", f"Give {name}_format."))
    return None


@assume_constant_result
def _plain_spec(accumulator: AccumulatorLike, a_format: BlockLike | None, b_format: BlockLike | None) -> str:
    """The spec of plain tensors, a constant of compiled code, which knows no object of ours."""
    return _spec(accumulator, a_format, b_format, None, None).key


@remembered
def _spec(
    accumulator: AccumulatorLike,
    a_format: BlockLike | None,
    b_format: BlockLike | None,
    own_a: BlockFormat | None,
    own_b: BlockFormat | None,
) -> GemmSpec:
    named = _named(accumulator)
    left, right = _format("a", own_a, a_format, named.a), _format("b", own_b, b_format, named.b)
    return GemmSpec(left, right, accumulator=named.accumulator, out=named.out, arithmetic=named.arithmetic)


def _format(name: str, own: BlockFormat | None, keyword: BlockLike | None, named: Any) -> Any:
    """The one format that the operand, the keyword and the spec agree on."""
    given = None if keyword is None else block_of(keyword)
    blocks = [fmt for fmt in (own, given, named) if isinstance(fmt, BlockFormat)]
    if any(fmt != blocks[0] for fmt in blocks) or (own is not None and isinstance(named, Cast)):
        asked = f"mx.matmul: {name} in {' and '.join(str(fmt) for fmt in (own, given, named) if fmt is not None)}"
        raise SpecError(message(asked, "one format", f"Leave {name}_format out, or encode again."))
    return blocks[0] if blocks else named


def _dtype(x: Any) -> torch.dtype:
    found = x.dtype if isinstance(x, Tensor) or _knows_format(x) else torch.float32
    return found if isinstance(found, torch.dtype) and found.is_floating_point else torch.float32


def _coded(name: str, x: Any, fmt: Any, dim: int, other: int | None) -> MMOperand:
    """Codes and scales of an encoded operand, checked; a plain one as it is. ``other``: K of the other operand."""
    if _knows_format(x):
        return _known(name, x, dim)
    if isinstance(x, Tensor):
        check_float("mx.matmul", name, x)
        if torch.is_grad_enabled() and x.requires_grad:
            allowed = "tensors without grad together with encoded ones"
            raise GradError(message(f"mx.matmul: {name} requires grad", allowed, f"Use {name}.detach()."))
        _check_rank(name, x.dim())
        check_device("mx.matmul", x, names=name)
        return MMOperand(x, None, None, "", x.shape[dim])
    if not isinstance(x, (Encoded, tuple)) or len(x) < 2:
        asked = f"mx.matmul: {name} is a {type(x).__name__}"
        raise DTypeError(message(asked, "a tensor, Encoded, or an encoded tensor", "Use gemmsim.mx.encode."))
    packing = check_packing("mx.matmul", fmt, None)
    check_codes("mx.matmul", f"{name}.codes", x[0])
    _check_rank(name, x[0].dim())
    room = x[0].shape[dim] * (2 if packing == "lo_first" else 1)
    # The last byte of packed codes may hold one element or two.
    size = other if other is not None and packing == "lo_first" and other == room - 1 else room
    return _checked(name, x[0], x[1], x[2] if len(x) > 2 else None, fmt, packing, dim, size)


def _size(x: Any, fmt: Any, dim: int) -> int | None:
    """K of an operand that knows it; None of packed codes alone."""
    codes = x if isinstance(x, Tensor) or _knows_format(x) else x[0] if isinstance(x, tuple) and x else None
    if codes is None or len(codes.shape) < 2:
        return None
    packed = codes is not x and check_packing("mx.matmul", fmt, None) == "lo_first"
    return None if packed else int(codes.shape[dim])


def _known(name: str, x: Any, dim: int) -> MMOperand:
    rank = len(x.shape)
    _check_rank(name, rank)
    # MXTensor is a torch.Tensor, whose dim is a method.
    at = x.block_dim if hasattr(x, "block_dim") else x.dim
    where = at if at < 0 else at - rank
    if where != dim:
        asked = f"mx.matmul: {name} has its blocks along dimension {where}"
        allowed = f"blocks along the contraction dimension, {dim} of {name}"
        raise ShapeError(message(asked, allowed, "Requantise it along that dimension, from the original values."))
    return _checked(name, x.codes, x.scales, x.tensor_scale, x.format, x.packing, dim, x.shape[dim])


def _checked(
    name: str, codes: Any, scales: Any, second: Any, fmt: BlockFormat, packing: str, dim: int, size: int
) -> MMOperand:
    """``ShapeError`` unless codes and scales are of blocks along ``dim``."""
    check_codes("mx.matmul", f"{name}.codes", codes)
    check_codes("mx.matmul", f"{name}.scales", scales)
    rank = codes.dim()
    shape = [*codes.shape]
    shape[dim] = size
    if [*codes.shape] != code_shape(shape, dim % rank, packing) or [*scales.shape] != scale_shape(
        shape, dim % rank, fmt.block_size
    ):
        asked = f"mx.matmul: {name} has codes of shape {tuple(codes.shape)} and scales of {tuple(scales.shape)}"
        allowed = f"{fmt} with blocks along the contraction dimension, {dim} of {name}"
        raise ShapeError(message(asked, allowed, f"Requantise: encode the original values with dim={dim}."))
    if fmt.tensor_scale and second is None:
        asked = f"mx.matmul: {name} in {fmt} without its tensor_scale"
        raise ShapeError(message(asked, "the tensor's scale for this format", "Pass what encode returned."))
    check_device("mx.matmul", codes, scales, names="codes scales")
    second = torch.as_tensor(second, dtype=torch.float32, device=codes.device).reshape(()) if fmt.tensor_scale else None
    return MMOperand(codes, scales, second, packing, size)


def _check_rank(name: str, rank: int) -> None:
    if rank < 2:
        asked = f"mx.matmul: {name} has {rank} dimensions"
        raise ShapeError(message(asked, "matrices and batches of them", "Use [None, :] or [:, None]."))
