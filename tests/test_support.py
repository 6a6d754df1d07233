"""The comparison that every bitwise test relies on: it must see every kind of difference, and say where it is."""

from __future__ import annotations

import ctypes

import pytest
import torch
from support import assert_bitwise_equal, assert_values_equal, traces
from support.cuda import tiny_kernel
from support.fork import run_forked
from support.kept import Kept
from support.rounding import assert_gradients, assert_near, assert_product
from torch.autograd.gradcheck import GradcheckError

from gemmsim import reference


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


def kept_in(monkeypatch, name, path, sources=""):
    """As in a new process."""
    monkeypatch.setattr(traces, name, Kept(path, lambda: sources))
    return getattr(traces, name)


def test_the_reference_is_computed_unless_it_confirmed_the_same_before(monkeypatch, tmp_path):
    test, calls = tmp_path / "test_it.py", []
    test.write_text("x = 1")
    gemm = reference.gemm
    counted = lambda *args, **more: calls.append(1) or gemm(*args, **more)  # noqa: E731
    monkeypatch.setitem(traces._RESULTS, counted, traces._RESULTS[gemm])
    monkeypatch.setattr(reference, "gemm", counted)

    def confirmed(remember=False, got=6.0, spec=":e5m10", name="test[avx2]"):
        def body():
            want = torch.tensor(reference.gemm([[2.0]], [[3.0]], spec))
            for _ in range(2):  # on two instruction sets
                assert_bitwise_equal(torch.tensor([[got]]), want)

        return traces.confirmed(name, test, body, remember)

    kept = kept_in(monkeypatch, "COMPUTED", tmp_path / "kept.json")
    assert not confirmed() and confirmed(remember=True) and len(calls) == 1
    with pytest.raises(AssertionError, match="differ"):
        confirmed(remember=True, got=5.0)
    kept.write()
    calls.clear()
    assert kept_in(monkeypatch, "COMPUTED", tmp_path / "kept.json").current
    assert confirmed() and confirmed(name="test[avx512]") and not calls
    assert not confirmed(got=5.0) and not confirmed(spec=":e5m2")
    assert not kept_in(monkeypatch, "COMPUTED", tmp_path / "kept.json", "others").current and not confirmed()


def test_kernels_run_unless_they_and_what_is_wanted_are_those_of_before(monkeypatch, tmp_path):
    ran, test = [], tmp_path / "test_it.py"
    test.write_text("x = 1")

    class Args(ctypes.Structure):
        _fields_ = [("a", ctypes.c_void_p), ("m", ctypes.c_int64)]

    def call(value=1, want=1.0, m=4, result=1.0):
        def body():
            out = torch.tensor([9.0])
            if not traces.traced(tiny_kernel(value), (1, 1, 1), Args(out.data_ptr(), m)):
                ran.append(value)
                out.fill_(result)
            assert_bitwise_equal(out, torch.tensor([want]))

        return body

    def confirmed(name="a test", remember=False, **changes):
        return traces.confirmed(name, test, call(**changes), remember)

    results = kept_in(monkeypatch, "RAN", tmp_path / "kept.json")
    assert not confirmed() and confirmed(remember=True) and len(ran) == 1
    with pytest.raises(AssertionError, match="differ"):
        confirmed("another", remember=True, result=2.0)
    results.write()
    kept_in(monkeypatch, "RAN", tmp_path / "kept.json")
    ran.clear()
    assert confirmed() and not ran
    assert not any(confirmed(**change) for change in ({"name": "another"}, {"value": 2}, {"want": 2.0}, {"m": 5}))
    test.write_text("x = 2")
    traces._texts.cache_clear()
    assert not confirmed() and not ran
    with pytest.raises(AssertionError):
        assert_bitwise_equal(torch.zeros(1), torch.ones(1))  # again a comparison


def test_a_test_that_needs_results_is_not_played_through(tmp_path):
    test = tmp_path / "test_it.py"
    test.write_text("")

    class Args(ctypes.Structure):
        _fields_ = []

    def body(check=True):
        traces.traced(tiny_kernel(), (1, 1, 1), Args())
        assert not check

    assert traces.played(body, test) is None
    assert traces.played(lambda: None, test) is None, "no launch"
    assert traces.played(lambda: body(False), test) is not None


def test_a_test_of_the_reference_alone_runs_again_after_a_change_of_sources(monkeypatch, tmp_path):
    test, calls = tmp_path / "test_it.py", []
    test.write_text("x = 1")
    alone = lambda remember=False: traces.reference_alone("a test", test, lambda: calls.append(1), remember)  # noqa: E731
    kept = kept_in(monkeypatch, "COMPUTED", tmp_path / "kept.json")
    assert not alone() and alone(remember=True) and calls == [1]
    kept.write()
    kept_in(monkeypatch, "COMPUTED", tmp_path / "kept.json")
    assert alone() and calls == [1]
    test.write_text("x = 2")
    traces._texts.cache_clear()
    assert not alone()
    kept_in(monkeypatch, "COMPUTED", tmp_path / "kept.json", "others")
    test.write_text("x = 1")
    traces._texts.cache_clear()
    assert not alone()


def test_bounds_of_roundings_let_no_more_through():
    one, u = torch.ones(3), 2.0**-24
    assert_near(one * (1 + 4 * u), one, 2)
    with pytest.raises(AssertionError, match="off by"):
        assert_near(one * (1 + 6 * u), one, 2)
    for pair in (
        (torch.tensor([torch.nan]), one[:1]),
        (one[:1], torch.tensor([torch.inf])),
        (one[:2], one),
        (one.double(), one),
    ):
        with pytest.raises(AssertionError):
            assert_near(*pair, 100)
    assert_near(torch.tensor([torch.nan, torch.inf, 1.0]), torch.tensor([torch.nan, torch.inf, 1.0]), 0)
    a, b = torch.ones(2, 3), torch.ones(3, 2)
    assert_product(a @ b + 1, a, b, torch.ones(2))
    with pytest.raises(AssertionError):
        assert_product(a @ b * (1 + 2.0**-21), a, b)


def test_gradients_off_by_a_millionth_are_seen():
    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, off):
            ctx.save_for_backward(x)
            ctx.off = off
            return x * x

        @staticmethod
        def backward(ctx, grad):
            return 2 * grad * ctx.saved_tensors[0] * (1 + ctx.off), None

    x = torch.tensor([1.0, -3.0], dtype=torch.float64, requires_grad=True)
    assert_gradients(lambda x: Square.apply(x, 0.0), [x])
    with pytest.raises(GradcheckError):
        assert_gradients(lambda x: Square.apply(x, 1e-6), [x])
