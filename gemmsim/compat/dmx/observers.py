"""d-Matrix's observers: modules that observe tensors and compute the scale and zero point of a cast to fixed point."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor, nn

from gemmsim.nn import Emulated
from gemmsim.tensor_quant import CalibrationDataError

from .single import FixedPoint, Format, refuse

__all__ = ["DMXObserverBase", "DummyObserver", "MinMaxObserver"]

_EPS = torch.finfo(torch.float32).eps
_SYMMETRIC = (torch.per_tensor_symmetric, torch.per_channel_symmetric)
PER_CHANNEL = (torch.per_channel_affine, torch.per_channel_symmetric)
PER_TENSOR = (torch.per_tensor_affine, torch.per_tensor_symmetric)


class DMXObserverBase(Emulated, nn.Module):
    """The base class of observers: the format, the scheme, and the parameters computed from the ends of a range.

    Args:
        dtype: the ``Format`` of the cast, its shorthand, or ``torch.float32`` for ``SAME``.
        qscheme: ``torch.per_tensor_affine``, ``per_tensor_symmetric``, ``per_channel_affine`` or
            ``per_channel_symmetric``.
        ch_axis: the dimension of the channels.
        eps: the least scale.

    ``quant_min`` and ``quant_max`` are the ends of ``FixedPoint`` with fraction 0 and clamp, None for other formats.

    Raises:
        TypeError: for another kind of format. NotImplementedError: for another scheme.

    Example:
        >>> from gemmsim.compat.dmx.compressor.numerical import observer
        >>> issubclass(observer.MinMaxObserver, observer.DMXObserverBase)
        True
    """

    eps: Tensor

    def __init__(
        self,
        dtype: Format | str | torch.dtype = "XP[8,0](CSN)",
        qscheme: torch.qscheme = torch.per_tensor_affine,
        ch_axis: int = -1,
        eps: float = _EPS,
    ) -> None:
        super().__init__()
        if qscheme not in PER_TENSOR + PER_CHANNEL:
            asked = f"{type(self).__name__}: qscheme={qscheme}"
            raise NotImplementedError(f"{asked}; allowed: {_names(PER_TENSOR + PER_CHANNEL)}.\n  Give one of these.")
        self.qscheme, self.ch_axis = qscheme, ch_axis
        self.register_buffer("eps", torch.tensor([eps]), persistent=False)
        self.set_dtype(dtype)

    def set_dtype(self, dtype: Format | str | torch.dtype) -> None:
        """Take another format."""
        given = "SAME" if dtype is torch.float32 else dtype
        fmt = Format.from_shorthand(given) if isinstance(given, str) else given
        if not isinstance(fmt, Format):
            kind = type(dtype).__name__
            raise TypeError(f"{type(self).__name__}: dtype is a {kind}; allowed: a Format.\n  Try 'XP[8,0](CSN)'.")
        self.dtype = fmt
        self.quant_min, self.quant_max = _ends(fmt)

    @property
    def is_per_channel(self) -> bool:
        """Whether each index of ``ch_axis`` has its own parameters."""
        return self.qscheme in PER_CHANNEL

    def forward(self, x: Tensor) -> Tensor:
        """Observe ``x``, and return it."""
        raise NotImplementedError(f"{type(self).__name__}.forward: use one of the observers.")

    def calculate_qparams(self) -> tuple[Tensor, Tensor]:
        """Scale (float32) and zero point (int64) of the observed range, or of each channel's; 1 and 0 at first."""
        raise NotImplementedError(f"{type(self).__name__}.calculate_qparams: use one of the observers.")

    def _qparams(self, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        """From the ends of ranges, which are widened to hold zero.

        With n = quant_max - quant_min, symmetric: scale = max(|low|, |high|) / (n / 2), zero point 0. Affine: scale =
        (high - low) / n, zero point = quant_min - round(low / scale), put into [quant_min, quant_max]. Scales are at
        least eps.
        """
        if self.quant_min is None or self.quant_max is None:
            asked = f"{type(self).__name__}: scale of {self.dtype}"
            raise refuse(asked, "FixedPoint with fraction 0 and clamp", "Try XP[8,0](CSN): others have no scale.")
        low, high = low.float().clamp(max=0).reshape(-1), high.float().clamp(min=0).reshape(-1)
        width = float(self.quant_max - self.quant_min)
        eps = self.eps.to(low.device)
        if self.qscheme in _SYMMETRIC:
            most = torch.maximum(-low, high)
            scale = torch.maximum(most / torch.full_like(most, width / 2), eps)
            return scale, torch.zeros_like(scale, dtype=torch.int64)
        scale = torch.maximum((high - low) / torch.full_like(high, width), eps)  # by a number it is a product on GPUs
        zero = self.quant_min - torch.round(low / scale).long()
        return scale, zero.clamp(self.quant_min, self.quant_max)

    def _nothing(self) -> tuple[Tensor, Tensor]:
        return torch.ones(1, device=self.eps.device), torch.zeros(1, dtype=torch.int64, device=self.eps.device)

    def extra_repr(self) -> str:
        """The ends of the integers."""
        return f"quant_min={self.quant_min}, quant_max={self.quant_max}"


class DummyObserver(DMXObserverBase):
    """Observes nothing: scale 1 and zero point 0.

    Example:
        >>> gs.compat.dmx.DummyObserver().calculate_qparams()
        (tensor([1.]), tensor([0]))
    """

    def forward(self, x: Tensor) -> Tensor:
        """``x``."""
        return x

    def calculate_qparams(self) -> tuple[Tensor, Tensor]:
        """Scale 1, zero point 0."""
        return self._nothing()


class MinMaxObserver(DMXObserverBase):
    """The least and the largest value of all observed tensors, for the tensor or for each channel.

    Args:
        dtype, qscheme, ch_axis, eps: as for ``DMXObserverBase``.

    Example:
        >>> observer = gs.compat.dmx.MinMaxObserver(qscheme=torch.per_tensor_symmetric)
        >>> observed = observer(torch.tensor([-127.0, 3.0]))
        >>> observer.calculate_qparams()
        (tensor([1.]), tensor([0]))
    """

    min_val: Tensor
    max_val: Tensor

    def __init__(
        self,
        dtype: Format | str | torch.dtype = "XP[8,0](CSN)",
        qscheme: torch.qscheme = torch.per_tensor_affine,
        ch_axis: int = -1,
        eps: float = _EPS,
    ) -> None:
        super().__init__(dtype, qscheme, ch_axis, eps)
        self.register_buffer("min_val", torch.tensor(float("inf")), persistent=False)
        self.register_buffer("max_val", torch.tensor(float("-inf")), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Observe the least and the largest value of ``x``, and return ``x``; empty tensors have none.

        Raises:
            CalibrationDataError (ValueError): for NaN and infinities.
        """
        if x.numel() == 0:
            return x
        v = checked(type(self).__name__, x)
        if self.is_per_channel:
            v = v.movedim(self.ch_axis, 0).reshape(v.shape[self.ch_axis], -1)
            low, high = v.amin(1), v.amax(1)
        else:
            low, high = v.aminmax()
        self.min_val = torch.minimum(self.min_val.to(low.device), low)
        self.max_val = torch.maximum(self.max_val.to(high.device), high)
        return x

    def calculate_qparams(self) -> tuple[Tensor, Tensor]:
        """The scale and the zero point of the observed range.

        Raises:
            ValueError: for a format that has no scale.
        """
        if bool((self.min_val > self.max_val).any()):
            return unseen(self)
        return self._qparams(self.min_val, self.max_val)

    def reset_min_max_vals(self) -> None:
        """Forget the observed range."""
        self.min_val = torch.full((), float("inf"), device=self.min_val.device)
        self.max_val = torch.full((), float("-inf"), device=self.max_val.device)

    def extra_repr(self) -> str:
        """The ends of the integers and of the observed range."""
        return f"{super().extra_repr()}, min_val={self.min_val.tolist()}, max_val={self.max_val.tolist()}"


def unseen(observer: DMXObserverBase) -> tuple[Tensor, Tensor]:
    """Scale 1 and zero point 0, with a warning."""
    name = type(observer).__name__
    warnings.warn(f"{name} has seen no data: scale 1, zero point 0. Call it with data first.", stacklevel=3)
    return observer._nothing()


def checked(owner: str, x: Tensor) -> Tensor:
    """``x`` as float32 without a gradient; ``CalibrationDataError`` for NaN and infinities."""
    v = x.detach().float()
    if not bool(v.isfinite().all()):
        raise CalibrationDataError(f"{owner}: NaN or infinity in the data; allowed: finite numbers.\n  Look for them.")
    return v


def _ends(fmt: Format) -> tuple[int | None, int | None]:
    if not (isinstance(fmt, FixedPoint) and fmt.fraction == 0 and fmt.clamp):
        return None, None
    high = 2 ** (fmt.precision - 1) - 1
    return -high - (0 if fmt.symmetric else 1), high


def _names(schemes: tuple[torch.qscheme, ...]) -> str:
    return ", ".join(map(str, schemes))
