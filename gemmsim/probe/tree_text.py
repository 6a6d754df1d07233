"""A tree of additions as text, in runs.

"0:8" is the sum of terms 0 to 7 one after the other, "0:13:4" of terms 0, 4, 8, 12; what follows is added to the
running sum, item by item: a term, a run, a sum of its own in brackets, "{16:32}" terms that enter in one step, "<...>"
those of an exact sum. "(4:8)*3" stands for (4:8) (8:12) (12:16), "[3 2]*4" for 3 2 5 4 7 6 9 8.
"""

from __future__ import annotations

from typing import TypeAlias

from .sum_tree import ADD, EXACT, SumTree

__all__ = ["spine", "tree_text"]

#: Text, in which numbers of terms are apart: two items are alike if these differ by one number throughout.
_Tokens: TypeAlias = "list[str | int]"


def spine(tree: SumTree, node: int) -> tuple[int, list[tuple[str, list[int]]]]:
    """The term that a running sum begins with, and what is added to it one after the other: (kind, addends).

    The running sum is the addend with most terms, of several that with the least one.
    """
    found: list[tuple[str, list[int]]] = []
    while node >= tree.K:
        addends = tree.addends(node)
        running = min(addends, key=lambda one: (-tree.sizes[one], tree.firsts[one]))
        rest = sorted((one for one in addends if one != running), key=tree.firsts.__getitem__)
        found.append((tree.kind(node), rest))
        node = running
    return node, found[::-1]


def tree_text(tree: SumTree, limit: int = 400) -> str:
    """The text of the tree; of a longer one than ``limit`` characters both ends."""
    text = "".join(map(str, _tokens(tree, tree.root)))
    return text if len(text) <= limit else f"{text[: limit * 2 // 3]} ... {text[-limit // 4 :]}"


def _tokens(tree: SumTree, node: int) -> _Tokens:
    first, steps = spine(tree, node)
    items: list[tuple[_Tokens, int]] = []  # what is added, and how many terms it has
    terms = [first]
    for kind, addends in steps:
        if kind == ADD and addends[0] < tree.K:
            terms.append(addends[0])
            continue
        if kind != ADD and terms == [first] and not items:  # the running sum is one more addend of this step
            addends, terms = sorted([first, *addends], key=tree.firsts.__getitem__), []
        items += _runs(terms)
        terms = []
        items.append((_item(tree, kind, addends), sum(tree.sizes[one] for one in addends)))
    return _repeated(items + _runs(terms))


def _item(tree: SumTree, kind: str, addends: list[int]) -> _Tokens:
    if kind == ADD:
        return ["(", *_tokens(tree, addends[0]), ")"]
    inside: list[tuple[_Tokens, int]] = []
    terms: list[int] = []
    for one in addends:
        if one < tree.K:
            terms.append(one)
            continue
        inside += _runs(terms)
        terms = []
        inside.append((["(", *_tokens(tree, one), ")"], tree.sizes[one]))
    left, right = "<>" if kind == EXACT else "{}"
    return [left, *_repeated(inside + _runs(terms)), right]


def _runs(terms: list[int]) -> list[tuple[_Tokens, int]]:
    """Terms as runs with equal steps, two or more terms in each that has one."""
    found: list[tuple[_Tokens, int]] = []
    at = 0
    while at < len(terms):
        step = terms[at + 1] - terms[at] if at + 1 < len(terms) else 0
        end = at + 1
        while end < len(terms) and terms[end] - terms[end - 1] == step:
            end += 1
        count = end - at
        if count >= 3 or (count == 2 and step == 1):
            last = terms[end - 1]
            stop = last + (1 if step > 0 else -1)
            tokens: _Tokens = [terms[at], ":", stop] if step == 1 else [terms[at], ":", stop, f":{step}"]
            found.append((tokens, count))
            at = end
        else:
            found.append(([terms[at]], 1))
            at += 1
    return found


def _repeated(items: list[tuple[_Tokens, int]]) -> _Tokens:
    """The items with blanks between them; groups of up to 16 that repeat further along are written once."""
    found: _Tokens = []
    at = 0
    while at < len(items):
        period, count = _repeat(items, at)
        group = items[at : at + period]
        tokens = [one for tokens, _ in group for one in (" ", *tokens)][1:]
        found += [" "] if found else []
        if count == 1:
            found += tokens
        else:
            found += [*tokens, f"*{count}"] if period == 1 else ["[", *tokens, f"]*{count}"]
        at += period * count
    return found


def _repeat(items: list[tuple[_Tokens, int]], at: int) -> tuple[int, int]:
    """How many items from there on are a group, and how often it stands there: each time behind its own terms."""
    for period in range(1, 17):
        group = items[at : at + period]
        if len(group) < period or (period == 1 and len(group[0][0]) == 1):
            continue
        size, count = sum(one for _, one in group), 1
        while all(
            at + count * period + i < len(items)
            and items[at + count * period + i][0] == _shifted(group[i][0], count * size)
            for i in range(period)
        ):
            count += 1
        if count >= (2 if period == 1 else 3):
            return period, count
    return 1, 1


def _shifted(tokens: _Tokens, by: int) -> _Tokens:
    return [one + by if isinstance(one, int) else one for one in tokens]
