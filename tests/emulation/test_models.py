"""Models that others wrote, unmodified, forward and backward, eager, compiled and converted."""

import pytest
import torch
from support.models import MODELS, gradients, make, run
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

import gemmsim as gs
from gemmsim.emulation import convert, emulate, undo

#: Whose native products PyTorch's counter does not see: an LSTM on the CPU is one operator, and it has no formula for
#: grouped products.
UNCOUNTED = ("lstm", "mixture")
SHORT = ("llama",)  # compiled in every run; the others in the long one
COMPILED = [name if name in SHORT else pytest.param(name, marks=pytest.mark.long) for name in MODELS]


def equal(ours, theirs):
    return ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in theirs)


@pytest.mark.parametrize("name", MODELS)
def test_single_precision_is_close_to_pytorchs(name):
    model, arguments = make(name)
    native = run(model, arguments)
    with emulate(":fp32"):
        out = run(model, arguments)
    # Each of about a dozen layers adds a sum's rounding, at most K/2 units at its largest term; K is below 2**6 here.
    bound = 12 * 2**6 * torch.finfo(torch.float32).eps
    assert (out - native).abs().max() <= bound * native.abs().max()
    theirs, ours = gradients(model, native), gradients(model, out)
    assert ours.keys() == theirs.keys()
    largest = max(g.abs().max() for g in theirs.values())  # gradients of biases of keys are noise around 0
    assert all((ours[p] - theirs[p]).abs().max() <= bound * largest for p in theirs)


@pytest.mark.parametrize("name", MODELS)
def test_backward_inside_and_after_and_converted(name):
    model, arguments = make(name)
    native = run(model, arguments)
    with emulate(":e5m10"):
        out = run(model, arguments)
        inside = gradients(model, out)
    assert not torch.equal(out, native)
    with emulate(":e5m10"):
        again = run(model, arguments)
    assert torch.equal(again, out) and equal(gradients(model, again), inside)
    convert(model, ":e5m10")
    converted = run(model, arguments)
    assert torch.equal(converted, out) and equal(gradients(model, converted), inside)
    assert torch.equal(run(undo(model), arguments), native)


@pytest.mark.parametrize("name", MODELS)
def test_nothing_escapes(name):
    """No product is PyTorch's, and all observers count the same: the audit, and PyTorch's counter of both runs."""
    model, arguments = make(name)
    with gs.audit() as theirs, FlopCounterMode(display=False) as flops, sdpa_kernel(SDPBackend.MATH):
        gradients(model, run(model, arguments))
    with emulate(":e5m10"), gs.audit(strict=True) as ours, FlopCounterMode(display=False) as emulated:
        gradients(model, run(model, arguments))
    assert not ours.native and not ours.opaque and len(ours.emulated) == len(list(ours))
    assert {record.role for record in ours} == {"fprop", "dgrad", "wgrad"}
    assert 2 * ours.total_macs == emulated.get_total_flops()
    if name != "lstm":
        assert ours.total_macs == theirs.total_macs
    if name not in UNCOUNTED:
        assert flops.get_total_flops() == emulated.get_total_flops()


@pytest.mark.parametrize("name", MODELS)
def test_random_bits_are_reproducible(name):
    model, arguments = make(name)
    config = [("*", ":bf16/sr")]
    with emulate(config, seed=1, step=0):
        first, second = run(model, arguments), run(model, arguments)
    convert(model, config, seed=1)
    assert torch.equal(run(model, arguments), first) and torch.equal(run(model, arguments), second)
    assert not torch.equal(first, second)


@pytest.mark.parametrize("name", COMPILED)
@pytest.mark.filterwarnings("ignore")
def test_compiled(name):
    torch._dynamo.reset()
    model, arguments = make(name)
    with emulate(":e5m10"):
        want = run(model, arguments)
        expected = gradients(model, want)
        with torch._dynamo.config.patch(allow_rnn=True):
            compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
            out = run(compiled, arguments)
    assert torch.equal(out, want)
    # Compiled code has gradients of zero for what the output does not depend on (poolers); eager has none.
    found = gradients(model, out)
    assert equal({name: g for name, g in found.items() if name in expected or g.any()}, expected)
