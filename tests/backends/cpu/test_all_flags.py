"""Every combination of flags of a format, rounding and overflow policy, as casts, operands, products, outputs and registers.

``support.flags`` enumerates them: kinds of specials, with and without sign, -0, subnormals and infinity, all roundings, all
policies; each for a shape of format that takes another way through the library. The reference decides, on every instruction set.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator

import pytest
import torch
from support import LONG, assert_bitwise_equal
from support.cpu import isas
from support.flags import POLICIES, ROUNDINGS, SHAPES, casts, float_formats, legal, other_formats, points
from torch import Tensor

import gemmsim as gs
from gemmsim import acc, reference
from gemmsim.arithmetic import GemmSpec
from gemmsim.backends import cpu
from gemmsim.formats import (
    FP32,
    FP64,
    Binary8Format,
    Cast,
    FixedFormat,
    FloatFormat,
    Format,
    Overflow,
    OwnExponentFormat,
    RoundingMode,
    Specials,
    SupernormalFormat,
    parse_cast,
)
from gemmsim.lowering.casts import stays_in_float32
from gemmsim.reference import Site

SEED = 5
#: Of what is cast by itself: less than a vector, whole vectors, four of them, and what is left.
LENGTHS = [*range(1, 35), 64, 67]
OTHER_KINDS = {kind.__name__: kind for kind in (FixedFormat, SupernormalFormat, Binary8Format, OwnExponentFormat)}
#: Takes the name of an instruction set.
Check = Callable[[str], None]


@pytest.fixture(autouse=True)
def _isa_as_found() -> Iterator[None]:
    yield
    cpu.set_isa(isas()[0])


def rounded(x: Tensor, cast: Cast, site: int = Site.QUANTIZE) -> Tensor:
    """What the reference makes of the elements of ``x``, in float64."""
    return torch.tensor(reference.quantize(x.double().tolist(), cast, seed=SEED, site=int(site)), dtype=torch.float64)


class Inputs:
    """Numbers for one format, and how they lie in memory."""

    def __init__(self, fmt: Format, dtype: torch.dtype, most: int, lengths: list[int] | None) -> None:
        x = points(fmt, dtype, most)
        self.x = x = x[torch.randperm(len(x), generator=torch.Generator().manual_seed(1))]
        low, high = (fmt.min, fmt.max) if getattr(fmt, "clamp", True) else (-math.inf, math.inf)
        wide, size = x.double(), x.double().abs()
        # Whole blocks of vectors inside the format's range, then what is not.
        inside, beyond = ((wide >= low) & (wide <= high), (wide < low) | ~(wide <= high))
        inside, beyond = inside.nonzero().flatten(), beyond.nonzero().flatten()
        self.blocks = torch.cat([inside, inside[: -len(inside) % 64], beyond])
        self.in_blocks = x[self.blocks]
        # Data that planners tell apart: any, finite, and such as cannot overflow.
        half = x.isfinite() & (size <= high / 2) & ((wide >= 0) | (low < 0))
        self.sets = {
            "all": torch.arange(len(x)),
            "finite": x.isfinite().nonzero().flatten(),
            "half": half.nonzero().flatten(),
        }
        self.apart = torch.stack([x, x], 1)[:, 1]
        narrower = [torch.float16, torch.bfloat16, *([torch.float32] if dtype == torch.float64 else [])]
        places = {narrow: (x.to(narrow).to(dtype) == x).nonzero().flatten() for narrow in narrower}
        self.narrow = {narrow: (where, x[where].to(narrow)) for narrow, where in places.items()}
        self.zero = int(((x == 0) & ~x.signbit()).nonzero()[0])
        self._pieces(random.Random(f"{fmt} {dtype} {most}"), lengths)
        # A second term that decides ties: at most an eighth of the last place, or nothing.
        fixed = isinstance(fmt, FixedFormat)
        least = 2.0 ** (fmt.quantum_exponent if getattr(fmt, "subnormals", True) else fmt.emin)
        top = least if fixed else min(high, torch.finfo(dtype).max)
        last = size.nan_to_num(least, top).clamp(least, top).frexp().exponent - 3 - (0 if fixed else fmt.p)
        sign = torch.randint(-1, 2, (len(x),), generator=torch.Generator().manual_seed(2))
        self.hair = (torch.ldexp(torch.ones(len(x)).double(), last) * sign).to(dtype)

    def _pieces(self, rng: random.Random, lengths: list[int] | None) -> None:
        lengths = [n for n in lengths or rng.sample(LENGTHS, 6) if n < len(self.x)]
        self.starts = [rng.randrange(len(self.x) - n + 1) for n in lengths]
        self.pieces = [self.x[i : i + n] for i, n in zip(self.starts, lengths, strict=True)]
        self.in_pieces = torch.cat([torch.arange(i, i + n) for i, n in zip(self.starts, lengths, strict=True)])
        self.room = torch.empty(len(self.in_pieces), dtype=self.x.dtype)
        self.rooms = self.room.split(lengths)


def of_tensors(cast: Cast, data: Inputs, want: Tensor) -> Iterator[Check]:
    """Casts of whole tensors, in blocks and not, of other dtypes and strides; and of pieces."""
    x = data.x

    def run(source: Tensor, expected: Tensor, what: str, dtype: torch.dtype | None = None) -> Check:
        expected = expected.to(dtype or source.dtype)

        def check(where: str) -> None:
            out = torch.empty(source.shape, dtype=expected.dtype)
            cpu.quantize(source, cast, out, SEED)
            assert_bitwise_equal(out, expected, context=f"{cast} of {what} on {where}")

        return check

    def pieces(where: str) -> None:
        for start, piece, room in zip(data.starts, data.pieces, data.rooms, strict=True):
            cpu.quantize(piece, cast, room, SEED, start=start)
        assert_bitwise_equal(data.room, want[data.in_pieces].to(x.dtype), context=f"{cast} of pieces on {where}")

    yield run(x, want, f"{len(x)} numbers")
    yield pieces
    yield run(data.apart, want, "every other number")
    yield run(x.double(), want, "float64") if x.dtype == torch.float32 else run(x, want, "float64", torch.float32)
    if not cast.is_stochastic:  # random bits belong to the place of an element
        yield run(data.in_blocks, want[data.blocks], "blocks")
        for narrow, (places, numbers) in data.narrow.items():
            yield run(numbers, want[places], f"{narrow} into {x.dtype}", x.dtype)
            if narrow == torch.float32:
                yield run(numbers, want[places], "float32")


def product(spec: GemmSpec, a: Tensor, b: Tensor, want: Tensor, what: str) -> Check:
    """``want``: the result, or a row or a column if all are alike."""
    want = want.to(a.dtype).expand(a.shape[0], b.shape[1])

    def check(where: str) -> None:
        out = torch.empty(want.shape, dtype=a.dtype)
        run = cpu.gemm(a, b, spec, out, SEED)
        assert_bitwise_equal(out, want.contiguous(), context=f"{spec}, {what}, on {where}: {run}")

    return check


def carrier_of(cast: Cast, data: Inputs) -> Cast:
    """What holds the values of ``cast`` and the numbers."""
    return Cast(FP32 if data.x.dtype == torch.float32 and stays_in_float32(cast) else FP64)


def of_operands(cast: Cast, data: Inputs, want: Tensor, sets: list[str]) -> Iterator[Check]:
    """``cast`` of A and of B, whose products are with ones. Sums have no -0: they start at +0."""
    x, one, carrier = data.x, torch.ones(2, 1, dtype=data.x.dtype), carrier_of(cast, data)
    left, right = GemmSpec(a=cast, accumulator=carrier), GemmSpec(b=cast, accumulator=carrier)
    if isinstance(cast.format, OwnExponentFormat):
        return  # operands of these are blocks
    if cast.is_stochastic:
        x = x[:40]
        a, b = (0 + rounded(x, cast, site) for site in (Site.OPERAND_A, Site.OPERAND_B))
        yield product(left, x[:, None], one[:1], a[:, None], "a column")
        yield product(right, one, x[None], b, "a row")
        return
    want = 0 + want
    yield product(left, x[:, None], one.T, want[:, None], "a column")
    yield product(right, one, x[None], want, "a row")
    terms = data.sets["half"][: 1 + len(str(cast))]  # none makes a NaN of a zero
    yield product(left, x[terms][None], torch.eye(len(terms), dtype=x.dtype), want[terms], "terms")


def of_outputs(cast: Cast, data: Inputs, want: Tensor, sets: list[str]) -> Iterator[Check]:
    """``cast`` of the results of products with ones, which are no -0."""
    x, one = data.x, torch.ones(2, 1, dtype=data.x.dtype)
    spec = GemmSpec(accumulator=FP32 if x.dtype == torch.float32 else FP64, out=cast)
    if cast.is_stochastic:
        x = x[:40]
        yield product(spec, one[:1], x[None], rounded(0 + x, cast, Site.OUT), "a row")
        return
    want = want.where(x != 0, want[data.zero])
    for name in sets:
        which = data.sets[name]
        yield product(spec, one, x[which][None], want[which], f"a row, {name}")
        yield product(spec, x[which][:, None], one.T, want[which, None], f"a column, {name}")


def error_of(a: Tensor, b: Tensor, total: Tensor) -> Tensor:
    """Of ``total = a + b`` (Knuth's two_sum): what it lacks of the exact sum."""
    part = total - a
    return (a - (total - part)) + (b - part)


def of_registers(cast: Cast, data: Inputs, want: Tensor, sets: list[str]) -> Iterator[Check]:
    """Registers of every kind with two terms, of which the second is small: the reference rounds the exact sums."""
    specs = [GemmSpec(accumulator=kind) for kind in (acc.sequential(cast), acc.chunked(2, cast), acc.exact(cast))]
    if not getattr(cast.format, "clamp", True):
        assert all(map(cpu.refuses, specs))  # registers have bounds
        return
    terms, one = torch.stack([data.x, data.hair]), torch.ones(3, 2, dtype=data.x.dtype)
    if cast.is_stochastic or isinstance(cast.format, OwnExponentFormat) or cast.format.bits > 50:  # long sums
        terms = terms[:, :6].contiguous()
        for spec in specs:
            table = reference.gemm(one.tolist(), terms.tolist(), spec, seed=SEED)
            yield product(spec, one, terms, torch.tensor(table, dtype=torch.float64), "two terms")
        return
    x, hair = data.x.double(), data.hair.double()
    start = want.where(x != 0, want[data.zero])  # of +0 and the first term, which is no -0 then
    sums = start + hair
    assert bool(((error_of(start, hair, sums) == 0) | ~sums.isfinite()).all()), "the second term is too small"
    running = rounded(sums, cast)
    # A value is rounded to itself, but for that of a grid which has no value of its own binade.
    chunked = 0 + running if isinstance(cast.format, FloatFormat) else rounded(0 + running, cast)
    sums = 0 + x + hair
    exact = (error_of(x, hair, sums) == 0) | ~sums.isfinite()
    at_once = torch.zeros_like(want)
    at_once[exact] = rounded(sums[exact], cast)
    for name in sets:
        for spec, results in zip(specs, (running, chunked, at_once), strict=True):
            which = data.sets[name]
            which = which[exact[which]] if results is at_once else which
            yield product(spec, one, terms[:, which].contiguous(), results[which], f"two terms, {name}")


def of_products(cast: Cast, data: Inputs, want: Tensor, sets: list[str]) -> Iterator[Check]:
    """``cast`` of products by ones, which are summed in a register that takes them as they are."""
    spec = GemmSpec(accumulator=acc.sequential(carrier_of(cast, data), cast))
    if not getattr(cast.format, "clamp", True):
        assert cpu.refuses(spec)
        return
    for name in sets:
        x = data.x[data.sets[name]][None, : 6 if cast.is_stochastic else None]
        if cast.is_stochastic:
            table = torch.tensor(reference.gemm([[1.0]], x.tolist(), spec, seed=SEED), dtype=torch.float64)
        else:
            table = 0 + want[data.sets[name]]
        yield product(spec, torch.ones(1, 1, dtype=x.dtype), x, table, name)


USES = (of_operands, of_products, of_outputs, of_registers)


def walk(fmt: Format, dtype: torch.dtype, most: int, everything: bool) -> int:
    """All casts to ``fmt``; what else than casting tensors each does is drawn unless it is ``everything``.

    Policies other than the default meet fewer numbers, the ends of the range, and so do random bits; in a long run all.
    """
    machine, walked = isas(), 0
    full, brief = (Inputs(fmt, dtype, n, LENGTHS if everything else None) for n in (most, most if LONG else 0))
    for cast in casts(fmt):
        rng = random.Random(str(cast))
        data = full if cast.overflow is Overflow.INFINITY and (everything or not cast.is_stochastic) else brief
        want = rounded(data.x, cast)
        checks = list(of_tensors(cast, data, want))
        for use in USES if everything else [rng.choice(USES)]:
            checks += use(cast, data, want, list(data.sets) if everything else [rng.choice(list(data.sets))])
        for name in machine:
            cpu.set_isa(name)
            for check in checks:
                check(name)
        walked += 1
    return walked


def walk_shape(shape: str, specials: Specials, most: int, everything: bool) -> None:
    dtype = torch.float64 if SHAPES[shape].wide else torch.float32
    walked = sum(walk(fmt, dtype, most, everything) for fmt in float_formats(SHAPES[shape], specials))
    assert walked == formats_of(shape, specials) * len(ROUNDINGS) * len(POLICIES) > 0


def formats_of(shape: str, specials: Specials) -> int:
    return sum(legal(SHAPES[shape], specials, s, sub) for s in (True, False) for sub in (True, False))


#: Those of which there are formats.
CASES = [(shape, specials) for shape in SHAPES for specials in Specials if formats_of(shape, specials)]


@pytest.mark.parametrize(("shape", "specials"), CASES, ids=str)
def test_flags_roundings_and_policies(shape, specials):
    walk_shape(shape, specials, 9 if shape == "small" else 2, shape == "small")


@pytest.mark.parametrize("kind", OTHER_KINDS)
def test_flags_of_other_kinds(kind):
    assert sum(walk(fmt, torch.float32, 1, False) for fmt in other_formats(OTHER_KINDS[kind])) == OTHER_CASTS[kind]


@pytest.mark.long
@pytest.mark.parametrize(("shape", "specials"), CASES, ids=str)
def test_every_use_of_every_combination(shape, specials):
    walk_shape(shape, specials, 5, True)


@pytest.mark.long
@pytest.mark.parametrize("kind", OTHER_KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_every_use_of_other_kinds(kind, dtype):
    assert sum(walk(fmt, dtype, 3, True) for fmt in other_formats(OTHER_KINDS[kind])) == OTHER_CASTS[kind]


#: How many casts there are.
FLOAT_CASTS = 10128
OTHER_CASTS = {"FixedFormat": 576, "SupernormalFormat": 768, "Binary8Format": 480, "OwnExponentFormat": 240}


def test_no_combination_is_left_out():
    """What is refused raises a FormatError where the text of the formats says so (support.flags), and nowhere else."""
    walked = [
        (shape, cast)
        for shape, specials in CASES
        for fmt in float_formats(SHAPES[shape], specials)
        for cast in casts(fmt)
    ]
    assert len(walked) == len({cast for _, cast in walked}) == FLOAT_CASTS
    flags = {(c.format.specials, c.format.signed, c.format.subnormals, c.rounding, c.overflow) for _, c in walked}
    assert len(flags) == (6 * 4 - 2 + 1) * len(ROUNDINGS) * len(POLICIES)  # no unsigned fnuz; one kind of scales
    for shape in SHAPES:
        found = [cast for name, cast in walked if name == shape]
        assert {(c.rounding.mode, c.overflow) for c in found} == {(m, o) for m in RoundingMode for o in Overflow}
        for flag in ("has_negative_zero", "has_subnormals", "subnormals", "has_inf", "has_nan", "signed"):
            values = {getattr(cast.format, flag) for cast in found}
            assert values == {True, False} - ({True} if flag == "has_subnormals" and SHAPES[shape].p == 1 else set()), (
                flag
            )
    for kind, count in OTHER_CASTS.items():
        assert sum(1 for fmt in other_formats(OTHER_KINDS[kind]) for _ in casts(fmt)) == count


def test_signs_between_half_the_smallest_normal_number_and_itself():
    for text, want in (("e4m3fnuz/ftz", -(2.0**-7)), ("binary8p4/ftz", -(2.0**-7)), ("e4m3/ftz", -(2.0**-6))):
        assert gs.quantize(torch.tensor([want * 0.75]), text).tolist() == [want]
    unsigned = "float(p=4,emin=-6,emax=8,specials=nan_only,unsigned)/ftz"
    assert gs.quantize(torch.tensor([-0.012]), unsigned).isnan().all()  # what is rounded to a number below zero
    assert gs.quantize(torch.tensor([-0.012]), f"{unsigned}/sat").tolist() == [0.0]


@pytest.mark.parametrize("rounding", ["rne", "ru"])
@pytest.mark.parametrize("specials", Specials, ids=str)
def test_large_tensors(specials, rounding):
    """Of 4 MiB and more, whose results are streamed past the caches, from a place that no vector begins at."""
    walked = 0
    for fmt in float_formats(SHAPES["small" if specials is not Specials.SCALE else "powers"], specials):
        data, cast = Inputs(fmt, torch.float32, 9, None), parse_cast(f"{fmt}/{rounding}")
        places = torch.cat([data.blocks, torch.arange(len(data.x))])
        places = places.repeat((1 << 20) // len(places) + 1)
        x, want = data.x[places], rounded(data.x, cast).float()[places]
        for name in isas():
            cpu.set_isa(name)
            out = torch.empty(len(x) + 3)[3:]
            cpu.quantize(x, cast, out)
            assert_bitwise_equal(out, want, context=f"{cast} on {name}")
        walked += 1
    assert walked == formats_of("small" if specials is not Specials.SCALE else "powers", specials) > 0
