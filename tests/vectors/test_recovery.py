"""Cases that leave an accumulator's range and come back catch designs that the other directed cases pass."""

from __future__ import annotations

import json
import math
import re

import pytest
import torch

import gemmsim as gs
from gemmsim import formats
from gemmsim.vectors import directed_cases, export_directed

#: Accumulators whose every sum is limited, with operands of every pair of signs.
SATURATING = [
    "uint8 * int8 : int(18, saturate)",
    "int8 : int(18, saturate)",
    "int8 : int(8, saturate)",
    "int8 : int(4, saturate)",
    "int4 * uint8 : int(13, saturate)",
    "int8 : int(12, saturate, signed=false)",
    "int8 : int(12, saturate, shift=3)",
    "int2 * int5 : int(5, saturate)",
    "fixed(6,2) : fixed(9, 1, rounding=rne)",
    "e4m3 : fixed(14, 2)",
    "e4m3 : e5m10/sat",
    "e4m3 : e5m4/sat",
    "e2m1 : e3m2/sat",
    ": bf16/sat",
    "int8 : e5m2/rtz",
]


def recover(spec, terms=32):
    return next(one for one in directed_cases(spec, terms) if one.name == "recover")


def products(folder) -> list[list[list[float]]]:
    """Rows, columns and terms of the exact products of exported operands."""
    about = json.loads((folder / "spec.json").read_text())
    words, sizes = json.loads((folder / "words.json").read_text()), [about[name] for name in "MKN"]
    a, b = ([formats.parse_scalar(about["files"][x]["format"]).decode(word) for word in words[x]] for x in "ab")
    m, k, n = sizes
    return [[[a[i * k + t] * b[t * n + j] for t in range(k)] for j in range(n)] for i in range(m)]


def exported(folder, name) -> list[float]:
    about = json.loads((folder / "spec.json").read_text())["files"][name]
    fmt = formats.parse_scalar(about["format"])
    return [fmt.decode(word) for word in json.loads((folder / "words.json").read_text())[name]]


class Limited:
    """One accumulator by Python's numbers and the rounding of single numbers: right, or wrong in one of two ways."""

    def __init__(self, spec, fault=""):
        self.own, self.fault = gs.GemmSpec.parse(spec).accumulator, fault
        fmt = self.own.add_cast.format
        self.least, self.most = float(fmt.min), float(fmt.max)

    def rounded(self, x, cast):
        return float(gs.quantize(torch.tensor([x], dtype=torch.float64), cast))

    def term(self, product):
        if getattr(self.own, "shift", 0):
            return math.floor(product / 2**self.own.shift)
        return self.rounded(product, self.own.product_cast) if self.own.product_cast else product

    def steps(self, terms) -> list[float]:
        held, read, found = 0.0, 0.0, []
        for product in terms:
            stuck = self.fault == "sticky" and held in (self.least, self.most)
            wide = held if stuck else held + self.term(product)
            read = self.rounded(wide, self.own.add_cast)
            held = wide if self.fault == "wide" else read
            found.append(read)
        return found


@pytest.mark.parametrize("spec", SATURATING)
def test_an_accumulator_that_stays_saturated_or_is_limited_when_read_is_caught_at_both_ends(tmp_path, spec):
    export_directed(spec, 32, tmp_path, steps=True)
    folder = tmp_path / "recover"
    sums = [terms for row in products(folder) for terms in row]
    steps, results = exported(folder, "steps"), exported(folder, "expected")
    right = [Limited(spec).steps(terms) for terms in sums]
    assert [x for one in right for x in one] == steps and [one[-1] for one in right] == results
    about = json.loads((folder / "spec.json").read_text())["case"]
    assert about.count("above at") == about.count("below at") == 1
    limits = {Limited(spec).least, Limited(spec).most}
    reached = [bool(limits & set(one)) for one in right]
    assert limits <= {x for one in right for x in one}
    for fault in ("sticky", "wide"):
        if fault == "sticky" and 0 in limits:
            continue  # an unsigned accumulator starts at its limit
        wrong = [Limited(spec, fault).steps(terms) for terms in sums]
        assert [x[-1] != y[-1] for x, y in zip(wrong, right, strict=True)] == reached  # the results alone show it


@pytest.mark.parametrize("spec", SATURATING)
def test_the_stated_steps_are_those_of_the_exported_accumulator(tmp_path, spec):
    export_directed(spec, 32, tmp_path, steps=True)
    folder = tmp_path / "recover"
    entry = json.loads((folder / "spec.json").read_text())
    steps = torch.tensor(exported(folder, "steps")).reshape(entry["M"], entry["N"], 32)
    model = Limited(spec)
    said = re.findall(
        r"(column|row) (\d+) of . with (?:row|column) (\d+) of .: (above|below) at step (\d+), without limits inside again at "
        r"step (\d+)",
        entry["case"],
    )
    assert len(said) == 2
    for axis, at, other, end, left, back in said:
        place = (int(other), int(at)) if axis == "column" else (int(at), int(other))
        limit = model.most if end == "above" else model.least
        one = steps[place].double()
        assert one[int(left)] == limit and one[int(back)] != limit
        wide = Limited(spec, "wide").steps(products(folder)[place[0]][place[1]])
        assert wide[int(left)] == limit and model.least < wide[int(back)] < model.most


def test_other_directed_cases_do_not_catch_a_wide_accumulator(tmp_path):
    """Why the case exists: with the others alone, the wrong design passed."""
    spec = "uint8 * int8 : int(18, saturate)"
    export_directed(spec, 27, tmp_path)
    caught = {}
    for folder in (one for one in tmp_path.iterdir() if one.is_dir()):
        sums = [terms for row in products(folder) for terms in row]
        caught[folder.name] = [Limited(spec, "wide").steps(one)[-1] for one in sums] != exported(folder, "expected")
    assert caught == {"extremes": False, "alternating": False, "overflow": False, "recover": True}


@pytest.mark.parametrize("spec", ["uint8 * int8 : int(16)", "int8 : int(8)", "e4m3 : fixed(14, 2, overflow=wrap)"])
def test_a_wrapping_accumulator_comes_back_to_the_exact_sum_and_a_saturating_one_is_caught(spec):
    found = recover(spec)
    exact, least, most = found.a @ found.b, *map(float, _range(spec))
    result = gs.qmatmul(found.a, found.b, spec, out_dtype=torch.float64)
    saturating = gs.qmatmul(found.a, found.b, _saturating(spec), out_dtype=torch.float64)
    for column in range(found.b.shape[1]):
        partial = (found.a[:, :, None] * found.b).cumsum(1)[:, :, column]
        leaves = ((partial < least) | (partial > most)).any(1)
        back = leaves & (result[:, column] == exact[:, column])
        assert (back & (saturating[:, column] != result[:, column])).any()


def _range(spec):
    fmt = gs.GemmSpec.parse(spec).accumulator.add_cast.format
    return fmt.min, fmt.max


def _saturating(spec):
    return spec.replace("wrap", "saturate") if "wrap" in spec else spec[:-1] + ", saturate)"


@pytest.mark.parametrize("spec", ["e4m3 : e5m10", ": fp32", "e4m3 : fp16/rtz", "e4m3 : e4m3"])
def test_an_overflow_of_floats_stays_or_saturates_as_the_format_says(spec):
    found = recover(spec)
    cast = gs.GemmSpec.parse(spec).accumulator.add_cast
    huge = gs.quantize(torch.tensor([float(cast.format.max) * 4], dtype=torch.float64), cast)
    result = gs.qmatmul(found.a, found.b, spec, out_dtype=torch.float64)
    exact = found.a @ found.b
    assert exact.isfinite().all()
    if huge.isfinite().all():
        assert (result != gs.quantize(exact, cast)).any(0).all()
    else:
        assert (~result.isfinite()).any(0).all()


def tree(terms, widths, outer, fault="") -> int:
    """A tree of adders and its accumulator by Python's integers; ``fault`` names what is wrong."""

    def limited(x, bits):
        return max(-(2 ** (bits - 1)), min(2 ** (bits - 1) - 1, x))

    size, total = 2 ** len(widths), 0
    for start in range(0, len(terms), size):
        level = [int(x) for x in terms[start : start + size]] + [0] * (size - len(terms[start : start + size]))
        for number, bits in enumerate(widths):
            sums = [level[n] + level[n + 1] for n in range(0, len(level), 2)]
            level = sums if fault == f"adders {number} are wide" else [limited(x, bits) for x in sums]
        stuck = fault == "sticky" and total in (-(2 ** (outer - 1)), 2 ** (outer - 1) - 1)
        total = total if stuck else total + level[0]
        total = total if fault == "wide" else limited(total, outer)
    return limited(total, outer)


@pytest.mark.parametrize(
    ("operands", "widths", "outer", "faults"),
    [
        ("uint8 * int8", [16, 17], 18, ["adders 0 are wide", "sticky", "wide"]),
        ("int8", [16, 16], 18, ["adders 1 are wide", "sticky", "wide"]),
        ("int8", [17, 18], 18, ["sticky", "wide"]),
        ("int8", [15, 16, 17], 32, ["adders 0 are wide"]),
        ("int8", [15], 17, ["adders 0 are wide", "sticky", "wide"]),
    ],
)
def test_wrong_adder_trees_are_caught(tmp_path, operands, widths, outer, faults):
    export_directed(f"{operands} : adder_tree({widths}, {outer})", 38, tmp_path, steps=True)
    folder = tmp_path / "recover"
    sums = [terms for row in products(folder) for terms in row]
    results = exported(folder, "expected")
    assert [tree(terms, widths, outer) for terms in sums] == results
    for fault in faults:
        assert [tree(terms, widths, outer, fault) for terms in sums] != results, fault


def chunks(terms, n, inner, outer) -> float:
    """Chunks of n terms by two accumulators of ``Limited``."""
    totals = [inner.steps(terms[start : start + n])[-1] for start in range(0, len(terms), n)]
    return outer.steps(totals)[-1]


@pytest.mark.parametrize(
    ("operands", "inner", "outer"),
    [
        ("int8", "int(17, saturate)", "int(19, saturate)"),
        ("uint8 * int8", "int(18, saturate)", "int(18, saturate)"),
        ("e4m3", "e5m10/sat", "e5m10/sat"),
        ("e2m1", "e3m2/sat", "e3m3/sat"),
    ],
)
@pytest.mark.parametrize("fault", ["sticky", "wide"])
@pytest.mark.parametrize("level", [0, 1])
def test_wrong_accumulators_at_either_level_of_chunks_are_caught(tmp_path, operands, inner, outer, fault, level):
    name = outer.replace("int(", "fixed(").replace(" saturate", "0")
    export_directed(f"{operands} : chunked(8, {inner}, {name})", 80, tmp_path, steps=True)
    folder = tmp_path / "recover"
    sums = [terms for row in products(folder) for terms in row]
    results = exported(folder, "expected")
    right, wrong = (
        [chunks(terms, 8, Limited(f": {inner}", faults[0]), Limited(f": {outer}", faults[1])) for terms in sums]
        for faults in (("", ""), (fault, "") if level == 0 else ("", fault))
    )
    assert right == results and wrong != results


def test_an_accumulator_that_is_limited_at_the_end_comes_back_exactly():
    found = recover("int8 : int(18, saturate, when=end)")
    late, every = (gs.qmatmul(found.a, found.b, f"int8 : int(18, saturate, when={when})") for when in ("end", "every"))
    assert torch.equal(late.double(), found.a @ found.b) and (late != every).all()


@pytest.mark.parametrize(
    ("spec", "terms", "why"),
    [
        ("uint4 : int(9, saturate)", 32, "no product is negative"),
        ("int8 : int(18, saturate)", 9, "no sum of 9 terms"),
        ("int8 : int(40, saturate)", 32, "no sum of 32 terms"),
        ("int8 : int(18, saturate)", 1, "no sum of 1 terms"),
        ("e4m3 : e4m3/sr/sat", 32, "rounded at random"),
        ("e4m3 : kahan(bf16)", 32, "kahan.e8m7. is not one accumulator"),
    ],
)
def test_specs_without_such_a_sum_say_why(spec, terms, why):
    found = recover(spec, terms)
    assert found.a is None and found.b is None and re.search(f"none: .*{why}", found.about)


@pytest.mark.parametrize("spec", ["e4m3 : int(23)", "e4m3 : chunked(4, int(17, saturate), fixed(20,0))"])
def test_operands_of_integer_accumulators_are_whole_numbers(spec):
    found = recover(spec)
    assert (found.a % 1 == 0).all() and (found.b % 1 == 0).all()


def test_operands_are_in_their_formats():
    for spec in (*SATURATING, "e4m3 : chunked(8, e5m10/sat, e5m10/sat)"):
        found, parsed = recover(spec), gs.GemmSpec.parse(spec)
        for x, cast in ((found.a, parsed.a), (found.b, parsed.b)):
            assert cast is None or torch.equal(gs.quantize(x, cast), x)


@pytest.mark.parametrize("text", ["identity", "halved"])
def test_tables_of_products_have_the_case(text):
    values = range(-8, 8)
    codes = [n if n < 8 else n - 16 for n in range(16)]
    assert sorted(codes) == list(values)
    rows = [[x * y if text == "identity" else x * y // 2 for y in codes] for x in codes]
    table = gs.acc.table(rows, "int4", name=f"recovery_{text}")
    spec = gs.GemmSpec(product=table, accumulator="int(8, saturate)")
    found = recover(spec)
    wide = gs.GemmSpec(product=table, accumulator="int(30, saturate)")
    result, exact = (gs.qmatmul(found.a, found.b, one) for one in (spec, wide))
    assert (exact.abs() < 128).all() and (result != exact).all()
