"""What a quantiser does, as a value: bits, axis or blocks, amax, calibration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from .errors import BitsError, BlockSizeError, DescriptorError, DescriptorTypeError, message

__all__ = [
    "QUANT_DESC_8BIT_CONV1D_WEIGHT_PER_CHANNEL",
    "QUANT_DESC_8BIT_CONV2D_WEIGHT_PER_CHANNEL",
    "QUANT_DESC_8BIT_CONV3D_WEIGHT_PER_CHANNEL",
    "QUANT_DESC_8BIT_CONVTRANSPOSE1D_WEIGHT_PER_CHANNEL",
    "QUANT_DESC_8BIT_CONVTRANSPOSE2D_WEIGHT_PER_CHANNEL",
    "QUANT_DESC_8BIT_CONVTRANSPOSE3D_WEIGHT_PER_CHANNEL",
    "QUANT_DESC_8BIT_LINEAR_WEIGHT_PER_ROW",
    "QUANT_DESC_8BIT_PER_TENSOR",
    "QUANT_DESC_UNSIGNED_8BIT_PER_TENSOR",
    "QuantDescriptor",
    "ScaledQuantDescriptor",
    "check_axis",
    "check_blocks",
    "read_blocks",
]

_EXTRA_KEYS = ("type", "scale_bits", "scale_block_sizes")
_FLOATS = ((4, 3), (2, 1), (5, 2), (3, 2), (2, 3))
_DEFAULTS: dict[str, Any] = {
    "num_bits": 8, "name": None, "fake_quant": True, "axis": None, "block_sizes": None, "amax": None,
    "learn_amax": False, "scale_amax": None, "calib_method": "max", "unsigned": False, "narrow_range": False,
    "dynamic": False,
}  # fmt: skip


class ScaledQuantDescriptor:
    """Scaled quantisation of one tensor; read-only, equal by value, hashable, ``from_dict(d.dict()) == d``.

    Args:
        num_bits: bits of an integer, or (4, 3), (2, 1), and beyond ModelOpt (5, 2), (3, 2), (2, 3).
        name: any text.
        fake_quant: if False, the quantiser returns integers (see ``TensorQuantizer``).
        axis: dimension or dimensions with an amax for each index; None for one amax.
        block_sizes: {dimension: elements that share an amax}; None in place of a size for the whole dimension. Also
            "type" ("static", "dynamic"), "scale_bits" ((8, 0), (4, 3), or an integer) and "scale_block_sizes".
        amax: a fixed amax, kept as a float32 array.
        learn_amax: True learns clipping ends (PACT), "lsq" learns amax itself.
        scale_amax: factor on amax.
        calib_method: "max" or "histogram".
        unsigned, narrow_range: as ``fake_tensor_quant``, except that narrow_range is False by default.
        dynamic: take amax from every input.

    Raises:
        BitsError (ValueError): for integers with a negative number of bits.
        DescriptorTypeError (TypeError): for other bits, a name that is not text, an axis that is not an integer,
            learn_amax with axis, another amax.
        DescriptorError (ValueError): for another calib_method, a scale_amax that is not positive.
        BlockSizeError (ValueError, AssertionError): for block sizes with axis, or not as above.

    Source: ModelOpt up to 0.13, ``ScaledQuantDescriptor``. Its code's ``dict`` leaves out block_sizes, calib_method,
    narrow_range and dynamic, and always has num_bits and name; ``dict`` here is as its documentation says.

    Example:
        >>> descriptor = gs.tensor_quant.ScaledQuantDescriptor(num_bits=4, axis=0)
        >>> descriptor, gs.tensor_quant.TensorQuantizer(descriptor)
        (ScaledQuantDescriptor(num_bits=4, axis=0), TensorQuantizer(4 bit axis=0 amax=dynamic fake quant))
    """

    def __init__(
        self,
        num_bits: int | tuple[int, int] = 8,
        name: str | None = None,
        fake_quant: bool = True,
        axis: int | tuple[int, ...] | None = None,
        block_sizes: Mapping[Any, Any] | None = None,
        amax: Any = None,
        learn_amax: bool | str = False,
        scale_amax: float | None = None,
        calib_method: str = "max",
        unsigned: bool = False,
        narrow_range: bool = False,
        dynamic: bool = False,
    ) -> None:
        _check_bits(num_bits)
        if name is not None and not isinstance(name, str):
            raise DescriptorTypeError(message(f"descriptor: name={name!r}", "text or None", "Use str(name)."))
        if learn_amax not in (False, True, "lsq"):
            raise DescriptorError(
                message(f"descriptor: learn_amax={learn_amax!r}", "False, True, 'lsq'", "Choose one.")
            )
        if learn_amax and axis is not None:
            asked = f"descriptor: learn_amax with axis={axis}"
            raise DescriptorTypeError(message(asked, "learned amax per tensor", "Leave axis out."))
        check_blocks(block_sizes, axis)
        check_axis("descriptor", axis)
        if calib_method not in ("max", "histogram"):
            asked = f"descriptor: calib_method={calib_method!r}"
            raise DescriptorError(message(asked, "'max', 'histogram'", "Choose one."))
        if scale_amax is not None and not (isinstance(scale_amax, (int, float)) and 0 < scale_amax < float("inf")):
            asked = f"descriptor: scale_amax={scale_amax!r}"
            raise DescriptorError(message(asked, "a positive finite number", "Leave it out for 1."))
        self._fields: dict[str, Any] = {
            "num_bits": num_bits if isinstance(num_bits, int) else tuple(num_bits),
            "name": name,
            "fake_quant": bool(fake_quant),
            "axis": tuple(axis) if isinstance(axis, list) else axis,
            "block_sizes": None if block_sizes is None else dict(block_sizes),
            "amax": _array(amax),
            "learn_amax": learn_amax,
            "scale_amax": scale_amax,
            "calib_method": calib_method,
            "unsigned": bool(unsigned),
            "narrow_range": bool(narrow_range),
            "dynamic": bool(dynamic),
        }

    def __getattr__(self, name: str) -> Any:
        fields = self.__dict__.get("_fields", {})
        if name in fields:
            return fields[name]
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __setattr__(self, name: str, value: object) -> None:
        if name != "_fields" or "_fields" in self.__dict__:
            raise AttributeError(f"{type(self).__name__}.{name} cannot be set: make a new one")
        object.__setattr__(self, name, value)

    @staticmethod
    def get_block_quant_axes_and_sizes(block_sizes: Mapping[Any, Any] | None) -> dict[int, int | None] | None:
        """Return only the dimensions and sizes, without "type", "scale_bits" and "scale_block_sizes".

        Example:
            >>> gs.tensor_quant.ScaledQuantDescriptor.get_block_quant_axes_and_sizes({-1: 16, "type": "dynamic"})
            {-1: 16}
        """
        if block_sizes is None:
            return None
        return {axis: size for axis, size in block_sizes.items() if axis not in _EXTRA_KEYS}

    def dict(self) -> dict[str, Any]:
        """Return the fields that differ from their defaults, as plain Python values: empty for
        ``ScaledQuantDescriptor()``.

        Example:
            >>> gs.tensor_quant.ScaledQuantDescriptor(num_bits=4, calib_method="max").dict()
            {'num_bits': 4}
        """
        found = {key: value for key, value in self._fields.items() if key != "amax" and value != _DEFAULTS[key]}
        return found if self.amax is None else {**found, "amax": self.amax.tolist()}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> ScaledQuantDescriptor:
        """Return the descriptor for which ``dict()`` gave ``fields``; from JSON, lists replace tuples and axes may be
        text keys.

        Raises:
            DescriptorTypeError: for unknown keys.

        Example:
            >>> gs.tensor_quant.ScaledQuantDescriptor.from_dict({"num_bits": [4, 3], "block_sizes": {"-1": 16}})
            ScaledQuantDescriptor(num_bits=(4, 3), block_sizes={-1: 16})
        """
        unknown = set(fields) - set(_DEFAULTS)
        if unknown:
            asked = f"descriptor: fields {sorted(unknown)}"
            raise DescriptorTypeError(message(asked, ", ".join(_DEFAULTS), "Leave them out."))
        given = dict(fields)
        if isinstance(given.get("num_bits"), list):
            given["num_bits"] = tuple(given["num_bits"])
        if given.get("block_sizes") is not None:
            given["block_sizes"] = read_blocks(given["block_sizes"])
        return cls(**given)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ScaledQuantDescriptor):
            return NotImplemented
        mine, theirs = dict(self._fields), dict(other._fields)
        a, b = mine.pop("amax"), theirs.pop("amax")
        same = (a is None) == (b is None) and (a is None or np.array_equal(a, b, equal_nan=True))
        return bool(same and mine == theirs)

    def __hash__(self) -> int:
        return hash((self.num_bits, self.name, str(self.axis), str(self.block_sizes), self.unsigned, self.narrow_range))

    def __repr__(self) -> str:
        fields = ", ".join(f"{key}={value!r}" for key, value in self.dict().items())
        return f"{type(self).__name__}({fields})"

    def __str__(self) -> str:
        bits = f"{self.num_bits}bit" if isinstance(self.num_bits, int) else f"E{self.num_bits[0]}M{self.num_bits[1]}"
        where = f"axis={self.axis}" if self.axis is not None else "axis= per-tensor"
        if self.block_sizes is not None:
            where = f"block_sizes={self.block_sizes}"
        kind = ("unsigned " if self.unsigned else "") + bits + (" fake" if self.fake_quant else " real")
        text = f"QuantDescriptor({kind} {where}"
        text += "" if self.amax is None else f" amax={np.array2string(self.amax, threshold=4)}"
        text += "" if self.scale_amax is None else f" scale_amax={self.scale_amax}"
        text += f" learn_amax={self.learn_amax}" if self.learn_amax else ""
        return text + (" narrow" if self.narrow_range else "") + (" dynamic" if self.dynamic else "") + ")"

    def __reduce__(self) -> Any:
        return type(self).from_dict, (self.dict(),)


def _check_bits(num_bits: Any) -> None:
    if isinstance(num_bits, int) and not isinstance(num_bits, bool):
        if num_bits < 0:
            raise BitsError(message(f"descriptor: num_bits={num_bits}", "0 or more bits", "Use 8."))
    elif not isinstance(num_bits, (tuple, list)) or tuple(num_bits) not in _FLOATS:
        allowed = f"an integer or one of {', '.join(map(str, _FLOATS))}"
        raise DescriptorTypeError(message(f"descriptor: num_bits={num_bits!r}", allowed, "Use 8 or (4, 3)."))


def check_axis(owner: str, axis: Any) -> None:
    """``DescriptorTypeError`` unless None, a dimension or dimensions."""
    axes = axis if isinstance(axis, (tuple, list)) else () if axis is None else (axis,)
    if any(isinstance(d, bool) or not isinstance(d, int) for d in axes):
        raise DescriptorTypeError(
            message(f"{owner}: axis={axis!r}", "None, an integer or integers", "Use 0 or (0, 2).")
        )


def check_blocks(block_sizes: Any, axis: Any) -> None:
    """``BlockSizeError`` unless a mapping from dimensions to positive sizes or None, without an axis beside it."""
    if block_sizes is None:
        return
    if axis is not None:
        asked = f"descriptor: block_sizes with axis={axis}"
        raise BlockSizeError(message(asked, "one of the two", "A block size of None is a whole dimension."))
    if not isinstance(block_sizes, Mapping):
        asked = f"descriptor: block_sizes is a {type(block_sizes).__name__}"
        raise BlockSizeError(message(asked, "a dict {dimension: size}", "Use {-1: 32}."))
    if block_sizes.get("type") not in (None, "static", "dynamic"):
        asked = f"descriptor: block_sizes with type {block_sizes['type']!r}"
        raise BlockSizeError(message(asked, "'static', 'dynamic'", "Choose one."))
    for key, size in block_sizes.items():
        if key in _EXTRA_KEYS:
            continue
        whole = size is None
        if isinstance(key, bool) or not isinstance(key, int) or not (whole or _is_positive(size)):
            asked = f"descriptor: block_sizes {{{key!r}: {size!r}}}"
            raise BlockSizeError(message(asked, "integer dimensions with positive sizes or None", "Use {-1: 32}."))


def _is_positive(size: Any) -> bool:
    return isinstance(size, int) and not isinstance(size, bool) and size > 0


def _array(amax: Any) -> np.ndarray[Any, Any] | None:
    if amax is None:
        return None
    if isinstance(amax, bool) or not isinstance(amax, (int, float, list, np.ndarray)):
        asked = f"descriptor: amax is a {type(amax).__name__}"
        raise DescriptorTypeError(message(asked, "a number, a list or a numpy array", "Use amax.tolist()."))
    try:
        return np.array(amax, dtype=np.float32)
    except (TypeError, ValueError) as error:
        asked = f"descriptor: amax={amax!r}"
        raise DescriptorTypeError(message(asked, "numbers in lists of equal length", "Use amax.tolist().")) from error


def read_blocks(block_sizes: Any) -> Any:
    """Block sizes with integer dimensions and tuples, as JSON cannot keep them; what is none is left for the checks."""
    if not isinstance(block_sizes, Mapping):
        return block_sizes

    def axis(key: Any) -> Any:
        return int(key) if isinstance(key, str) and key.lstrip("-").isdigit() else key

    found = {axis(key): value for key, value in block_sizes.items()}
    if isinstance(found.get("scale_bits"), list):
        found["scale_bits"] = tuple(found["scale_bits"])
    if isinstance(found.get("scale_block_sizes"), Mapping):
        found["scale_block_sizes"] = {axis(k): v for k, v in found["scale_block_sizes"].items()}
    return found


QuantDescriptor = ScaledQuantDescriptor

QUANT_DESC_8BIT_PER_TENSOR = ScaledQuantDescriptor(num_bits=8)
QUANT_DESC_UNSIGNED_8BIT_PER_TENSOR = ScaledQuantDescriptor(num_bits=8, unsigned=True)
QUANT_DESC_8BIT_CONV1D_WEIGHT_PER_CHANNEL = ScaledQuantDescriptor(num_bits=8, axis=0)
QUANT_DESC_8BIT_CONV2D_WEIGHT_PER_CHANNEL = ScaledQuantDescriptor(num_bits=8, axis=0)
QUANT_DESC_8BIT_CONV3D_WEIGHT_PER_CHANNEL = ScaledQuantDescriptor(num_bits=8, axis=0)
QUANT_DESC_8BIT_LINEAR_WEIGHT_PER_ROW = ScaledQuantDescriptor(num_bits=8, axis=0)
QUANT_DESC_8BIT_CONVTRANSPOSE1D_WEIGHT_PER_CHANNEL = ScaledQuantDescriptor(num_bits=8, axis=0)
QUANT_DESC_8BIT_CONVTRANSPOSE2D_WEIGHT_PER_CHANNEL = ScaledQuantDescriptor(num_bits=8, axis=0)
QUANT_DESC_8BIT_CONVTRANSPOSE3D_WEIGHT_PER_CHANNEL = ScaledQuantDescriptor(num_bits=8, axis=0)
