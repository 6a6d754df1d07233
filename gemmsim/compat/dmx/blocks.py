"""d-Matrix's formats of blocks: block floating point, scaled blocks and the MX formats."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from gemmsim.formats import BlockFloatFormat, FiniteFloatFormat, ScaledBlockFormat, Sharing, TensorFormat

from . import departures
from .bfp_ids import BFP_IDS, SCALED_IDS, FormatIdError
from .lowest_integer import power_of_two, with_lowest_integer
from .shorthand import ROUNDING_MODE
from .single import (
    _ROUNDINGS,
    FixedPoint,
    FloatingPoint,
    Format,
    check_cast,
    check_number,
    check_rounding,
    quantized,
    refuse,
)

__all__ = ["MXFP", "MXINT", "BlockFloatingPoint", "ScaledBlockFloatingPoint"]


class _Blocked(Format):
    """Consecutive elements of one dimension share something; the last block may be shorter."""

    blocked: ClassVar[bool] = True

    def _set_block(self, block_size: int, block_dim: int | None) -> None:
        owner = type(self).__name__
        self.block_size = check_number(owner, "block_size", block_size, 1, None)
        self.block_dim = None if block_dim is None else check_number(owner, "block_dim", block_dim, -64, 63)

    def cast(
        self,
        x: Tensor,
        block_dim: int | None = None,
        *args: Any,
        bug_compatible: bool = False,
        generator: torch.Generator | None = None,
    ) -> Any:
        """``x`` with blocks along ``block_dim``, float32; without it along the shorthand's own dimension.

        ``bug_compatible``: the bits of dmx-compressor 0.1.11 (docs/reference/compat/dmx.md); blocks still lie along
        ``block_dim``. Empty tensors are returned as they are.

        Raises:
            ValueError: where no dimension is given anywhere.
            IndexError: for a dimension that ``x`` does not have.
            TypeError: for tensors that are not float.
        """
        check_cast(type(self).__name__, x, self._rounding, bug_compatible)
        dim = self.block_dim if block_dim is None else block_dim
        if dim is None:
            raise refuse(f"{self}.cast without block_dim", "a dimension of the tensor", "Give block_dim, or {b,d}.")
        if not -x.dim() <= dim < x.dim():
            raise IndexError(
                f"{self}.cast of shape {tuple(x.shape)} along block_dim={dim}; allowed: {-x.dim()} to {x.dim() - 1}.\n"
                "  Tensors need a dimension."
            )
        if x.numel() == 0:
            return x
        if bug_compatible:
            return self._departing(x.float(), dim)
        return self._finished(x, quantized(x, self._along(dim), generator), dim)

    def _finished(self, x: Tensor, found: Tensor, dim: int) -> Tensor:
        """What is left to do after the rounding to ``_along(dim)``."""
        return found

    @property
    def operand(self) -> TensorFormat:
        """The format of tensors in ``gemmsim.formats``, blocks along ``block_dim``, the last without one."""
        return self._along(-1 if self.block_dim is None else self.block_dim)

    @property
    def _rounding(self) -> str:
        raise NotImplementedError

    def _along(self, dim: int) -> TensorFormat:
        raise NotImplementedError

    def _departing(self, x: Tensor, dim: int) -> Tensor:
        raise NotImplementedError

    def _braces(self) -> str:
        dim = "" if self.block_dim is None else f",{self.block_dim}"
        return f"{{{self.block_size}{dim}}}"


class BlockFloatingPoint(_Blocked):
    """Integers of ``precision`` bits that share an 8-bit exponent.

    Args:
        precision: 2 to 25, including the sign.
        block_size: elements that share an exponent; with 1 they are floats of precision-2 fraction bits.
        symmetric: without the lowest integer -2**(precision-1).
        rounding: nearest (ties to even), up, down or stochastic.
        block_dim: the dimension for ``cast`` without one.

    Raises:
        ValueError: for numbers out of range.

    Example:
        >>> from gemmsim.compat import dmx
        >>> dmx.BlockFloatingPoint(8, 64).cast(torch.tensor([[1.99, 0.01]]), -1)
        tensor([[1.9844, 0.0156]])
    """

    def __init__(
        self,
        precision: int = 8,
        block_size: int = 64,
        symmetric: bool = True,
        rounding: str = "nearest",
        *,
        block_dim: int | None = None,
    ) -> None:
        self.precision = check_number(type(self).__name__, "precision", precision, 2, 25)
        self._set_block(block_size, block_dim)
        self.symmetric = bool(symmetric)
        self.rounding = check_rounding(type(self).__name__, rounding)

    @property
    def _rounding(self) -> str:
        return self.rounding

    def _along(self, dim: int) -> TensorFormat:
        rounding = _ROUNDINGS[self.rounding]
        if self.block_size == 1:
            return FiniteFloatFormat(8, self.precision - 2, 127, rounding=rounding)
        return BlockFloatFormat(
            self.precision, self.block_size, dim, Sharing.BLOCK, self.symmetric, keep_infinity=True, rounding=rounding
        )

    def _departing(self, x: Tensor, dim: int) -> Tensor:
        most = 24 if self.block_size == 1 else 22
        if self.precision > most:
            raise refuse(
                f"{self}.cast: bug_compatible=True", f"{most} bits or fewer", "The peer shifts out of range here."
            )
        return departures.block_float(x, self.precision, self.block_size, dim, self.symmetric, self.rounding)

    @property
    def bit_precision(self) -> float:
        """precision + 8 / block_size."""
        return self.precision + 8 / self.block_size

    @property
    def bytes_per_elem(self) -> float:
        """bit_precision / 8."""
        return self.bit_precision / 8

    @property
    def bfp_id(self) -> int:  # type: ignore[override]
        """Number of the format in d-Matrix's ONNX operators.

        Raises:
            FormatIdError (KeyError): for a format that has none.
        """
        key = "" if self.symmetric else "A", self.precision + 8, self.block_size
        if key not in BFP_IDS:
            allowed = "BFP32_1, BFP24_*, BFP16_*, BFP14_*, BFP12_*, BFP14A_*, BFP12A_* of dmx.aliases"
            raise FormatIdError(self, allowed, "Try BFP[8|8]{64}(SN).")
        return BFP_IDS[key]

    @staticmethod
    def make_mantissa_asymmetric(dmx_result: Tensor, fp32_inp: Tensor, n_mantissa_bits: int = 8) -> Tensor:
        """Blocks of symmetric integers with the lowest integer -2**(n_mantissa_bits-1) where it is as near.

        Args:
            dmx_result: float values rounded to the symmetric format; its last dimension is one block.
            fp32_inp: what was rounded, of the same shape.
            n_mantissa_bits: 2 to 25, the sign included.

        The result is float32. An element of -(2**(n_mantissa_bits-1) - 1) steps of its block becomes one step less
        where its input is half a step or more below it (the tie goes to the even integer); no other element changes.
        The step comes from the largest finite magnitude of ``dmx_result`` in the block; NaN and infinities stay. To
        nearest, ``cast`` of a format without ``symmetric`` is ``cast`` of the symmetric one followed by this.

        Raises:
            TypeError: for tensors that are not float. ValueError: for other shapes or bits.
        """
        owner = "BlockFloatingPoint.make_mantissa_asymmetric"
        bits = check_number(owner, "n_mantissa_bits", n_mantissa_bits, 2, 25)
        for t in (dmx_result, fp32_inp):
            check_cast(owner, t, "nearest", False)
        if dmx_result.shape != fp32_inp.shape or dmx_result.dim() == 0:
            asked = f"{owner}: shapes {tuple(dmx_result.shape)} and {tuple(fp32_inp.shape)}"
            raise refuse(asked, "equal shapes with a dimension for the block", "Give what was rounded.")
        return with_lowest_integer(dmx_result, fp32_inp, bits) if dmx_result.numel() else dmx_result.float()

    def __repr__(self) -> str:
        flag = "S" if self.symmetric else "_"
        return f"BFP[{self.precision}|8]{self._braces()}({flag}{ROUNDING_MODE.inverse[self.rounding]})"


class MXINT(BlockFloatingPoint):
    """Block floating point as OCP MX integers: symmetric, rounded to nearest.

    Args:
        precision, block_size, block_dim: as for ``BlockFloatingPoint``.

    Example:
        >>> from gemmsim.compat import dmx
        >>> dmx.MXINT(4).cast(torch.tensor([[0.3, 1.0, 1.4]]), -1)
        tensor([[0.2500, 1.0000, 1.5000]])
    """

    def __init__(self, precision: int = 8, block_size: int = 32, *, block_dim: int | None = None) -> None:
        super().__init__(precision, block_size, block_dim=block_dim)

    def __repr__(self) -> str:
        return f"MXINT{self.precision}{self._braces()}"


class ScaledBlockFloatingPoint(_Blocked):
    """Integers that share a float scale.

    Args:
        block_format: the integers: fraction 0, symmetric, 2 bits or more.
        scaler_format: of the scale, the block's largest magnitude / largest integer.
        block_size: elements that share a scale.
        block_dim: the dimension for ``cast`` without one.

    Raises:
        ValueError: for other formats.

    Example:
        >>> from gemmsim.compat import dmx
        >>> sbfp = dmx.ScaledBlockFloatingPoint(dmx.FixedPoint(4, 0), dmx.FloatingPoint(4, 4, 7, unsigned=True), 16)
        >>> sbfp, sbfp.cast(torch.tensor([[0.3, 7.0]]), -1)
        (SBFP<XP[4,0](CSN)><FP[0|4|4,7](FN)>{16}, tensor([[0., 7.]]))
    """

    def __init__(
        self,
        block_format: FixedPoint,
        scaler_format: FloatingPoint,
        block_size: int = 64,
        *,
        block_dim: int | None = None,
    ) -> None:
        good = isinstance(block_format, FixedPoint) and not block_format.fraction and block_format.symmetric
        if not good or block_format.precision < 2:
            allowed = "a symmetric FixedPoint of 2 bits or more with fraction 0"
            raise refuse(f"ScaledBlockFloatingPoint: block_format={block_format!r}", allowed, "Try XP[4,0](CSN).")
        if not isinstance(scaler_format, FloatingPoint) or scaler_format.rounding == "stochastic":
            asked = f"ScaledBlockFloatingPoint: scaler_format={scaler_format!r}"
            raise refuse(asked, "a FloatingPoint that is not stochastic", "Try FP[0|4|4,7](FN).")
        self.block_format, self.scaler_format = block_format, scaler_format
        self.scaler_format_exponent_bias_determined = False
        self._set_block(block_size, block_dim)

    def determine_scaler_exponent_bias_from(self, x: Tensor, block_dim: int | None = None) -> None:
        """Give the scale's format the largest bias with which no block's scale overflows.

        It is 2**e - 1 - floor(log2 max c), clipped to the format's range, with c the scales before they are rounded;
        unchanged for tensors of zeros, and where the exponent has eight bits. This rule is gemmsim's.
        """
        finite = x.detach().float().abs()
        finite = finite[finite.isfinite()]
        most = float(finite.max()) if finite.numel() else 0.0
        self.scaler_format_exponent_bias_determined = True
        old = self.scaler_format
        if not most or old.exponent == 8:
            return
        c = torch.tensor(most) / (2 ** (self.block_format.precision - 1) - 1)
        top = (1 << old.exponent) - 1
        bias = top - (int(torch.frexp(c)[1]) - 1)
        # rounding may carry into the next binade
        limit = 2.0 ** (top - bias) * (2 - 2.0**-old.mantissa) if abs(top - bias) < 1000 else float("inf")
        bias -= 1 if float(c) > limit else 0
        bias = max(-128 + (1 << old.exponent), min(127, bias))
        self.scaler_format = FloatingPoint(
            old.mantissa, old.exponent, bias, old.flush_subnormal, old.unsigned, old.rounding
        )

    @property
    def _rounding(self) -> str:
        return self.block_format.rounding

    def _along(self, dim: int) -> TensorFormat:
        return ScaledBlockFormat(self.block_format.operand, self.scaler_format.operand, self.block_size, dim)

    def _departing(self, x: Tensor, dim: int) -> Tensor:
        integers = self.block_format.precision, self.block_format.clamp, self.block_format.rounding

        def scale(c: Tensor) -> Tensor:
            return torch.as_tensor(self.scaler_format.cast(c, bug_compatible=True))

        return departures.scaled_block(x, integers, self.block_size, dim, scale)

    @property
    def bit_precision(self) -> float:
        """Bits for each element, including its fraction of the scale."""
        return self.block_format.bit_precision + self.scaler_format.bit_precision / self.block_size

    @property
    def bytes_per_elem(self) -> float:
        """Bytes for each element, including its fraction of the scale, which counts a sign."""
        return self.block_format.bytes_per_elem + self.scaler_format.bytes_per_elem / self.block_size

    @property
    def bfp_id(self) -> int:  # type: ignore[override]
        """Number of the format in d-Matrix's ONNX operators.

        Raises:
            FormatIdError (KeyError): for a format that has none; so with the default ``block_size``.
        """
        bias = self.scaler_format.bias
        known = repr(self) == f"SBFP<XP[4,0](CSN)><FP[0|4|4,{bias}](FN)>{{16}}"
        if not known or bias not in SCALED_IDS:
            allowed = "SBFP<XP[4,0](CSN)><FP[0|4|4,b](FN)>{16} with b of 4 to 18"
            raise FormatIdError(self, allowed, "Give block_size=16, and formats as in dmx.aliases.SBFP12_16.")
        return SCALED_IDS[bias]

    def __repr__(self) -> str:
        return f"SBFP<{self.block_format!r}><{self.scaler_format!r}>{self._braces()}"


class MXFP(_Blocked):
    """Floats that share a power of two, which has an unlimited range.

    Args:
        element_format: of the elements: default bias, signed, rounded to nearest. With ``flush_subnormal``, the default
            of ``FloatingPoint``, elements below the least normal number (times the scale) become zero before they
            are rounded. Without it they are subnormal, as the shorthand and OCP MX have them.
        block_size: elements that share a scale.
        block_dim: the dimension for ``cast`` without one.

    Raises:
        ValueError: for other formats.

    Example:
        >>> from gemmsim.compat import dmx
        >>> dmx.MXFP(dmx.FloatingPoint(1, 2, flush_subnormal=False)).cast(torch.tensor([[0.3, 1.0, 1.4]]), -1)
        tensor([[0.2500, 1.0000, 1.5000]])
    """

    def __init__(self, element_format: FloatingPoint, block_size: int = 32, *, block_dim: int | None = None) -> None:
        plain = isinstance(element_format, FloatingPoint) and element_format == FloatingPoint(
            element_format.mantissa, element_format.exponent, flush_subnormal=element_format.flush_subnormal
        )
        if not plain:
            allowed = "a signed FloatingPoint with the default bias, rounded to nearest"
            raise refuse(f"MXFP: element_format={element_format!r}", allowed, "Try FP[1|4|3,7](_N).")
        self.element_format = element_format
        self.scaler_format = FloatingPoint(0, 8, 127, unsigned=True)
        self._set_block(block_size, block_dim)

    @property
    def _rounding(self) -> str:
        return "nearest"

    @property
    def operand(self) -> TensorFormat:
        """The format of tensors in ``gemmsim.formats``, blocks along ``block_dim``, the last without one.

        Raises:
            ValueError: for elements that are flushed, which ``gemmsim.formats`` does not have.
        """
        if self.element_format.flush_subnormal:
            do = "Multiply what cast returns, or use flush_subnormal=False."
            raise refuse(f"{self} as an operand of a product", "elements with flush_subnormal=False", do)
        return super().operand

    def _along(self, dim: int) -> TensorFormat:
        fmt = self.element_format
        return ScaledBlockFormat(FiniteFloatFormat(fmt.exponent, fmt.mantissa), None, self.block_size, dim)

    def _finished(self, x: Tensor, found: Tensor, dim: int) -> Tensor:
        if not self.element_format.flush_subnormal:
            return found
        magnitude = x.detach().double().abs().transpose(dim, -1)
        length = magnitude.shape[-1]
        padded = torch.nn.functional.pad(magnitude, (0, -length % self.block_size))
        blocks = padded.unflatten(-1, (-1, self.block_size))
        _, exponent = torch.frexp(torch.where(blocks.isfinite(), blocks, 0.0).amax(-1, keepdim=True))
        # the least normal element, 2**(2 - 2**(e-1)), under the scale 2**(floor(log2 largest) - 2**(e-1))
        least = power_of_two(exponent + 1 - (1 << self.element_format.exponent))
        small = (blocks < least).flatten(-2)[..., :length].transpose(dim, -1)
        return torch.where(small, 0.0, found)

    def _departing(self, x: Tensor, dim: int) -> Tensor:
        fmt = self.element_format
        return departures.mx_float(x, fmt.mantissa, fmt.exponent, self.block_size, dim, fmt.flush_subnormal)

    @property
    def bit_precision(self) -> float:
        """Bits for each element, including its fraction of the eight-bit scale."""
        return self.element_format.bit_precision + 8 / self.block_size

    @property
    def bytes_per_elem(self) -> float:
        """bit_precision / 8."""
        return self.bit_precision / 8

    def __repr__(self) -> str:
        e, m = self.element_format.exponent, self.element_format.mantissa
        return f"MXFP{1 + e + m}[E{e}M{m}]{self._braces()}{'(FN)' if self.element_format.flush_subnormal else ''}"
