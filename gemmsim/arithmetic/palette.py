"""One of several accumulators for each output element."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from ..formats import Cast
from .accumulator import Accumulator, register
from .argument_kinds import MEMBERS, argument
from .errors import spec_error

__all__ = ["Palette"]


@register("palette")
@dataclass(frozen=True, repr=False)
class Palette(Accumulator):
    """``members[select[i, j]]`` computes output element (i, j); ``select`` is an argument of the product.

    Args:
        members: one to eight accumulators; formats mean sequential ones.

    Each element is what the chosen member alone would give there, random bits included.

    Raises:
        SpecError: for another number of members, a palette or ``init`` among them, or members that fix different seeds
            or take different operands.

    Source: docs/reference/accumulators.md#one-accumulator-for-each-element.

    Example:
        >>> acc = gs.arithmetic.Palette(("bf16", "fp32"))
        >>> select = torch.tensor([[0], [1]], dtype=torch.uint8)
        >>> gs.qmatmul(torch.ones(2, 4096), torch.ones(4096, 1), acc, select=select)
        tensor([[ 256.],
                [4096.]])
    """

    members: tuple[Accumulator, ...] = field(metadata=argument(MEMBERS))

    def __post_init__(self) -> None:
        super().__post_init__()
        for member in self.members:
            if member.is_lookup:
                raise spec_error(f"palette with {member}", "members without a table", "Use lookup(...) by itself.")
            if member.needs_scales:
                raise spec_error(f"palette with {member}", "members without scales", "Use scaled(...) by itself.")
            if member.name == "palette" or getattr(member, "init", "zero") != "zero":
                raise spec_error(
                    f"palette with {member}",
                    "members that are not palettes and have init=zero",
                    "Put the members of both into one palette, and add C afterwards.",
                )
        seeds = {member.fixed_seed for member in self.members if member.is_stochastic}
        if len(seeds) > 1:
            raise spec_error(
                f"palette with members that have the seeds {', '.join(sorted(map(str, seeds)))}",
                "one seed for all members, or none: a product has one seed",
                "Give the seed with the call.",
            )
        taken = {member.operand_casts: member for member in self.members if member.operand_casts is not None}
        if len(taken) > 1:
            raise spec_error(
                f"palette whose members take different operands: {', '.join(map(str, taken.values()))}",
                "the same pair of operand formats in all members that name one: a product casts its operands once",
                "Use a palette for each pair.",
            )

    def casts(self) -> Iterator[Cast]:
        """Of all members."""
        for member in self.members:
            yield from member.casts()

    def grids(self) -> Iterator[int]:
        """Of all members."""
        for member in self.members:
            yield from member.grids()

    @property
    def add_cast(self) -> Cast:
        """The widest accumulator format of any member, in bits; the first of several."""
        return max((member.add_cast for member in self.members), key=lambda step: step.format.bits)

    @property
    def product_cast(self) -> Cast | None:
        """The members' product rounding if all have the same, else None."""
        found = {member.product_cast for member in self.members}
        return found.pop() if len(found) == 1 else None

    @property
    def fixed_seed(self) -> int | None:
        """The seed that the members fix."""
        return next((m.fixed_seed for m in self.members if m.is_stochastic), self.members[0].fixed_seed)

    @property
    def operand_casts(self) -> tuple[Cast, Cast] | None:
        """The casts that members require; all members get operands with these casts."""
        return next((m.operand_casts for m in self.members if m.operand_casts is not None), None)

    def transposed(self) -> Palette:
        """With each member transposed."""
        return Palette(tuple(member.transposed() for member in self.members))

    @property
    def integer_operands(self) -> bool:
        """Whether any member needs integers."""
        return any(member.integer_operands for member in self.members)

    @property
    def exact_sums(self) -> bool:
        """Whether any member keeps sums exactly."""
        return any(member.exact_sums for member in self.members)

    @property
    def counts_overflows(self) -> bool:
        """Whether any member has a two's complement accumulator."""
        return any(member.counts_overflows for member in self.members)

    @property
    def is_custom(self) -> bool:
        """Whether any member has a step in Python."""
        return any(member.is_custom for member in self.members)

    @property
    def levels(self) -> int:
        """Most of any member; choosing combines nothing."""
        return max(member.levels for member in self.members)

    def with_product(self, product: Cast) -> Palette:
        """This palette with the product rounding in each member."""
        return Palette(tuple(member.with_product(product) for member in self.members))

    @classmethod
    def build(cls, args: list[object], kwargs: Mapping[str, object]) -> Palette:
        """Palette of any number of positional arguments, or of ``members`` alone.

        Raises:
            SpecError: for other arguments by name, and members that do not go together.
        """
        if set(kwargs) == {"members"} and not args:
            return cls(kwargs["members"])  # type: ignore[arg-type]
        if kwargs:
            given = ", ".join(f"{key}=..." for key in kwargs)
            raise spec_error(f"palette with {given}", cls.signature(), "Give accumulators without names.")
        return cls(tuple(args))  # type: ignore[arg-type]

    @classmethod
    def signature(cls) -> str:
        """``palette(*accumulators)``."""
        return "palette(*accumulators)"

    def explain_lines(self) -> list[tuple[str, str]]:
        """Each member in words, by its index."""
        lines = [("palette", f"{len(self.members)} accumulators, chosen for each output element by select")]
        for index, member in enumerate(self.members):
            lines.append((f"select={index}", str(member)))
            lines += member.explain_lines()
        return lines
