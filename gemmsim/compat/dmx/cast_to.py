"""d-Matrix's cast module."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from gemmsim.nn import Emulated

from .histogram_observer import HistogramObserver
from .observers import PER_TENSOR, DMXObserverBase, DummyObserver
from .single import FixedPoint, Format, Same, check_number, refuse

__all__ = ["CastTo"]


class _Straight(torch.autograd.Function):
    """A cast with the gradient of the identity."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, fmt: Format, block_dim: int, scale: Tensor | None, zero_point: Tensor | None
    ) -> Tensor:
        """``x`` in ``fmt``, in its dtype; with a scale the cast of x / scale + zero_point, and back."""
        found: Tensor
        if scale is None or zero_point is None:
            found = fmt.cast(x, block_dim)
        else:
            found = (fmt.cast(x.float() / scale + zero_point) - zero_point) * scale
        return found.to(x.dtype).view_as(x) if found is x else found.to(x.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None, None]:
        """The gradient itself."""
        return grad, None, None, None, None


class CastTo(Emulated, nn.Module):
    """Cast the input to ``format`` in the input's dtype; the gradient passes straight through.

    Args:
        format: a ``Format`` or its shorthand.
        observer: the class that observes tensors while ``enable_observer`` is on; it is called with ``dtype=`` the
            format and ``observer_kwargs`` (``qscheme``, ``ch_axis``, ...).
        group_size: elements along ``ch_axis`` that share a scale, with an observer for each group; None: the observer's
            scheme. The last group may be shorter.
        block_dim: the dimension of the blocks.

    ``FixedPoint`` is cast as ``(cast(x / scale + zero_point) - zero_point) * scale`` in float32. ``scale`` is 1 and
    ``zero_point`` is 0 until something is observed; other formats have no scale. Both are in ``state_dict`` with their
    current shape: (1,), (channels,) or (groups,). At first fake quantisation is on and observation off.

    Raises:
        TypeError: for another kind of format or observer.
        ValueError: for text that is not a shorthand, and for a group size with a scheme for each channel.

    Example:
        >>> from gemmsim.compat import dmx
        >>> dmx.CastTo("XP[8,+4](CSN)")(torch.tensor([0.3, 100.0]))
        tensor([0.3125, 7.9375])
    """

    scale: Tensor
    zero_point: Tensor

    def __init__(
        self,
        format: str | Format = "SAME",
        observer: Callable[..., DMXObserverBase] = DummyObserver,
        group_size: int | None = None,
        block_dim: int = -1,
        **observer_kwargs: Any,
    ) -> None:
        super().__init__()
        if not callable(observer):
            kind = type(observer).__name__
            raise TypeError(
                f"CastTo: observer is a {kind}; allowed: an observer's class.\n  Give block_dim by its name."
            )
        self.format = _format_of(format)
        self.block_dim = block_dim
        self.physical_dtype: torch.dtype | None = None
        self._casts, self._observes = True, False
        self.register_buffer("scale", torch.ones(1))
        self.register_buffer("zero_point", torch.zeros(1, dtype=torch.int64))
        self._take_observer(observer(dtype=self.format, **observer_kwargs), group_size)

    def _take_observer(self, observer: DMXObserverBase, group_size: int | None) -> None:
        if group_size:
            check_number("CastTo", "group_size", group_size, 1, None)
            if observer.qscheme not in PER_TENSOR:
                allowed = "torch.per_tensor_affine or torch.per_tensor_symmetric with a group size"
                raise refuse(f"CastTo: group_size={group_size}, qscheme={observer.qscheme}", allowed, "Leave one out.")
        self.activation_post_process = observer
        self.group_size = group_size or None
        self._groups: list[DMXObserverBase] = []

    @property
    def qscheme(self) -> torch.qscheme:
        """The observer's scheme."""
        return self.activation_post_process.qscheme

    @property
    def ch_axis(self) -> int:
        """The observer's dimension of channels and groups."""
        return self.activation_post_process.ch_axis

    @property
    def is_per_channel(self) -> bool:
        """Whether each index of ``ch_axis`` has a scale."""
        return self.activation_post_process.is_per_channel

    @property
    def dtype(self) -> Format:
        """``format``."""
        return self.format

    @property
    def fake_quant_enabled(self) -> Tensor:
        """1 where inputs are cast, else 0: uint8 of shape (1,)."""
        return torch.tensor([int(self._casts)], dtype=torch.uint8)

    @property
    def observer_enabled(self) -> Tensor:
        """1 where inputs are observed, else 0: uint8 of shape (1,)."""
        return torch.tensor([int(self._observes)], dtype=torch.uint8)

    def enable_fake_quant(self, enabled: bool = True) -> None:
        """Cast inputs."""
        self._casts = bool(enabled)

    def disable_fake_quant(self) -> None:
        """Return inputs as they are."""
        self._casts = False

    def enable_observer(self, enabled: bool = True) -> None:
        """Let the observer see inputs, and use its scale and zero point."""
        self._observes = bool(enabled)

    def disable_observer(self) -> None:
        """Keep scale and zero point."""
        self._observes = False

    def enable_calibration(
        self,
        state: bool = True,
        observer_cls: Callable[..., DMXObserverBase] = HistogramObserver,
        qscheme_to_overload: torch.qscheme | None = None,
        group_size: int | None = None,
        ch_axis: int | None = None,
    ) -> None:
        """True: a new observer sees the inputs, which are not cast. False: they are cast and not observed.

        Args:
            observer_cls: the class of the observer.
            qscheme_to_overload, ch_axis: None leaves those of the observer before.
            group_size: as for ``CastTo``.

        Raises:
            ValueError: for a group size with a scheme for each channel.
            NotImplementedError: for a scheme that the observer does not have.
        """
        self.enable_fake_quant(not state)
        self.enable_observer(state)
        if state:
            scheme = self.qscheme if qscheme_to_overload is None else qscheme_to_overload
            axis = self.ch_axis if ch_axis is None else ch_axis
            self._take_observer(observer_cls(dtype=self.format, qscheme=scheme, ch_axis=axis), group_size)

    def set_format(self, format: str | Format) -> None:
        """Take another format; scale and zero point stay.

        Raises:
            TypeError: for another kind of format. ValueError: for text that is not a shorthand.
        """
        self.format = _format_of(format)
        for observer in (self.activation_post_process, *self._groups):
            observer.set_dtype(self.format)

    def calculate_qparams(self) -> tuple[Tensor, Tensor]:
        """The observer's scale and zero point, or those of each group.

        Raises:
            ValueError: for a format that has no scale.
        """
        if not self._groups:
            return self.activation_post_process.calculate_qparams()
        scales, zeros = zip(*(group.calculate_qparams() for group in self._groups), strict=True)
        return torch.cat(scales), torch.cat(zeros)

    def get_precision(self) -> float | None:
        """Bits of an element: of the format, for ``SAME`` of the last input's dtype.

        Raises:
            RuntimeError: for ``SAME`` before the first input.
        """
        if not isinstance(self.format, Same):
            return self.format.bit_precision
        if self.physical_dtype is None:
            raise RuntimeError(
                "CastTo: SAME has the precision of its input, which is unknown.\n  Call the module first."
            )
        return float(torch.finfo(self.physical_dtype).bits)

    def forward(self, x: Tensor) -> Tensor:
        """``x`` in the format."""
        self.physical_dtype = x.dtype
        if self._observes and not isinstance(self.format, Same):
            self._observe(x)
        if not self._casts:
            return x
        qparams = self._along(x) if isinstance(self.format, FixedPoint) else (None, None)
        found: Tensor = _Straight.apply(x, self.format, self.block_dim, *qparams)
        return found

    def _observe(self, x: Tensor) -> None:
        if self.group_size:
            parts = x.detach().split(self.group_size, self.ch_axis)
            if len(self._groups) != len(parts):
                kind: Callable[..., DMXObserverBase] = type(self.activation_post_process)
                self._groups = [kind(dtype=self.format, qscheme=self.qscheme, ch_axis=self.ch_axis) for _ in parts]
            for group, part in zip(self._groups, parts, strict=True):
                group(part)
        else:
            self.activation_post_process(x.detach())
        scale, zero_point = self.calculate_qparams()
        self.scale = scale.to(self.scale.device)
        self.zero_point = zero_point.to(self.zero_point.device)

    def _along(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Scale and zero point, of the shape that broadcasts against ``x``."""
        scale, zero = self.scale.to(x.device), self.zero_point.to(x.device)
        if scale.numel() == 1:
            return scale.reshape(()), zero.reshape(())
        shape = [1] * x.dim()
        shape[self.ch_axis] = x.shape[self.ch_axis]
        if self.group_size:
            scale, zero = (t.repeat_interleave(self.group_size)[: shape[self.ch_axis]] for t in (scale, zero))
        return scale.view(shape), zero.view(shape)

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any) -> None:
        for name in ("scale", "zero_point"):
            stored = state_dict.get(f"{prefix}{name}")
            if stored is not None and stored.shape != getattr(self, name).shape:
                setattr(self, name, torch.empty_like(getattr(self, name)).new_empty(stored.shape))
        super()._load_from_state_dict(state_dict, prefix, *args)

    def extra_repr(self) -> str:
        """Format and dimension; of fixed point scheme, scale and zero point."""
        if not isinstance(self.format, FixedPoint):
            return f"format={self.format!r}, block_dim={self.block_dim}"
        found = f"format={self.format!r}, qscheme={self.qscheme}, ch_axis={self.ch_axis}, group_size={self.group_size}"
        return f"{found}, scale={self.scale.tolist()}, zero_point={self.zero_point.tolist()}"


def _format_of(format: object) -> Format:
    found = Format.from_shorthand(format) if isinstance(format, str) else format
    if not isinstance(found, Format):
        kind = type(format).__name__
        raise TypeError(
            f"CastTo: format is a {kind}; allowed: a Format, or its shorthand.\n  Try 'BFP[8|8]{{64}}(SN)'."
        )
    return found
