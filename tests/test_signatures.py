"""No function takes more than eight arguments, but for those listed here with their reason; what belongs together is a record.

Left out are ``gemmsim/compat``, whose signatures are those of the packages it stands for, and the files that register
operators: kernels, fake kernels and batching rules have an operator's schema, which is flat.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from support import ROOT

MOST = 8
OPERATORS = {"operators.py", "matmul_operator.py", "batching.py"}
_PYTORCH = "mirrors PyTorch's function or module of the same name, and adds formats"
_PEER = "mirrors a peer's function of the same name"
_BLOCKS = ("DynamicBlockQuantization", "StaticBlockQuantization")
_PUBLIC = "public: every argument is one that a user may name"
_AUTOGRAD = "forward of an autograd function, which takes tensors and values side by side"
_PRODUCT = "a product on its way to a backend: operands, spec, result, seed, addend, indices, finish"
_LOWERING = "lowering: what PyTorch's function takes, after the sites of its products"
_ROWS = "a row operation on its way to a backend, all but four by name"
_RECORD = "fills a C record, a field for an argument"
_LOG = "the log of the reference: what a step tells, once"

#: Function, with its class, -> why it takes more than eight arguments.
REASONS = {
    **dict.fromkeys(("_qconv", "_qconv_transpose"), _PYTORCH),
    **dict.fromkeys(("qattention", "qbatchnorm", "qembedding", "qavgpool"), _PYTORCH),
    **dict.fromkeys(("QMultiheadAttention.__init__", "_QBatchNorm.__init__", "QEmbedding.__init__"), _PYTORCH),
    **dict.fromkeys(("QAdam.__init__", "QAdamW.__init__", "QSGD.__init__"), _PYTORCH),
    **dict.fromkeys(("dynamic_block_quant", "scaled_e4m3", "fake_tensor_quant"), _PEER),
    **dict.fromkeys((f"{name}Function.forward" for name in ("FakeTensorQuant", *_BLOCKS)), _PEER),
    **dict.fromkeys(("ScaledQuantDescriptor.__init__", "match_mac_format_with_cublas_types"), _PEER),
    **dict.fromkeys(("QAffineFormats.__init__", "QSoftmaxFormats.__init__", "QLayerNormFormats.__init__"), _PUBLIC),
    **dict.fromkeys(("MXTensor.__new__", "int_linear", "fit", "bits", "element"), _PUBLIC),
    **dict.fromkeys(
        (
            "bits_command",
            "audit_command",
            "study_run",
            "identify",
            "identify_command",
            "vectors_command",
            "search_command",
        ),
        _PUBLIC,
    ),
    **dict.fromkeys(("qmatmul", "qmm", "scaled_mm"), _PYTORCH),
    "Library.plan": _PUBLIC,
    **dict.fromkeys(("plan_command", "record_command", "diff_command"), _PUBLIC),
    **dict.fromkeys(("DynamicBlock.forward", "FakeQuant.forward", "_Sum.forward", "AffineFunction.forward"), _AUTOGRAD),
    **dict.fromkeys(("ConvFunction.forward", "PlainFunction.forward"), _AUTOGRAD),
    **dict.fromkeys(("matmul", "general_matmul", "gemm", "product", "_fprop", "Product.__init__"), _PRODUCT),
    **dict.fromkeys(("gemm_codes", "operands_of", "_members_run", "_call"), _PRODUCT),
    **dict.fromkeys(("affine", "_qmatmul"), _PRODUCT),
    **dict.fromkeys(("attention", "_math", "_flash", "_attend", "_multihead", "_encoder_layer"), _LOWERING),
    **dict.fromkeys(("_transpose.conv_transpose", "_any_convolution", "_convolution_mode"), _LOWERING),
    **dict.fromkeys(("_linear_cross_entropy", "_scaled_mm", "_scaled_mm_v2"), _LOWERING),
    **dict.fromkeys(("_batch_norm", "_batch_norm_of_aten", "_instance_norm", "_instance_norm_of_aten"), _LOWERING),
    "_Outer.forward": _AUTOGRAD,
    "affine_conv": _PRODUCT,
    **dict.fromkeys(("run_rows", "Backend.run_rows"), _ROWS),
    "_args": _RECORD,
    "_Counter.__call__": _LOG,
    "_Recorder.__call__": _LOG,
}


def functions(tree: ast.AST, within: str = "") -> Iterator[tuple[str, ast.FunctionDef]]:
    """(name with its classes and functions, function) of all in a file."""
    for node in ast.iter_child_nodes(tree):
        name = within
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
            name = f"{within}{node.name}."
            if isinstance(node, ast.FunctionDef):
                yield name[:-1], node
        yield from functions(node, name)


def count(function: ast.FunctionDef) -> int:
    """Arguments besides ``self`` and ``cls``."""
    names = [one.arg for one in (*function.args.posonlyargs, *function.args.args)]
    return len(names) + len(function.args.kwonlyargs) - int(names[:1] in (["self"], ["cls"]))


def long_signatures() -> dict[str, str]:
    found = {}
    for path in sorted((ROOT / "gemmsim").rglob("*.py")):
        if "compat" not in path.parts and path.name not in OPERATORS:
            for name, function in functions(ast.parse(path.read_text(encoding="utf-8"))):
                if count(function) > MOST:
                    found[name] = f"{path.relative_to(ROOT)}:{function.lineno}"
    return found


def test_functions_with_many_arguments_are_listed_with_their_reason():
    more = {name: where for name, where in long_signatures().items() if name not in REASONS}
    assert not more, f"more than {MOST} arguments; make a record (NamedTuple) of what belongs together: {more}"


def test_every_reason_listed_is_still_needed():
    assert set(REASONS) <= set(long_signatures()), set(REASONS) - set(long_signatures())


def test_arguments_are_counted():
    tree = ast.parse("class A:\n    def f(self, a, /, b, *, c): ...\ndef g(*args, **kwargs): ...")
    assert {name: count(function) for name, function in functions(tree)} == {"A.f": 3, "g": 0}
