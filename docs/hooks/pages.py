"""Hooks of the documentation site (mkdocs.yml): what Markdown on GitHub allows and MkDocs does not.

* Links to files outside docs/ go to the repository.
* Files of the repository that are pages, too (``BORROWED``), and notebooks become pages.
* Anchors are those of GitHub, and ``<details>`` may hold Markdown.
"""

from __future__ import annotations

import json
import logging
import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import api
from mkdocs.structure.files import File
from pymdownx.slugs import slugify

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
LOG = logging.getLogger("mkdocs.hooks.pages")
#: Files at the top of the repository that are pages of the site: file -> page.
BORROWED = {"CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing/index.md"}
LINK = re.compile(r"(?P<before>!?\[[^\]]*\]\()(?P<target>[^)\s#:]+)(?P<anchor>#[^)\s]*)?\)")
FENCE = re.compile(r"(^```.*?^```\s*?$)", re.MULTILINE | re.DOTALL)
CITED = re.compile(r"(?<![\w/\">.])docs/(?P<page>[\w/]+\.md)(?P<anchor>#[\w-]+)?")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    config.mdx_configs.setdefault("toc", {})["slugify"] = slugify(case="lower")
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for source, page in BORROWED.items():
        if (ROOT / source).is_file() and files.get_file_from_path(page) is None:
            text = moved((ROOT / source).read_text(encoding="utf-8"), "", posixpath.dirname(page))
            files.append(File.generated(config, page, content=text))
    for file in list(files):
        if file.src_uri.endswith(".ipynb"):
            page = file.src_uri.removesuffix(".ipynb") + ".md"
            files.append(File.generated(config, page, content=notebook(Path(file.abs_src_path), file.src_uri)))
    return files


def on_page_markdown(text: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    text = api.expanded(text).replace("<details>", '<details markdown="1">')
    folder = posixpath.dirname(page.file.src_uri)
    if page.file.src_uri == "index.md":
        page.meta["hide"] = ["navigation"]
    return outside_blocks(text, lambda part: LINK.sub(lambda link: site_link(link, folder, config, files), part))


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Docstrings cite pages as docs/howto/emulate.md: here as links."""
    if not page.file.src_uri.startswith("api/"):
        return html

    def linked(match: re.Match[str]) -> str:
        file = files.get_file_from_path(match["page"])
        if file is None:
            LOG.warning("%s cites docs/%s, which does not exist", page.file.src_uri, match["page"])
            return match[0]
        return f'<a href="{file.url_relative_to(page.file)}{match["anchor"] or ""}">{match[0]}</a>'

    return CITED.sub(linked, html)


def outside_blocks(text: str, change: Any) -> str:
    """``change`` applied to all of a page but its blocks of code."""
    return "".join(part if index % 2 else change(part) for index, part in enumerate(FENCE.split(text)))


def site_link(link: re.Match[str], folder: str, config: MkDocsConfig, files: Files) -> str:
    """A link of a page in ``folder`` of docs/: within the site, or to the repository."""
    anchor = link["anchor"] or ""
    inside = posixpath.normpath(posixpath.join(folder, link["target"]))
    if not inside.startswith(".."):
        page = inside.removesuffix(".ipynb") + ".md"
        if inside.endswith(".ipynb") and files.get_file_from_path(page):
            return f"{link['before']}{posixpath.relpath(page, folder or '.')}{anchor})"
        return link[0]
    path = posixpath.normpath(posixpath.join("docs", inside))
    if path in BORROWED and files.get_file_from_path(BORROWED[path]):
        return f"{link['before']}{posixpath.relpath(BORROWED[path], folder or '.')}{anchor})"
    if path.startswith("..") or not (ROOT / path).exists():
        return link[0]  # MkDocs reports it
    kind = "tree" if (ROOT / path).is_dir() else "blob"
    return f"{link['before']}{config.repo_url}/{kind}/main/{path}{anchor})"


def moved(text: str, old: str, new: str) -> str:
    """A file of the repository's folder ``old`` as a page in the folder ``new`` of docs/: its links mended."""

    def mended(link: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(old, link["target"]))
        target = posixpath.relpath(path, posixpath.join("docs", new))
        return f"{link['before']}{target}{link['anchor'] or ''})"

    return outside_blocks(text, lambda part: LINK.sub(mended, part))


def notebook(path: Path, uri: str) -> str:
    """A notebook with its stored outputs as Markdown; nothing runs."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    parts = []
    for cell in cells:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
        elif cell["cell_type"] == "code" and source.strip():
            parts.append(f"```python\n{source}\n```")
            parts += [shown(output) for output in joined(cell.get("outputs", []))]
    download = f"[Download this notebook]({posixpath.basename(uri)}){{ download }}"
    parts.insert(1, download)
    return "\n\n".join(part for part in parts if part)


def joined(outputs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Printed text that came in several pieces as one."""
    found: list[dict[str, Any]] = []
    for output in outputs:
        if "name" in output and found and found[-1].get("name") == output["name"]:
            found[-1] = {**output, "text": [*found[-1]["text"], *output["text"]]}
        else:
            found.append(output)
    return found


def shown(output: dict[str, Any]) -> str:
    """One output of a cell: a picture, a table, or text."""
    data = output.get("data", {})
    if "image/png" in data:
        encoded = "".join(data["image/png"]).replace("\n", "")
        return f'<img alt="Output of the cell above" src="data:image/png;base64,{encoded}">'
    if "image/svg+xml" in data:
        return re.sub(r"^.*?(?=<svg)", "", "".join(data["image/svg+xml"]), flags=re.DOTALL).strip()
    if "text/html" in data:
        return "".join(data["text/html"])
    text = "".join(data.get("text/plain", output.get("text", "")))
    text = re.sub(r"\x1b\[[0-9;]*m", "", text)
    return f"```text\n{text.rstrip()}\n```" if text.strip() else ""
