"""From a function to a spec: what is measured, which specs that allows, and which of them has the same bits."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..formats import FloatFormat, parse_scalar
from .black_box import BlackBox
from .candidates import (
    Measured,
    accumulators_without_order,
    instructions_without_order,
    products_without_order,
    specs_of_shape,
)
from .classes import PositionClass, position_classes
from .errors import ContradictoryAnswers, probe_error
from .evaluating import TreeArithmetic
from .growing import grow_tree
from .measuring import Rounded, measure_kept, measure_node, measure_operand, measure_product, measure_sum
from .naming import cast_texts, dtype_format, format_texts
from .placing import Places, Questions
from .ranges import Ranges, measure_ranges
from .recognising import recognise
from .shapes import Shape, tree_of
from .sum_tree import ADD, Node, SumTree
from .survivors import Survivors
from .trials import Trials
from .widths import Terms, Widths, measure_widths

__all__ = ["Probing"]

#: Specs of one order and one reading of the measurements that are tried at first, and at last.
_LIKELY, _ALL = 40, 400


class Probing:
    """One function at one shape: what was found about it, step by step."""

    def __init__(self, box: BlackBox, at: tuple[int, int], seed: int) -> None:
        self.box, self.seed = box, seed
        M, N, _ = box.shape
        if not (0 <= at[0] < M and 0 <= at[1] < N):
            raise probe_error(f"at={at} of {M}x{N} outputs", "a position (m, n) of an output", "Give another one.")
        self._check_zero()
        self.classes = position_classes(box, seed)
        self.place = next(one for one in self.classes if one.alike[at])
        self.ranges: Ranges = measure_ranges(Questions(box, Places(self.place.alike)))
        self.changing = self._changes()
        if self.changing:  # classes mean nothing then
            self.classes = [PositionClass(np.ones((M, N), bool), at)]
            self.place = self.classes[0]
        self.questions = Questions(box, Places(self.place.alike))
        self.terms = Terms(self.questions, self.ranges)
        self.dead: list[int] = []
        if not self.ranges.shift:
            self.dead = self._dead_terms()
            self._check_products()
        self.widths = Widths(0, None, 0) if self.ranges.shift else measure_widths(self.terms, seed)
        self.tree: SumTree | None = None
        self.no_tree = ""
        self._rounded: dict[int, Rounded] = {}
        self._readings: list[Measured] = []

    def _operands(self, g: np.random.Generator, integers: bool) -> tuple[np.ndarray, np.ndarray]:
        M, N, K = self.box.shape
        if integers:
            return g.integers(0, 2, (M, K)).astype(float), g.integers(0, 2, (K, N)).astype(float)
        return g.standard_normal((M, K)), g.standard_normal((K, N))

    def _changes(self) -> str:
        """How results of equal calls differ, in words; "" where they do not.

        Raises:
            ProbeError: where even sums without a rounding change: no arithmetic does that.
        """
        g = np.random.default_rng(self.seed)
        M, N, K = self.box.shape
        a, b = np.zeros((M, K)), np.zeros((K, N))
        a[:, 0] = b[0] = 1.0
        first = self.box(a, b)
        a2, b2 = self._operands(g, self.ranges.integers)
        results = [self.box(a2, b2) for _ in range(4)]
        self._early = (a2, b2, results[0])
        again = self.box(a, b)
        if not np.array_equal(first, again):
            m, n = np.argwhere(first != again)[0]
            raise probe_error(
                f"{self.box.name} changes with time: 1 times 1 gave {first[m, n]:g} in output [{m}, {n}], and "
                f"{again[m, n]:g} a few calls later",
                "a function that gives the same sum for the same operands",
                "Give one without a state.",
            )
        differ = [int((one.view(np.int64) != results[0].view(np.int64)).sum()) for one in results[1:]]
        return f"{max(differ)} of {M * N} outputs differ between calls with the same operands" if any(differ) else ""

    def check_repeats(self) -> None:
        """Calls the function once more with operands that it had early on.

        Raises:
            ProbeError: where the result is another one, of a function whose equal calls did not differ.
        """
        a, b, first = self._early
        again = self.box(a, b)
        wrong = np.argwhere(again.view(np.int64) != first.view(np.int64))
        if len(wrong) and not self.changing:
            m, n = (int(i) for i in wrong[0])
            raise probe_error(
                f"{self.box.name} changes with time: equal operands gave {first[m, n]:.9g} in output [{m}, {n}], and "
                f"{again[m, n]:.9g} in call {self.box.calls}",
                "a function that gives the same result for the same operands",
                "Give one without a state.",
            )

    def _check_zero(self) -> None:
        """Looks at the product of zeros.

        Raises:
            ProbeError: where it is not zero.
        """
        M, N, K = self.box.shape
        found = self.box(np.zeros((M, K)), np.zeros((K, N)))
        if (found != 0).any():
            m, n = (int(i) for i in np.argwhere(found != 0)[0])
            raise probe_error(
                f"{self.box.name}: zeros give {found[m, n]:g} in output [{m}, {n}]",
                "sums of products a[m, k] * b[k, n]",
                "Give the product without an addend, such as a bias.",
            )

    def _check_products(self) -> None:
        """Looks at results of one and of two products of 1 and -1.

        Raises:
            ProbeError: where they are no sums of the products of their row and column.
        """
        M, N, K = self.box.shape
        g = np.random.default_rng(self.seed + 1)
        low, high = self.ranges.product
        if not low <= 0 <= high:
            return
        signs = [0.0, 1.0] if self.ranges.integers else [-1.0, 1.0]  # registers of integers may have no sign
        live = np.setdiff1d(np.arange(K), self.dead)
        for many in (1, 2) if high > 1 else (1,):
            count = min(many, len(live))
            a = np.zeros((M, K))
            for row in a:
                row[g.choice(live, count, replace=False)] = g.choice(signs[-1:] * 2 + signs[:1], count)
            b = g.choice(signs, (K, N))
            found, expected = self.box(a, b), a @ b
            wrong = (found != expected) & self.place.alike
            if not wrong.any():
                continue
            m, n = (int(i) for i in np.argwhere(wrong)[0])
            terms = ", ".join(f"a[{m}, {k}] = {a[m, k]:g}, b[{k}, {n}] = {b[k, n]:g}" for k in np.flatnonzero(a[m]))
            raise probe_error(
                f"{self.box.name}: with {terms} and zeros in the rest of the row, output [{m}, {n}] is "
                f"{found[m, n]:g}, a sum of products is {expected[m, n]:g}",
                "sums of products a[m, k] * b[k, n]",
                "Give a function that computes a matrix product, without a factor and without an addend.",
            )
        self._check_scales(K)

    def _dead_terms(self) -> list[int]:
        """Terms that never enter the sum.

        Raises:
            ProbeError: where a product comes back as another number.
        """
        K = self.box.shape.K
        low, high = self.ranges.product
        top = min(max(low, 0), high)
        found = self.terms.ask(2.0**top * np.eye(K))
        wrong = np.flatnonzero((found != 2.0**top) & (found != 0))
        if len(wrong):
            k = int(wrong[0])
            raise probe_error(
                f"{self.box.name}: 2^{top} at term {k} and zeros elsewhere give {found[k]:g}",
                "sums of products a[m, k] * b[k, n], each once",
                "Give a function that computes a matrix product, without factors.",
            )
        return [int(k) for k in np.flatnonzero(found == 0)]

    def _check_scales(self, K: int) -> None:
        low, high = self.ranges.alone
        if K < 2 or low > -1 or high < 1 or self.dead:
            return
        a, b = np.zeros((2, K)), np.zeros((2, K))
        for row, other in enumerate((1, K - 1)):
            a[row, 0], a[row, other], b[row, other] = 2.0**high, 2.0**low, 1.0
        found = self.questions.ask(a, b)
        if (found != 2.0**low).any():
            row = 0 if found[0] != 2.0**low else 1
            raise probe_error(
                f"{self.box.name}: with 2^{low} * 1 at term {(1, K - 1)[row]} and 2^{high} * 0 at term 0, the result "
                f"is {found[row]:g}: the rounding of operands depends on neighbouring elements",
                "products that depend only on their own operands",
                "Probe the product behind the conversion to a block format, or compare with a spec.",
            )

    def grow(self) -> None:
        """The tree of additions, in ``tree``, or why there is none, in ``no_tree``."""
        K = self.box.shape.K
        if K < 3 and not self.dead:
            self.tree = SumTree(K, (Node(ADD, (0, 1)),) if K == 2 else ())
            return
        if self.ranges.shift:
            self.no_tree = f"products lose their {self.ranges.shift} low bits"
            return
        if self.dead:
            self.no_tree = f"{len(self.dead)} of {K} terms never enter the sum, the first is term {self.dead[0]}"
            return
        if self.widths.most is None:
            self.no_tree = f"no term is lost next to a number 2^{self.widths.reach} times as large"
            return
        try:
            self.tree = grow_tree(Survivors(self.terms, self.widths), self.seed)
        except ContradictoryAnswers as error:
            self.no_tree = str(error)

    def rounded(self, node: int) -> Rounded:
        """Of one addition of the tree."""
        assert self.tree is not None
        found = measure_node(self.terms, self.tree, node)
        kept = measure_kept(self.terms, self.tree, node)
        return Rounded(found.p, found.modes, kept)

    def roundings(self, shape: Shape) -> dict[str, Rounded]:
        """By place of the shape, each of one addition, which is not the result if there is another one."""
        assert self.tree is not None
        made, places = tree_of(shape, self.tree.K)
        table: dict[object, int] = {}
        mine = {key: node for node, key in enumerate(self.tree.keys(table)) if node >= self.tree.K}
        keys = made.keys(table)[made.K :]
        found: dict[str, Rounded] = {}
        by_place: dict[str, list[int]] = {}
        place_of: dict[int, str] = {}
        for key, place in zip(keys, places, strict=True):
            by_place.setdefault(place, []).append(mine[key])
            place_of[mine[key]] = place
        for place, nodes in by_place.items():
            # Best is one whose sum is not rounded in another way before it is taken apart, and a whole step.
            nodes = [one for one in nodes if one != self.tree.root] or nodes
            nodes = [one for one in nodes if place_of.get(self.tree.parents[one]) == place] or nodes
            nodes = [one for one in nodes if self._is_added_to_another(one)] or nodes
            most = max(len(self.tree.addends(one)) for one in nodes)
            found[place] = self._remembered(next(one for one in nodes if len(self.tree.addends(one)) == most))
        return found

    def _is_added_to_another(self, node: int) -> bool:
        """Whether an earlier sum is there already when ``node`` is added: the first total may be rounded alone."""
        assert self.tree is not None
        above = self.tree.parents[node]
        return above >= 0 and self.tree.firsts[above] != self.tree.firsts[node]

    def _remembered(self, node: int) -> Rounded:
        if node not in self._rounded:
            self._rounded[node] = self.rounded(node)
        return self._rounded[node]

    def measured(self) -> list[Measured]:
        """Casts of operands, of products and of the result: where operands seem to be rounded, the other reading is
        that products are. Measured once."""
        if not self._readings:
            self._readings = self._measured()
        return self._readings

    def _measured(self) -> list[Measured]:
        K = self.box.shape.K
        least = self.widths.least + 1
        most = least if self.widths.most is None else min(53, self.widths.most + 1)
        if self.ranges.integers or K < 2:
            return [Measured(self.ranges, (("", ""),), tuple(self._outs()), None, least=least, most=most)]
        own = dtype_format(self.box.dtype)
        pair = self._pair()
        top = max(0, min(self.ranges.alone[1], 40))
        found = [measure_operand(self.questions, pair, side, top) for side in (0, 1)]
        bits = (found[0].p or 1, found[1].p or 1)
        texts = [
            _operand_texts(one, reach, own) for one, reach in zip(found, (self.ranges.a, self.ranges.b), strict=True)
        ]
        product = None
        if K > 2:
            product = measure_product(self.questions, (*pair, self._after(pair)), bits, self._register(), top)
        outs = tuple(self._outs())
        operands = tuple((a, b) for a in texts[0] or [""] for b in texts[1] or [""])
        read = [Measured(self.ranges, operands, outs, product, bits, least, most)]
        if product is not None and product >= 2 * (self._register() - 2) - 2:  # no sum would show more bits
            read.insert(0, Measured(self.ranges, operands, outs, None, bits, least, most))
        if any(texts):
            modes = found[0].modes or found[1].modes
            read.append(Measured(self.ranges, (("", ""),), outs, max(bits), bits, least, most, modes))
            read.append(Measured(self.ranges, (("", ""),), outs, None, bits, least, most))
        return read

    def _outs(self) -> list[str]:
        """Casts of the result: of its dtype, none, and those of as many bits as are read."""
        out = dtype_format_of(self.box.out_dtype)
        if out not in (None, "fp32", "fp64"):
            return [str(out), ""]
        found = [""]
        if self.tree is not None and self.tree.nodes:
            inner, last = self._remembered(self.tree.K), self._remembered(self.tree.root)
            if last.p is not None and (inner.p is None or inner.p > last.p):
                reach = self.ranges.a[0] + self.ranges.b[0], self.ranges.a[1] + self.ranges.b[1]
                found += cast_texts(last.p, last.modes, self.ranges.product, reach, None)
        if self.ranges.product[1] == 15:
            found.append("fp16")
        return list(dict.fromkeys(found))

    def _register(self) -> int:
        """Bits of the register that products enter; many where it is not known."""
        if self.tree is None or not self.tree.nodes:
            return self.widths.least + 1
        return self._remembered(self.tree.K).p or 53

    def _pair(self) -> tuple[int, int]:
        """Two terms of which the second one enters the sum of the first."""
        if self.tree is None or not self.tree.nodes:
            return 0, 1
        for node in range(self.tree.K, self.tree.root + 1):
            addends = self.tree.addends(node)
            terms = [one for one in addends if one < self.tree.K]
            sums = [one for one in addends if one >= self.tree.K]
            if terms and sums and self.tree.kind(node) == ADD:
                return self.tree.firsts[sums[0]], terms[0]
        for node in range(self.tree.K, self.tree.root + 1):
            terms = [one for one in self.tree.addends(node) if one < self.tree.K]
            if len(terms) >= 2:
                return terms[0], terms[1]
        return 0, 1

    def _after(self, pair: tuple[int, int]) -> int:
        """A term that is added right after the pair."""
        K = self.box.shape.K
        if self.tree is not None and self.tree.nodes:
            node = pair[1]
            while node >= 0 and not (node >= self.tree.K and pair[0] in self.tree.terms(node)):
                node = self.tree.parents[node]
            above = self.tree.parents[node]
            if above >= 0:
                return next(self.tree.firsts[one] for one in self.tree.addends(above) if one != node)
        return next(k for k in range(K) if k not in pair)

    def trials(self, outputs: int = 512) -> Trials:
        """Results to compare specs with."""
        return Trials(self.box, self.place.alike, self.ranges, self.seed + 2, outputs)

    def candidates(self) -> Iterator[str]:
        """Texts of specs, the likely ones first; some more than once."""
        readings = self.measured()
        shapes = [] if self.tree is None else recognise(self.tree)
        yield from self._of_shapes(shapes, readings, _LIKELY)
        p = self.widths.least + 1
        plain = self.box.shape.K < 2 or self.ranges.integers
        direct = Rounded(p, ("rne",)) if plain else measure_sum(self.terms, 0, 1, None)
        few = [Rounded(p, (mode,)) for mode in direct.modes]
        if self.tree is not None and self.tree.nodes:
            few.append(self._remembered(self.tree.K))
        for measured in readings:
            yield from accumulators_without_order(measured, few)
        for measured in readings:
            yield from instructions_without_order(measured)
        yield from self._of_shapes(shapes, readings, _ALL)
        more = [Rounded(p, (mode,)) for mode in ("rne", "rtz", "rna", "ru", "rd", "ro")]
        for measured in readings:
            yield from accumulators_without_order(measured, more)
        for measured in readings:
            yield from products_without_order(measured, [*few, *more])

    def _of_shapes(self, shapes: list[Shape], readings: list[Measured], most: int) -> Iterator[str]:
        for shape in shapes:
            for measured in readings:
                yield from specs_of_shape(shape, self.roundings(shape), measured, most)

    def facts(self) -> Iterator[str]:
        """What was measured, in words."""
        ranges = self.ranges
        ends = {"a": ranges.a, "b": ranges.b, "products": ranges.product}
        reach = ", ".join(f"{name} 2^{low} to 2^{high}" for name, (low, high) in ends.items())
        past = "" if ranges.past is None else f"; 2^{ranges.product[1] + 1} gives {ranges.past:g}"
        yield f"powers of two preserved: {reach}{past}"
        least, most = self.widths.least + 1, self.widths.most
        kept = "nothing is lost" if most is None else f"at most {most + 1} bits are kept next to a larger number"
        yield f"results are read with {least} bits; {kept}"
        if self.tree is not None and self.tree.nodes:
            for name, node in (("first addition", self.tree.K), ("last addition and result", self.tree.root)):
                one = self._remembered(node)
                cut = "" if one.kept is None else f", addends truncated {one.kept} bits below the largest"
                yield f"{name}: {one}{cut}"
        if self.box.shape.K > 2 and not ranges.integers:
            first = self.measured()[0]
            product = "exact (fused)" if first.product is None else f"rounded to {first.product} bits"
            yield f"products: {product}; operands of {first.bits[0]} and {first.bits[1]} bits"

    def arithmetics(self) -> Iterator[TreeArithmetic]:
        """Ways to round along the tree, where no spec says its order."""
        assert self.tree is not None
        for measured in self.measured():
            adds = measured.casts(self._remembered(self.tree.K)) if self.tree.nodes else ["fp32"]
            adds += [f"{add}/via(fp32)" for add in adds if add in ("fp16", "bf16")]  # added in float32, then stored
            for add in adds:
                for product in dict.fromkeys([*measured.products(adds), None, "fp32"]):
                    for out in measured.out:
                        for begins in (0, 1, None):
                            yield TreeArithmetic(product, add, out or None, begins)


def dtype_format_of(text: str | None) -> str | None:
    """The format of a dtype by its text."""
    import torch

    return None if text is None else dtype_format(getattr(torch, text.removeprefix("torch.")))


def _operand_texts(found: Rounded, reach: tuple[int, int], own: str | None) -> list[str]:
    """Casts that an operand may have; none where it keeps all bits of its dtype."""
    fmt = None if own is None else parse_scalar(own)
    if found.p is None or not isinstance(fmt, FloatFormat) or found.p >= fmt.p:
        return []
    usual = {(11, 127): ["tf32"], (8, 127): ["bf16"]}.get((found.p, reach[1]), [])
    texts = [*usual, *format_texts(found.p, reach, (fmt.quantum_exponent, fmt.emax))]
    mode = (found.modes or ("rne",))[0]
    named = []
    for text in dict.fromkeys(texts):
        base, _, more = text.partition("/")
        named.append(f"{base}{'' if mode == 'rne' else f'/{mode}'}{f'/{more}' if more else ''}")
    return named
