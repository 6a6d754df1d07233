"""How this copy of gemmsim came to be installed, from what pip writes down."""

from __future__ import annotations

import json
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from gemmsim._paths import package_folders

__all__ = ["how_installed"]


def how_installed() -> str:
    """How the package that runs was installed; "not installed" for a source tree on Python's path."""
    try:
        found = distribution("gemmsim")
    except PackageNotFoundError:
        return "not installed: a source tree on Python's path"
    origin = json.loads(found.read_text("direct_url.json") or "{}")
    url = str(origin.get("url", ""))
    if origin.get("dir_info", {}).get("editable"):
        tree = Path(url.removeprefix("file://"))
        return f"editable, from {tree}{_other_tree([tree / 'gemmsim'])}"
    elsewhere = _other_tree([Path(str(found.locate_file("gemmsim")))])
    return f"{_artefact(url, origin)}, {_tag(found)}, by {_installer(found)}{elsewhere}"


def _artefact(url: str, origin: dict[str, object]) -> str:
    if "vcs_info" in origin:
        return f"built from {url}"
    if url.endswith(".whl"):
        return f"wheel {Path(url).name}"
    if "archive_info" in origin:
        return f"built from {Path(url).name}"
    return f"built from {url.removeprefix('file://')}" if url else "from a package index"


def _tag(found: Distribution) -> str:
    """The tag of the wheel. One with "manylinux" was made for other machines, one with "linux" was built on this."""
    lines = (found.read_text("WHEEL") or "").splitlines()
    tags = [line.removeprefix("Tag: ") for line in lines if line.startswith("Tag: ")]
    return f"tag {tags[0]}" if tags else "without a tag"


def _installer(found: Distribution) -> str:
    return (found.read_text("INSTALLER") or "").strip() or "an unknown installer"


def _other_tree(installed: list[Path]) -> str:
    running = [folder.resolve() for folder in package_folders()]
    if any(folder.resolve() in running for folder in installed):
        return ""
    return f"; another copy runs: {running[0]}"
