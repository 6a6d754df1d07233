"""SVG files as part of an HTML page: ids of their own, words for screen readers, nothing that is loaded or run."""

from __future__ import annotations

import base64
import re
from html import escape
from xml.etree import ElementTree

__all__ = ["inline_svg"]

#: Elements that run, load or restyle: a picture with one is shown as an image, in which browsers run and load nothing.
_ACTIVE = frozenset({"script", "foreignObject", "iframe", "audio", "video", "handler", "animate", "set", "a"})
_ADDRESS = re.compile(r"url\(\s*['\"]?\s*(?P<first>.)", re.IGNORECASE | re.DOTALL)
#: Ways of CSS to load something, or to write url() otherwise.
_LOADS = re.compile(r"@import|image-set|javascript:|\\", re.IGNORECASE)
#: Where matplotlib writes what a picture is about; a title inside metadata is that of the program.
_DESCRIPTION = ".//{http://purl.org/dc/elements/1.1/}description"
_OWN = re.compile(r"url\(\s*['\"]?#(?P<id>[^'\")]+)['\"]?\s*\)")
#: A style that matplotlib gives to everything.
_PLAIN_STYLE = re.compile(r"\s*\*\s*\{(?P<body>[^{}]*)\}\s*")


class _Unfit(Exception):
    """The picture has something that cannot stand in a page."""


def inline_svg(text: str, prefix: str, title: str, description: str) -> str:
    """Markup of the picture ``text``: an svg element, or an img with everything in its address where it is active.

    ``prefix`` goes before every id, so that several pictures may share a page. The picture's own title and description
    are taken where it has some; else those given.

    Raises:
        ValueError: ``text`` is no SVG.
    """
    try:
        root = ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        raise ValueError(f"no SVG: {error}") from error
    if _local(root.tag) != "svg":
        raise ValueError(f"no SVG: a document of <{_local(root.tag)}>")
    title = _words(root, "title") or title
    description = _words(root, "desc") or _words(root, _DESCRIPTION) or description
    try:
        if "<!ENTITY" in text:
            raise _Unfit
        _clean(root, prefix)
    except _Unfit:
        data = base64.b64encode(text.encode("utf-8")).decode("ascii")
        return f'<img src="data:image/svg+xml;base64,{data}" alt="{escape(f"{title}. {description}")}">'
    for name, words in (("desc", description), ("title", title)):
        element = ElementTree.Element(name, {"id": f"{prefix}{name}"})
        element.text = words
        root.insert(0, element)
    root.set("role", "img")
    root.set("aria-labelledby", f"{prefix}title {prefix}desc")
    return ElementTree.tostring(root, encoding="unicode")


def _words(root: ElementTree.Element, path: str) -> str:
    """Text of the first element at ``path``, in SVG's own namespace where it names none."""
    space = root.tag.partition("}")[0].removeprefix("{") if "}" in root.tag else ""
    found = root.find(path if "/" in path or not space else f"{{{space}}}{path}")
    return " ".join((found.text or "").split()) if found is not None else ""


def _clean(root: ElementTree.Element, prefix: str) -> None:
    """Takes namespaces, metadata and size off, makes ids the page's own."""
    for element in root.iter():
        for child in list(element):
            if _local(child.tag) in ("metadata", "title", "desc"):
                element.remove(child)
            elif _local(child.tag) == "style":
                _spread_style(root, element, child)
    for element in root.iter():
        element.tag = _local(element.tag)
        if element.tag in _ACTIVE:
            raise _Unfit
        attributes = dict(element.attrib)
        element.attrib.clear()
        for name, value in attributes.items():
            local = _local(name)
            if name == local or local == "href":
                element.set(local, _own(local, value, prefix))
    if "viewBox" in root.attrib:
        for name in ("width", "height"):
            root.attrib.pop(name, None)


def _spread_style(root: ElementTree.Element, parent: ElementTree.Element, style: ElementTree.Element) -> None:
    """A style for everything goes to the root, from where it is inherited: in a page it would reach the page."""
    match = _PLAIN_STYLE.fullmatch(style.text or "")
    if match is None or _loads(match["body"]):
        raise _Unfit
    root.set("style", "; ".join(part for part in (root.get("style", ""), match["body"].strip()) if part))
    parent.remove(style)


def _own(name: str, value: str, prefix: str) -> str:
    if name.lower().startswith("on") or _loads(value):
        raise _Unfit
    if name == "id":
        return prefix + value
    if name == "href":
        if value.startswith("#"):
            return f"#{prefix}{value[1:]}"
        if not value.startswith("data:image/"):
            raise _Unfit
    return _OWN.sub(lambda match: f"url(#{prefix}{match['id']})", value)


def _loads(value: str) -> bool:
    """Whether this attribute or style may load something from elsewhere, or run."""
    return bool(_LOADS.search(value)) or any(match["first"] != "#" for match in _ADDRESS.finditer(value))


def _local(tag: object) -> str:
    return tag.rpartition("}")[2] if isinstance(tag, str) else ""
