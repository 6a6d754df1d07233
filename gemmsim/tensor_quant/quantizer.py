"""A module that calibrates and quantises one tensor of a model."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from gemmsim.nn.emulated_marker import Emulated

from .attributes import QuantizerAttributes, updated
from .bias_calibrator import BiasCalibrator, centre
from .block_quantization import dynamic_block_quant, fake_blocks
from .blocking import Blocking
from .calibrators import calibrator_of
from .config import QuantizerAttributeConfig, config_of
from .descriptor import ScaledQuantDescriptor
from .errors import AmaxShapeError, BlockSizeError, CalibrationError, DescriptorError, message
from .floating import scaled_e4m3
from .hadamard import rotate
from .integer import fake_tensor_quant, tensor_quant
from .learned import learned_fake_tensor_quant, pact
from .max_calibrator import largest_magnitude

__all__ = ["TensorQuantizer"]

_STATE = ("_amax", "_pre_quant_scale", "_bias_value")


class TensorQuantizer(QuantizerAttributes, Emulated, nn.Module):
    """Quantise the input as a description says, with the quantiser's own amax.

    ``forward`` has these steps: multiply by ``pre_quant_scale``; rotate; return if disabled; divide into blocks; give
    to the calibrator while calibrating; clip if ``enable_clip`` was called; quantise unless ``disable_quant`` was
    called; join the blocks.

    Without an amax (before calibration, or with ``type="dynamic"``) each input's own is used: max |x| over the
    dimensions not in ``axis``. The same holds for a described ``bias`` until calibration fixes it ("static"). amax is
    then collected after the bias of that moment was subtracted, so it depends on the order of batches. The state dict
    holds ``_amax`` (and ``_pre_quant_scale``, ``_bias_value``, learned parameters) once there is one; loading a state
    dict creates it.

    Args:
        quant_desc: ``ScaledQuantDescriptor``, ``QuantizerAttributeConfig``, a dict of the latter's fields, or None.
            Later versions of ModelOpt name it ``quant_attribute_cfg``.
        disabled, if_quant, if_clip, if_calib: initial positions of the switches.
        amax: a first amax.

    NaN, infinities, errors: those of ``fake_tensor_quant``, ``scaled_e4m3`` and ``dynamic_block_quant``.
    Source: ModelOpt, ``TensorQuantizer``.

    Example:
        >>> quantizer = gs.tensor_quant.TensorQuantizer({"num_bits": 4}, amax=7.0)
        >>> quantizer(torch.tensor([0.4, 2.6, 100.0]))
        tensor([0., 3., 7.])
    """

    _amax: Tensor
    _config: QuantizerAttributeConfig

    def __init__(
        self,
        quant_desc: Any = None,
        disabled: bool = False,
        if_quant: bool = True,
        if_clip: bool = False,
        if_calib: bool = False,
        amax: Any = None,
        *,
        quant_attribute_cfg: Any = None,
    ) -> None:
        super().__init__()
        quant_desc = quant_attribute_cfg if quant_desc is None else quant_desc
        self._if_quant, self._if_calib, self._if_clip = if_quant, if_calib, False
        self._scale_amax: float | None = None
        self._disabled = disabled
        self._shape: torch.Size | None = None
        self.scale: Tensor | None = None
        self.set_from_attribute_config(quant_desc)
        if isinstance(quant_desc, ScaledQuantDescriptor):
            self._scale_amax = quant_desc.scale_amax
            amax = quant_desc.amax if amax is None else amax
        if amax is not None:
            self.amax = amax
        self._disabled = disabled or not self._config.enable
        if if_clip or (self._config.learn_amax and amax is not None):
            self.init_learn_amax()

    def set_from_attribute_config(self, quant_desc: Any) -> None:
        """Replace the description; amax is kept, and the calibrator starts anew.

        A dict changes only the fields in it; "enable" alone does not affect the calibrator.

        Example:
            >>> quantizer = gs.tensor_quant.TensorQuantizer({"num_bits": 4}, amax=7.0)
            >>> quantizer.set_from_attribute_config({"axis": 0}), quantizer
            (None, TensorQuantizer(4 bit axis=0 amax=7 fake quant))
        """
        old: QuantizerAttributeConfig | None = getattr(self, "_config", None)
        if isinstance(quant_desc, Mapping) and old is not None:
            if set(quant_desc) == {"enable"}:
                self._disabled = not quant_desc["enable"]
                return
            quant_desc = updated(old, {"enable": not self._disabled, **quant_desc})
        self._config = config_of(quant_desc)
        self._disabled = not self._config.enable
        self._calibrator = calibrator_of(self._config)
        self._bias_calibrator: BiasCalibrator | None = None
        self._bias_axes: tuple[int, ...] = ()
        if self._config.bias is not None:
            self._bias_axes = tuple(key for key in self._config.bias if isinstance(key, int))
            if self._config.bias.get("type", "static") == "static":
                self._bias_calibrator = BiasCalibrator(str(self.bias_method), self._bias_axes)
        self._blocks = ScaledQuantDescriptor.get_block_quant_axes_and_sizes(self._config.block_sizes)

    @property
    def amax(self) -> Tensor | None:
        """The present amax, learned or calibrated; None if each input's own is used.

        Example:
            >>> gs.tensor_quant.TensorQuantizer(amax=7.0).amax
            tensor(7.)
        """
        if hasattr(self, "learned_amax"):
            return self.learned_amax.detach()
        if hasattr(self, "clip_max"):
            return torch.maximum(-self.clip_min, self.clip_max).detach()
        return getattr(self, "_amax", None)

    @amax.setter
    def amax(self, value: Any) -> None:
        t = torch.as_tensor(value, dtype=torch.float32).detach().clone()
        old = getattr(self, "_amax", None)
        if old is None:
            self.register_buffer("_amax", t)
            return
        if old.shape != t.shape:
            asked = f"amax of shape {tuple(t.shape)} for one of {tuple(old.shape)}"
            raise AmaxShapeError(message(asked, "the shape it has", "reset_amax() first."))
        old.data.copy_(t)

    @property
    def pre_quant_scale(self) -> Tensor | None:
        """The factor by which inputs are multiplied first.

        Example:
            >>> quantizer = gs.tensor_quant.TensorQuantizer(amax=7.0)
            >>> quantizer.pre_quant_scale = torch.tensor(2.0)
            >>> quantizer(torch.tensor([7.0, 3.5]))  # 7 * 2 is clamped
            tensor([7., 7.])
        """
        return getattr(self, "_pre_quant_scale", None)

    @pre_quant_scale.setter
    def pre_quant_scale(self, value: Any) -> None:
        self.register_buffer("_pre_quant_scale", torch.as_tensor(value, dtype=torch.float32).detach().clone())

    @property
    def bias(self) -> Tensor | None:
        """The value that is subtracted before quantisation and added after it.

        Example:
            >>> quantizer = gs.tensor_quant.TensorQuantizer({"num_bits": 4, "bias": {-1: None}}, amax=7.0)
            >>> quantizer.bias = torch.tensor(100.0)
            >>> quantizer(torch.tensor([100.0, 103.4]))
            tensor([100., 103.])
        """
        return getattr(self, "_bias_value", None)

    @bias.setter
    def bias(self, value: Any) -> None:
        self.register_buffer("_bias_value", torch.as_tensor(value, dtype=torch.float32).detach().clone())

    def _offset(self, x: Tensor) -> Tensor | None:
        """What is taken off ``x``: the bias held, or where one is described and not calibrated yet ``x``'s own."""
        if self._config.bias is None:
            return self.bias
        if self._bias_calibrator is None:
            return centre(x, str(self.bias_method), self._bias_axes)
        if self._if_calib:
            self._bias_calibrator.collect(x)
            return self._bias_calibrator.compute_bias()
        held = self.bias
        return centre(x, str(self.bias_method), self._bias_axes) if held is None else held

    def load_calib_bias(self) -> None:
        """Set the bias that a static description has collected.

        Raises:
            CalibrationError (RuntimeError): without such a description, or if nothing was collected.

        Example:
            >>> gs.tensor_quant.TensorQuantizer().load_calib_bias()
            Traceback (most recent call last):
                ...
            gemmsim.tensor_quant.errors.CalibrationError: load_calib_bias of a quantizer that has collected no ...
        """
        found = None if self._bias_calibrator is None else self._bias_calibrator.compute_bias()
        if found is None:
            asked = "load_calib_bias of a quantizer that has collected no bias"
            do = "Describe bias={-1: None, 'type': 'static'} and calibrate."
            raise CalibrationError(message(asked, "a static bias and data", do))
        self.bias = found

    def reset_bias(self) -> None:
        """Discard the bias, and what was collected for it.

        Example:
            >>> gs.tensor_quant.TensorQuantizer().reset_bias()
        """
        if hasattr(self, "_bias_value"):
            del self._bias_value
        if self._bias_calibrator is not None:
            self._bias_calibrator.reset()

    @property
    def step_size(self) -> Tensor | None:
        """amax divided by the largest integer; None (with a warning) without an amax.

        Example:
            >>> gs.tensor_quant.TensorQuantizer({"num_bits": 4}, amax=7.0).step_size
            tensor(1.)
        """
        amax = self.amax
        if amax is None:
            warnings.warn("step_size of a quantizer without an amax", stacklevel=2)
            return None
        return amax / self.maxbound

    def disable(self) -> None:
        """Make the quantiser return inputs unchanged.

        Example:
            >>> quantizer = gs.tensor_quant.TensorQuantizer({"num_bits": 4}, amax=7.0)
            >>> quantizer.disable(), quantizer(torch.tensor(2.6))
            (None, tensor(2.6000))
        """
        self._disabled = True

    def enable(self) -> None:
        """Undo ``disable``.

        Example:
            >>> quantizer = gs.tensor_quant.TensorQuantizer({"num_bits": 4}, disabled=True, amax=7.0)
            >>> quantizer.enable(), quantizer(torch.tensor(2.6))
            (None, tensor(3.))
        """
        self._disabled = False

    @property
    def is_enabled(self) -> bool:
        """Whether inputs are calibrated on or quantised.

        Example:
            >>> gs.tensor_quant.TensorQuantizer().is_enabled, gs.tensor_quant.TensorQuantizer(disabled=True).is_enabled
            (True, False)
        """
        return not self._disabled

    def disable_quant(self) -> None:
        """Stop quantising; calibration and clipping go on.

        Example:
            >>> quantizer = gs.tensor_quant.TensorQuantizer({"num_bits": 4}, amax=7.0)
            >>> quantizer.disable_quant(), quantizer(torch.tensor(2.6))
            (None, tensor(2.6000))
        """
        self._if_quant = False

    def enable_quant(self) -> None:
        """Quantise inputs.

        Example:
            >>> quantizer = gs.tensor_quant.TensorQuantizer({"num_bits": 4}, if_quant=False, amax=7.0)
            >>> quantizer.enable_quant(), quantizer(torch.tensor(2.6))
            (None, tensor(3.))
        """
        self._if_quant = True

    def disable_calib(self) -> None:
        """Stop giving inputs to the calibrator.

        Example:
            >>> gs.tensor_quant.TensorQuantizer(if_calib=True).disable_calib()
        """
        self._if_calib = False

    def enable_calib(self) -> None:
        """Give inputs to the calibrator.

        Raises:
            CalibrationError: if there is none: dynamic quantisation.

        Example:
            >>> quantizer = gs.tensor_quant.TensorQuantizer()
            >>> quantizer.enable_calib(), quantizer(torch.tensor([1.0, -3.0])), quantizer.load_calib_amax()
            (None, tensor([ 0.9921, -3.0000]), None)
            >>> quantizer.amax
            tensor(3.)
        """
        if self._calibrator is None:
            asked = "calibration of a quantizer that takes amax from each input"
            raise CalibrationError(message(asked, "static quantizers", "Leave it out of calibration."))
        self._if_calib = True

    def disable_clip(self) -> None:
        """Stop clipping at the learned ends.

        Example:
            >>> quantizer = gs.tensor_quant.TensorQuantizer({"learn_amax": True}, amax=7.0)
            >>> quantizer.disable_clip()
        """
        self._if_clip = False

    def enable_clip(self) -> None:
        """Clip at the learned ends.

        Raises:
            DescriptorError (ValueError): without learn_amax.

        Example:
            >>> quantizer = gs.tensor_quant.TensorQuantizer({"learn_amax": True}, amax=7.0)
            >>> quantizer.init_learn_amax(), quantizer.enable_clip(), quantizer(torch.tensor(100.0)).detach()
            (None, None, tensor(7.))
        """
        if not self._config.learn_amax:
            asked = "enable_clip of a quantizer without learn_amax"
            raise DescriptorError(message(asked, "learn_amax=True", "Describe it so."))
        self._if_clip = True

    def init_learn_amax(self) -> None:
        """Make the amax learnable: parameters ``clip_min`` and ``clip_max`` (PACT), or ``learned_amax``
        (learn_amax="lsq").

        An amax per channel becomes its maximum, with a warning.

        Raises:
            DescriptorError (ValueError): without learn_amax.
            CalibrationError (RuntimeError): without an amax.

        Example:
            >>> quantizer = gs.tensor_quant.TensorQuantizer({"learn_amax": "lsq"}, amax=7.0)
            >>> quantizer.init_learn_amax(), [name for name, _ in quantizer.named_parameters()]
            (None, ['learned_amax'])
        """
        if not self._config.learn_amax:
            asked = "init_learn_amax of a quantizer without learn_amax"
            raise DescriptorError(message(asked, "learn_amax=True or 'lsq'", "Describe it so."))
        start = getattr(self, "_amax", None)
        if start is None:
            asked = "init_learn_amax without an amax"
            raise CalibrationError(message(asked, "a calibrated quantizer", "Calibrate, or set amax."))
        if start.numel() > 1:
            warnings.warn("learn_amax starts from the largest amax of all channels", stacklevel=2)
            start = start.max()
        start = start.detach().reshape(()).clone()
        if self._config.learn_amax == "lsq":
            self.learned_amax = nn.Parameter(start)
            return
        self.clip_min, self.clip_max = nn.Parameter(-start), nn.Parameter(start.clone())
        self._if_clip = True

    def load_calib_amax(self, *args: Any, strict: bool = True, **kwargs: Any) -> None:
        """Set amax to ``calibrator.compute_amax(*args, **kwargs)``.

        Raises:
            CalibrationError (RuntimeError): if nothing was collected; with ``strict=False`` a warning, and an amax of
                NaN, which raises when it is used.

        Example:
            >>> quantizer = gs.tensor_quant.TensorQuantizer({"num_bits": 4}, if_calib=True, if_quant=False)
            >>> quantizer(torch.tensor([1.0, -3.0])), quantizer.load_calib_amax(), quantizer.amax
            (tensor([ 1., -3.]), None, tensor(3.))
        """
        if self._calibrator is None:
            asked = "load_calib_amax of a quantizer without calibrator"
            raise CalibrationError(message(asked, "static quantizers", "Leave it out of calibration."))
        found = self._calibrator.compute_amax(*args, **kwargs)
        if found is None:
            text = "nothing was collected: the calibrator has seen no data"
            if strict:
                raise CalibrationError(message(text, "a forward pass while calibrating", "enable_calib() before it."))
            warnings.warn(text, stacklevel=2)
            found = torch.tensor(float("nan"))
        self.amax = found

    def reset_amax(self) -> None:
        """Discard the amax, and what was collected.

        Example:
            >>> quantizer = gs.tensor_quant.TensorQuantizer(amax=7.0)
            >>> quantizer.reset_amax(), quantizer.amax
            (None, None)
        """
        for name in ("_amax", "learned_amax", "clip_min", "clip_max"):
            if hasattr(self, name):
                delattr(self, name)
        self._if_clip = False
        if self._calibrator is not None:
            self._calibrator.reset()

    def export_amax(self) -> Tensor | None:
        """Return amax with zeros replaced by ``maxbound``, so that every scale is finite; None without an amax.

        Example:
            >>> quantizer = gs.tensor_quant.TensorQuantizer({"axis": 0}, amax=torch.tensor([[2.0], [0.0]]))
            >>> quantizer.export_amax()
            tensor([[  2.],
                    [127.]])
        """
        amax = self.amax
        return None if amax is None else torch.where(amax == 0, self.maxbound, amax)

    def _is_torchs_own(self) -> bool:
        return True  # quantisers have nodes of the standard and TensorRT's, or say that they have none

    def forward(self, inputs: Tensor) -> Tensor:
        """``inputs`` quantised, in their dtype and shape."""
        scale = self.pre_quant_scale
        x = inputs if scale is None else inputs * scale.to(inputs.dtype)
        if self._config.rotate:
            x = rotate(x)
        if self._disabled or x.numel() == 0:
            return x
        offset = self._offset(x)
        if self._is_dynamic_block:
            if self._if_calib and self._calibrator is not None:
                self._calibrator.collect(x if offset is None else x - offset)
            return self._quantise_blocks(x, offset) if self._if_quant else x
        blocking = self._blocking(x)
        v = x if blocking is None else blocking.cut(x)
        if self._if_calib and self._calibrator is not None:
            self._calibrator.axis = self._config.axis if blocking is None else blocking.kept
            self._calibrator.collect(v if offset is None else v - offset)
        if self._if_clip and hasattr(self, "clip_max"):
            v = pact(v, self.clip_min, self.clip_max)
        if self._if_quant:
            v = self._quantise(v, offset, self._config.axis if blocking is None else blocking.kept)
        return v if blocking is None else blocking.join(v)

    @property
    def _is_dynamic_block(self) -> bool:
        blocks = self._config.block_sizes
        return blocks is not None and blocks.get("type") == "dynamic"

    def _blocking(self, x: Tensor) -> Blocking | None:
        if self._blocks is None:
            return None
        if self._shape is not None and self._shape != x.shape and self.amax is not None:
            asked = f"static blocks of a tensor of shape {tuple(x.shape)}, first {tuple(self._shape)}"
            raise BlockSizeError(message(asked, "one shape", "Use dynamic blocks, or reset_amax()."))
        self._shape = x.shape
        return Blocking(x.shape, self._blocks)

    def _quantise_blocks(self, x: Tensor, offset: Tensor | None) -> Tensor:
        """Blocks that find their own scale."""
        assert self._blocks is not None and self._config.block_sizes is not None
        if len(self._blocks) != 1:
            asked = f"dynamic blocks along {list(self._blocks)}"
            raise BlockSizeError(message(asked, "one dimension", "Use static blocks for several."))
        ((axis, size),) = self._blocks.items()
        scale_bits = self._config.block_sizes.get("scale_bits")
        v = x.movedim(axis, -1)
        offset = offset.movedim(axis, -1) if offset is not None and offset.dim() == x.dim() else offset
        y = dynamic_block_quant(
            v, v.shape[-1] if size is None else size, self.amax if scale_bits == (4, 3) else None, offset,
            self.num_bits, scale_bits, self._config.trt_high_precision_dtype, "dynamic", True, unsigned=self.unsigned,
            narrow_range=self.narrow_range,
        )  # fmt: skip
        return y.movedim(-1, axis)

    def _amax_for(self, v: Tensor, axis: int | tuple[int, ...] | None) -> Tensor:
        amax = None if self._config.type == "dynamic" else self.amax
        if amax is None:
            amax = largest_magnitude(v, axis)
        if self._config.block_sizes is not None and isinstance(self._config.block_sizes.get("scale_bits"), int):
            amax = fake_blocks(amax, self._config.block_sizes)
        return amax if self._scale_amax is None else amax * self._scale_amax

    def _quantise(self, v: Tensor, offset: Tensor | None, axis: int | tuple[int, ...] | None) -> Tensor:
        c, bits = self._config, self.num_bits
        if isinstance(bits, tuple):
            return scaled_e4m3(
                v, self._amax_for(v, axis), offset, *bits, c.trt_high_precision_dtype, c.pass_through_bwd
            )
        if hasattr(self, "learned_amax"):
            left = v if offset is None else v - offset.to(v.dtype)
            y = learned_fake_tensor_quant(left, self.learned_amax, bits, c.unsigned, c.narrow_range)
            return y if offset is None else y + offset.to(v.dtype)
        amax = self._amax_for(v, axis)
        if not c.fake_quant:
            q, self.scale = tensor_quant(v, amax, offset, bits, c.unsigned, c.narrow_range)
            return q
        return fake_tensor_quant(
            v, amax, offset, bits, c.unsigned, c.narrow_range, c.trt_high_precision_dtype, c.pass_through_bwd
        )

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any) -> None:
        """Create what the state has and this module has not yet."""
        for name in _STATE:
            if prefix + name in state_dict and not hasattr(self, name):
                self.register_buffer(name, torch.empty_like(state_dict[prefix + name]))
        for name in ("clip_min", "clip_max", "learned_amax"):
            if prefix + name in state_dict and not hasattr(self, name):
                setattr(self, name, nn.Parameter(torch.empty_like(state_dict[prefix + name])))
                self._if_clip = self._if_clip or name == "clip_max"
        super()._load_from_state_dict(state_dict, prefix, *args)

    def extra_repr(self) -> str:
        """Bits, axis or blocks, amax, and which switches are on."""
        if self._disabled:
            return "disabled"
        bits = f"{self.num_bits} bit" if isinstance(self.num_bits, int) else f"E{self.num_bits[0]}M{self.num_bits[1]}"
        where = f"block_sizes={dict(self.block_sizes)}" if self.block_sizes else f"axis={self.axis}"
        amax = self.amax
        value = "dynamic" if amax is None else f"{float(amax):.4g}" if amax.numel() == 1 else f"{tuple(amax.shape)}"
        parts = [("unsigned " if self.unsigned else "") + bits, where, f"amax={value}"]
        parts += ["narrow"] * self.narrow_range + ["fake"] * self._config.fake_quant
        parts += ["calib"] * self._if_calib + ["quant"] * self._if_quant + ["clip"] * self._if_clip
        return " ".join(parts)
