"""A bias and a cast as the last steps of a product's kernel give what separate passes over its result give.

Kernels run on the host, in every family of products; the passes are PyTorch's additions and conversions and the CPU
backend's casts of the CPU backend's products. NaN is compared as NaN: the sign of PyTorch's depends on the processor.
"""

from __future__ import annotations

import random
from types import SimpleNamespace

import pytest
import torch
from support import assert_bitwise_equal
from support.cpu import operand
from support.cuda_gemm import compile_on_host, host_blocks, host_gemm, host_multiply, sources_of
from support.cuda_specs import CHIPS, ORDERS, RUNS, random_register, specs

import gemmsim as gs
from gemmsim.arithmetic import GemmSpec, UnsupportedSpec
from gemmsim.backends import cpu, cuda, route
from gemmsim.backends.convert import cast_into
from gemmsim.backends.cuda.simt.encoded import readable
from gemmsim.backends.encoding import encode_operand
from gemmsim.backends.epilogue import Finish
from gemmsim.backends.epilogue_passes import finish_into
from gemmsim.formats import parse_cast
from gemmsim.ops.cast_arguments import target_dtype

CASTS = [None, None, "e4m3", "e5m10/rtz/sat", "bf16/rnu", "supernormal(4,3)", "fixed(8,4)", "fp64"]
OTHERS = [
    ":palette(e5m10, chunked(2, bf16))", ":sequential(e5m10, init=c_last)", ":sequential(bf16, init=c_first)",
    "e5m10 : e5m10", "bf16 : bf16", ":fp64", ":fp32 -> e4m3",
]  # fmt: skip


def values(rng: random.Random, *shape: int) -> torch.Tensor:
    """Numbers, among them zeros of both signs, infinities, NaN and subnormals."""
    return operand(rng, 1, torch.Size(shape).numel(), rng.choice([torch.float32, torch.float64])).reshape(shape)


Case = tuple[torch.Tensor, torch.Tensor, dict[str, torch.Tensor], Finish, torch.dtype]


def case(spec: GemmSpec, rng: random.Random) -> Case:
    m, k, n = rng.choice([(3, 9, 5), (17, 16, 24), (1, 0, 3), (2, 35, 40)])
    dtype = rng.choice([torch.float32, torch.float16, torch.bfloat16])
    a, b = operand(rng, m, k, dtype) if k else torch.empty(m, 0), operand(rng, k, n, dtype) if k else torch.empty(0, n)
    if "int(" in str(spec):
        a, b = (torch.randint(-9, 9, t.shape).float() for t in (a, b))
    more = {}
    if "palette" in str(spec):
        more["select"] = torch.arange(m * n, dtype=torch.uint8).reshape(m, n) % 2
    if "init" in str(spec):
        more["c"] = values(rng, m, n)
    bias = values(rng, n).to(rng.choice([torch.float32, torch.float64, torch.bfloat16, torch.float16]))
    cast = rng.choice(CASTS)
    bias = None if cast is not None and rng.random() < 0.2 else bias
    out = rng.choice([torch.float32, torch.float64, torch.bfloat16, torch.float16])
    work = rng.choice([torch.float32, torch.float64])
    return a, b, more, Finish(bias, work, None if cast is None else parse_cast(cast)), out


def separately(a, b, spec, finish: Finish, dtype: torch.dtype, seed: int, **more: torch.Tensor) -> torch.Tensor:
    """The steps as passes: what the operators did before there was one kernel, and do on the CPU."""
    raw = torch.empty(a.shape[0], b.shape[1], dtype=finish.work)
    cpu.gemm(a, b, spec, raw, seed, **more)
    if finish.bias is not None:
        raw = raw + finish.bias.to(raw.dtype)
    if finish.cast is not None:
        raw = gs.quantize(raw.double(), finish.cast)
        if finish.work == torch.float32:
            raw = raw.to(target_dtype(finish.cast, torch.float32))
    return raw.to(dtype)


def check(chosen: list[GemmSpec], rng: random.Random) -> None:
    cases = [(spec, *case(spec, rng)) for spec in chosen]
    cases = [x for x in cases if cuda.finishes(x[0], x[4].cast)]
    assert len(cases) > len(chosen) // 2
    sources = []
    for spec, a, b, more, finish, dtype in cases:
        sources += sources_of([(a, b, spec, 1)], dtype, finish=finish, **more)
    compile_on_host(sources)
    for spec, a, b, more, finish, dtype in cases:
        got = torch.empty(a.shape[0], b.shape[1], dtype=dtype)
        host_gemm(a, b, spec, got, 1, finish=finish, **more)
        want = separately(a, b, spec, finish, dtype, 1, **more)
        assert_bitwise_equal(got, want, nan_is_nan=True, context=f"{spec} {finish} {a.dtype} {tuple(a.shape)} {dtype}")
        nan = torch.full_like(got, float("nan"))
        assert_bitwise_equal(torch.where(got.isnan(), got, nan), nan, context=f"{spec}: canonical NaN")


@pytest.mark.parametrize("family", ["registers", "orders", "runs", "chips", "others"])
def test_every_family_of_products(family):
    rng = random.Random(f"finish {family}")
    torch.manual_seed(3)
    if family == "registers":
        chosen = specs(16, random_register, rng)
    else:
        texts = {"orders": ORDERS, "runs": RUNS, "chips": CHIPS, "others": OTHERS}[family]
        chosen = [GemmSpec.of(text) for text in texts if not text.startswith((":hw(cdna3, mfma, fp8", ":hw(ampere"))]
    check(chosen, rng)


BLOCKS = [
    "mxfp8_e4m3 : scaled(fp32)",
    "nvfp4/tensor : scaled(e5m10, bf16) -> e4m3",
    "mxfp4 : hw(blackwell, mxf4, e2m1)",
]


@pytest.mark.parametrize("text", BLOCKS)
def test_block_formats(text):
    spec, rng = GemmSpec.of(text), random.Random(text)
    g = torch.Generator().manual_seed(4)
    a, b = torch.randn(9, 70, generator=g), torch.randn(70, 11, generator=g)
    left, right = encode_operand("test", a, spec.a, -1), encode_operand("test", b, spec.b, -2)
    codes = [readable(x, torch.Size()) for x in (left, right)]
    raw = torch.empty(9, 11, dtype=torch.float64)
    host_blocks(*codes, spec, raw)
    for dtype in (torch.float32, torch.bfloat16):
        finish = Finish(values(rng, 11), torch.float32, parse_cast("e5m10/rtz"))
        got, want = torch.empty(9, 11, dtype=dtype), torch.empty(9, 11, dtype=dtype)
        host_blocks(*codes, spec, got, finish=finish)
        finish_into(raw.float(), finish, want, cast_into)
        assert_bitwise_equal(got, want, nan_is_nan=True, context=text)


def test_a_bias_for_each_matrix_of_a_batch():
    g = torch.Generator().manual_seed(5)
    a, b = torch.randn(2, 3, 5, 8, generator=g), torch.randn(2, 3, 8, 6, generator=g)
    bias = torch.randn(3, 2, 12, generator=g).transpose(0, 1)[..., ::2]
    got = torch.empty(2, 3, 5, 6)
    host_gemm(a, b, GemmSpec.of(":e5m10"), got, finish=Finish(bias, torch.float32))
    want = gs.qmatmul(a, b, ":e5m10") + bias[:, :, None]
    assert_bitwise_equal(got, want)


@pytest.mark.parametrize("spec", [":e5m10 -> e4m3/sr8", ":e5m10"])
def test_casts_with_random_bits_are_passes_of_their_own(spec):
    finish = Finish(torch.ones(3), torch.float32, parse_cast("e4m3" if "sr8" in spec else "e4m3/sr8"))
    with pytest.raises(UnsupportedSpec, match=r"allowed: output casts without random bits"):
        cuda.gemm(torch.ones(2, 2), torch.ones(2, 3), GemmSpec.of(spec), torch.empty(2, 3), finish=finish)


FORMATS = [
    gs.QAffineFormats(fprop="e4m3 : e5m10"),
    gs.QAffineFormats(fprop="e4m3 : bf16/sr8 -> e5m10", output_quant="e5m2", bias_quant="bf16", seed=3),
    gs.QAffineFormats(fprop=":chunked(4, e5m10)", output_quant="e4m3/sr8", seed=4),
    gs.QAffineFormats(fprop=":fp64", output_quant="supernormal(4,3)"),
    gs.QAffineFormats(fprop="e4m3 : e5m10 -> e4m3/sr4", seed=5),
]


@pytest.mark.parametrize("grad", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("formats", FORMATS, ids=range(len(FORMATS)))
def test_linear_layers_end_in_the_kernel(formats, grad, monkeypatch):
    """``qlinear`` as a GPU runs it, its kernels on the host, is ``qlinear`` of the CPU."""
    g = torch.Generator().manual_seed(6)
    x, w, bias = (torch.randn(*s, generator=g, requires_grad=grad) for s in ((2, 5, 9), (7, 9), (7,)))
    want = gs.qlinear(x, w, bias, formats, out_dtype=torch.bfloat16)
    seen = []

    def multiply(product):
        seen.append(product.finish)
        return host_multiply(product)

    backend = SimpleNamespace(multiply=multiply, finishes=cuda.finishes, names_instruction=lambda spec: False)
    monkeypatch.setattr(route, "backend_of", lambda x: backend)
    got = gs.qlinear(x, w, bias, formats, out_dtype=torch.bfloat16)
    assert_bitwise_equal(got.detach(), want.detach())
    assert [finish is not None for finish in seen] == [cuda.finishes(formats.fprop, None)]
