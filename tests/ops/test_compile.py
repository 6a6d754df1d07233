"""``torch.compile(fullgraph=True)``: one graph, the bits of eager mode, a new graph for a new spec."""

from __future__ import annotations

import pytest
import torch
import torch._inductor.config as inductor
from support import assert_bitwise_equal

import gemmsim as gs
from gemmsim.formats import E4M3, parse_cast


@pytest.fixture(autouse=True)
def _fresh_compiler():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def compiled(call, **options):
    return torch.compile(call, fullgraph=True, backend="aot_eager", **options)


def run(call, *tensors):
    """Result and gradients."""
    leaves = [t.clone().requires_grad_() for t in tensors]
    y = call(*leaves)
    y.pow(2).sum().backward()
    return (y.detach(), *(t.grad for t in leaves))


def tensors(*shapes):
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(shape, generator=generator) for shape in shapes]


def assert_same(mine, want):
    for m, w in zip(mine, want, strict=True):
        assert_bitwise_equal(m, w)


FULL = gs.QAffineFormats(
    fprop="e4m3 : e8m10",
    dgrad="e5m2 * e4m3 : e6m9",
    wgrad="e5m2 * e4m3 : e6m9",
    input_quant="e4m3",
    weight_quant=torch.round,
    bias_quant="bf16",
    output_quant="bf16",
    grad_quant="e5m2",
    use_scaling=True,
)
SPECS = {
    "string": "e4m3 : e5m10",
    "spec": gs.GemmSpec.of("e4m3 : e5m10 -> bf16"),
    "accumulator": gs.acc.sequential("e5m10", "e5m7"),
    "cast": parse_cast("e5m10/rtz"),
    "format": gs.formats.parse("e5m4"),
    "formats": FULL,
    "none": None,
}


#: Each way to name a format with one shape, each shape with one way; the other pairs in the long run.
SHAPES = [((4, 9), (9, 5)), ((3, 4, 9), (9, 5)), ((2, 1, 4, 9), (3, 9, 5)), ((9,), (9, 5))]
CASES = [
    pytest.param(name, shapes, marks=[] if shapes == SHAPES[1] or name == "formats" else pytest.mark.long)
    for name in SPECS
    for shapes in SHAPES
]


@pytest.mark.parametrize(("name", "shapes"), CASES)
def test_qmatmul_and_its_gradients(name, shapes):
    def call(a, b):
        return gs.qmatmul(a.sin(), b, SPECS[name]).cos()

    a, b = tensors(*shapes)
    assert_same(run(compiled(call), a, b), run(call, a, b))
    with torch.no_grad():
        assert_bitwise_equal(compiled(call)(a, b), call(a, b))


#: Each way to name a format goes through the product above.
WAYS = [name if name in ("string", "formats") else pytest.param(name, marks=pytest.mark.long) for name in SPECS]


@pytest.mark.parametrize("name", WAYS)
def test_qlinear_and_its_gradients(name):
    def call(x, w, bias):
        return gs.qlinear(x, w, bias, SPECS[name])

    args = tensors((2, 4, 9), (5, 9), (5,))
    assert_same(run(compiled(call), *args), run(call, *args))


def test_changing_sizes_do_not_break_the_graph():
    call = lambda x, w: gs.qlinear(x, w, None, FULL)  # noqa: E731
    f = compiled(call, dynamic=True)
    for rows in (4, 7, 11):
        args = tensors((2, rows, 9), (5, 9))
        assert_same(run(f, *args), run(call, *args))


def test_two_scaled_layers_of_changing_sizes_are_one_graph():
    call = lambda x, w: gs.qlinear(gs.qlinear(x, w, None, FULL), w, None, FULL)  # noqa: E731
    f = compiled(call, dynamic=True)
    for rows in (4, 7):
        args = tensors((2, rows, 9), (9, 9))
        assert_same(run(f, *args), run(call, *args))


@pytest.mark.parametrize(
    "make", [str, gs.GemmSpec.of, lambda s: gs.QAffineFormats(fprop=s)], ids=["string", "spec", "formats"]
)
def test_a_spec_passed_as_argument_is_not_frozen_in(make):
    f = compiled(lambda a, b, spec: gs.qmatmul(a, b, spec))
    a, b = tensors((4, 64), (64, 5))
    for text in (":e5m2", ":e5m4", ":e5m2", ":e4m7"):
        assert_bitwise_equal(f(a, b, make(text)), gs.qmatmul(a, b, text))


@pytest.mark.parametrize("fmt", ["e4m3", parse_cast("e5m2/rtz"), E4M3], ids=["string", "cast", "format"])
def test_quantize(fmt):
    (x,) = tensors((4, 9))
    assert_bitwise_equal(
        compiled(lambda x: gs.quantize(x * 2, fmt, overflow="sat"))(x), gs.quantize(x * 2, fmt, overflow="sat")
    )


def test_quantize_into_out_and_in_place():
    def call(x, out):
        y = x + 1
        gs.quantize(x, "e4m3", out=out)
        gs.quantize(y, "e5m2", out=y)
        return y + out

    (x,) = tensors((4, 9))
    mine, want = torch.empty(4, 9), torch.empty(4, 9)
    assert_bitwise_equal(compiled(call)(x, mine), call(x, want))
    assert_bitwise_equal(mine, want)


def test_quantizer_and_its_gradient():
    q = gs.quantizer("fixed(8,4)", "e5m2", clamping_grad_zero=True, backward_hooks=(lambda g: g * 2,))
    x = tensors((4, 9))[0] * 6
    assert_same(run(compiled(lambda x: q(x.sin() * 9)), x), run(lambda x: q(x.sin() * 9), x))


def test_seeds_are_arguments():
    (x,) = tensors((4, 9))
    f = compiled(lambda x, seed: gs.qmatmul(x, x.mT, "e4m3/sr8 : e5m2/sr8", seed=seed))
    for seed in (1, 2, 3, 2**63 + 5, 2**64 - 1):
        assert_bitwise_equal(f(x, seed), gs.qmatmul(x, x.mT, "e4m3/sr8 : e5m2/sr8", seed=seed))


def test_without_a_seed_every_run_draws_and_manual_seed_repeats():
    (x,) = tensors((16, 16))
    f = compiled(lambda x: gs.quantize(x, "e5m2/sr8") - gs.quantize(x, "e5m2/sr8"))
    torch.manual_seed(1)
    first, second = f(x), f(x)
    assert first.abs().max() > 0, "two calls in a graph are two draws"
    assert not torch.equal(first, second)
    torch.manual_seed(1)
    assert_bitwise_equal(f(x), first)


def test_modules():
    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(9, 5)
            self.formats = FULL

        def forward(self, x):
            return gs.qlinear(x, self.linear.weight, self.linear.bias, self.formats)

    torch.manual_seed(0)
    layer = Layer()
    (x,) = tensors((4, 9))
    results = []
    for module in (layer, torch.compile(layer, fullgraph=True, backend="aot_eager")):
        layer.zero_grad()
        y = module(x)
        y.sum().backward()
        results.append((y.detach(), layer.linear.weight.grad.clone(), layer.linear.bias.grad.clone()))
    assert_same(*results)


def test_the_default_compiler():
    call = lambda x, w, bias: gs.qlinear(x, w, bias, "e4m3 : e5m10").relu()  # noqa: E731
    args = tensors((4, 9), (5, 9), (5,))
    # No processes that compile ahead and no precompiled headers, and no program compiled to try each set of vectors that
    # the processor has: all cost more than this one small unit.
    options = {"compile_threads": 1, "cpp_cache_precompile_headers": False, "cpp.vec_isa_ok": True}
    with inductor.patch(options):
        assert_same(run(torch.compile(call, fullgraph=True), *args), run(call, *args))


def test_export():
    class Product(torch.nn.Module):
        def forward(self, a, b):
            return gs.qmatmul(a, b, "e4m3 : e5m10")

    a, b = tensors((4, 9), (9, 5))
    with torch.no_grad():
        program = torch.export.export(Product(), (a, b))
    assert_bitwise_equal(program.module()(a, b), gs.qmatmul(a, b, "e4m3 : e5m10"))
