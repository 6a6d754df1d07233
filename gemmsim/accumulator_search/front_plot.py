"""The picture of a search: error against mean width of a register, predicted and measured."""

from __future__ import annotations

from pathlib import Path

from gemmsim.study.files import writing
from gemmsim.study.plots.lines import Line, Picture, draw_lines

from .findings import Findings

__all__ = ["draw_front"]


def draw_front(found: Findings, path: Path) -> Path:
    """Writes the picture (.png or .svg) and returns its path.

    Raises:
        StudyError: for another suffix, without matplotlib, and where the file cannot be written.
    """
    points = sorted(found.front, key=lambda point: point.bits)
    low, high = points[0].bits, points[-1].bits
    chosen = found.chosen
    seen = [(point.bits, point.measured) for point in points if point.measured is not None]
    lines = [
        Line("predicted", [(point.bits, point.predicted) for point in points]),
        Line("measured", seen, mark=(chosen.bits, found.measured.error, "chosen")),
        Line(
            "",
            [(low, found.at_most), (high, found.at_most)],
            guide=True,
            mark=((low + high) / 2, found.at_most, f"at most {found.at_most:g}"),
        ),
    ]
    picture = Picture(
        finding=f"{chosen.bits:.3g} bits on average keep {found.metric} at {found.measured.error:.2g}",
        subject=f"{len(found.table)} layers, order {found.order}, {found.samples} samples; error of the whole model",
        x="mean accumulator width, bits per multiply-add",
        y=found.metric,
        log_x=False,
    )
    with writing(path):
        draw_lines(lines, picture, path)
    return path
