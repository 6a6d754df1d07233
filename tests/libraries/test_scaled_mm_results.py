"""``scaled_mm`` against results of mmaemu 0.1.0: stored ones, and where it is installed many more of its own."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

import pytest
import torch
from libraries.scaled_cases import DTYPES, Case, by_mmaemu, call_of, cases, stored, stored_cases

import gemmsim as gs

STORED = stored()


def found(case: Case) -> torch.Tensor:
    library = gs.libraries.cublaslt(case.gpu, version="12.8", workspace=1 << 20)
    call = call_of(case)
    options = {"out_dtype": DTYPES[case.out], "use_fast_accum": case.fast, "library": library, "split": case.split}
    return gs.scaled_mm(*call[:4], scale_result=call.last, **options)


def differing(case: Case, want: torch.Tensor) -> int:
    """How many results have other bits, NaN and signs of zero included."""
    got = found(case)
    assert got.dtype == want.dtype and got.shape == want.shape
    size = {1: torch.uint8, 2: torch.int16, 4: torch.int32}[want.dtype.itemsize]
    return int((got.contiguous().view(size) != want.contiguous().view(size)).sum())


def test_the_stored_sample_has_every_kind_of_result():
    wide = torch.cat([result.float().flatten() for result in STORED.values()])
    assert wide.isnan().any() and wide.isinf().any() and (wide == 0).any() and (wide.abs() == 448).any()
    assert len(STORED) == len(stored_cases()) == 196


@pytest.mark.parametrize("gpu", ["h100-pcie", "rtx4060"])
@pytest.mark.parametrize("split", [False, True], ids=["one chain", "split"])
def test_stored_results(gpu, split):
    chosen = [case for case in stored_cases() if case.gpu == gpu and (case.split != 1) == split]
    assert {str(case): differing(case, STORED[str(case)]) for case in chosen} == {str(case): 0 for case in chosen}


def _missing() -> str:
    try:
        return "" if version("mmaemu") == "0.1.0" else f"mmaemu is {version('mmaemu')}, not 0.1.0"
    except PackageNotFoundError:
        return "mmaemu 0.1.0 is not installed (pip install --no-deps mmaemu==0.1.0)"


@pytest.mark.skipif(bool(_missing()), reason=_missing())
@pytest.mark.parametrize("gpu", ["h100-pcie", "rtx4060"])
def test_a_hundred_thousand_results_of_mmaemu(gpu):
    chosen = [case for case in cases(24, 32, (784, 656, 1024, 1040)) if case.gpu == gpu]
    chosen += [case for case in cases(1, 16, (768, 880, 1936)) if case.gpu == gpu]
    wrong, count = {}, 0
    for case in chosen:
        if case.M == 1:  # without rows for them
            case = case._replace(specials=False)
        want = by_mmaemu(case)
        count += want.numel()
        if number := differing(case, want):
            wrong[str(case)] = number
    assert not wrong
    assert count > 50_000


@pytest.mark.skipif(bool(_missing()), reason=_missing())
def test_the_stored_results_are_those_of_mmaemu():
    for case in stored_cases()[::7]:
        assert torch.equal(by_mmaemu(case).view(torch.uint8), STORED[str(case)].view(torch.uint8)), case
