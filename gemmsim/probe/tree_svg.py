"""A tree of additions as a picture: a row of boxes for each running sum, the sums that it adds below it."""

from __future__ import annotations

from html import escape

from .sum_tree import ADD, SumTree
from .tree_text import spine, tree_text

__all__ = ["tree_svg"]

_HEIGHT, _GAP, _LETTER, _PAD = 26, 34, 7.4, 14
#: Boxes of one row that are drawn, and levels.
_MOST, _LEVELS = 12, 6


def tree_svg(tree: SumTree, title: str) -> str:
    """SVG of the tree: title, description for screen readers, no script, nothing loaded."""
    drawing = _Drawing(tree)
    width, height = drawing.row(tree.root, 10.0, 40.0, 0)
    width = max(width, 10 + 8.6 * len(title))
    size = f'width="{width + 10:.0f}" height="{height + 20:.0f}" viewBox="0 0 {width + 10:.0f} {height + 20:.0f}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" font-family="monospace" font-size="12">\n'
        f"<title>{escape(title)}</title>\n<desc>{escape(tree_text(tree))}</desc>\n"
        f'<text x="10" y="22" font-size="14">{escape(title)}</text>\n' + "\n".join(drawing.parts) + "\n</svg>\n"
    )


class _Drawing:
    def __init__(self, tree: SumTree) -> None:
        self.tree = tree
        self.parts: list[str] = []

    def row(self, node: int, x: float, y: float, level: int) -> tuple[float, float]:
        """Draws a running sum from (x, y) on; the right and lower end of what it takes."""
        first, steps = spine(self.tree, node)
        right, low, before = x, y + _HEIGHT, x
        boxes = _boxes(self.tree, first, steps)
        for index, (words, below) in enumerate(boxes):
            if index == _MOST:
                words, below = f"... {len(boxes) - _MOST} more", []
            width = len(words) * _LETTER + _PAD
            if index:
                self._line(before, y + _HEIGHT / 2, right, y + _HEIGHT / 2)
            self._box(right, y, width, words, bool(below))
            end = before = right + width
            for one in below if level < _LEVELS else []:
                self._line(right + width / 2, y + _HEIGHT, right + width / 2, y + _GAP)
                across, down = self.row(one, right, y + _GAP + 4, level + 1)
                end, low = max(end, across), max(low, down)
            right = end + 16
            if index == _MOST:
                break
        return right, low

    def _box(self, x: float, y: float, width: float, words: str, divided: bool) -> None:
        colour = "#cfe8f5" if divided else "#f4f4f4"
        self.parts.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{_HEIGHT}" rx="4" '
            f'fill="{colour}" stroke="#333"/>'
            f'<text x="{x + _PAD / 2:.1f}" y="{y + 17:.1f}" fill="#111">{escape(words)}</text>'
        )

    def _line(self, x: float, y: float, x2: float, y2: float) -> None:
        self.parts.append(f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="#333"/>')


def _boxes(tree: SumTree, first: int, steps: list[tuple[str, list[int]]]) -> list[tuple[str, list[int]]]:
    """Words of each box of a row, and the sums below it: terms that follow each other are one box."""
    found: list[tuple[str, list[int]]] = []
    terms = [first]
    for kind, addends in steps:
        if kind == ADD and addends[0] < tree.K:
            terms.append(addends[0])
            continue
        begins = kind != ADD and terms == [first] and not found  # the running sum is one more addend of this step
        if begins:
            addends = sorted([first, *addends], key=tree.firsts.__getitem__)
        elif terms:
            found.append((_run(terms), []))
        terms = []
        below = [one for one in addends if one >= tree.K]
        words = _run(addends) if not below else f"+ {len(below)} sum{'s' if len(below) > 1 else ''}"
        plus = "" if begins else "+ "
        found.append((f"{plus}{{{words}}}" if kind != ADD and not below else words, below))
    return [*found, (_run(terms), [])] if terms else found


def _run(terms: list[int]) -> str:
    steps = {b - a for a, b in zip(terms, terms[1:], strict=False)}
    if len(terms) > 2 and len(steps) == 1:
        step = steps.pop()
        return f"{terms[0]}:{terms[-1] + 1}" + ("" if step == 1 else f":{step}")
    return " ".join(map(str, terms[:4])) + (f" ... {terms[-1]}" if len(terms) > 4 else "")
