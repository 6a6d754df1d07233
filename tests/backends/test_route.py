"""Which routes consider a spec, and that the kernels are called directly where they are the only one."""

from __future__ import annotations

import pytest
import torch
from support import assert_bitwise_equal

import gemmsim as gs
from gemmsim.backends import route
from gemmsim.backends.product import Product

#: Spec -> names of the routes that consider it, and whether its products use implicit im2col.
FACTS = {
    ":e5m10": (["_Kernel"], True),
    "e4m3 : chunked(32, e5m10) -> bf16": (["_Kernel"], True),
    "e4m3/sr8 : e5m10 -> bf16/sr4": (["_Kernel"], True),
    ":e5m10/sr16": (["_Proved", "_Kernel"], True),
    ":exact(fp32)": (["_Proved", "_Kernel"], False),
    "deepgemm()": (["_Instruction", "_Kernel"], True),
    "mxfp8_e4m3 : fp32": (["_Decoded", "_Kernel"], False),
    "mxfp8_e4m3 : scaled(fp32, fp32)": (["_Kernel"], False),
}


@pytest.mark.parametrize("text", FACTS)
def test_routes_of_a_spec(text):
    spec = gs.GemmSpec.of(text)
    facts = route.facts_of(spec)
    names, windows = FACTS[text]
    assert [type(one).__name__ for one in facts.routes] == names
    assert facts.reads_windows is route.reads_windows(spec) is windows
    assert facts.by_kernels is (names == ["_Kernel"])
    assert route.facts_of(gs.GemmSpec.of(text)) is facts


@pytest.mark.parametrize("text", [text for text in FACTS if not text.startswith("mx")])
def test_routes_that_do_not_consider_a_spec_refuse_its_products(text):
    spec, a, b = gs.GemmSpec.of(text), torch.ones(2, 32), torch.ones(32, 3)
    product = Product(a, b, spec, torch.empty(2, 3))
    for one in route.ROUTES:
        assert one in route.facts_of(spec).routes or one.refuses(product) is not None


@pytest.mark.parametrize(
    "text", [":e5m10", "e4m3 : chunked(32, e5m10) -> bf16", ":e5m10/sr16", ":exact(fp32)", "deepgemm()"]
)
@pytest.mark.parametrize("batch", [(), (2,), (2, 3)])
def test_gemm_has_the_bits_of_run(text, batch):
    generator = torch.Generator().manual_seed(1)
    a, b = torch.randn(*batch, 4, 40, generator=generator), torch.randn(*batch, 40, 5, generator=generator)
    spec, out, want = gs.GemmSpec.of(text), torch.empty(*batch, 4, 5), torch.empty(*batch, 4, 5)
    short, general = route.gemm(a, b, spec, out, 7), route.run(Product(a, b, spec, want, 7))
    assert_bitwise_equal(out, want)
    assert (short.backend, str(short)) == (general.backend, str(general))


def test_asking_for_a_library_goes_through_all_routes():
    a = torch.ones(2, 2)
    with gs.cublas_acceleration(True):
        assert not route.reads_windows(gs.GemmSpec.of(":e5m10"))
        gs.qmatmul(a, a, ":e4m3")
        assert "cublas_acceleration refused" in gs.last_backend().plan
