"""Adding an accumulator is one class with one registration: strings, nesting, JSON, errors follow from its fields."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import pytest

from gemmsim.arithmetic import Accumulator, GemmSpec, Sequential, SpecError, UnsupportedSpec, accumulator
from gemmsim.arithmetic.argument_kinds import ACCUMULATOR, CAST, ChoiceKind, IntKind, argument, optional
from gemmsim.formats import Cast, parse_cast
from gemmsim.reference import gemm


@dataclass(frozen=True)
class Blocks(Accumulator):
    """Stand-in with every kind of argument."""

    n: int = field(metadata=argument(IntKind(1, 2**31 - 1)))
    inner: Accumulator = field(metadata=argument(ACCUMULATOR))
    outer: Cast | None = field(default=None, metadata=argument(optional(CAST)))
    combine: str = field(default="sequential", kw_only=True, metadata=argument(ChoiceKind("sequential", "pairwise")))

    def casts(self) -> Iterator[Cast]:
        yield from self.inner.casts()
        yield self.add_cast

    @property
    def add_cast(self) -> Cast:
        return self.outer or self.inner.add_cast

    @property
    def product_cast(self) -> Cast | None:
        return self.inner.product_cast

    def with_product(self, product: Cast) -> Accumulator:
        return replace(self, inner=self.inner.with_product(product))

    def explain_lines(self) -> list[tuple[str, str]]:
        return [*self.inner.explain_lines(), ("order", f"blocks of {self.n}")]


@pytest.fixture(autouse=True)
def blocks(monkeypatch):
    monkeypatch.setattr(accumulator, "_CONSTRUCTORS", dict(accumulator._CONSTRUCTORS))
    accumulator.register("blocks")(Blocks)


@pytest.mark.parametrize(
    "text, canonical",
    [
        ("blocks(64, e6m9)", "blocks(64, e6m9)"),
        ("blocks(64,e6m9/rtz,fp32)", "blocks(64, e6m9/rtz, e8m23)"),
        ("blocks(64, e6m9, none)", "blocks(64, e6m9)"),
        ("blocks(inner=e6m9, n=64, combine=pairwise)", "blocks(64, e6m9, combine=pairwise)"),
        ("blocks(4,blocks(2,sequential(e5m2,e4m3)),e3m2)", "blocks(4, blocks(2, sequential(e5m2, mul=e4m3)), e3m2)"),
        ("blocks(4, fixed(8,4)/sr(3))", "blocks(4, fixed(8,4)/sr3)"),
    ],
)
def test_texts(text, canonical):
    spec = GemmSpec.parse(f"e4m3 : {text} -> bf16")
    assert str(spec) == f"e4m3 : {canonical} -> e8m7"
    assert GemmSpec.parse(str(spec)) == spec == GemmSpec.from_json(spec.to_json())


def test_objects_and_strings_build_the_same():
    inner = Sequential("e6m9")
    assert (
        Blocks(64, "e6m9", "fp32") == Blocks(64, inner, parse_cast("fp32")) == Accumulator.parse("blocks(64,e6m9,fp32)")
    )
    assert Blocks(64, inner.add, None) == Blocks(64, inner.add.format) == Blocks(64, inner)


def test_the_product_rule_reaches_inside():
    spec = GemmSpec(product="e4m3", accumulator="blocks(4, e6m9)")
    assert spec.product == spec.accumulator.inner.mul == parse_cast("e4m3")
    assert GemmSpec.of(":blocks(4, e6m9/sr3)").is_stochastic
    assert "blocks of 4" in spec.explain()


@pytest.mark.parametrize(
    "text, fragment",
    [
        ("blocks(0, e6m9)", "from 1 to"),
        ("blocks(e6m9, 4)", "n='e6m9'"),
        ("blocks(4)", "'inner'"),
        ("blocks(4, e6m9, combine=tree)", "'pairwise'"),
        ("blocks(4, blcks(2, e6m9))", "Did you mean blocks"),
        ("blocks(4, e6m9z)", "e6m9z"),
    ],
)
def test_errors(text, fragment):
    with pytest.raises(SpecError, match=fragment):
        GemmSpec.parse(f":{text}")


def test_the_reference_says_that_it_lacks_it():
    with pytest.raises(UnsupportedSpec, match="no Blocks; allowed: .*sequential"):
        gemm([[1.0]], [[1.0]], ":blocks(4, e6m9)")


def test_a_name_that_reads_as_a_format_is_a_format():
    accumulator.register("fixed")(Blocks)
    assert GemmSpec.parse(":fixed(8, 4)").accumulator == Sequential("fixed(8,4)")
    assert GemmSpec.parse(":fixed(8, e6m9)").accumulator == Blocks(8, "e6m9")
