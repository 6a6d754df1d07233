"""Tables for notebooks: what ``_repr_html_`` of this package's values gives. Every text is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

__all__ = ["html_table"]


def html_table(
    heads: Sequence[str], rows: Iterable[Sequence[str]], *, caption: str = "", notes: Sequence[str] = (), right: int = 0
) -> str:
    """A table with a head for each column; the last ``right`` columns are of numbers. ``notes`` are lines below it, and
    all there is without a row."""
    from html import escape  # here: no other part of this package needs it

    sides = ["left"] * (len(heads) - right) + ["right"] * right

    def line(cells: Sequence[str], tag: str) -> str:
        texts = [
            f'<{tag} style="text-align: {side}">{escape(cell)}</{tag}>' for cell, side in zip(cells, sides, strict=True)
        ]
        return f"<tr>{''.join(texts)}</tr>"

    below = "".join(f"<div>{escape(note)}</div>\n" for note in notes)
    body = "\n".join(line(row, "td") for row in rows)
    if not body:
        return below
    title = f"<caption>{escape(caption)}</caption>\n" if caption else ""
    start = '<table style="font-family: monospace; white-space: pre">'
    return f"{start}\n{title}<thead>{line(heads, 'th')}</thead>\n<tbody>\n{body}\n</tbody>\n</table>\n{below}"
