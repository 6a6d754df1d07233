"""Products with zero points against Python's integers: subtracted before the multiplication, or corrected after the sum."""

from __future__ import annotations

import random

import pytest
import torch

import gemmsim as gs


def into(value: int, bits: int, saturates: bool) -> int:
    half = 1 << (bits - 1)
    return max(-half, min(half - 1, value)) if saturates else (value + half) % (2 * half) - half


def before(x, y, za, zb, bits, saturates):
    register = 0
    for p, q in zip(x, y, strict=True):
        register = into(register + (p - za) * (q - zb), bits, saturates)
    return register


def after(x, y, za, zb, bits, saturates):
    """gemmlowp's four terms, brought into the register once."""
    register = 0
    for p, q in zip(x, y, strict=True):
        register = into(register + p * q, bits, saturates)
    return into(register - za * sum(y) - zb * sum(x) + len(x) * za * zb, bits, saturates)


@pytest.mark.parametrize("subtract", ["before", "after"])
@pytest.mark.parametrize("saturates", [True, False])
def test_elements_are_those_of_plain_integers(subtract, saturates):
    rng = random.Random(7)
    different = 0
    for _ in range(60):
        m, k, n, bits = rng.randrange(1, 5), rng.randrange(0, 20), rng.randrange(1, 5), rng.randrange(10, 22)
        a = [[rng.randrange(0, 256) for _ in range(k)] for _ in range(m)]
        b = [[rng.randrange(-128, 128) for _ in range(k)] for _ in range(n)]
        za = [rng.randrange(0, 256) for _ in range(m)]
        zb = [rng.randrange(-128, 128) for _ in range(n)]
        spec = f"int({bits}, {'saturate' if saturates else 'wrap'})"
        left, right = torch.tensor(a, dtype=torch.uint8).reshape(m, k), torch.tensor(b, dtype=torch.int8).reshape(n, k)
        got = gs.integer_matmul(
            left, right.T, spec, a_zero=torch.tensor(za), b_zero=torch.tensor(zb), subtract=subtract
        )
        model = before if subtract == "before" else after
        want = [
            [model(x, y, p, q, bits, saturates) for y, q in zip(b, zb, strict=True)] for x, p in zip(a, za, strict=True)
        ]
        assert got.dtype is torch.int64 and got.tolist() == want
        other = after if subtract == "before" else before
        different += want != [
            [other(x, y, p, q, bits, saturates) for y, q in zip(b, zb, strict=True)] for x, p in zip(a, za, strict=True)
        ]
    assert (different > 10) == saturates and (saturates or not different)


def test_batches_floats_arrays_and_other_registers():
    g = torch.Generator().manual_seed(2)
    a = torch.randint(0, 256, (3, 1, 4, 9), generator=g)
    b = torch.randint(-128, 128, (2, 9, 5), generator=g)
    exact = (a - 100) @ (b + 3)
    for subtract in ("before", "after"):
        for spec in (
            "int(32)",
            "int(32, saturate, when=end)",
            "adder_tree([20, 21], 32)",
            "chunked(4, int(20), fixed(32,0))",
        ):
            got = gs.integer_matmul(a, b, spec, a_zero=100, b_zero=-3, subtract=subtract)
            assert torch.equal(got, exact), (spec, subtract)
        assert torch.equal(gs.integer_matmul(a.float(), b.half(), a_zero=100, b_zero=-3, subtract=subtract), exact)
        array = gs.integer_matmul(a[0, 0].numpy(), b[0].numpy(), a_zero=100, b_zero=-3, subtract=subtract)
        assert array.tolist() == exact[0, 0].tolist()
    empty = gs.integer_matmul(torch.ones(2, 0), torch.ones(0, 3), a_zero=5, subtract="after")
    assert empty.tolist() == [[0] * 3] * 2
    assert gs.integer_matmul(torch.ones(0, 2), torch.ones(2, 3)).shape == (0, 3)


def test_large_integers_are_exact():
    a, b = torch.tensor([[2**26 + 1, -(2**25) - 1]]), torch.tensor([[2**25 + 3], [2**26 + 5]])
    want = into(int(a[0, 0]) * int(b[0, 0]) + int(a[0, 1]) * int(b[1, 0]), 53, False)
    assert gs.integer_matmul(a, b, "int(53)").item() == want


def test_after_saturates_where_before_does_not():
    a, b = torch.tensor([[255, 255, 0]]), torch.tensor([[2], [-1], [1]])
    assert gs.integer_matmul(a, b, "int(9, saturate)", a_zero=128).item() == -1
    assert gs.integer_matmul(a, b, "int(9, saturate)", a_zero=128, subtract="after").item() == -256


ONE = torch.ones(2, 2, dtype=torch.int8)


@pytest.mark.parametrize(
    ("args", "options", "error", "says"),
    [
        ((ONE, ONE, "int8 : int(32)"), {}, gs.SpecError, "an accumulator alone"),
        ((ONE, ONE, "int(32) -> fp16"), {}, gs.SpecError, "an accumulator alone"),
        ((ONE, ONE, "fp32"), {}, gs.SpecError, "Name an integer register"),
        ((ONE, ONE), {"subtract": "later"}, gs.SpecError, "'before' or 'after'"),
        ((ONE, ONE, "int(20, shift=1)"), {"subtract": "after"}, gs.SpecError, "shifts products"),
        (
            (ONE, ONE, "chunked(2, int(20, shift=1), fixed(20,0))"),
            {"subtract": "after"},
            gs.SpecError,
            "shifts products",
        ),
        ((ONE / 2, ONE), {}, gs.DTypeError, "a holds 0.5; allowed: integers"),
        ((ONE * float("nan"), ONE), {}, gs.DTypeError, "a holds nan"),
        ((ONE.bool(), ONE), {}, gs.DTypeError, "torch.bool"),
        (([[1]], ONE), {}, gs.DTypeError, "a is a list"),
        ((ONE.long() << 60, ONE), {}, gs.DTypeError, "2.53"),
        ((ONE.long() << 53, ONE), {"a_zero": -1}, gs.DTypeError, "after the zero point is subtracted"),
        ((ONE.long() << 40, ONE.long() << 30), {"subtract": "after"}, gs.DTypeError, "below 2.62"),
        ((ONE, ONE), {"a_zero": 0.5}, gs.DTypeError, "a_zero=0.5"),
        ((ONE, ONE), {"a_zero": True}, gs.DTypeError, "a_zero=True"),
        ((ONE, ONE), {"b_zero": torch.tensor([0.5])}, gs.DTypeError, "b_zero holds 0.5"),
        ((ONE, ONE), {"b_zero": torch.zeros(3)}, gs.ShapeError, r"one integer, or \(2,\)"),
        ((ONE, ONE[:1]), {}, gs.ShapeError, "contracted sizes"),
        ((ONE[0], ONE), {}, gs.ShapeError, r"matrices \(..., M, K\)"),
    ],
)
def test_bad_arguments(args, options, error, says):
    with pytest.raises(error, match=says):
        gs.integer_matmul(*args, **options)
