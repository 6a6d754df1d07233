"""The style of all pictures: colours that colour-blind eyes and grey print tell apart, labels at the lines."""

from __future__ import annotations

import contextlib
import textwrap
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from gemmsim._files import replacing

from ..errors import StudyError
from ..files import writing
from ..glossary import COLUMNS

__all__ = [
    "COLOURS",
    "DASHES",
    "GREY",
    "MARKERS",
    "bare",
    "figure",
    "ink",
    "label_ends",
    "save",
    "spread",
    "titled",
    "together",
]

#: Okabe and Ito's, without yellow, which is faint on white.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
DASHES = ("solid", (0, (6, 2)), (0, (2, 1.5)), (0, (6, 2, 1.5, 2)))
GREY = "0.45"
#: Least contrast of text with white, WCAG 2.2, success criterion 1.4.3.
CONTRAST = 4.5
#: Points of height that a line of a label takes, and characters it has at most.
LABEL_LINE, LABEL_WIDTH = 12.0, 34
#: Files of one picture, each with whether it has been written.
_TOGETHER: ContextVar[dict[Path, bool]] = ContextVar("_TOGETHER")


def figure(width: float = 9.0, height: float = 5.6) -> Any:
    """An empty figure, drawn without a display. StudyError without matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise StudyError("pictures need matplotlib. Install it with: pip install 'gemmsim[study]'.") from error
    return Figure(figsize=(width, height), dpi=150, layout="constrained")


@contextlib.contextmanager
def together(*paths: Path) -> Iterator[dict[Path, bool]]:
    """What the block saves as one of ``paths`` is saved as all of them: one picture, laid out once. The block's value
    says of each whether it has been written; what a block draws by other means than ``save`` is not.
    """
    token = _TOGETHER.set(dict.fromkeys(paths, False))
    try:
        yield _TOGETHER.get()
    finally:
        _TOGETHER.reset(token)


def save(drawn: Any, path: Path, *, description: str = "") -> None:
    """Writes the figure as the suffix of ``path`` says, whole or not at all, the same bytes for the same picture; to
    all files of ``together`` if ``path`` is one.

    Title (the bold line over the picture) and ``description`` (by default: what the axes are) go into the file, for
    those who cannot see it and for a page that shows it.

    Raises:
        StudyError: the suffix is neither .png nor .svg.
    """
    import matplotlib

    if _kind(path) not in ("png", "svg"):
        raise StudyError(f"cannot draw '{path}'; allowed: .png and .svg.")
    words = {"Title": _one_line(drawn.get_suptitle()), "Description": _one_line(description or _axes_in_words(drawn))}
    files = _TOGETHER.get({})
    # Saving would lay it out again each time, and draw it for that.
    if drawn.get_layout_engine() is not None:
        drawn.get_layout_engine().execute(drawn)
    # Text stays text, so that an SVG can be searched and read aloud; ids do not depend on chance, nor bytes on the day.
    settings: dict[Any, Any] = {"svg.fonttype": "none", "svg.hashsalt": "gemmsim"}
    with matplotlib.rc_context({**settings, "figure.autolayout": False, "figure.constrained_layout.use": False}):
        drawn.set_layout_engine(None)
        for one in files if path in files else (path,):
            with writing(one) if one != path else contextlib.nullcontext(), replacing(one) as temporary:
                _write(drawn, temporary, {name: text for name, text in words.items() if text})
            files[one] = True


def _write(drawn: Any, path: Path, words: dict[str, str | None]) -> None:
    kind = _kind(path)
    drawn.savefig(path, format=kind, metadata={**words, "Date": None} if kind == "svg" else words)


def _kind(path: Path) -> str:
    return path.suffix.removeprefix(".") or "png"


def _axes_in_words(drawn: Any) -> str:
    found = [f"{axes.get_ylabel()} against {axes.get_xlabel()}" for axes in drawn.axes if axes.get_xlabel()]
    return "; ".join(found)


def _one_line(text: str) -> str:
    return " ".join(text.split())


def titled(drawn: Any, axes: Any, finding: str, subject: str) -> None:
    """The finding in bold over the picture, what was measured in grey below it; both begin at the left edge."""
    width = drawn.get_figwidth()
    # Broken here and not by wrap=True: the layout does not make room for lines that only drawing finds.
    drawn.suptitle(_wrapped(_sentence(finding), 9.6 * width), x=0.012, ha="left", fontsize=12,
                   fontweight="bold")  # fmt: skip
    axes.set_title(_wrapped(subject, 12.4 * (width - 1.1)), loc="left", fontsize=9.5, color="0.35")


def _sentence(text: str) -> str:
    """``text`` with a capital at its beginning, unless that is the name of a column."""
    first = text.partition(" ")[0]
    return text[:1].upper() + text[1:] if first.isalpha() and first not in COLUMNS else text


def _wrapped(text: str, width: float) -> str:
    return "\n".join(part for line in text.splitlines() for part in textwrap.wrap(line, int(width)))


def bare(axes: Any, *, grid: str = "both") -> None:
    """No frame above and at the right; a light grid behind."""
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.grid(axis=grid, color="0.9", linewidth=0.8)
    axes.set_axisbelow(True)


def ink(colour: str) -> tuple[float, float, float]:
    """``colour`` as dark as text on white has to be."""
    from matplotlib.colors import to_rgb

    rgb = to_rgb(colour)
    while 1.05 / (_luminance(rgb) + 0.05) < CONTRAST:
        rgb = (0.96 * rgb[0], 0.96 * rgb[1], 0.96 * rgb[2])
    return rgb


def _luminance(rgb: Sequence[float]) -> float:
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in rgb)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def label_ends(axes: Any, ends: list[tuple[float, float, str, str]]) -> None:
    """Writes each (x, y, text, colour) at the right edge of the axes, at the height of its point or as near as there
    is room; a thin line leads to the point where that is elsewhere. The figure has been laid out before.
    """
    if not ends:
        return
    box = axes.get_window_extent()
    place = axes.transData.transform
    unit = axes.figure.dpi / 72
    labels = sorted(
        ((*place((x, y)), textwrap.fill(text, LABEL_WIDTH), (x, y), colour) for x, y, text, colour in ends),
        key=lambda label: label[1],
    )
    sizes = [LABEL_LINE * unit * (label[2].count("\n") + 1) for label in labels]
    heights = spread([label[1] for label in labels], sizes, box.y0 - 3 * unit, box.y1 + 3 * unit)
    for height, (across, natural, text, point, colour) in zip(heights, labels, strict=True):
        far = abs(height - natural) > 4 * unit or box.x1 - across > 30 * unit
        leader = {
            "arrowstyle": "-",
            "color": colour,
            "linewidth": 0.8,
            "linestyle": ":",
            "shrinkA": 1,
            "shrinkB": 4,
            "relpos": (0, 0.5),
        }
        axes.annotate(
            text, point, xytext=(1.006, (height - box.y0) / box.height), textcoords="axes fraction", color=ink(colour),
            fontsize=9.5, linespacing=1.0, va="center", ha="left", annotation_clip=False,
            arrowprops=leader if far else None,
        )  # fmt: skip


def spread(wanted: Sequence[float], sizes: Sequence[float], low: float, high: float) -> list[float]:
    """Centres nearest to ``wanted`` (ascending) of things of these sizes that lie in [low, high] without overlapping.

    Least squares (isotonic regression by pooling neighbours). Where there is no room for all they go on above ``high``.
    """
    steps = [0.0]
    for i in range(1, len(sizes)):
        steps.append(steps[-1] + (sizes[i - 1] + sizes[i]) / 2)
    pools: list[tuple[float, int]] = []
    for want, step in zip(wanted, steps, strict=True):
        pools.append((want - step, 1))
        while len(pools) > 1 and pools[-2][0] > pools[-1][0]:
            (a, m), (b, n) = pools[-2:]
            pools[-2:] = [((a * m + b * n) / (m + n), m + n)]
    least, most = low + sizes[0] / 2, high - sizes[-1] / 2 - steps[-1]
    levels = [max(least, min(level, most)) for level, count in pools for _ in range(count)]
    return [level + step for level, step in zip(levels, steps, strict=True)]
