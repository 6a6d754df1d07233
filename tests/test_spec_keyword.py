"""``spec`` is the one keyword for what is computed; former keywords go on working, and errors name it."""

from __future__ import annotations

import copy
import dataclasses
import importlib
import inspect
import pickle
import re
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from support import ROOT, assert_bitwise_equal, run_python
from torch import nn

import gemmsim as gs
from gemmsim import tensor_quant as tq
from gemmsim._keywords import takes_spec
from gemmsim.emulation import Config, Rule

pytestmark = pytest.mark.filterwarnings("default:.*the keyword is spec now:DeprecationWarning")

PACKAGES = sorted(
    ".".join(path.parent.relative_to(ROOT).parts)
    for path in (ROOT / "gemmsim").rglob("__init__.py")
    if not {"compat", "backends", "cli", "study", "lowering"} & set(path.parts)
)
MODULES = [*PACKAGES, "gemmsim.acc", "gemmsim.functional", "gemmsim.recipes"]
#: Types of what a spec string, or a list of rules of them, can say.
SPECS = re.compile(
    r"FormatsLike|SpecLike|ConfigLike|RuleFormats|QAttentionFormats|AccumulatorLike|\bstr \| Accumulator"
)
FORMER = {"acc", "accumulator", "config", "formats", "register"}
#: Parameters of these types or names that are something else, with the reason.
_PARTS = "parts of one spec, or several specs, each with its name"
_MX = "an MXLinearConfig, MXInferenceConfig or MXAttentionConfig, whose fields name the formats of operands"
_LIST = "a list of formats"
_CONFIGURATION = "what the heuristic of a library returned: nine integers"
_NUMBERS = "quantisers by the names of layers"
OTHERS = {
    **dict.fromkeys(("GemmSpec", "QAffineFormats", "QAttentionFormats", "compare"), _PARTS),
    **dict.fromkeys(("MXAttentionConfig", "MXInferenceConfig", "MXLinearConfig", "reference.total"), _PARTS),
    "rules": _PARTS,  # what kept layers compute
    **dict.fromkeys(("QMultiheadAttention", "QMultiheadAttention.from_float"), _PARTS),  # projection
    **{
        f"{layer}{method}": _MX
        for layer in ("MXLinear", "NVFP4Linear", "MXInferenceLinear", "NVFP4InferenceLinear")
        for method in ("", ".from_float", ".read_config")
    },
    **dict.fromkeys(("mx_attention", "trained_matmul"), _MX),
    **dict.fromkeys(("swap_linear_with_mx_linear", "swap_linear_with_mx_inference_linear"), _MX),
    "quantize_": f"{_NUMBERS}; {_MX}",
    "plot_formats": _LIST,
    **{
        f"{library}.{method}": _CONFIGURATION
        for library in ("Library", "CublasLt", "LiveCublasLt", "BatchInvariant", "CutlassSplitK")
        for method in ("plan", "matmul")
    },
    **dict.fromkeys(("Plan", "TableRow", "LiveCublasLt.run"), _CONFIGURATION),
    "StepTrace": "a number that a register holds",
    "LayerRow": "a register's text",
    "SearchResult": "what was found",
}


def public() -> Iterator[tuple[str, Any]]:
    """(name, callable) of all public functions, classes and methods, each once; constructors of accumulators, whose
    arguments are accumulators, are not among them."""
    seen: set[int] = set()
    for package in MODULES:
        module = importlib.import_module(package)
        for name in getattr(module, "__all__", ()):
            one = getattr(module, name)
            if not callable(one) or id(one) in seen:
                continue
            seen.add(id(one))
            part = package.rpartition(".")[2]
            if part == "acc" and name != "count_overflows":
                continue
            name = f"{part}.{name}" if part in ("acc", "reference") else name
            yield name, one
            if inspect.isclass(one):
                for key in dir(one):
                    method = getattr(one, key, None)
                    if (
                        key[0] != "_"
                        and callable(method)
                        and str(getattr(method, "__module__", "")).startswith("gemmsim")
                    ):
                        yield f"{name}.{key}", method
            elif not inspect.isfunction(one) and type(one).__module__.startswith("gemmsim"):
                for key in vars(type(one)):
                    if key[0] != "_":
                        yield f"{name}.{key}", getattr(one, key)


def parameters(one: Any) -> dict[str, inspect.Parameter]:
    try:
        return dict(inspect.signature(one).parameters)
    except (TypeError, ValueError):
        return {}


PUBLIC = [(name, one) for name, one in public() if parameters(one)]
TAKES = {name: one for name, one in PUBLIC if "spec" in parameters(one)}


def test_everything_that_takes_a_spec_takes_it_as_spec():
    other = {}
    for name, one in PUBLIC:
        for key, parameter in parameters(one).items():
            if key != "spec" and (key in FORMER or SPECS.search(str(parameter.annotation))):
                other.setdefault(name, []).append(key)
    assert {name: keys for name, keys in other.items() if name not in OTHERS} == {}
    assert set(OTHERS) <= set(other)
    assert len(TAKES) > 60


#: Fields of records and values of one kind, which are read and not written.
READ = {"Trace", "Record", "BackendRecord", "Difference", "Identification", "LayerRow"}
#: Called for each product or by the slow reference: Python's own TypeError has to do.
BARE = {"GemmSpec.of", "reference.gemm", "reference.count_events", "reference.count_overflows"}


@pytest.mark.parametrize("name", sorted(set(TAKES) - READ - BARE))
def test_a_wrong_keyword_is_told_the_right_one(name):
    one = TAKES[name]
    former = getattr(one.__init__ if inspect.isclass(one) else one, "former_keywords", None)
    assert former is not None, f"{name} takes a spec without takes_spec"
    for wrong in {"acc", "fmt", "format", "accumulator", "config", "formats"} - set(former) - set(parameters(one)):
        with pytest.raises(
            TypeError, match=rf"unexpected keyword argument '{wrong}'; allowed: spec.\n  Try spec='e4m3'"
        ):
            one(**{wrong: "e4m3"})


def layer(kind: str, *args: Any) -> Callable[..., Any]:
    """The layer's result on numbers that only depend on its arguments."""

    def made(**how: Any) -> Any:
        torch.manual_seed(0)
        module = getattr(gs.nn, kind)(*args, **how)
        result = module(*[LAZY_INPUT.get(kind, X)] * (3 if kind == "QMultiheadAttention" else 1))
        assert module.spec is module.formats
        return result[0] if isinstance(result, tuple) else result

    return made


def taken_over(kind: str, *args: Any) -> Callable[..., Any]:
    def made(**how: Any) -> Any:
        torch.manual_seed(0)
        module = getattr(nn, kind)(*args)
        ours = getattr(gs.nn, f"Q{kind}").from_float(module, **how)
        result = ours(*[LAZY_INPUT.get(f"Q{kind}", X)] * (3 if kind == "MultiheadAttention" else 1))
        return result[0] if isinstance(result, tuple) else result

    return made


def emulated(**how: Any) -> torch.Tensor:
    with gs.emulate(**how):
        return X @ X.mT


def converted(**how: Any) -> torch.Tensor:
    torch.manual_seed(0)
    result: torch.Tensor = gs.convert(nn.Linear(6, 6), **how)(X)
    return result


def quantised(**how: Any) -> torch.Tensor:
    torch.manual_seed(0)
    model = tq.quantize_(nn.Sequential(nn.Linear(6, 6)), {"*weight_quantizer": {}, "*input_quantizer": {}}, **how)
    tq.calibrate(model, [X])
    assert model[0].spec == model[0].accumulator == "int(12)"
    result: torch.Tensor = model(X)
    return result


torch.manual_seed(3)
X = torch.randn(4, 6)
IMAGE = {n: torch.randn(2, 2, *[5] * n) for n in (1, 2, 3)}
WINDOW = {n: torch.randn(2, 2, *[3] * n) for n in (1, 2, 3)}
LAZY_INPUT = {
    **{
        f"Q{lazy}Conv{transposed}{n}d": IMAGE[n]
        for n in (1, 2, 3)
        for lazy in ("", "Lazy")
        for transposed in ("", "Transpose")
    },
    "QMultiheadAttention": X[:, None],
    "QGroupNorm": IMAGE[2],
}
SPEC = "e4m3 : e5m3"
ATTENTION = gs.QAttentionFormats(":e5m3", "e5m3", ":e5m3")
_CONV = [f"Conv{transposed}{n}d" for n in (1, 2, 3) for transposed in ("", "Transpose")]
_OF = {
    "QAffineFormats": SPEC, "QAttentionFormats": ATTENTION, "QSoftmaxFormats": "e5m3", "QLayerNormFormats": "e5m3",
    "QGELUFormats": "e5m3",
}  # fmt: skip
_ROWS = {"QSoftmax": (-1,), "QGELU": (), "QSiLU": (), "QLayerNorm": (6,), "QRMSNorm": (6,), "QGroupNorm": (1, 2)}
_PRODUCTS = {"QLinear": (6, 3), **dict.fromkeys(("QLSTM", "QGRU", "QLSTMCell", "QGRUCell"), (6, 3))}
_LAZY = {"QLazyLinear": (3,), **{f"QLazy{kind}": (2, 3) for kind in _CONV}}
_LAYERS = {**_PRODUCTS, **{f"Q{kind}": (2, 2, 3) for kind in _CONV}, **_LAZY}
#: What had another keyword: that keyword, a spec, and a call with the keyword, whose result is a tensor or a value.
CALLS: dict[str, tuple[str, Any, Callable[..., Any]]] = {
    "qlinear": ("formats", SPEC, lambda **how: gs.qlinear(X, X, **how)),
    **{
        f"q{name}": ("formats", SPEC, lambda name=name, n=int(name[-2]), **how: getattr(gs, f"q{name}")(IMAGE[n], WINDOW[n], **how))
        for name in [f"conv{transposed}{n}d" for n in (1, 2, 3) for transposed in ("", "_transpose")]
    },
    "qattention": ("formats", ATTENTION, lambda **how: gs.qattention(X, X, X, **how)),
    "qsoftmax": ("formats", "e5m3", lambda **how: gs.qsoftmax(X, -1, **how)),
    "qgelu": ("formats", "e5m3", lambda **how: gs.qgelu(X, **how)),
    "qsilu": ("formats", "e5m3", lambda **how: gs.qsilu(X, **how)),
    "qlayernorm": ("formats", "e5m3", lambda **how: gs.qlayernorm(X, 6, **how)),
    "qrmsnorm": ("formats", "e5m3", lambda **how: gs.qrmsnorm(X, 6, **how)),
    "qgroupnorm": ("formats", "e5m3", lambda **how: gs.qgroupnorm(X, 2, **how)),
    "count_overflows": ("accumulator", ":int(6)", lambda **how: gs.count_overflows(X.round(), X.round().mT, **how)),
    "acc.count_overflows": ("accumulator", ":int(6)", lambda **how: gs.acc.count_overflows(X.round(), X.round().mT, **how)),
    **{f"{kind}.of": ("formats", value, getattr(gs, kind).of) for kind, value in _OF.items()},
    "Config.of": ("config", [("a", SPEC)], Config.of),
    "Rule": ("formats", SPEC, lambda **how: Rule("a", "linear", **how)),
    "emulate": ("config", SPEC, emulated),
    "convert": ("config", SPEC, converted),
    "audit.dry_run": ("config", SPEC, lambda **how: str(gs.audit.dry_run(nn.Linear(6, 6), X, **how))),
    "matmul": ("accumulator", "e5m3", lambda **how: gs.mx.matmul(X, X.mT, a_format="mxfp4", b_format="mxfp4", **how)),
    "int_matmul": ("accumulator", "int(6)", lambda **how: tq.int_matmul(X.round(), X.round().mT, **how)),
    "int_linear": ("accumulator", "int(9)", lambda **how: tq.int_linear(X, X, input_amax=1.0, weight_amax=1.0, **how)),
    "quantize_": ("accumulator", "int(12)", quantised),
    "bf16": ("register", ":e5m3", lambda **how: gs.sliced.bf16(2, **how)(X, X.mT)),
    **{kind: ("formats", "e5m3", layer(kind, *args)) for kind, args in _ROWS.items()},
    **{kind: ("formats", SPEC, layer(kind, *args)) for kind, args in _LAYERS.items()},
    "QMultiheadAttention": ("formats", ATTENTION, layer("QMultiheadAttention", 6, 2)),
    "QMultiheadAttention.from_float": ("formats", ATTENTION, taken_over("MultiheadAttention", 6, 2)),
    **{f"{kind}.from_float": ("formats", "e5m3", taken_over(kind[1:], *args)) for kind, args in _ROWS.items()},
    **{
        f"{kind}.from_float": ("formats", SPEC, taken_over(kind[1:], *args))
        for kind, args in _LAYERS.items() if "Lazy" not in kind
    },
    **{
        f"{kind}.from_float": ("formats", SPEC, taken_over(kind[5:], *_LAYERS[kind.replace("Lazy", "")]))
        for kind in _LAZY
    },
}  # fmt: skip


def former(one: Any) -> tuple[str, ...]:
    found: tuple[str, ...] = getattr(one.__init__ if inspect.isclass(one) else one, "former_keywords", ())
    return found


def test_all_that_had_another_keyword_are_called():
    had = {name for name, one in TAKES.items() if former(one) and not name.endswith("cls_to_become")}
    assert had == set(CALLS)
    assert all(former(TAKES[name]) == (keyword,) for name, (keyword, *_) in CALLS.items())


@pytest.mark.parametrize("name", CALLS)
def test_a_former_keyword_gives_the_same_and_warns(name):
    keyword, spec, call = CALLS[name]
    with warnings.catch_warnings():
        warnings.simplefilter("error", DeprecationWarning)
        want = call(spec=spec)
    with pytest.warns(DeprecationWarning, match=rf"the keyword is spec now, and {keyword} an older name") as found:
        got = call(**{keyword: spec})
    assert {one.filename for one in found if one.category is DeprecationWarning} == {__file__}
    if isinstance(want, torch.Tensor):
        assert_bitwise_equal(got, want)
    else:
        assert got == want
    with pytest.raises(TypeError, match=f"both spec and {keyword}"):
        call(spec=spec, **{keyword: spec})


@pytest.mark.parametrize("name", CALLS)
def test_signature_and_documentation_say_spec(name):
    keyword, one = CALLS[name][0], TAKES[name]
    if name != "quantize_":  # its config is another thing
        assert keyword not in parameters(one)
    kinds = one.__mro__[:-1] if inspect.isclass(one) else [one]
    texts = [text for kind in kinds for text in (kind.__doc__, kind.__init__.__doc__) if text]
    assert any("``spec``" in text or re.search(r"^ +spec\b.*:", text, re.M) for text in texts)
    assert any(f"``{keyword}``" in text and "deprecated" in text for text in texts)


def test_one_warning_for_a_line_of_code():
    x = torch.ones(2, 2)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("default")
        for _ in range(3):
            gs.qlinear(x, x, formats=":fp16")
        gs.qlinear(x, x, formats=":fp16")
    mine = [one.lineno for one in found if "keyword is spec" in str(one.message)]
    assert len(mine) == 2 and mine[1] == mine[0] + 1


def test_an_argument_by_position_and_a_former_keyword():
    x = torch.ones(2, 2)
    for call in (
        lambda: gs.qlinear(x, x, None, ":fp16", formats=":fp16"),
        lambda: gs.convert(nn.Linear(2, 2), ":fp16", config=":fp16"),
        lambda: gs.emulate(":fp16", config=":fp16"),
        lambda: gs.nn.QLinear.from_float(nn.Linear(2, 2), ":fp16", formats=":fp16"),
    ):
        with pytest.raises(TypeError, match="both spec and (formats|config), the former keyword"):
            call()
    assert gs.qlinear(x, x, None, ":fp16").shape == (2, 2)  # by position as ever
    with pytest.raises(TypeError, match="unexpected keyword argument 'nothing'"):
        gs.qlinear(x, x, nothing=1)


def test_errors_name_what_was_called():
    x = torch.ones(2, 2)
    for call, start in (
        (lambda: gs.qmatmul(x, x, acc="bf16"), r"qmatmul\(\) got"),
        (lambda: gs.nn.QConv2d(1, 1, 1, accumulator="bf16"), r"QConv2d\(\) got"),
        (lambda: gs.nn.QLSTM.from_float(nn.LSTM(2, 2), fmt="bf16"), r"QLSTM.from_float\(\) got"),
        (lambda: gs.audit.dry_run(nn.Linear(2, 2), x, rules=[]), r"Audit.dry_run\(\) got .*\n  Try spec=\.\.\."),
    ):
        with pytest.raises(TypeError, match=f"^{start}"):
            call()


@pytest.mark.parametrize("keyword", ["spec", "formats"])
def test_in_compiled_code(keyword):
    x = torch.randn(3, 8)

    def function(x):
        return gs.qlinear(x, x, **{keyword: SPEC}) + gs.qmatmul(x, x.mT, spec=SPEC)

    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        got = torch.compile(function, fullgraph=True, backend="eager")(x)
    assert_bitwise_equal(got, 2 * gs.qlinear(x, x, None, SPEC))
    mine = [one for one in found if "keyword is spec" in str(one.message)]
    assert len(mine) == (keyword == "formats") and all(one.filename == __file__ for one in mine)


@pytest.mark.parametrize("keyword", ["spec", "config"])
def test_contexts_opened_in_compiled_code(keyword):
    x = torch.randn(3, 8)

    def function(x):
        with gs.emulate(**{keyword: SPEC}):
            return x @ x.mT

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        got = torch.compile(function, fullgraph=True, backend="eager")(x)
    assert_bitwise_equal(got, gs.qmatmul(x, x.mT, SPEC))


@pytest.mark.parametrize("keyword", ["spec", "formats"])
def test_in_a_symbolic_trace(keyword):
    x = torch.randn(3, 8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        graph = torch.fx.symbolic_trace(lambda x: gs.qlinear(x, x, **{keyword: SPEC}))
        calls = [node.target for node in graph.graph.nodes if node.op == "call_function"]
        assert calls == [gs.qlinear]
        assert_bitwise_equal(graph(x), gs.qlinear(x, x, None, SPEC))
        assert_bitwise_equal(pickle.loads(pickle.dumps(graph))(x), graph(x))


def test_a_subclass_of_a_users_own():
    class Mine(gs.nn.QLinear):
        def __init__(self, formats):
            super().__init__(2, 2, formats=formats)

        @classmethod
        def from_float(cls, module, formats=None):
            return super().from_float(module, formats=formats)

    with pytest.warns(DeprecationWarning, match=r"Mine\(\): the keyword is spec now") as found:
        module = Mine(formats=":fp16")
    assert found[0].filename == __file__
    assert str(module.spec.fprop) == ":e5m10"
    with pytest.warns(DeprecationWarning, match=r"Mine.from_float\(\): the keyword is spec now"):
        assert Mine.from_float(nn.Linear(2, 2), formats=":fp16").spec == module.formats


def test_the_attribute_has_both_names():
    module = gs.nn.QLinear(2, 2, spec=":fp16")
    module.spec = "e4m3 : fp16"
    assert module.spec == module.formats == gs.QAffineFormats.of("e4m3 : fp16")
    module.formats = ":fp16"
    assert module.spec == gs.QAffineFormats.of(":fp16")
    softmax, attention = gs.nn.QSoftmax(-1, spec="fp16"), gs.nn.QMultiheadAttention(2, 1)
    softmax.spec, attention.spec = "e5m3", ATTENTION
    assert softmax.formats == gs.QSoftmaxFormats.of("e5m3") and attention.formats is ATTENTION
    for one in (module, softmax, attention):
        assert pickle.loads(pickle.dumps(one)).spec == copy.deepcopy(one).formats == one.formats
        assert "spec=" in repr(one) and "formats=" not in repr(one)
        assert not any("spec" in key or "formats" in key for key in one.state_dict())


def test_layers_of_integers_have_both_names():
    model = tq.quantize_(
        nn.Sequential(nn.Linear(4, 4)), {"*weight_quantizer": {}, "*input_quantizer": {}}, spec="int(16)"
    )
    assert model[0].spec == model[0].accumulator == "int(16)"
    model[0].spec = None
    assert model[0].accumulator is None
    by_name = tq.quantize_(nn.Sequential(nn.Linear(4, 4)), {"*_quantizer": {}}, spec={"0": "int(20)"})
    assert by_name[0].spec == "int(20)"


def test_rules_are_read_by_both_names_and_replaced_without_a_warning():
    rule = Rule("a.*", "linear", spec=SPEC)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert Rule.from_dict({"modules": "a.*", "kinds": "linear", "spec": SPEC}) == rule
        assert Rule.from_dict({"modules": "a.*", "kinds": "linear", "formats": SPEC}) == rule
        assert Rule.from_dict(rule.to_dict()) == rule and "formats" in rule.to_dict()
        assert dataclasses.replace(rule, modules="b").spec == rule.formats
        assert dataclasses.replace(rule, spec=":fp16") == Rule("a.*", "linear", ":fp16")
        assert dataclasses.replace(rule, formats=":fp16") == Rule("a.*", "linear", ":fp16")
    with pytest.raises(gs.SpecError, match="spec and formats"):
        Rule.from_dict({"spec": SPEC, "formats": SPEC})


def test_other_systems_keep_their_names():
    formats = gs.QAffineFormats.of(SPEC)
    code = "import warnings\nwarnings.simplefilter('error', DeprecationWarning)\nimport torch\n"
    code += "from gemmsim.compat.mptorch import quant as q\nf = q.QAffineFormats()\nx = torch.ones(2, 2)\n"
    code += "q.qlinear(x, x, formats=f), q.qmatmul(x, x, formats=f), q.qmm(x, x, formats=f)\n"
    code += "q.QLinear(2, 2, formats=f)(x), q.QLazyLinear(2, formats=f)(x)\n"
    code += "q.QConv2d(1, 1, 1, formats=f), q.QConvTranspose1d(1, 1, 1, formats=f), q.QLayerNorm(2, q.QLayerNormFormats())\n"
    done = run_python(code)
    assert done.returncode == 0, done.stderr
    assert formats.plan is not None


def test_the_decorator_leaves_the_rest_alone():
    @takes_spec("formats")
    def function(x: int, spec: str | None = None, *, accumulator: int = 0) -> tuple[int, str | None, int]:
        """Ours."""
        return x, spec, accumulator

    assert function(1, accumulator=3) == (1, None, 3)  # a parameter of its own
    assert function.__name__ == "function" and function.__doc__.startswith("Ours.\n\n``formats``, the former")
    assert list(inspect.signature(function).parameters) == ["x", "spec", "accumulator"]
    with pytest.warns(DeprecationWarning):
        assert function(1, formats=None) == (1, None, 0)


def test_errors_about_keywords_are_typed():
    """Of former names, of misspellings of spec= and of other keywords alike, wherever spec= is taken."""
    assert issubclass(gs.KeywordError, TypeError)
    a = torch.ones(2, 2)
    for name in sorted(set(TAKES) - READ - BARE):
        for wrong in ("sepc", "psec", "specs", "spce"):
            with pytest.raises(gs.KeywordError, match=rf"'{wrong}'; allowed: spec.\n  Try spec='e4m3'.$"):
                TAKES[name](**{wrong: "e4m3"})
    with pytest.raises(
        gs.KeywordError, match=r"^qmatmul\(\) .*'out_dtpe'; allowed: a, b, spec, .*\n  Did you mean out_dtype=.$"
    ):
        gs.qmatmul(a, a, ":fp32", out_dtpe=torch.float64)
    with pytest.raises(gs.KeywordError, match=r"^QAffineFormats.of\(\) .*'zzz'; allowed: spec.\n  Leave it out.$"):
        gs.QAffineFormats.of(":fp32", zzz=1)
    with pytest.raises(TypeError, match="sed"):
        gs.nn.QLinear(2, 2, sed=1)  # passed on to the class behind, which knows its own
