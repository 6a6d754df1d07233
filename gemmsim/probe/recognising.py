"""From a tree of additions to the orders that a spec can say: innermost first, and each checked against the tree."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from .shapes import Chain, Exactly, Lanes, Pairs, Runs, Shape, Slices, Steps, Written, tree_of
from .sum_tree import ADD, SumTree
from .tree_text import spine

__all__ = ["recognise"]

_MOST_DEPTH = 4
_MOST_WRITTEN = 256
#: Ways of dividing a tree that are looked at.
_MOST_PARTITIONS = 24
#: Orders that are made of one such way.
_MOST_MADE = 24
#: Orders of a part that are looked at further, and orders of one tree.
_FEW = 3
_ENOUGH = 8
#: Multiples of which lengths of slices are.
_GRAINS = (1, 8, 16, 32, 64, 128)


def recognise(tree: SumTree) -> list[Shape]:
    """Orders with this very tree, simple ones first; none where no spec says it."""
    return _recognise(tree, 0, {})


def _recognise(tree: SumTree, depth: int, known: dict[tuple[SumTree, bool], list[Shape]]) -> list[Shape]:
    """``known``: what was found of parts and quotients, which repeat."""
    key = tree, depth == _MOST_DEPTH
    if key not in known:
        known[key] = _all(tree, depth, known)
    return known[key]


def _all(tree: SumTree, depth: int, known: dict[tuple[SumTree, bool], list[Shape]]) -> list[Shape]:
    found: list[Shape] = []
    for shape in _simple(tree):
        _keep(shape, tree, found)
    if depth < _MOST_DEPTH and not (found and depth) and Chain() not in found:
        for shape in _combined(tree, depth, known):
            _keep(shape, tree, found)
            if len(found) >= _ENOUGH * (5 if depth == 0 else 1):
                break
    if not found and depth == 0:
        for shape in _written(tree):
            _keep(shape, tree, found)
    return sorted(found, key=_complexity)


def _complexity(shape: Shape) -> tuple[bool, int, int]:
    """What is said last: orders that are written out, then those of many parts or of rare ones."""
    text = repr(shape)
    rare = text.count("first=") - text.count("first=None") + text.count("halves=True") + text.count("Pairs")
    rare += 3 * (text.count("kind='pairs'") + text.count("kind='two blocks'"))
    return "Written" in text, text.count("(") + rare + 2 * text.count("lengths=(") * (text.count(",") // 8), len(text)


def _keep(shape: Shape, tree: SumTree, found: list[Shape]) -> None:
    if shape not in found and tree_of(shape, tree.K)[0] == tree:
        found.append(shape)


def _simple(tree: SumTree) -> Iterator[Shape]:
    """Orders without totals of their own."""
    yield Chain()
    yield Pairs(1, Chain())
    yield Pairs(2, Chain())
    yield Pairs(1, Chain(), halves=True)
    yield Pairs(2, Chain(), halves=True)
    if tree.nodes and tree.kind(tree.root) != ADD or tree.K > 2:
        yield Exactly()
    for n in (4, 8, 16, 32) if tree.nodes else ():
        yield Steps(n, "pairs")
        yield Steps(n, "two blocks")
    _, steps = spine(tree, tree.root)
    counts = [sum(tree.sizes[one] for one in addends) for _, addends in steps]
    kinds = {kind for kind, _ in steps if kind != ADD}
    if len(kinds) != 1:
        return
    kind = kinds.pop()
    n = max(max(counts), counts[0] + 1)
    yield Steps(n, kind)
    for tile in (n, 2 * n, 4 * n, 8 * n, 16 * n):
        yield Steps(n, kind, first=tile)
    for power in (4, 8, 16, 32, 64):
        if power > n:
            yield Steps(power, kind)


def _combined(tree: SumTree, depth: int, known: dict[tuple[SumTree, bool], list[Shape]]) -> Iterator[Shape]:
    """Orders over totals: runs, slices and lanes that are subtrees of their own."""
    for blocks in islice(_partitions(tree), _MOST_PARTITIONS):
        inners = _recognise(tree.part(blocks[0]), depth + 1, known)[:_FEW]
        if not inners:
            continue
        overs = [one for one in _recognise(tree.quotient(blocks), depth + 1, known) if not _is_instruction(one)][:_FEW]
        if not overs and len(blocks) <= _MOST_WRITTEN:
            overs = list(_tree_over(tree.quotient(blocks)))
        made = (shape for inner in inners for over in overs for shape in _made(tree, blocks, inner, over))
        yield from islice(made, _MOST_MADE)


def _is_instruction(shape: Shape) -> bool:
    """Whether these are steps of matrix instructions alone, which add no totals."""
    return isinstance(shape, Steps)


def _made(tree: SumTree, blocks: list[int], inner: Shape, over: Shape) -> Iterator[Shape]:
    first = tree.terms(blocks[0])
    sizes = [tree.sizes[one] for one in blocks]
    n = sizes[0]
    if first == list(range(n)):
        if isinstance(over, Pairs) and over.leaf_terms == 1 and isinstance(over.inner, Chain):
            yield Pairs(n, inner, over.halves)
        if set(sizes[:-1]) == {n} and sizes[-1] <= n and not isinstance(over, Written):
            yield Runs(n, inner, over)
            if isinstance(over, Chain):
                yield from (Slices((len(blocks),), inner, over, grain) for grain in _GRAINS)
                yield Slices(tuple(sizes), inner, over)
        else:
            yield Slices(tuple(sizes), inner, over)
        return
    width = next((i for i in range(1, n) if first[i] != first[i - 1] + 1), n)
    lanes = first[width] // width if width < n else -(-tree.K // width)
    yield Lanes(lanes, width, inner, over)


def _partitions(tree: SumTree) -> Iterator[list[int]]:
    """Ways of dividing all terms into subtrees, the one of term 0 first: contiguous ones, or lanes."""
    node = 0
    seen = set()
    while node >= 0:
        above = tree.parents[node]
        if above < 0:
            return
        if not _goes_on(tree, node, above):
            blocks = _contiguous(tree, node) or _lanes(tree, node)
            if blocks and tuple(blocks) not in seen:
                seen.add(tuple(blocks))
                yield blocks
        node = above


def _goes_on(tree: SumTree, node: int, above: int) -> bool:
    """Whether the addition above adds what follows, and no more terms than ``node`` added last: a run, of terms or of
    sums, that has not ended."""
    if node < tree.K or not tree.is_range(node) or tree.firsts[node] != 0:
        return False
    running = next(one for one in tree.addends(node) if tree.firsts[one] == 0)
    last = [one for one in tree.addends(node) if one != running]
    following = [one for one in tree.addends(above) if one != node]
    in_order = min(map(tree.firsts.__getitem__, following)) == tree.sizes[node]
    return in_order and max(tree.sizes[one] for one in following) <= min(tree.sizes[one] for one in last)


def _contiguous(tree: SumTree, node: int) -> list[int]:
    """``node`` and the largest subtrees behind it, each of contiguous terms and no more of them than ``node`` if there
    is such a division, else as many as there are."""
    n = tree.sizes[node]
    if not tree.is_range(node):
        return []
    even, start = [node], n
    while start < tree.K:
        block = _block(tree, start, n)
        if block < 0:
            break
        even.append(block)
        start += tree.sizes[block]
    if n > 1 and start == tree.K and all(tree.sizes[one] == n for one in even[:-1]):
        return even
    uneven, start = [node], n
    while start < tree.K:
        block = _block(tree, start, tree.K)
        uneven.append(block)
        start += tree.sizes[block]
    single = n == 1 and max(tree.sizes[one] for one in uneven[1:]) == 1
    return uneven if 1 < len(uneven) <= min(_MOST_WRITTEN, tree.K // 2) and not single else []


def _block(tree: SumTree, start: int, most: int) -> int:
    """The largest subtree of at most ``most`` contiguous terms that begins with ``start``."""
    node = best = start
    while True:
        above = tree.parents[node]
        if above < 0 or tree.firsts[above] != start or tree.sizes[above] > most:
            return best
        node = above
        if tree.is_range(node):
            best = node


def _lanes(tree: SumTree, node: int) -> list[int]:
    """The lanes, if ``node`` is the first one."""
    n = tree.sizes[node]
    if tree.is_range(node):
        return []
    terms = tree.terms(node)
    width = next((i for i in range(1, n) if terms[i] != terms[i - 1] + 1), 0)
    if not width or terms[width] % width:
        return []
    lanes = terms[width] // width
    blocks = []
    for lane in range(lanes):
        mine = [k for k in range(tree.K) if k // width % lanes == lane]
        if not mine:
            break
        block = mine[0]
        while tree.sizes[block] < len(mine):
            block = tree.parents[block]
        if tree.terms(block) != mine:
            return []
        blocks.append(block)
    return blocks


def _tree_over(quotient: SumTree) -> Iterator[Shape]:
    if all(node.kind == ADD for node in quotient.nodes) and quotient.nodes:
        texts = [str(k) for k in range(quotient.K)]
        for node in quotient.nodes:
            one, other = node.addends
            texts.append(f"({texts[one]}+{texts[other]})")
        yield Written(texts[-1], tuple((node.addends[0], node.addends[1]) for node in quotient.nodes))


def _written(tree: SumTree) -> Iterator[Shape]:
    """Contiguous chains as slices, and a tree over them, written out."""
    blocks, start = [], 0
    while start < tree.K:
        node = start
        while (above := tree.parents[node]) >= 0 and _is_chain_step(tree, node, above):
            node = above
        blocks.append(node)
        start += tree.sizes[node]
    if 1 < len(blocks) <= _MOST_WRITTEN:
        quotient = tree.quotient(blocks)
        for over in [*_recognise(quotient, _MOST_DEPTH, {})[:_FEW], *_tree_over(quotient)]:
            yield Slices(tuple(tree.sizes[one] for one in blocks), Chain(), over)


def _is_chain_step(tree: SumTree, node: int, above: int) -> bool:
    others = [one for one in tree.addends(above) if one != node]
    return others == [tree.firsts[node] + tree.sizes[node]] and others[0] < tree.K
