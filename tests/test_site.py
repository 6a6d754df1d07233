"""The documentation site: every page is in its navigation, every picture in the gallery, every citation among the papers."""

from __future__ import annotations

import json
import os
import re
import subprocess
import types
from importlib import import_module
from pathlib import Path

import pytest
from support import ROOT

yaml = pytest.importorskip("yaml", reason="PyYAML reads mkdocs.yml")

DOCS = ROOT / "docs"
PYTHON = ROOT / ".venv-docs" / "bin" / "python"
#: Files at the top of the repository that are pages, too (docs/hooks/pages.py).
BORROWED = {"changelog.md": "CHANGELOG.md", "contributing/index.md": "CONTRIBUTING.md"}
ARXIV = re.compile(r"(?:arXiv:|arxiv\.org/abs/)(\d{4}\.\d{5})")
needs_environment = pytest.mark.skipif(not PYTHON.exists(), reason="no .venv-docs: run make docs first")


def config() -> dict:
    return yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))


def pages_of(nav: list | dict | str) -> list[str]:
    """The pages of a part of the navigation, in order."""
    if isinstance(nav, str):
        return [nav]
    return [page for part in (nav.values() if isinstance(nav, dict) else nav) for page in pages_of(part)]


def pages_on_disk() -> set[str]:
    return {str(path.relative_to(DOCS)) for path in (*DOCS.rglob("*.md"), *DOCS.rglob("*.ipynb"))}


def as_pages(names: set[str]) -> set[str]:
    """A notebook is the page of its name (docs/hooks/pages.py)."""
    return {re.sub(r"\.ipynb$", ".md", name) for name in names}


def test_every_page_is_in_the_navigation_once():
    listed = pages_of(config()["nav"])
    assert len(listed) == len(set(listed)), sorted(page for page in listed if listed.count(page) > 1)
    borrowed = {page for page, source in BORROWED.items() if (ROOT / source).is_file()}
    assert as_pages(pages_on_disk()) | borrowed == set(listed)


def test_all_pages_are_on_the_page_of_that_name():
    linked = set(re.findall(r"\]\(([^)#]+)", (DOCS / "contents.md").read_text(encoding="utf-8")))
    api = {page for page in pages_on_disk() if page.startswith("api/")}
    missing = pages_on_disk() - linked - api - {"contents.md"}
    assert not missing, f"docs/contents.md does not list {sorted(missing)}"


def test_every_picture_is_in_the_gallery():
    gallery = (DOCS / "gallery.md").read_text(encoding="utf-8")
    pictures = {path.relative_to(DOCS) for suffix in ("svg", "png") for path in DOCS.rglob(f"*.{suffix}")}
    shown = {Path(target) for target in re.findall(r"!\[[^\]]+\]\(([^)]+)\)", gallery)}
    assert {path for path in pictures if path.parts[0] != "assets"} == shown


def test_every_arxiv_paper_that_is_cited_is_among_the_papers():
    listed = set(ARXIV.findall((DOCS / "papers.md").read_text(encoding="utf-8")))
    for folder in ("docs", "gemmsim", "cutlass_kernels", "tests", "benchmarks", "examples"):
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in {".py", ".md", ".h", ".cpp", ".json"} and path.is_file():
                unknown = set(ARXIV.findall(path.read_text(encoding="utf-8"))) - listed
                assert not unknown, (
                    f"{path.relative_to(ROOT)} cites {sorted(unknown)}, which docs/papers.md does not list"
                )


def test_studies_on_the_page_of_papers_exist():
    from gemmsim import study

    named = re.findall(r"(?<!`)study (`\w+`(?:, `\w+`)*)", (DOCS / "papers.md").read_text(encoding="utf-8"))
    names = {name.strip("`") for names in named for name in names.split(", ")}
    assert names and names <= set(study.names()), sorted(names - set(study.names()))


def test_the_address_of_the_repository_is_a_placeholder_in_one_place():
    assert config()["repo_url"] == "https://github.com/OWNER/gemmsim"
    assert (ROOT / "mkdocs.yml").read_text(encoding="utf-8").count("github.com/OWNER") == 1
    for path in (*DOCS.rglob("*.md"), *DOCS.rglob("*.py")):
        assert "github.com/OWNER" not in path.read_text(encoding="utf-8"), path.relative_to(ROOT)


def test_requirements_have_exact_versions_and_the_site_needs_no_pytorch():
    lines = (DOCS / "requirements.txt").read_text(encoding="utf-8").splitlines()
    packages = [line for line in lines if line and not line.startswith("#")]
    assert packages and all(re.fullmatch(r"[\w.-]+==[\w.]+", line) for line in packages)
    assert not any(line.startswith(("torch", "gemmsim")) for line in packages)


def test_every_public_module_has_a_page_of_the_api():
    import gemmsim

    internal = {"backends", "compat"}
    modules = {name for name in dir(gemmsim) if isinstance(getattr(gemmsim, name), types.ModuleType)} - internal
    marks = {}
    for page in (DOCS / "api").glob("*.md"):
        marks |= dict.fromkeys(
            re.findall(r"^<!-- public names of ([\w.]+) -->$", page.read_text(encoding="utf-8"), re.M)
        )
    assert set(marks) == {"gemmsim", *(f"gemmsim.{name}" for name in modules)}


@needs_environment
def test_the_api_pages_list_the_names_that_modules_have_at_run_time():
    done = subprocess.run([PYTHON, DOCS / "hooks" / "api.py"], capture_output=True, text=True, check=True, timeout=300)
    for module, listed in json.loads(done.stdout).items():
        here = import_module(module)
        public = {name for name in dir(here) if name[0] != "_"}
        names = {name for name in public if not isinstance(getattr(here, name), types.ModuleType)}
        assert set(listed) == names, module


@needs_environment
@pytest.mark.long  # CI builds the site by make docs while the tests run
def test_the_site_builds_without_a_warning(tmp_path):
    command = [PYTHON, "-m", "mkdocs", "build", "--strict", "--site-dir", tmp_path / "site"]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    home = (tmp_path / "site" / "index.html").read_text(encoding="utf-8")
    assert "Where to begin" in home
    assert "gemmsim.qmatmul" in (tmp_path / "site" / "api" / "ops" / "index.html").read_text(encoding="utf-8")
