"""Pictures in a page: ids of their own, words, and nothing that runs or is loaded."""

from __future__ import annotations

import pytest

from gemmsim.study.inline_svg import inline_svg

HEAD = '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" width="10pt" height="5pt" viewBox="0 0 10 5">'


def picture(inside: str) -> str:
    return f'<?xml version="1.0"?><!DOCTYPE svg PUBLIC "-//W3C//DTD SVG 1.1//EN" "http://www.w3.org/d.dtd">{HEAD}{inside}</svg>'


def test_ids_and_what_refers_to_them_get_the_prefix():
    text = picture(
        '<defs><path id="m" d="M0 0"/><clipPath id="c"/></defs><use xlink:href="#m"/>'
        '<g clip-path="url(#c)" style="fill: url( \'#c\' )"/>'
    )
    markup = inline_svg(text, "s1-", "t", "d")
    for part in ('id="s1-m"', 'href="#s1-m"', 'clip-path="url(#s1-c)"', 'style="fill: url(#s1-c)"'):
        assert part in markup
    assert "xlink" not in markup and "http" not in markup and "DOCTYPE" not in markup
    assert 'viewBox="0 0 10 5"' in markup and "10pt" not in markup


def test_title_and_description_are_its_own_or_those_given():
    given = inline_svg(picture("<path/>"), "a-", "Title & more", "<what>")
    assert '<title id="a-title">Title &amp; more</title><desc id="a-desc">&lt;what&gt;</desc>' in given
    assert 'role="img"' in given and 'aria-labelledby="a-title a-desc"' in given
    about = 'xmlns:d="http://purl.org/dc/elements/1.1/"'
    made = f"<metadata><d:title {about}>Matplotlib, https://x.org</d:title><d:description {about}>words</d:description></metadata>"
    own = inline_svg(picture(f"<title>its own</title>{made}"), "a-", "t", "d")
    assert '<title id="a-title">its own</title><desc id="a-desc">words</desc>' in own and "metadata" not in own
    assert '<title id="a-title">t</title>' in inline_svg(picture(made), "a-", "t", "d"), "not that of the program"


def test_a_style_for_everything_reaches_the_picture_alone():
    markup = inline_svg(
        picture('<defs><style type="text/css">*{stroke-linejoin: round}</style></defs>'), "a-", "t", "d"
    )
    assert "<style" not in markup and 'style="stroke-linejoin: round"' in markup


@pytest.mark.parametrize(
    "inside",
    [
        "<script>alert(1)</script>",
        '<path onload="alert(1)"/>',
        '<image xlink:href="https://example.org/x.png"/>',
        '<a xlink:href="javascript:alert(1)"><path/></a>',
        "<foreignObject/>",
        "<style>path{fill:red}</style>",
        "<style>*{background: url(https://example.org)}</style>",
        '<path style="fill: url(https://example.org/#a)"/>',
        """<path style="fill: url( 'https://example.org/#a' )"/>""",
        '<path style="fill: u\\72l(https://example.org/#a)"/>',
    ],
)
def test_active_pictures_become_images_in_which_nothing_runs(inside):
    markup = inline_svg(picture(inside), "a-", 'a "title"', "words")
    assert markup.startswith('<img src="data:image/svg+xml;base64,')
    assert markup.endswith('alt="a &quot;title&quot;. words">')
    assert "example.org" not in markup and "alert" not in markup


def test_embedded_pixels_stay():
    assert 'href="data:image/png;base64,AAAA"' in inline_svg(
        picture('<image xlink:href="data:image/png;base64,AAAA"/>'), "a-", "t", "d"
    )


@pytest.mark.parametrize("text", ["", "\x89PNG", "<svg", "<html></html>"])
def test_what_is_no_picture_is_refused(text):
    with pytest.raises(ValueError, match="no SVG"):
        inline_svg(text, "a-", "t", "d")
