"""A quantiser's attributes as later versions of ModelOpt name them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from .descriptor import ScaledQuantDescriptor, check_axis, check_blocks, read_blocks
from .errors import BitsError, BlockSizeError, DescriptorError, message

__all__ = ["QuantizerAttributeConfig", "config_of"]

_DTYPES = ("Float", "Half", "BFloat16")
_FLOATS = ((4, 3), (5, 2), (2, 1), (1, 2), (3, 2), (2, 3))


@dataclass(frozen=True)
class QuantizerAttributeConfig:
    """What one quantiser does; ``from_dict(config.dict()) == config``.

    Args:
        enable: if False, the quantiser returns tensors unchanged.
        num_bits: bits of an integer, or (E, M) of a float; any float except (4, 3) needs dynamic blocks.
        axis: dimension or dimensions with an amax for each index.
        fake_quant: if False, the quantiser returns integers or codes' values without scaling back.
        unsigned, narrow_range: as ``fake_tensor_quant``, with narrow_range False.
        learn_amax: True learns clipping ends (PACT), "lsq" learns amax itself.
        type: "static", or "dynamic" for an amax from every input (over one axis at most).
        block_sizes: {dimension: elements that share an amax; None is all}, "type", "scale_bits", "scale_block_sizes".
        bias: {dimensions that share a bias: None, "type": "static" (default: from calibration) or "dynamic" (from
            each input), "method": "mean" (default) or "max_min", the middle of the ends}; not with static blocks.
        trt_high_precision_dtype: dtype around exported nodes: "Float", "Half", "BFloat16".
        calibrator: "max", "histogram", or (constructor, arguments, keywords).
        rotate: multiply by the normalised Hadamard matrix first.
        pass_through_bwd: gradients pass everywhere.

    Raises:
        BitsError (ValueError): for other bits, or a float other than (4, 3) without dynamic blocks.
        BlockSizeError (ValueError, AssertionError): for block sizes with axis, or not positive.
        DescriptorError (ValueError): for other contradictions.

    Source: ModelOpt 0.15 and later, a pydantic class of this name.

    Example:
        >>> nvfp4 = {-1: 16, "type": "dynamic", "scale_bits": (4, 3)}
        >>> config = gs.tensor_quant.QuantizerAttributeConfig(num_bits=(2, 1), block_sizes=nvfp4)
        >>> gs.tensor_quant.TensorQuantizer(config)
        TensorQuantizer(E2M1 block_sizes={-1: 16, 'type': 'dynamic', 'scale_bits': (4, 3)} amax=dynamic fake quant)
    """

    enable: bool = True
    num_bits: int | tuple[int, int] = 8
    axis: int | tuple[int, ...] | None = None
    fake_quant: bool = True
    unsigned: bool = False
    narrow_range: bool = False
    learn_amax: bool | str = False
    type: str = "static"
    block_sizes: Mapping[Any, Any] | None = None
    bias: Mapping[Any, Any] | None = None
    trt_high_precision_dtype: str | None = None
    calibrator: str | Callable[..., Any] | tuple[Any, ...] = "max"
    rotate: bool = False
    pass_through_bwd: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.num_bits, list):
            object.__setattr__(self, "num_bits", tuple(self.num_bits))
        check_blocks(self.block_sizes, self.axis)
        check_axis("quantizer", self.axis)
        self._check_bits()
        self._check_bias()
        if self.type not in ("static", "dynamic"):
            raise DescriptorError(message(f"quantizer: type={self.type!r}", "'static' or 'dynamic'", "Choose one."))
        axes = self.axis if isinstance(self.axis, (tuple, list)) else ()
        if self.type == "dynamic" and len(axes) > 1:
            asked = f"quantizer: dynamic with axis={self.axis}"
            raise DescriptorError(message(asked, "one axis", "Use block_sizes for more."))
        if self.trt_high_precision_dtype not in (None, *_DTYPES):
            asked = f"quantizer: trt_high_precision_dtype={self.trt_high_precision_dtype!r}"
            raise DescriptorError(message(asked, ", ".join(_DTYPES), "Give one of these."))
        named = isinstance(self.calibrator, str)
        first = next(iter(self.calibrator), None) if isinstance(self.calibrator, (tuple, list)) else self.calibrator
        if (named and self.calibrator not in ("max", "histogram")) or not (named or callable(first)):
            asked = f"quantizer: calibrator={self.calibrator!r}"
            raise DescriptorError(message(asked, "'max', 'histogram', a constructor", "Choose one."))
        if self.learn_amax and (self.axis is not None or self.learn_amax not in (True, "lsq")):
            asked = f"quantizer: learn_amax={self.learn_amax!r} with axis={self.axis}"
            raise DescriptorError(message(asked, "True or 'lsq', per tensor", "Leave axis out."))

    def _check_bits(self) -> None:
        bits = self.num_bits
        if isinstance(bits, tuple):
            if any(not isinstance(n, int) or n < 1 for n in bits) or bits not in _FLOATS:
                allowed = ", ".join(map(str, _FLOATS))
                raise BitsError(message(f"quantizer: num_bits={bits}", allowed, "Use (4, 3) or an integer."))
            dynamic = self.block_sizes is not None and self.block_sizes.get("type") == "dynamic"
            if bits != (4, 3) and not dynamic:
                do = "Give block_sizes={-1: 32, 'type': 'dynamic', 'scale_bits': (8, 0)}."
                raise BitsError(message(f"quantizer: num_bits={bits}", "(4, 3) without dynamic blocks", do))
        elif isinstance(bits, bool) or not isinstance(bits, int) or bits < 1:
            raise BitsError(message(f"quantizer: num_bits={bits!r}", "1 bit or more", "Use 8."))

    def _check_bias(self) -> None:
        if self.bias is None:
            return
        asked = f"quantizer: bias={self.bias!r}"
        allowed = "{dimension: None, ...}, 'type' 'static' or 'dynamic', 'method' 'mean' or 'max_min'"
        if not isinstance(self.bias, Mapping):
            raise DescriptorError(message(asked, allowed, "Use {-1: None, 'type': 'dynamic'}."))
        axes = {key: value for key, value in self.bias.items() if key not in ("type", "method")}
        known = self.bias.get("type", "static") in ("static", "dynamic")
        known = known and self.bias.get("method", "mean") in ("mean", "max_min")
        if not known or not axes or any(type(key) is not int or value is not None for key, value in axes.items()):
            raise DescriptorError(message(asked, allowed, "Use {-1: None, 'type': 'dynamic'}."))
        if self.learn_amax or (self.block_sizes is not None and self.block_sizes.get("type") != "dynamic"):
            asked += " with learn_amax" if self.learn_amax else " with static blocks"
            raise DescriptorError(message(asked, "neither", "Leave one out."))

    def dict(self) -> dict[str, Any]:
        """Return every field as plain Python values (the constructor of a calibrator is not converted).

        Example:
            >>> gs.tensor_quant.QuantizerAttributeConfig(num_bits=4, axis=0).dict()["axis"]
            0
        """
        found = asdict(replace(self, calibrator="max"))
        found["calibrator"] = self.calibrator
        return found

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> QuantizerAttributeConfig:
        """Return the config with these fields.

        Raises:
            DescriptorError (ValueError): for unknown fields, and for ``{"enable": True}`` alone, which says nothing.

        Example:
            >>> gs.tensor_quant.QuantizerAttributeConfig.from_dict({"num_bits": 4, "axis": 0}).num_bits
            4
        """
        known = {field.name for field in fields(cls)}
        unknown = set(given) - known
        if unknown:
            asked = f"quantizer: fields {sorted(unknown)}"
            raise DescriptorError(message(asked, ", ".join(sorted(known)), "Leave them out."))
        if dict(given) == {"enable": True}:
            asked = "quantizer: {'enable': True} alone"
            raise DescriptorError(message(asked, "at least one more field", "Say num_bits, even if it is 8."))
        values = dict(given)
        if isinstance(values.get("bias"), Mapping):
            values["bias"] = read_blocks(values["bias"])
        if values.get("block_sizes") is not None:
            values["block_sizes"] = read_blocks(values["block_sizes"])
        return cls(**values)


def config_of(what: Any) -> QuantizerAttributeConfig:
    """The config that a descriptor, a mapping or None stands for.

    Raises:
        DescriptorError: for anything else, and as ``QuantizerAttributeConfig``.
    """
    if isinstance(what, QuantizerAttributeConfig):
        return what
    if what is None:
        return QuantizerAttributeConfig()
    if isinstance(what, Mapping):
        return QuantizerAttributeConfig.from_dict(what)
    if not isinstance(what, ScaledQuantDescriptor):
        asked = f"quantizer: a {type(what).__name__}"
        allowed = "QuantizerAttributeConfig, ScaledQuantDescriptor, dict, None"
        raise DescriptorError(message(asked, allowed, "Use QuantizerAttributeConfig(num_bits=8)."))
    blocks = None if what.block_sizes is None else dict(what.block_sizes)
    if isinstance(what.num_bits, tuple) and what.num_bits != (4, 3) and blocks is None:
        raise BlockSizeError(message(f"quantizer: num_bits={what.num_bits}", "block_sizes too", "Give {-1: 32}."))
    return QuantizerAttributeConfig(
        num_bits=what.num_bits,
        axis=what.axis,
        fake_quant=what.fake_quant,
        unsigned=what.unsigned,
        narrow_range=what.narrow_range,
        learn_amax=what.learn_amax,
        type="dynamic" if what.dynamic else "static",
        block_sizes=blocks,
        calibrator=what.calib_method,
    )
