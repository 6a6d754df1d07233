"""``cublas_acceleration``: where it is in force, what it computes on CPU tensors, and what it refuses with a reason."""

from __future__ import annotations

import asyncio
import contextvars
import threading

import pytest
import torch
from support import assert_bitwise_equal
from support.rounding import orders_differ

import gemmsim as gs
from gemmsim.backends import cublas
from gemmsim.backends.acceleration import Setting, asked, current
from gemmsim.ops import acceleration

On = gs.cublas_acceleration


def operands(m=24, k=40, n=16, dtype=torch.float32):
    g = torch.Generator().manual_seed(1)
    return torch.randn(m, k, generator=g).to(dtype), torch.randn(k, n, generator=g).to(dtype)


@pytest.fixture(autouse=True)
def _off():
    """Each test in a context of its own, and off at its end."""
    assert current() is None
    yield
    assert current() is None


# Where it is in force


def test_nesting_and_reentry():
    outer = On(True)
    with outer as entered:
        assert entered is outer and current() == Setting(True, None)
        with On(True, "tf32"):
            assert current() == Setting(True, "tf32")
            with On(False):
                assert current() is None and On.enabled is False
                with outer:
                    assert current() == Setting(True, None)
            assert current() == Setting(True, "tf32") and On.fast_mode == "tf32"
        with outer, outer:
            assert On.enabled is True
        assert current() == Setting(True, None)
    assert current() is None


def test_an_exception_leaves_the_block():
    with pytest.raises(ZeroDivisionError), On(True):
        raise ZeroDivisionError
    assert current() is None


def test_blocks_may_end_in_any_order():
    first, second = On(True, "tf32"), On(True, "f16")
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert current() == Setting(True, "f16")
    second.__exit__(None, None, None)
    assert current() is None
    second.__exit__(None, None, None)  # once too often changes nothing
    assert current() is None


def test_enable_holds_until_the_surrounding_block_ends():
    On.enable()
    assert On.enabled and current() == Setting(True, None)
    with On(True, "bf16"):
        On.enable(True, "tf32")
        assert current() == Setting(True, "tf32")
        On.disable()
        assert current() is None
    assert current() == Setting(True, None)
    On.disable()
    assert current() is None and asked() is None


def test_class_attributes_may_be_set():
    On.fast_mode = "f16"
    assert current() is None
    On.enabled = True
    assert current() == Setting(True, "f16")
    On.enabled = False
    On.fast_mode = None
    assert asked() is None
    assert On(True, "tf32").enabled is True and On(True, "tf32").fast_mode == "tf32"
    assert repr(On(True, "fp16")) == "cublas_acceleration(True, fast_mode='f16')"


def test_threads_do_not_see_each_other():
    barrier, seen = threading.Barrier(2, timeout=20), {}

    def work(name, mode):
        seen[name, "before"] = current()
        with On(True, mode):
            barrier.wait()
            seen[name] = current()
            barrier.wait()
        seen[name, "after"] = current()

    with On(True, "bf16"):
        threads = [threading.Thread(target=work, args=pair) for pair in (("one", "tf32"), ("two", "f16"))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert current() == Setting(True, "bf16")
    assert seen["one"] == Setting(True, "tf32") and seen["two"] == Setting(True, "f16")
    assert all(seen[name, when] is None for name in ("one", "two") for when in ("before", "after"))


def test_asyncio_tasks_do_not_see_each_other():
    seen = {}

    async def work(name, mode):
        seen[name, "before"] = current()
        with On(True, mode):
            for _ in range(3):
                await asyncio.sleep(0)
                seen.setdefault(name, set()).add(current())
        seen[name, "after"] = current()

    @On(True, "tf32")
    async def decorated():
        await asyncio.sleep(0)
        return current()

    async def main():
        with On(True, "bf16"):
            await asyncio.gather(work("one", "tf32"), work("two", "f16"))
            inherited = current()
            threaded = await asyncio.to_thread(current)
        tasks = asyncio.gather(decorated(), asyncio.sleep(0))
        outside = current()
        return inherited, threaded, outside, (await tasks)[0]

    bf16, tf32 = Setting(True, "bf16"), Setting(True, "tf32")
    assert asyncio.run(main()) == (bf16, bf16, None, tf32)
    assert seen["one"] == {tf32} and seen["two"] == {Setting(True, "f16")}
    assert seen["one", "before"] == seen["two", "after"] == bf16


def test_a_decorated_generator_has_it_while_it_runs():
    log = []

    @On(True, "tf32")
    def steps():
        try:
            while True:
                try:
                    got = yield current()
                    log.append((got, current()))
                except ValueError:
                    log.append(("thrown", current()))
        finally:
            log.append(("closed", current()))

    generator = steps()
    tf32 = Setting(True, "tf32")
    assert next(generator) == tf32 and current() is None
    assert generator.send(7) == tf32 and generator.throw(ValueError()) == tf32 and current() is None
    generator.close()
    assert log == [(7, tf32), ("thrown", tf32), ("closed", tf32)]

    @On(True)
    def returns():
        yield 1
        return "done"

    def outer():
        return (yield from returns())

    generator = outer()
    next(generator)
    with pytest.raises(StopIteration) as stop:
        next(generator)
    assert stop.value.value == "done"


def test_blocks_inside_suspended_generators_end_each_for_itself():
    def steps(mode):
        with On(True, mode):
            yield current()

    one, two = steps("tf32"), steps("f16")
    next(one), next(two)
    one.close()  # out of order
    assert current() == Setting(True, "f16")
    two.close()
    assert current() is None


def test_a_generator_closed_in_another_context_raises_nothing():
    def steps():
        with On(True):
            yield

    generator = steps()
    contextvars.copy_context().run(next, generator)
    assert current() is None
    generator.close()
    assert current() is None


def test_a_decorated_function():
    @On(True)
    def call(x, *, y):
        """Words."""
        return x + y, current()

    assert call(1, y=2) == (3, Setting(True, None)) and call.__doc__ == "Words." and current() is None


@pytest.mark.parametrize("mode", ["int8", "TF32", "", 1, True])
def test_unknown_modes_say_what_is_allowed(mode):
    with pytest.raises(gs.SpecError, match="None, f32, tf32, f16, bf16, pedantic"):
        On(True, mode)
    with pytest.raises(gs.SpecError, match="allowed"):
        On.enable(True, mode)


def test_other_bad_input():
    with pytest.raises(gs.SpecError, match="True or False"):
        On("tf32")
    with pytest.raises(gs.SpecError, match="asynchronous generator"):

        @On(True)
        async def steps():
            yield

    assert acceleration.FAST_MODES == cublas.FAST_MODES


# What it computes on CPU tensors


@pytest.mark.parametrize(
    ("spec", "dtype", "want"),
    [
        (":fp32", torch.float32, lambda a, b: a @ b),
        (":fp64", torch.float64, lambda a, b: a @ b),
        (":fp32", torch.bfloat16, lambda a, b: a @ b),
        ("bf16 : fp32", torch.float32, lambda a, b: a.bfloat16().float() @ b.bfloat16().float()),
        ("bf16/rtz : fp32 -> e5m2", torch.float32, None),
        ("fp16 : fp32", torch.float32, lambda a, b: a.half().float() @ b.half().float()),
        ("fp16 : fp16", torch.float32, lambda a, b: (a.half().float() @ b.half().float()).half().float()),
        ("e5m2 * fp16 : fp16", torch.float32, lambda a, b: (gs.quantize(a, "e5m2") @ b.half().float()).half().float()),
        (":fp16", torch.float16, lambda a, b: (a.float() @ b.float()).half()),
        (gs.acc.batch_invariant(), torch.float32, lambda a, b: a @ b),
    ],
    ids=lambda value: None if callable(value) else str(value),
)
def test_native_types_of_the_cpu(spec, dtype, want):
    a, b = operands(dtype=dtype)
    with On(True):
        got = gs.qmatmul(a, b, spec)
    record = gs.last_backend()
    assert record.backend == "blas" and "native type" in record.plan and "refused" not in record.plan
    if want is None:  # casts are the spec's own
        qa, qb = gs.quantize(a, "bf16/rtz"), gs.quantize(b, "bf16/rtz")
        assert_bitwise_equal(got, gs.quantize(qa @ qb, "e5m2"))
    else:
        assert_bitwise_equal(got, want(a, b))


@pytest.mark.parametrize(
    "round_",
    [lambda x: x.half().float(), lambda x: x.bfloat16().half().to(x.dtype), lambda x: gs.quantize(x, "e4m3")],
    ids=["half", "double", "e4m3"],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_operands_that_hold_numbers_of_fp16_are_operands_of_fp16(round_, dtype):
    a, b = (round_(t.to(dtype)) for t in operands())
    a[0, 0], a[1, 1], b[3, 3] = float("nan"), float("inf"), -0.0
    want = gs.qmatmul(a, b, "fp16 : fp16")
    with On(True):
        got = gs.qmatmul(a, b, ":fp16")
        record = gs.last_backend()
        native = gs.qmatmul(a, b, "fp16 : fp16")
    assert record.backend == "blas" and "native type fp16/fp16" in record.plan
    assert "operands are numbers of float16" in record.plan
    assert_bitwise_equal(got, native)
    assert torch.equal(got.isnan(), want.isnan())
    a[-1, -1] = 1 + 2.0**-20
    want = gs.qmatmul(a, b, ":fp16")
    with On(True):
        assert_bitwise_equal(gs.qmatmul(a, b, ":fp16"), want)  # the last element is none
    assert "refused: no native type multiplies" in gs.last_backend().plan


def test_a_layers_own_quantisers_make_operands_of_fp16():
    layer = gs.nn.QLinear(
        64, 8, bias=False, spec=gs.QAffineFormats("fp16", "fp16", input_quant="fp16", weight_quant="e4m3")
    )
    x = torch.randn(5, 64).requires_grad_()
    with On(True):
        y = layer(x)
    assert gs.last_backend().backend == "blas"
    y.sum().backward()  # the gradient is 1 everywhere: numbers of fp16, too
    assert gs.last_backend().backend == "blas"


def test_the_gradient_of_a_bias_is_a_sum_and_no_librarys_product():
    layer = gs.nn.QLinear(4, 3, spec="fp16 : fp16")
    x, grads = torch.ones(2**10, 4), torch.randn(2**10, 3, generator=torch.Generator().manual_seed(0)).half().float()
    found = []
    for on in (True, False):
        layer.zero_grad()
        with On(on):
            layer(x).backward(grads)
        found.append(layer.bias.grad.clone())
    assert_bitwise_equal(*found)


def test_batches_and_linear():
    a, b = operands()
    batch = torch.stack([a, 2 * a, -a])
    with On(True):
        assert_bitwise_equal(gs.qmatmul(batch, torch.stack([b] * 3), ":fp32"), batch @ torch.stack([b] * 3))
        assert gs.last_backend().backend == "blas"
        assert gs.qmatmul(batch[:, None], b, ":fp32").shape == (3, 1, 24, 16)
        assert_bitwise_equal(gs.qlinear(a, b.mT, None, ":fp32"), a @ b)
        assert gs.last_backend().backend == "blas"
        assert gs.qmatmul(a[:, :0], b[:0], ":fp32").eq(0).all()
        assert gs.qmatmul(a[0], b, ":fp32", out_dtype=torch.float64).dtype == torch.float64


@pytest.mark.parametrize(
    ("spec", "mode", "reason"),
    [
        (":e5m10", None, "no native type multiplies e8m23 by e8m23 in fp16"),
        (":bf16", None, "no native accumulator in e8m7"),
        ("e4m3 : fp32", None, "for CUDA tensors"),
        (":fp16", None, "a holds numbers that e5m10 does not have"),
        ("* fp16 : fp16", None, "a holds numbers that e5m10 does not have"),
        ("fp16 : fp16", "pedantic", "fp16/fp16 pedantic is for CUDA tensors"),
        (":fp32", "tf32", "fp32 fast tf32 is for CUDA tensors"),
        (":fp32", "pedantic", "fp32 pedantic is for CUDA tensors"),
        ("int8 : int(32)", None, "int8/int32 is for CUDA tensors"),
        ("int8 : int(32, saturate)", None, "int(32), which wraps"),
        ("int8 : int(32)", "pedantic", "has no pedantic form"),
        (":fp32/rtz", None, "no native accumulator in e8m23/rtz"),
        (":mul=fp32, add=fp32", None, "do not round products separately"),
        (":kahan(fp32)", None, "no accumulator kahan"),
        ("e5m2 : fp32", None, "no native product of e5m2 by e5m2"),
        ("fp16 * bf16 : fp32", None, "no native type multiplies e5m10 by e8m7"),
        (gs.acc.cublas_fp32(), None, "GPU's instruction"),
        (gs.acc.cdna3_fp8(), None, "not an NVIDIA architecture"),
        (gs.acc.hw("hopper", "mma", "fp16"), None, "products on hopper use wgmma"),
        (gs.acc.blackwell_nvfp4(), None, "GPU's instruction"),
        (gs.acc.hopper_fp8_2xacc(64), None, "every 128 terms"),
    ],
    ids=str,
)
def test_without_a_native_type_the_meaning_stays_and_the_reason_is_told(spec, mode, reason):
    a, b = operands()
    want = gs.qmatmul(a, b, spec)
    with On(True, mode):
        got = gs.qmatmul(a, b, spec)
    assert_bitwise_equal(got, want)
    record = gs.last_backend()
    assert record.backend == "cpu" and "refused: " in record.plan and reason in record.plan.split("refused: ")[1]
    gs.qmatmul(a, b, spec)
    assert "refused" not in gs.last_backend().plan


def test_seeds_and_the_generator_are_the_same_inside():
    a, b = operands()
    torch.manual_seed(3)
    want = gs.qmatmul(a, b, "bf16/sr8 : fp32")
    after = torch.rand(1)
    torch.manual_seed(3)
    with On(True):
        got = gs.qmatmul(a, b, "bf16/sr8 : fp32")
        assert gs.last_backend().backend == "blas"
    assert torch.rand(1) == after
    # the same operand bits in sums of another order; rounding to bf16 enlarges an operand by 2**-7 at most
    bound = orders_differ(a, b) * (1 + 2**-7) ** 2
    assert bool(((got - want).abs().double() <= bound).all())
    other = gs.qmatmul(a, b, "bf16/sr8 : fp32", seed=9)
    assert bool(((got - other).abs().double() > bound).any())


# Under autograd and PyTorch's transforms


def record_backends(monkeypatch):
    seen = []
    record = gs.ops.last_run.record
    monkeypatch.setattr(gs.ops.last_run, "record", lambda op, *rest: (seen.append((op, rest[2])), record(op, *rest)))
    return lambda: [getattr(plan, "backend", "cpu") for op, plan in seen if op == "matmul"]


def test_backward_products_follow_their_forward_product(monkeypatch):
    a, b = (t.requires_grad_() for t in operands())
    with On(True):
        inside = gs.qmatmul(a, b, ":fp32")
    outside = gs.qmatmul(a, b, ":fp32")
    backends = record_backends(monkeypatch)
    inside.sum().backward()
    assert backends() == ["blas", "blas"] and current() is None
    grads = a.grad.clone(), b.grad.clone()
    g = torch.ones(24, 16)
    assert_bitwise_equal(grads[0], g @ b.detach().mT)
    want = a.detach().mT @ g  # by another kernel of the library, for another layout
    assert bool(((grads[1] - want).abs().double() <= orders_differ(a.detach().mT, g)).all())
    with On(True):
        outside.sum().backward()
        assert On.enabled
    assert backends()[2:] == ["cpu", "cpu"]


def test_training_takes_the_type_that_the_operand_casts_name(monkeypatch):
    """Under autograd the operands come cast, in the dtype they had; that is no reason for another type."""
    a, b = (t.requires_grad_() for t in operands())
    with On(True):
        y = gs.qmatmul(a, b, "bf16 : fp32")
        assert "native type bf16/fp32" in gs.last_backend().plan
        gs.qmatmul(a, b, "e4m3 : fp32")
        assert "refused: native type e4m3*e4m3 promoted" in gs.last_backend().plan
        gs.qmatmul(torch.stack([a, a]), b, "bf16/sr8 : fp32")
        assert "native type bf16/fp32" in gs.last_backend().plan
        with torch.no_grad():
            assert_bitwise_equal(y.detach(), gs.qmatmul(a, b, "bf16 : fp32"))
    backends = record_backends(monkeypatch)
    y.sum().backward()
    assert backends() == ["blas", "blas"]


def test_backward_in_a_thread_of_its_own(monkeypatch):
    a, b = (t.requires_grad_() for t in operands())
    with On(True):
        y = gs.qmatmul(a, b, ":fp32").sum()
    backends = record_backends(monkeypatch)
    thread = threading.Thread(target=y.backward)
    thread.start()
    thread.join()
    assert backends() == ["blas", "blas"]


def test_compile_looks_the_setting_up_when_it_runs():
    torch._dynamo.reset()
    a, b = (t.requires_grad_() for t in operands())
    call = torch.compile(lambda x, y: gs.qmatmul(x, y, ":fp32").sum(), fullgraph=True, backend="aot_eager")
    backends = []
    for setting in (None, On(True), None):
        if setting is None:
            y = call(a, b)
        else:
            with setting:
                y = call(a, b)
        backends.append(gs.last_backend().backend)
        y.backward()
    assert backends == ["cpu", "blas", "cpu"]
    torch._dynamo.reset()


def test_vmap_autocast_and_func():
    a, b = operands()
    batch = torch.stack([a, 2 * a])
    with On(True):
        assert_bitwise_equal(torch.vmap(lambda x: gs.qmatmul(x, b, ":fp32"))(batch), batch @ b)
        assert gs.last_backend().backend == "blas"
        with torch.autocast("cpu", dtype=torch.bfloat16):
            got = gs.qmatmul(a, b, ":fp32")
        assert_bitwise_equal(got, a @ b)
        grad = torch.func.grad(lambda x: gs.qmatmul(x, b, ":fp32").sum())(a)
    assert_bitwise_equal(grad, torch.ones(24, 16) @ b.mT)


def test_explain_names_the_native_type():
    assert "cublas: native type bf16/fp32, only under gemmsim.cublas_acceleration" in gs.explain("bf16 : fp32")
    assert "cublas: no, no native accumulator in e6m9" in gs.explain(":e6m9")
