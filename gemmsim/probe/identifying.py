"""From a function to a spec: what is measured, which specs that allows, and which of them has the same bits."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..arithmetic import GemmSpec, SpecError
from ..formats import FloatFormat, FormatError, parse_scalar
from .black_box import BlackBox
from .candidates import Measured, accumulators_without_order, specs_of_shape
from .classes import PositionClass, position_classes
from .errors import ContradictoryAnswers, ProbeError, probe_error
from .evaluating import TreeArithmetic, evaluate
from .growing import grow_tree
from .measuring import MODES, Rounded, measure_kept, measure_node, measure_operand, measure_product
from .naming import cast_texts, dtype_format, format_texts
from .placing import Places, Questions
from .ranges import Ranges, measure_ranges
from .recognising import recognise
from .shapes import Shape, tree_of
from .sum_tree import ADD, SumTree
from .survivors import Survivors
from .trials import Trials
from .widths import Terms, Widths, measure_widths

__all__ = ["Probing"]


class Probing:
    """One function at one shape: what was found about it, step by step."""

    def __init__(self, box: BlackBox, at: tuple[int, int], seed: int) -> None:
        self.box, self.seed = box, seed
        M, N, _ = box.shape
        if not (0 <= at[0] < M and 0 <= at[1] < N):
            raise probe_error(f"at={at} of {M}x{N} outputs", "a position (m, n) of an output", "Give another one.")
        one = np.zeros((M, N), bool)
        one[at] = True
        self.ranges = measure_ranges(Questions(box, Places(one)))
        self.changing = self._changes()
        scale = max(0, min(self.ranges.alone[1], -self.ranges.alone[0]))
        if self.changing:
            self.classes = [PositionClass(one, at)]
        else:
            self.classes = position_classes(box, scale, seed, self.ranges.integers)
        self.place = next(one for one in self.classes if one.alike[at])
        self.questions = Questions(box, Places(self.place.alike))
        self.terms = Terms(self.questions, self.ranges)
        self._check_products()
        self.widths: Widths = measure_widths(self.terms, seed)
        self.tree: SumTree | None = None
        self.no_tree = ""

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

    def _check_products(self) -> None:
        """Raises:
        ProbeError: where results are no sums of the products of their row and column.
        """
        M, N, K = self.box.shape
        g = np.random.default_rng(self.seed + 1)
        low, high = self.ranges.product
        if not low <= 0 <= high:
            return
        for many in (1, 2):
            a = np.zeros((M, K))
            for row in a:
                row[g.choice(K, min(many, K), replace=False)] = 1.0
            signs = [0.0, 1.0] if self.box.dtype.is_signed is False or not self._signed() else [-1.0, 1.0]
            b = g.choice(signs, (K, N))
            found, expected = self.box(a, b), a @ b
            wrong = (found != expected) & self.place.alike
            if high < 2 or not wrong.any():
                continue
            m, n = (int(i) for i in np.argwhere(wrong)[0])
            terms = ", ".join(f"a[{m}, {k}] = 1, b[{k}, {n}] = {b[k, n]:g}" for k in np.flatnonzero(a[m]))
            raise probe_error(
                f"{self.box.name}: with {terms} and zeros in the rest of the row, output [{m}, {n}] is "
                f"{found[m, n]:g}, a sum of products is {expected[m, n]:g}",
                "sums of products a[m, k] * b[k, n]",
                "Give a function that computes a matrix product, without a factor and without an addend.",
            )
        self._check_scales(K)

    def _signed(self) -> bool:
        return bool(self.box.dtype.is_signed)

    def _check_scales(self, K: int) -> None:
        low, high = self.ranges.alone
        if K < 2 or low > -1 or high < 1:
            return
        a, b = np.zeros((2, K)), np.zeros((2, K))
        for row, other in enumerate((1, K - 1)):
            a[row, 0], a[row, other], b[row, other] = 2.0**high, 2.0**low, 1.0
        found = self.questions.ask(a, b)
        if (found != 2.0**low).any():
            raise probe_error(
                f"{self.box.name}: with 2^{low} * 1 at term {1 if found[0] != 2.0**low else K - 1} and 2^{high} * 0 at "
                f"term 0, the result is {found[found != 2.0**low][0]:g}: operands are rounded by what stands beside them",
                "products that depend on their own operands alone",
                "Probe the product behind the conversion to a block format, or compare with a spec.",
            )

    def grow(self) -> None:
        """The tree of additions, in ``tree``, or why there is none, in ``no_tree``."""
        K = self.box.shape.K
        if K == 1:
            self.tree = SumTree(1, ())
            return
        if self.widths.most is None:
            self.no_tree = f"nothing is ever lost beside a number 2^{self.widths.reach} times as large"
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
        for key, place in zip(keys, places, strict=True):
            by_place.setdefault(place, []).append(mine[key])
        for place, nodes in by_place.items():
            inner = [one for one in nodes if one != self.tree.root] or nodes
            full = [one for one in inner if len(self.tree.addends(one)) == max(len(self.tree.addends(x)) for x in inner)]
            found[place] = self._remembered(full[min(1, len(full) - 1)])
        return found

    def _remembered(self, node: int) -> Rounded:
        store = self.__dict__.setdefault("_measured_nodes", {})
        if node not in store:
            store[node] = self.rounded(node)
        found: Rounded = store[node]
        return found

    def measured(self) -> Measured:
        """Casts of operands and of the result, and of products."""
        K = self.box.shape.K
        own = dtype_format(self.box.dtype)
        out = dtype_format_of(self.box.out_dtype)
        outs = [""] if out in (None, "fp32", "fp64") else [out, ""]
        if self.ranges.integers or K < 2:
            return Measured(self.ranges, (("", ""),), tuple(outs), None)
        pair = self._pair()
        bits, texts = [], []
        for side, reach in enumerate((self.ranges.a, self.ranges.b)):
            found = measure_operand(self.questions, pair, side)
            p = found.p or 1
            bits.append(p)
            texts.append(_operand_texts(found, reach, own))
        operands = [(a, b) for a in texts[0] for b in texts[1] if (a == "") == (b == "") or len(texts[0]) != len(texts[1])]
        third, fourth = self._after(pair)
        register = self._register()
        product = measure_product(self.questions, (*pair, third, fourth), (bits[0], bits[1]), register) if K > 3 else 2
        return Measured(self.ranges, tuple(operands) or (("", ""),), tuple(outs), product, (bits[0], bits[1]))

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

    def _after(self, pair: tuple[int, int]) -> tuple[int, int]:
        """Two more terms, which are added after the pair."""
        K = self.box.shape.K
        if self.tree is None or not self.tree.nodes:
            others = [k for k in range(K) if k not in pair]
            return (*others, *others)[0], (*others, *others)[-1]
        found: list[int] = []
        node = pair[1]
        while len(found) < 2 and node >= 0:
            above = self.tree.parents[node]
            if above < 0:
                break
            if pair[0] in self.tree.terms(node):
                found += [self.tree.firsts[one] for one in self.tree.addends(above) if one != node]
            node = above
        rest = [k for k in range(K) if k not in (*pair, *found)]
        found = [*found, *rest]
        return found[0], found[1]

    def trials(self, outputs: int = 512) -> Trials:
        """Results to compare specs with."""
        return Trials(self.box, self.place.alike, self.ranges, self.seed + 2, outputs)

    def candidates(self) -> Iterator[str]:
        """Texts of specs."""
        measured = self.measured()
        if self.tree is not None:
            for shape in recognise(self.tree):
                yield from specs_of_shape(shape, self.roundings(shape), measured)
        roundings = [Rounded(self.widths.least + 1, tuple(MODES)[:2])]
        if self.tree is not None and self.tree.nodes:
            roundings.append(self._remembered(self.tree.K))
        yield from accumulators_without_order(measured, roundings)

    def arithmetics(self) -> Iterator[TreeArithmetic]:
        """Ways to round along the tree, where no spec says its order."""
        assert self.tree is not None
        measured = self.measured()
        inner = self._remembered(self.tree.K)
        adds = measured.casts(inner)
        for add in adds:
            for product in dict.fromkeys([*measured.products(adds), None]):
                for out in measured.out:
                    yield TreeArithmetic(product, add, out or None)
                    yield TreeArithmetic(product, add, out or None, 1)


def dtype_format_of(text: str | None) -> str | None:
    """The format of a dtype by its text."""
    import torch

    return None if text is None else dtype_format(getattr(torch, text.removeprefix("torch.")))


def _operand_texts(found: Rounded, reach: tuple[int, int], own: str | None) -> list[str]:
    fmt = None if own is None else parse_scalar(own)
    if found.p is None or not isinstance(fmt, FloatFormat) or found.p >= fmt.p:
        return [""]
    dtype_reach = (fmt.quantum_exponent, fmt.emax)
    usual = {(11, 127): ["tf32"], (8, 127): ["bf16"]}.get((found.p, reach[1]), [])
    texts = [*usual, *format_texts(found.p, reach, dtype_reach)]
    modes = found.modes[:1] or ("rne",)
    named = []
    for text in dict.fromkeys(texts):
        base, _, more = text.partition("/")
        named += [f"{base}{'' if mode == 'rne' else f'/{mode}'}{f'/{more}' if more else ''}" for mode in modes]
    return [*named, ""]
