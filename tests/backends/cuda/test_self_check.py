"""A comparison of an instruction with its model that fails is a verdict, never an error of the product that asked."""

from __future__ import annotations

import logging

import pytest
import torch
from support import assert_bitwise_equal
from support.tensor_cores import fake_gpu, run_on_gpu  # noqa: F401

from gemmsim import acc
from gemmsim.arithmetic import GemmSpec
from gemmsim.backends import cpu, cuda
from gemmsim.backends.cuda import KernelSource
from gemmsim.backends.cuda.tensor_cores import self_check
from gemmsim.backends.cuda.tensor_cores.self_check import Problem, verdict_for
from gemmsim.backends.product import Product

FAULT = "CUDA error: an illegal instruction was encountered\nCUDA kernel errors might be reported asynchronously"
SOURCE = KernelSource("test", "instruction", "// none", threads=1)
#: What torch raises for a fault: AcceleratorError from 2.8 on, as long as nothing else is known RuntimeError itself.
ERRORS = [RuntimeError, getattr(torch, "AcceleratorError", RuntimeError), torch.OutOfMemoryError]


class Lost:
    """A tensor of a GPU that faulted: launching said nothing, whoever looks at it hears of it."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def view(self, dtype):
        raise self.error


@pytest.fixture
def compiled(fake_gpu):  # noqa: F811
    """Every kernel compiles, and nothing has been judged."""
    return fake_gpu


def raising(error):
    def fail(*_):
        raise error

    return fail


def problems(error, where):
    """One problem that agrees and one that fails in ``where``."""
    good, bad = (lambda: torch.ones(2, 3)), raising(error)
    yield Problem(good, good, bad)
    if where == "operands":
        raise error
    yield {
        "native": Problem(bad, good, bad),
        "model": Problem(good, bad, bad),
        "comparing": Problem(lambda: Lost(error), good, bad),
        "report": Problem(good, lambda: torch.zeros(2, 3), bad),
    }[where]


@pytest.mark.parametrize("where", ["operands", "native", "model", "comparing", "report"])
@pytest.mark.parametrize("kind", dict.fromkeys(ERRORS), ids=lambda kind: kind.__name__)
def test_an_error_while_comparing_is_a_verdict(compiled, caplog, kind, where):
    with caplog.at_level(logging.INFO, "gemmsim.cuda"):
        found = verdict_for(0, "sm_90a", SOURCE, problems(kind(FAULT), where))
    assert not found.equal and len(found.digest) == 16
    assert "failed while it was checked, the model is used" in found.words
    assert f"{kind.__name__}: CUDA error: an illegal instruction" in found.words and "asynchronously" not in found.words
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert verdict_for(0, "sm_90a", SOURCE, problems(kind("again"), where)) is found, "kept"


def test_an_error_without_words(compiled):
    assert "no reason given" in verdict_for(0, "sm_90a", SOURCE, problems(RuntimeError(), "native")).words


def test_a_product_whose_instruction_faults_is_that_of_the_model(compiled):
    compiled.error = RuntimeError(FAULT)
    spec = GemmSpec(accumulator=acc.cublas_fp32())
    a, b = torch.randn(5, 40), torch.randn(40, 3)
    got, want = torch.empty(5, 3), torch.empty(5, 3)
    plan = str(run_on_gpu(Product(a, b, spec, got, 5)))
    cpu.gemm(a, b, spec, want, 5)
    assert_bitwise_equal(got, want)
    assert "instruction not used: failed while it was checked" in plan


@pytest.mark.parametrize("error", [RuntimeError("cuda-core"), cuda.CompileError("NVRTC")], ids=repr)
def test_the_report_outlives_a_kernel_that_cannot_be_had(compiled, monkeypatch, error):
    report = cuda.tensor_cores.self_check_report
    broken = type("Cache", (), {"get": raising(error)})()
    compiled.arch = "ampere"
    monkeypatch.setattr(report, "device_arch", lambda index: "sm_80")
    monkeypatch.setattr(report, "_device", lambda index: torch.device("cpu"))
    for module in (report, self_check):
        monkeypatch.setattr(module, "kernel_cache", lambda: broken)
    found = dict(cuda.instruction_verdicts())
    assert len(found) == 4 and not any(verdict.equal for verdict in found.values())
    assert all(str(error) in verdict.words for verdict in found.values())
