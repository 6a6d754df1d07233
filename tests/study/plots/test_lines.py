"""Pictures of lines: what is written lies on the canvas, apart from each other and dark enough; nothing vanishes in silence."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

pytest.importorskip("matplotlib")

from matplotlib.text import Text

from gemmsim.study.errors import StudyError
from gemmsim.study.plots import lines, style
from gemmsim.study.plots.lines import Line, Picture, draw_lines

LENGTHS = [2**k for k in range(6, 21)]


@pytest.fixture
def drawn(monkeypatch):
    """Figures as they were saved."""
    seen = []
    real = style.save

    def save(figure, path, **options):
        seen.append(figure)
        real(figure, path, **options)

    monkeypatch.setattr(style, "save", save)
    return seen


def picture(**changed) -> Picture:
    words = {"finding": "what it shows", "subject": "of what", "x": "K, terms", "y": "error, units", "ticks": LENGTHS}
    return Picture(**{**words, **changed})


def boxes(figure):
    figure.draw_without_rendering()
    axes = figure.axes[0]
    written = [text for text in axes.texts if text.get_text()]
    # Of the text alone: an annotation's own extent goes to its point.
    return {text.get_text(): Text.get_window_extent(text) for text in written}


CROWDS = {
    "equal ends": [Line(f"line {i}", [(k, 2.0 + k / 1e9) for k in LENGTHS]) for i in range(12)],
    "long labels": [
        Line(f"chunked({i}, fused(16, 25, fp32/rtz)) under a name of many words", [(k, i + 1.0) for k in LENGTHS])
        for i in range(6)
    ],
    "many": [Line(f"{i}", [(k, 1.0 + i) for k in LENGTHS[: 15 - i % 4]]) for i in range(40)],
    "one point": [Line("a", [(64, 1.0)]), Line("b", [(64, 1.0)])],
    "decades": [Line(str(i), [(k, 10.0**i) for k in LENGTHS]) for i in range(-9, 9)],
}


@pytest.mark.parametrize("crowd", CROWDS)
def test_labels_lie_on_the_canvas_and_apart(crowd, drawn, tmp_path):
    draw_lines(CROWDS[crowd], picture(), tmp_path / "p.png")
    (figure,) = drawn
    found = boxes(figure)
    assert len(found) == len(CROWDS[crowd])
    canvas = figure.bbox
    for name, box in found.items():
        assert box.x0 >= 0 and box.x1 <= canvas.x1 and box.y0 >= 0 and box.y1 <= canvas.y1, name
    stack = sorted(found.values(), key=lambda box: box.y0)
    for below, above in zip(stack, stack[1:], strict=False):
        assert above.y0 >= below.y1 - 2, "two labels overlap"


def test_title_and_subject_are_not_cut(drawn, tmp_path):
    long = picture(finding="a finding of many words " * 12, subject="operands from very long names " * 12)
    draw_lines(CROWDS["equal ends"], long, tmp_path / "p.png")
    (figure,) = drawn
    figure.draw_without_rendering()
    for text in (figure._suptitle, figure.axes[0]._left_title):
        box = text.get_window_extent()
        assert box.x0 >= 0 and box.x1 <= figure.bbox.x1 and box.y1 <= figure.bbox.y1 + 1
    assert figure._suptitle.get_text().startswith("A finding")
    assert figure.axes[0]._left_title.get_window_extent().y1 <= figure._suptitle.get_window_extent().y0 + 1


def test_ticks_do_not_touch(drawn, tmp_path):
    draw_lines(
        [Line("a", [(k, 1.0 * k) for k in (100, 101, 1000)])], picture(ticks=(100, 101, 1000)), tmp_path / "p.png"
    )
    figure = drawn[0]
    shown = [text.get_text() for text in figure.axes[0].get_xticklabels() if text.get_visible() and text.get_text()]
    assert shown == ["100", "1000"]


def test_long_powers_of_two_are_written_as_powers():
    assert lines._numbers([64, 4096]) == ["64", "4096"]
    assert lines._numbers([64, 2**20]) == ["$2^{6}$", "$2^{20}$"]
    assert lines._numbers([100, 1000000]) == ["100", "1000000"]


def test_what_a_logarithmic_scale_cannot_show_is_named(drawn, tmp_path):
    draw_lines(
        [Line("exact", [(64, 0.0), (128, 0.0)]), Line("a", [(64, 1.0), (128, 9.0)])], picture(), tmp_path / "p.png"
    )
    axes = drawn[0].axes[0]
    assert "0 or without a number: exact" in axes._left_title.get_text()
    assert list(boxes(drawn[0])) == ["a"]


def test_values_close_together_get_a_linear_scale(drawn, tmp_path):
    draw_lines([Line("a", [(64, 2.0), (128, 2.1)])], picture(), tmp_path / "p.png")
    draw_lines([Line("a", [(64, 2.0), (128, 20.0)])], picture(), tmp_path / "p.png")
    assert [figure.axes[0].get_yscale() for figure in drawn] == ["linear", "log"]


def test_lines_that_belong_together_share_colour_or_dash(drawn, tmp_path):
    several = [Line(f"{c}{d}", [(64, 1.0), (128, 9.0)], colour=c, dash=d) for c in range(9) for d in range(2)]
    draw_lines(several, picture(), tmp_path / "p.png")
    drawn_lines = [line for line in drawn[0].axes[0].lines if line.get_marker() not in ("", "None", None)]
    looks = [(line.get_color(), line.get_marker(), line._dash_pattern) for line in drawn_lines]
    assert len(looks) == 18 and len({str(look) for look in looks}) == 18
    assert looks[0][:2] == looks[1][:2] and str(looks[0][2]) == str(looks[2][2])


def test_a_picture_says_what_it_shows_to_those_who_do_not_see_it(tmp_path):
    draw_lines([Line("a", [(64, 1.0), (128, 9.0)])], picture(), tmp_path / "p.svg")
    root = ElementTree.fromstring((tmp_path / "p.svg").read_text())
    assert root.findtext("{http://www.w3.org/2000/svg}title") == "What it shows"
    described = root.findtext(".//{http://purl.org/dc/elements/1.1/}description")
    assert described == "of what. error, units, against K, terms. Lines end at 128 at: a 9."
    draw_lines([Line("a", [(64, 1.0), (128, 9.0)])], picture(), tmp_path / "q.svg")
    assert (tmp_path / "p.svg").read_bytes() == (tmp_path / "q.svg").read_bytes()


def test_files_of_one_picture_are_drawn_together(drawn, tmp_path):
    """Laid out once, and the bytes that each has alone."""
    files = [tmp_path / "p.png", tmp_path / "p.svg"]
    with style.together(*files) as written:
        assert written == dict.fromkeys(files, False)
        draw_lines(CROWDS["long labels"], picture(), files[0])
        assert written == dict.fromkeys(files, True) and len(drawn) == 1
        draw_lines(CROWDS["equal ends"], picture(), tmp_path / "other.png")  # none of them
    assert not (tmp_path / "other.svg").exists()
    for file in files:
        draw_lines(CROWDS["long labels"], picture(), tmp_path / f"alone{file.suffix}")
        assert file.read_bytes() == (tmp_path / f"alone{file.suffix}").read_bytes()
    with style.together(tmp_path / "p.png", tmp_path / "nowhere" / "p.svg"), pytest.raises(StudyError, match="p.svg"):
        draw_lines(CROWDS["equal ends"], picture(), tmp_path / "p.png")


def test_a_line_without_a_label_has_no_leader(drawn, tmp_path):
    draw_lines([Line("", [(64, 1.0), (128, 9.0)]), Line("a", [(64, 1.0), (1024, 9.0)])], picture(), tmp_path / "p.png")
    assert len(drawn[0].axes[0].texts) == 1 and len(drawn[0].axes[0].lines) == 2


def test_no_lines_and_other_kinds_of_files(tmp_path):
    draw_lines([], picture(), tmp_path / "p.png")
    with pytest.raises(StudyError, match=r"allowed: \.png and \.svg"):
        draw_lines([], picture(), tmp_path / "p.pdf")


@pytest.mark.parametrize("colour", [*style.COLOURS, style.GREY])
def test_text_is_dark_enough(colour):
    assert 1.05 / (style._luminance(style.ink(colour)) + 0.05) >= 4.5


def test_spread_moves_as_little_as_needed():
    assert style.spread([1.0, 5.0], [1, 1], 0, 10) == [1.0, 5.0]
    assert style.spread([5.0, 5.0], [1, 1], 0, 10) == [4.5, 5.5]
    assert style.spread([0.0, 0.0, 9.0], [2, 2, 2], 0, 10) == [1.0, 3.0, 9.0]
    assert style.spread([10.0, 10.0], [2, 4], 0, 10) == [5.0, 8.0]
    assert style.spread([3.0], [1], 0, 10) == [3.0]
