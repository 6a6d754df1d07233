"""What a library computes beside what plans say: a library that is right, one that is wrong, one that refuses."""

from __future__ import annotations

import pytest
import torch

import gemmsim as gs
from gemmsim.libraries import Call, Config, LibraryError, cublaslt, verify

#: Configurations whose specs are an ordinary chain or lanes without new orders.
CHAIN, CUDA_CORES, UNKNOWN = Config(66, STAGES_ID=35), Config(16, CUSTOM_OPTION=0), Config(41)
LIBRARY = cublaslt("h100", version="13.1")


class Computed:
    """A library that computes as the plans say, but for one family."""

    def __init__(self, wrong: str = "", refuses: str = "") -> None:
        self.wrong, self.refuses, self.ran = wrong, refuses, []

    def plan(self, *args, **keywords):
        return LIBRARY.plan(*args, **keywords)

    def run(self, a, b, config, *, out, fast_accumulation):
        family = LIBRARY.profile.families[config.ALGO_ID].family
        self.ran.append((family, (a.shape[0], b.shape[1], a.shape[1])))
        if family == self.refuses:
            raise LibraryError("refused")
        got = LIBRARY.matmul(a, b, out, config, fast_accumulation=fast_accumulation)
        if family == self.wrong:
            got[0, 0] = -got[0, 0]
        return got


def rows(config: Config, count: int, a: str = "fp16", out: str = "fp16") -> list[tuple[Call, Config]]:
    return [(Call(8 + i, 16, 64 + i, a, a, out, False), config) for i in range(count)]


def test_a_library_that_computes_as_its_plans_say():
    found = verify(Computed(), [*rows(CHAIN, 3), *rows(CUDA_CORES, 2, "bf16", "fp32"), *rows(UNKNOWN, 4)])
    assert [(row.family, row.equal, row.products, row.refused) for row in found] == [
        ("gemmsn", 2, 2, 0), ("no plan", 0, 0, 4), ("nvjet", 3, 3, 0),
    ]  # fmt: skip
    assert found[0].outputs == found[0].outputs_equal == 16 * 17 and not any(row.different for row in found)


def test_a_difference_is_counted_and_named():
    nvjet = verify(Computed(wrong="nvjet"), [*rows(CHAIN, 3), *rows(CUDA_CORES, 2)])[1]
    assert (nvjet.equal, nvjet.products, nvjet.outputs - nvjet.outputs_equal) == (0, 3, 3)
    assert len(nvjet.different) == 3 and "ALGO_ID=66" in nvjet.different[0] and "1 of 128" in nvjet.different[0]


def test_what_the_library_refuses_is_counted():
    (row,) = verify(Computed(refuses="nvjet"), rows(CHAIN, 3))
    assert (row.products, row.refused) == (0, 3)


def test_each_kind_has_its_turn_and_small_products_come_first():
    library = Computed()
    split = [(call._replace(K=4096), config) for call, config in rows(CHAIN._replace(CUSTOM_OPTION=2), 5)]
    verify(library, [*split, *rows(CHAIN, 5)[::-1]], per_family=4)
    assert [shape[2] for _, shape in library.ran] == [64, 4096, 65, 4096]
    huge = [(Call(1 << 14, 1 << 14, 1 << 14, "fp16", "fp16", "fp16", False), CHAIN)]
    assert verify(library, huge) == ()


def test_fp8_operands_have_contiguous_columns():
    class Layouts(Computed):
        def run(self, a, b, config, *, out, fast_accumulation):
            assert a.is_contiguous() and b.t().is_contiguous() and a.dtype == torch.float8_e4m3fn
            return super().run(a, b, config, out=out, fast_accumulation=fast_accumulation)

    calls = [(Call(16, 32, 64, "e4m3", "e4m3", "fp32", fast), Config(66, STAGES_ID=36)) for fast in (False, True)]
    (row,) = verify(Layouts(), calls)
    assert (row.equal, row.products) == (2, 2)


@pytest.mark.parametrize("count", [0, -1, 1.0, True, None])
def test_counts(count):
    with pytest.raises(LibraryError, match="per_family"):
        verify(Computed(), [], count)


def test_it_is_public():
    assert gs.libraries.verify is verify
