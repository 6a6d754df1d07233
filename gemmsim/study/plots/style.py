"""The style of all pictures: colours that colour-blind eyes and grey print tell apart, labels at the lines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..errors import StudyError
from ..files import atomic_path

__all__ = ["COLOURS", "DASHES", "GREY", "MARKERS", "bare", "figure", "label_ends", "save", "titled"]

#: Okabe and Ito's, without yellow, which is faint on white.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
DASHES = ("solid", (0, (6, 2)), (0, (2, 1.5)), (0, (6, 2, 1.5, 2)))
GREY = "0.45"


def figure(width: float = 9.0, height: float = 5.6) -> Any:
    """An empty figure, drawn without a display. StudyError without matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise StudyError("pictures need matplotlib. Install it with: pip install 'gemmsim[study]'.") from error
    return Figure(figsize=(width, height), dpi=150, layout="constrained")


def save(drawn: Any, path: Path) -> None:
    """Writes the figure as the suffix of ``path`` says, whole or not at all, the same bytes for the same picture.

    Raises:
        StudyError: the suffix is neither .png nor .svg.
    """
    import matplotlib

    kind = path.suffix.removeprefix(".") or "png"
    if kind not in ("png", "svg"):
        raise StudyError(f"cannot draw '{path}'; allowed: .png and .svg.")
    # Text stays text, so that an SVG can be searched and read aloud; ids do not depend on chance, nor bytes on the day.
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "gemmsim"}), atomic_path(path) as temporary:
        drawn.savefig(temporary, format=kind, metadata={"Date": None} if kind == "svg" else {})


def titled(drawn: Any, axes: Any, finding: str, subject: str) -> None:
    """The finding in bold over the picture, what was measured in grey below it."""
    drawn.suptitle(finding, x=0.012, ha="left", fontsize=12, fontweight="bold", wrap=True)
    axes.set_title(subject, loc="left", fontsize=9.5, color="0.35", wrap=True)


def bare(axes: Any, *, grid: str = "both") -> None:
    """No frame above and at the right; a light grid behind."""
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.grid(axis=grid, color="0.9", linewidth=0.8)
    axes.set_axisbelow(True)


def label_ends(axes: Any, ends: list[tuple[float, float, str, str]]) -> None:
    """Writes each (x, y, text, colour) right of its point, moved up or down until no two overlap."""
    place = axes.transData.transform
    gap = 11.5 * axes.figure.dpi / 72
    wanted = sorted(((place((x, y))[1], x, y, text, colour) for x, y, text, colour in ends), key=lambda e: e[0])
    heights = [entry[0] for entry in wanted]
    for _ in range(60):
        for i in range(1, len(heights)):
            overlap = gap - (heights[i] - heights[i - 1])
            if overlap > 0:
                heights[i] += overlap / 2
                heights[i - 1] -= overlap / 2
    for height, (natural, x, y, text, colour) in zip(heights, wanted, strict=True):
        shift = (height - natural) * 72 / axes.figure.dpi
        axes.annotate(
            text, (x, y), xytext=(7, shift), textcoords="offset points", color=colour, fontsize=9.5,
            va="center", ha="left", annotation_clip=False,
        )  # fmt: skip
