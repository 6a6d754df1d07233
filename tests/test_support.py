"""The comparison that every bitwise test relies on: it must see every kind of difference, and say where it is."""

from __future__ import annotations

import pytest
import support_reference
import torch
from support import assert_bitwise_equal, assert_values_equal
from support_fork import run_forked


def nan(pattern: int) -> torch.Tensor:
    return torch.tensor([pattern], dtype=torch.int32).view(torch.float32)


DIFFERENCES = {
    "one ulp": (torch.tensor([1.0]), torch.tensor([1.0 + 2**-23])),
    "sign of zero": (torch.tensor([0.0]), torch.tensor([-0.0])),
    "NaN payload": (nan(0x7FC00000), nan(0x7FC00001)),
    "shape": (torch.zeros(2), torch.zeros(1, 2)),
    "dtype": (torch.zeros(2), torch.zeros(2, dtype=torch.float64)),
}


@pytest.mark.parametrize("name", DIFFERENCES)
def test_each_kind_of_difference_fails(name):
    with pytest.raises(AssertionError):
        assert_bitwise_equal(*DIFFERENCES[name])


def test_equal_tensors_pass_whatever_they_hold():
    x = torch.tensor([[0.0, -0.0], [float("nan"), float("inf")]])
    assert_bitwise_equal(x, x.clone())
    assert_bitwise_equal(x.T, x.T.clone())
    assert_bitwise_equal(torch.empty(0, 3), torch.empty(0, 3))


def test_nan_payload_is_ignored_when_asked():
    assert_bitwise_equal(*DIFFERENCES["NaN payload"], nan_is_nan=True)


def test_the_first_mismatch_is_named_with_coordinates_bytes_and_values():
    want = torch.zeros(2, 3)
    got = want.clone()
    got[1, 2] = 0.5
    with pytest.raises(AssertionError, match=r"1 of 6 .* \[1, 2\]: got 0\.5 .*0x3f000000.*expected 0\.0 .*0x00000000"):
        assert_bitwise_equal(got, want)


def test_values_ignore_the_sign_of_zero_and_masked_elements():
    assert_values_equal(torch.tensor([0.0, float("nan")]), torch.tensor([-0.0, float("nan")]))
    assert_values_equal(torch.tensor([1.0, 2.0]), torch.tensor([1.0, 3.0]), torch.tensor([True, False]))
    with pytest.raises(AssertionError, match="first at \\[1\\]"):
        assert_values_equal(torch.tensor([1.0, 2.0]), torch.tensor([1.0, 3.0]))


def test_a_forked_program_is_one_of_its_own(tmp_path, monkeypatch):
    monkeypatch.setenv("GEMMSIM_TEST_WORD", "here")
    code = "import atexit, os, sys; atexit.register(print, 'end'); print(os.environ['GEMMSIM_TEST_WORD'], os.getcwd(), 'gemmsim' in sys.modules)"
    done = run_forked(code, cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"here {tmp_path} False\nend\n", "")
    assert run_forked("import gemmsim, sys; sys.exit(3)", cwd=tmp_path).returncode == 3
    done = run_forked("print('gemmsim' in __import__('sys').modules); 1 / 0", cwd=tmp_path)
    assert done.returncode == 1 and done.stdout == "False\n" and "ZeroDivisionError" in done.stderr
    assert run_forked("import sys; sys.exit('why')", cwd=tmp_path).stderr == "why\n"
    assert run_forked("while True: pass", cwd=tmp_path, timeout=1).returncode != 0


def test_the_reference_is_computed_unless_it_confirmed_the_same_before(monkeypatch):
    one, two, computed = torch.tensor([1.0]), torch.tensor([2.0]), []

    def compare(result, *, want=one, always=False, what=":e5m10"):
        expected = support_reference.Expected("a test", always)
        expected.same({"avx2": result, "baseline": result}, lambda: computed.append(1) or want, what, one)
        expected.settle()
        return len(computed)

    monkeypatch.setattr(support_reference, "confirmed", {})
    monkeypatch.setattr(support_reference, "_kept", lambda: {"sources": support_reference.sources(), "results": {}})
    assert compare(one) == 1
    kept = {"sources": support_reference.sources(), "results": dict(support_reference.confirmed)}
    monkeypatch.setattr(support_reference, "_kept", lambda: kept)
    assert compare(one) == 1 and compare(one, always=True) == 2 and compare(one, what=":e5m2") == 3
    with pytest.raises(AssertionError, match="differ"):
        compare(two)
    kept["sources"] = "others"
    assert compare(one) == 5
    with pytest.raises(AssertionError, match="baseline and avx2"):
        support_reference.Expected("a test", False).same({"avx2": one, "baseline": two}, lambda: one, ":e5m10")
