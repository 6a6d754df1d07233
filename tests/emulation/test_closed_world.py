"""No product escapes: PyTorch's own samples of all its operators, run under the emulation by a watching mode.

A new PyTorch with a new operator that multiplies fails here, and gets an override, or a line in ``STAY``.
"""

from itertools import islice

import pytest
import torch
from emulation.samples import operators
from support import LONG
from torch.utils._python_dispatch import TorchDispatchMode

from gemmsim.emulation.context import emulate
from gemmsim.emulation.overrides.table import TABLE

LINEAR_ALGEBRA = "linear algebra: PyTorch's, in C++, by decision; its gradients multiply"
#: Operators whose products stay PyTorch's, and why.
STAY = {
    **dict.fromkeys(
        [
            *("cholesky", "cholesky_inverse", "cholesky_solve", "linalg.cholesky", "linalg.cholesky_ex"),
            *("lu", "lu_solve", "linalg.lu", "linalg.lu_factor", "linalg.lu_factor_ex", "linalg.lu_solve", "lu_unpack"),
            *("qr", "ormqr", "linalg.qr", "linalg.householder_product", "geqrf"),
            *("svd", "svd_lowrank", "pca_lowrank", "linalg.svd", "linalg.svdvals", "linalg.cond"),
            *("linalg.eig", "linalg.eigvals", "linalg.eigh", "linalg.eigvalsh", "symeig"),
            *("norm", "linalg.norm", "linalg.matrix_norm", "linalg.matrix_rank", "logdet", "linalg.det"),
            *("linalg.slogdet", "linalg.inv", "linalg.inv_ex", "inverse", "pinverse", "linalg.pinv"),
            *("linalg.solve", "linalg.solve_ex", "linalg.solve_triangular", "triangular_solve"),
            *("linalg.lstsq", "linalg.tensorinv", "linalg.tensorsolve", "matrix_exp", "linalg.matrix_exp"),
            *("linalg.ldl_factor", "linalg.ldl_factor_ex", "linalg.ldl_solve"),
        ],
        LINEAR_ALGEBRA,
    ),
    "linalg.matrix_power": "negative powers: the gradient of the inverse is linear algebra",
    **dict.fromkeys(("sparse.sampled_addmm", "sparse.mm"), "sparse tensors know their own products"),
}  # fmt: skip
ATTENTION = {"nn.functional.scaled_dot_product_attention", "nn.functional.multi_head_attention_forward"}
if torch.nn.functional.scaled_dot_product_attention not in TABLE:
    STAY.update(dict.fromkeys(ATTENTION, "attention has no override"))

#: Operators of which more samples are looked at, since their products depend on arguments.
WIDE = (
    *(
        "addbmm",
        "addmm",
        "addmv",
        "addr",
        "baddbmm",
        "bmm",
        "cdist",
        "chain_matmul",
        "corrcoef",
        "cov",
        "dot",
        "einsum",
    ),
    *("inner", "linalg.multi_dot", "linalg.vecdot", "matmul", "__rmatmul__", "mm", "mv", "tensordot", "vdot"),
    *("nn.functional.bilinear", "nn.functional.linear", "nn.functional.scaled_dot_product_attention"),
    *(f"nn.functional.conv{kind}{n}d" for n in (1, 2, 3) for kind in ("", "_transpose")),
)
#: Parts of names of operators that multiply matrices.
PARTS = ("mm", "conv", "matmul", "dot", "attention", "rnn", "lstm", "gru", "einsum", "encoder_layer")
WHOLE = ("mv", "addmv", "linear", "linear_backward", "_trilinear", "_euclidean_dist")
#: Parts of names of operators that do not.
OTHERS = ("gamma", "cummax", "cummin")
SHARES = 4


def multiplies(name: str) -> bool:
    """Whether an operator of this name is a product of matrices."""
    return name in WHOLE or (any(p in name for p in PARTS) and not any(p in name for p in OTHERS))


class Watch(TorchDispatchMode):
    """Notes the names of PyTorch's products that run on anything."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func.namespace == "aten" and multiplies(func._schema.name.removeprefix("aten::")):
            tensors = [t for t in torch.utils._pytree.tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
            if all(t.numel() for t in tensors) and any(t.is_floating_point() for t in tensors):
                self.seen.add(func._schema.name.removeprefix("aten::"))
        return func(*args, **kwargs)


def escaped(op, count: int | None) -> set[str]:
    """Products of PyTorch's that ran in the first samples of an operator, forward and backward."""
    watch = Watch()
    gradients = op.supports_autograd
    torch.manual_seed(0)
    samples = op.sample_inputs_func(op, "cpu", torch.float32, gradients)  # its method reads the stack of each call
    for sample in islice(samples, count):
        with watch, emulate(":fp32"):
            out = op(sample.input, *sample.args, **sample.kwargs)
            results = [
                t for t in torch.utils._pytree.tree_leaves(out) if isinstance(t, torch.Tensor) and t.requires_grad
            ]
            if gradients and results:
                torch.autograd.backward([t.abs().sum() if t.is_complex() else t.sum() for t in results])
    return watch.seen


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("share", range(SHARES))
def test_no_product_escapes(share):
    found = {}
    for op in operators()[share::SHARES]:
        if op.name in STAY and not LONG:
            continue
        count = None if LONG else 12 if op.name in WIDE else 3
        if seen := escaped(op, count):
            found.setdefault(op.name, set()).update(seen)
    new = {name: seen for name, seen in found.items() if name not in STAY}
    assert not new, f"operators whose products are PyTorch's under the emulation: {new}"


def test_the_watch_sees_products():
    with Watch() as watch:
        a = torch.ones(2, 3, requires_grad=True)
        torch.nn.functional.linear(a, torch.ones(4, 3), torch.ones(4)).sum().backward()
        torch.nn.functional.conv1d(torch.ones(1, 2, 5), torch.ones(3, 2, 2))
        torch.lgamma(torch.ones(3))
        torch.mm(torch.ones(0, 3), torch.ones(3, 2))
    assert watch.seen == {"addmm", "mm", "convolution"}
