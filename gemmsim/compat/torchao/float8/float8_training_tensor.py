"""``torchao.float8.float8_training_tensor``: float8 elements with their scale, and options of the three products."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..errors import LayoutError, StorageError, message, shown
from .float8_utils import to_fp8_saturated
from .products import CastOperand, decoded_product, hopper_product

__all__ = [
    "Float8TrainingTensor",
    "GemmInputRole",
    "LinearMMConfig",
    "ScaledMMConfig",
    "choose_scaled_mm_config",
    "hp_tensor_and_scale_to_float8",
]


class ScaledMMConfig(NamedTuple):
    """Options of one product. ``fp8_output`` and ``pad_inner_dim`` change no bits here.

    Example:
        >>> from gemmsim.compat.torchao.float8 import LinearMMConfig, ScaledMMConfig
        >>> LinearMMConfig(output=ScaledMMConfig(emulate=True)).output.emulate
        True
    """

    emulate: bool = False
    use_fast_accum: bool = False
    fp8_output: bool = False
    pad_inner_dim: bool = False


class LinearMMConfig(NamedTuple):
    """Options of a linear layer's three products.

    Example:
        >>> from gemmsim.compat.torchao.float8 import LinearMMConfig
        >>> config = LinearMMConfig()
        >>> config.output.use_fast_accum, config.grad_input.use_fast_accum
        (True, False)
    """

    output: ScaledMMConfig = ScaledMMConfig(use_fast_accum=True)
    grad_input: ScaledMMConfig = ScaledMMConfig()
    grad_weight: ScaledMMConfig = ScaledMMConfig()


class GemmInputRole(Enum):
    """The operand of a linear layer's products that a tensor is.

    Example:
        >>> from gemmsim.compat.torchao.float8 import GemmInputRole
        >>> [role.value for role in GemmInputRole]
        ['input', 'weight', 'grad_output']
    """

    INPUT = "input"
    WEIGHT = "weight"
    GRAD_OUTPUT = "grad_output"


#: Roles of both operands -> the product.
_PRODUCTS = {
    (GemmInputRole.INPUT, GemmInputRole.WEIGHT): "output",
    (GemmInputRole.GRAD_OUTPUT, GemmInputRole.WEIGHT): "grad_input",
    (GemmInputRole.GRAD_OUTPUT, GemmInputRole.INPUT): "grad_weight",
}


def choose_scaled_mm_config(
    a_role: GemmInputRole,
    a_linear_mm_config: LinearMMConfig,
    b_role: GemmInputRole,
    b_linear_mm_config: LinearMMConfig,
) -> ScaledMMConfig:
    """The options of the product of operands with these roles.

    Raises:
        StorageError: for other roles, and options that differ; a DTypeError and an AssertionError.

    Example:
        >>> from gemmsim.compat.torchao.float8 import GemmInputRole, LinearMMConfig, float8_training_tensor
        >>> config = LinearMMConfig()
        >>> float8_training_tensor.choose_scaled_mm_config(GemmInputRole.INPUT, config, GemmInputRole.WEIGHT, config)
        ScaledMMConfig(emulate=False, use_fast_accum=True, fp8_output=False, pad_inner_dim=False)
    """
    product = _PRODUCTS.get((a_role, b_role))
    if product is None:
        asked = f"a product of roles {shown(a_role)} and {shown(b_role)}"
        allowed = "input and weight, grad_output and weight, grad_output and input"
        raise StorageError(message(asked, allowed, "Give gemm_input_role= to the casts."))
    found: ScaledMMConfig = getattr(a_linear_mm_config, product)
    other: ScaledMMConfig = getattr(b_linear_mm_config, product)
    if found != other:
        asked = f"operands of {product} with {found} and {other}"
        raise StorageError(message(asked, "the same options for both", "Give one linear_mm_config to both casts."))
    return found


class Float8TrainingTensor:
    """Float8 elements, the scale that they were multiplied with, and their role in a linear layer.

    It is a value, not a subclass of ``torch.Tensor``. It has ``shape``, ``t()`` and ``to_original_precision()``, and
    ``torch.mm`` of two of them gives a tensor in the dtype from which the first was cast. It has no gradient.

    Args:
        data: elements, in a float8 dtype.
        scale: float32: one number, or with as many dimensions as ``data`` and size 1 along ``axiswise_dim``.
        orig_dtype: of the tensor that was cast.
        axiswise_dim: 0 or -1, along which elements share a scale; None: all share one.

    Raises:
        LayoutError: for another ``axiswise_dim``; a ShapeError and an AssertionError.

    Example:
        >>> from gemmsim.compat.torchao.float8 import Float8TrainingTensor
        >>> data = torch.tensor([[448.0, 32.0]]).to(torch.float8_e4m3fn)
        >>> Float8TrainingTensor(data, torch.tensor(64.0), torch.float32, None).to_original_precision()
        tensor([[7.0000, 0.5000]])
    """

    def __init__(
        self,
        data: Tensor,
        scale: Tensor,
        orig_dtype: torch.dtype,
        linear_mm_config: LinearMMConfig | None,
        gemm_input_role: GemmInputRole = GemmInputRole.INPUT,
        axiswise_dim: int | None = None,
    ) -> None:
        if axiswise_dim not in (None, 0, -1):
            asked = f"Float8TrainingTensor: axiswise_dim={shown(axiswise_dim)}"
            raise LayoutError(message(asked, "None, 0, -1", "Give -1 for rows, 0 for columns."))
        self._data, self._scale, self._orig_dtype = data, scale, orig_dtype
        self._linear_mm_config = LinearMMConfig() if linear_mm_config is None else linear_mm_config
        self._gemm_input_role, self._axiswise_dim = gemm_input_role, axiswise_dim

    @property
    def shape(self) -> torch.Size:
        """Of the elements."""
        return self._data.shape

    @property
    def dtype(self) -> torch.dtype:
        """Of the tensor that was cast."""
        return self._orig_dtype

    @property
    def device(self) -> torch.device:
        """Of the elements."""
        return self._data.device

    def to_original_precision(self) -> Tensor:
        """Elements in the dtype that was cast from, over the scale; the result has the wider dtype of both."""
        return self._data.to(self._orig_dtype) / self._scale

    def t(self) -> Float8TrainingTensor:
        """The transposed matrix, with its scales."""
        scale = self._scale.t() if self._scale.dim() > 1 else self._scale
        dim = None if self._axiswise_dim is None else -1 - self._axiswise_dim
        kind = (self._orig_dtype, self._linear_mm_config, self._gemm_input_role, dim)
        return Float8TrainingTensor(self._data.t(), scale, *kind)

    def __repr__(self) -> str:
        how = f"lp_dtype={self._data.dtype}, scale={self._scale}, axiswise_dim={self._axiswise_dim}"
        return f"Float8TrainingTensor({how}, gemm_input_role={self._gemm_input_role}, shape={tuple(self.shape)})"

    @classmethod
    def __torch_function__(
        cls, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """``torch.mm`` and ``torch.matmul`` of two matrices."""
        both = len(args) == 2 and all(isinstance(one, cls) and len(one.shape) == 2 for one in args)
        if func in (torch.mm, torch.matmul) and both and not kwargs:
            return _product(*args)
        asked = f"{getattr(func, '__name__', func)} of a Float8TrainingTensor"
        do = "Use .to_original_precision() for a tensor."
        raise StorageError(message(asked, "torch.mm of two matrices that are Float8TrainingTensor", do))


def _product(a: Float8TrainingTensor, b: Float8TrainingTensor) -> Tensor:
    roles = (a._gemm_input_role, a._linear_mm_config, b._gemm_input_role, b._linear_mm_config)
    options = choose_scaled_mm_config(*roles)
    x, y = CastOperand(a._data, a._scale), CastOperand(b._data, b._scale)
    if options.emulate:
        return decoded_product(x, y, a.dtype)
    return hopper_product(x, y, a.dtype, options.use_fast_accum)


@torch.no_grad()
def hp_tensor_and_scale_to_float8(
    hp_tensor: Tensor,
    s: Tensor,
    float8_dtype: torch.dtype,
    linear_mm_config: LinearMMConfig | None = None,
    gemm_input_role: GemmInputRole = GemmInputRole.INPUT,
    axiswise_dim: int | None = None,
) -> Float8TrainingTensor:
    """``hp_tensor`` times ``s``, rounded to float32 and then to ``float8_dtype`` with saturation. It has no gradient.

    Raises:
        ElementError: for another dtype; it is a ValueError and an AssertionError.

    Example:
        >>> from gemmsim.compat.torchao.float8.float8_training_tensor import hp_tensor_and_scale_to_float8
        >>> encoded = hp_tensor_and_scale_to_float8(torch.tensor([[7.0, 0.3]]), torch.tensor(64.0), torch.float8_e4m3fn)
        >>> encoded.to_original_precision()
        tensor([[7.0000, 0.3125]])
    """
    data = to_fp8_saturated(hp_tensor.detach().to(torch.float32) * s, float8_dtype)
    return Float8TrainingTensor(data, s, hp_tensor.dtype, linear_mm_config, gemm_input_role, axiswise_dim)
