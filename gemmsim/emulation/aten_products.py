"""Finds the operators that multiply matrices, with the batch, M, K, N and operands of each of their products.

An operator of PyTorch's dispatcher is a primitive operation if it multiplies itself; one that is composed of others is
not. Some primitive operations compute several products (fused attention, the backward pass of a convolution).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from math import prod
from typing import Any, NamedTuple

import torch
from torch import Tensor

__all__ = ["Leaf", "Shape", "Windows", "batch_of", "is_algebra", "is_unknown", "leaves", "reads"]

#: batch, M, K, N.
Shape = tuple[int, int, int, int]


class Windows(NamedTuple):
    """Where the windows of a convolution lie: output o meets the image at ``o * stride + k * dilation - padding``."""

    output_size: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int


class Leaf(NamedTuple):
    """One product of a primitive operation.

    ``a`` (..., M, K) and ``b`` (..., K, N): its operands, if they are tensors of the call. A convolution's operands are
    image and filter. ``role``: the product's role, if the operator itself says it. ``spec``: of an emulated product.
    ``site``: the name of its call site, "path|kind", or None. ``result``: the index of its result among the operator's.
    ``plan``: "family, evidence, source" of the library that chose the spec, "" where none did.
    ``windows``: of a convolution (N, C, ...) with (F, C / groups, ...) that is not transposed; else None.
    """

    shape: Shape
    a: Tensor | None = None
    b: Tensor | None = None
    role: str | None = None
    spec: str = "native"
    site: str | None = None
    result: int = 0
    plan: str = ""
    windows: Windows | None = None

    @property
    def macs(self) -> int:
        """Multiply-adds."""
        return prod(self.shape)


Reader = Callable[[Mapping[str, Any]], list[Leaf]]
_READERS: dict[Any, Reader] = {}
_aten = torch.ops.aten


def reads(*names: str, namespace: str = "aten") -> Callable[[Reader], Reader]:
    """Registers a function that reads the products of these operators from their arguments by name.

    Operators that this PyTorch lacks are skipped.
    """

    def register(reader: Reader) -> Reader:
        found = getattr(torch.ops, namespace)
        for name in names:
            if hasattr(found, name):
                _READERS[getattr(found, name)] = reader
        return reader

    return register


def leaves(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Leaf] | None:
    """The products of a call of an ``OpOverload``; None if it is no primitive operation."""
    reader = _READERS.get(func._overloadpacket)
    return None if reader is None else reader(_named(func, args, kwargs))


#: Operator -> names and defaults of its arguments. Reading a schema costs more than a small product.
_SCHEMAS: dict[Any, list[tuple[str, Any]]] = {}


def _named(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments by their names in the operator's schema, omitted ones with their defaults."""
    schema = _SCHEMAS.get(func)
    if schema is None:
        schema = _SCHEMAS[func] = [
            (one.name, one.default_value if one.has_default_value() else None) for one in func._schema.arguments
        ]
    found = dict(schema)
    found.update(zip((name for name, _ in schema), args, strict=False))
    found.update(kwargs)
    return found


def batch_of(a: Tensor, b: Tensor) -> int:
    """How many matrices a product of batches has. Batch dimensions broadcast."""
    if a.dim() == 2 == b.dim():
        return 1
    return int(prod(torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])))


def _product(a: Tensor, b: Tensor, **more: Any) -> Leaf:
    """``a @ b`` of matrices, batches of matrices and vectors."""
    left = a.unsqueeze(0) if a.dim() == 1 else a
    right = b.unsqueeze(1) if b.dim() == 1 else b
    shape = (batch_of(left, right), int(left.shape[-2]), int(left.shape[-1]), int(right.shape[-1]))
    return Leaf(shape, left, right, **more)


@reads("mm", "bmm", "_int_mm", "_scaled_mm", "_scaled_mm_v2")
def _mm(at: Mapping[str, Any]) -> list[Leaf]:
    a, b = (at[name] for name in at if name in ("self", "mat2"))
    return [_product(a, b)]


#: Operators that are one product, with the names of its operands.
_OPERANDS: tuple[tuple[tuple[str, ...], str, str], ...] = (
    (("addmm", "_addmm_activation", "_sparse_addmm", "sparse_sampled_addmm"), "mat1", "mat2"),
    (("_sparse_sparse_matmul",), "self", "other"),
    (("baddbmm", "addbmm"), "batch1", "batch2"),
    (("mv",), "self", "vec"),
    (("addmv",), "mat", "vec"),
)


def _one(left: str, right: str, at: Mapping[str, Any]) -> list[Leaf]:
    return [_product(at[left], at[right])]


for _operators, _left, _right in _OPERANDS:
    reads(*_operators)(partial(_one, _left, _right))


@reads("_weight_int8pack_mm", "_weight_int4pack_mm_for_cpu")
def _packed(at: Mapping[str, Any]) -> list[Leaf]:
    """Products with weights (N, ...) of few bits, whose layout along K depends on the operator."""
    x, weight = at["self"], at["mat2"]
    return [Leaf((1, int(x.shape[0]), int(x.shape[1]), int(weight.shape[0])))]


@reads("dot", "vdot")
def _dot(at: Mapping[str, Any]) -> list[Leaf]:
    return [_product(*(value for value in at.values() if isinstance(value, Tensor)))]


@reads("_grouped_mm", "_scaled_grouped_mm")
def _grouped(at: Mapping[str, Any]) -> list[Leaf]:
    """Groups of rows, of columns or of terms. The operand that is a stack of matrices says which."""
    a, b = at["self"], at["mat2"]
    if a.dim() == 2 and b.dim() == 2:  # groups are ranges of terms, whose sizes add up to K
        return [_product(a, b)]
    if a.dim() == 2:
        return [Leaf((1, int(a.shape[0]), int(a.shape[1]), int(b.shape[-1])), a, b)]
    if b.dim() == 2:
        return [Leaf((1, int(a.shape[1]), int(a.shape[2]), int(b.shape[1])), a, b)]
    return [_product(a, b)]


@reads("_euclidean_dist")
def _distance(at: Mapping[str, Any]) -> list[Leaf]:
    """The squared norms are two more terms of each sum."""
    x, y = at["x1"], at["x2"]
    return [Leaf((batch_of(x, y), int(x.shape[-2]), int(x.shape[-1]) + 2, int(y.shape[-2])))]


@reads("_trilinear")
def _trilinear(at: Mapping[str, Any]) -> list[Leaf]:
    """Sums of products of three factors, with one term for each combination of summed indices."""
    shapes = []
    for i, name in ((1, "i1"), (2, "i2"), (3, "i3")):
        shape = list(at[name].shape)
        for dim in sorted(at[f"expand{i}"]):
            shape.insert(dim, 1)
        shapes.append(shape)
    full = torch.broadcast_shapes(*shapes)
    terms = prod(full[dim] for dim in at["sumdim"])
    return [Leaf((1, int(prod(full) // max(terms, 1)), int(terms), 1))]


# Convolutions. Their products have M = images x positions, K = channels of a group x taps, N = filters of a group.


def _conv_shape(x: Tensor, weight: Any, out: Any, transposed: bool, groups: int) -> Shape:
    """(groups, M, K, N) of a convolution. The positions of a transposed convolution are those of its input."""
    places = prod((x.shape if transposed else out)[2:])
    taps = prod(weight.shape[2:])
    if transposed:
        return groups, int(x.shape[0] * places), int(weight.shape[0] // groups), int(weight.shape[1] * taps)
    return groups, int(x.shape[0] * places), int(weight.shape[1] * taps), int(weight.shape[0] // groups)


def _conv_out(at: Mapping[str, Any], x: Tensor, weight: Tensor) -> list[int]:
    """Shape of an ordinary convolution's result."""
    sizes = []
    for i, (n, k) in enumerate(zip(x.shape[2:], weight.shape[2:], strict=True)):
        stride, padding, dilation = (_at(at[name], i) for name in ("stride", "padding", "dilation"))
        sizes.append((n + 2 * padding - dilation * (k - 1) - 1) // stride + 1)
    return [x.shape[0], weight.shape[0], *sizes]


def _at(values: Any, i: int) -> Any:
    return values if isinstance(values, int) else values[i if len(values) > 1 else 0]


@reads("convolution", "_convolution", "convolution_overrideable", "cudnn_convolution", "mkldnn_convolution")
def _convolution(at: Mapping[str, Any]) -> list[Leaf]:
    x, weight = at["input"] if "input" in at else at["self"], at["weight"]
    transposed = bool(at.get("transposed", False))
    out = None if transposed else _conv_out(at, x, weight)
    shape = _conv_shape(x, weight, out, transposed, at["groups"])
    windows = None if out is None else _windows(at, out[2:])
    return [Leaf(shape, x, weight, windows=windows)]


def _windows(at: Mapping[str, Any], sizes: list[int]) -> Windows:
    axes = range(len(sizes))
    stride, padding, dilation = (tuple(_at(at[name], i) for i in axes) for name in ("stride", "padding", "dilation"))
    return Windows(tuple(sizes), stride, padding, dilation, at["groups"])


@reads("cudnn_convolution_transpose", "miopen_convolution_transpose")
def _convolution_transpose(at: Mapping[str, Any]) -> list[Leaf]:
    x, weight = at["self"], at["weight"]
    return [Leaf(_conv_shape(x, weight, None, True, at["groups"]), x, weight)]


@reads("conv_tbc")
def _conv_tbc(at: Mapping[str, Any]) -> list[Leaf]:
    x, weight = at["self"], at["weight"]
    places = x.shape[0] + 2 * at["pad"] - weight.shape[0] + 1
    taps, into, filters = weight.shape
    return [Leaf((1, int(places * x.shape[1]), int(taps * into), int(filters)), x, weight)]


@reads("convolution_backward", "convolution_backward_overrideable")
def _convolution_backward(at: Mapping[str, Any]) -> list[Leaf]:
    grad, x, weight = at["grad_output"], at["input"], at["weight"]
    groups, m, k, n = _conv_shape(x, weight, grad.shape, at["transposed"], at["groups"])
    found = []
    if at["output_mask"][0]:
        found.append(Leaf((groups, m, n, k), grad, weight, "dgrad"))
    if at["output_mask"][1]:
        found.append(Leaf((groups, k, m, n), x, grad, "wgrad", result=1))
    return found


# Fused kernels with products that no other operator shows.

_FUSED = ("flash_attention", "efficient_attention", "cudnn_attention", "fused_attention_overrideable")


@reads(*(f"_scaled_dot_product_{name}" for name in (*_FUSED, "flash_attention_for_cpu")))
def _attention(at: Mapping[str, Any]) -> list[Leaf]:
    """The products that give the scores and the weighted values."""
    q, k, v = at["query"], at["key"], at["value"]
    scores, values = _attention_shapes(q, k, v)
    return [Leaf(scores, q, k.mT), Leaf(values, None, v)]


@reads(*(f"_scaled_dot_product_{name}_backward" for name in (*_FUSED, "flash_attention_for_cpu")))
def _attention_backward(at: Mapping[str, Any]) -> list[Leaf]:
    """The scores again, then the gradients of scores, values, query and key."""
    grad = at.get("grad_out", at.get("grad_out_"))
    (b, m, d, n), (_, _, _, e) = _attention_shapes(at["query"], at["key"], at["value"])
    return [
        Leaf((b, m, d, n), at["query"], at["key"].mT, "fprop"),
        Leaf((b, m, e, n), grad, at["value"].mT, "dgrad"),
        Leaf((b, n, m, e), None, grad, "wgrad", result=2),
        Leaf((b, m, n, d), None, at["key"], "dgrad"),
        Leaf((b, n, m, d), None, at["query"], "wgrad", result=1),
    ]


def _attention_shapes(q: Tensor, k: Tensor, v: Tensor) -> tuple[Shape, Shape]:
    """Shapes of the two products of (B, heads, L, E) operands."""
    batch, length, source = int(prod(q.shape[:-2])), int(q.shape[-2]), int(k.shape[-2])
    return (batch, length, int(q.shape[-1]), source), (batch, length, source, int(v.shape[-1]))


@reads("mkldnn_rnn_layer")
def _mkldnn_rnn(at: Mapping[str, Any]) -> list[Leaf]:
    """One product with the input of all steps, and one product with the state for each step."""
    x, ih, hh = at["input"], at["weight0"], at["weight1"]
    steps, rows = int(x.shape[0]), int(prod(x.shape[:-1]))
    return [Leaf((1, rows, int(ih.shape[1]), int(ih.shape[0]))),
            Leaf((steps, rows // max(steps, 1), int(hh.shape[1]), int(hh.shape[0])))]  # fmt: skip


@reads("mkldnn_rnn_layer_backward")
def _mkldnn_rnn_backward(at: Mapping[str, Any]) -> list[Leaf]:
    found = []
    tensors = [value for value in at.values() if isinstance(value, Tensor)]
    x, ih, hh = tensors[0], tensors[1], tensors[2]
    steps, rows = int(x.shape[0]), int(prod(x.shape[:-1]))
    for weight in (ih, hh):
        n, k = (int(size) for size in weight.shape)
        found.append(Leaf((1, rows, n, k), role="dgrad"))
        found.append(Leaf((1, n, rows, k), role="wgrad"))
    return found if steps else []


@reads("_cudnn_rnn", "miopen_rnn", "_cudnn_rnn_backward", "miopen_rnn_backward")
def _fused_rnn(at: Mapping[str, Any]) -> list[Leaf]:
    """All layers in one operator, over the rows of all steps.

    There is one product for each weight matrix, and two in a backward pass.
    """
    x, weights = at["input"], at["weight"]
    rows, back = int(prod(x.shape[:-1])), "grad_output" in at
    found = []
    for weight in weights:
        if weight.dim() == 2:
            n, k = (int(size) for size in weight.shape)
            found += [Leaf((1, rows, n, k), role="dgrad"), Leaf((1, n, rows, k), role="wgrad")] if back else [
                Leaf((1, rows, k, n))]  # fmt: skip
    return found


#: Operators of PyTorch with products inside, whose sizes the arguments do not give.
_UNKNOWN = frozenset(
    (
        *("_cslt_sparse_mm", "_sparse_semi_structured_mm", "_sparse_semi_structured_addmm"),
        *("_sparse_semi_structured_linear", "_mixed_dtypes_linear", "_weight_int4pack_mm", "_dyn_quant_matmul_4bit"),
        *("_flash_attention_forward", "_flash_attention_backward", "_efficient_attention_forward"),
        *("_efficient_attention_backward", "fbgemm_linear_int8_weight", "fbgemm_linear_fp16_weight"),
        *("fbgemm_linear_int8_weight_fp32_activation", "fbgemm_linear_fp16_weight_fp32_activation"),
        *("quantized_lstm", "quantized_gru", "quantized_lstm_cell", "quantized_gru_cell", "quantized_rnn_relu_cell"),
        *("quantized_rnn_tanh_cell", "mkldnn_linear", "mkldnn_linear_backward", "mkldnn_linear_backward_weights"),
        *("mkldnn_linear_backward_input", "smm", "sspaddmm", "hspmm", "slow_conv3d", "slow_conv3d_forward"),
        *("slow_conv_transpose2d", "slow_conv_transpose3d", "slow_conv_dilated2d", "slow_conv_dilated3d"),
        *("thnn_conv2d", "_slow_conv2d_forward", "_slow_conv2d_backward"),
    )
)

#: Linear algebra, whose libraries multiply matrices inside. It is a kind of its own.
_ALGEBRA = frozenset(
    (
        *("inverse", "matrix_exp", "linalg_matrix_exp", "linalg_inv_ex", "linalg_solve_ex", "_linalg_solve_ex"),
        *("linalg_cholesky_ex", "cholesky", "cholesky_inverse", "cholesky_solve", "_cholesky_solve_helper"),
        *("linalg_eig", "linalg_eigvals", "_linalg_eigvals", "_linalg_eigh", "linalg_qr", "linalg_lstsq"),
        *("_linalg_svd", "linalg_lu", "linalg_lu_factor_ex", "linalg_lu_solve", "_linalg_det", "_linalg_slogdet"),
        *("linalg_ldl_factor_ex", "linalg_ldl_solve", "linalg_householder_product", "linalg_solve_triangular"),
        *("triangular_solve", "ormqr", "geqrf", "linalg_pinv"),
        # Composed of others, which they choose differently while a mode is in force. They count as one operator.
        *("linalg_svdvals", "linalg_eigvalsh", "linalg_cond"),
    )
)


def is_algebra(func: Any) -> bool:
    """Whether an ``OpOverload`` is linear algebra."""
    return func.namespace == "aten" and func._schema.name.partition("::")[2] in _ALGEBRA


def is_unknown(func: Any) -> bool:
    """Whether an ``OpOverload`` multiplies matrices, and its arguments do not say of which sizes."""
    return func.namespace == "aten" and func._schema.name.partition("::")[2] in _UNKNOWN
