"""Digests decide which kernels ``make kernels`` compiles: everything that compiling one reads must change them."""

from __future__ import annotations

import importlib
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support import ROOT
from support.host import SHIM

from gemmsim.backends.cuda import KernelSource, family_sources

pytestmark = pytest.mark.cuda
CUTLASS_KERNELS = ROOT / "cutlass_kernels"


@pytest.fixture(scope="module")
def digests():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [str(ROOT / "benchmarks"), *sys.path])
        return importlib.import_module("kernel_digests")


def families() -> dict[str, KernelSource]:
    """The last kernel of each family."""
    return {source.family: source for source in family_sources(())}


def copied(tmp_path: Path) -> Path:
    return Path(shutil.copytree(CUTLASS_KERNELS, tmp_path / "cutlass_kernels", dirs_exist_ok=True))


def test_comments_and_blanks_do_not_count_and_all_else_does(digests):
    assert digests.tokens("int a; // b\n\n\n  int  c; /* d\n */ e\n") == digests.tokens("int a;\nint c;\ne")
    for text in ('x = "a  // b";', "'\"' + y // z", 'R"(a // b)"', "a // b \\\nc"):
        assert "b" in digests.tokens(text) or "y" in digests.tokens(text)
    assert digests.tokens('"a  b"') != digests.tokens('"a b"') and digests.tokens("'\"' y") != digests.tokens("'\"' z")
    assert digests.statements('"""A."""\n# b\nx = 1\n') == digests.statements('"""B\n\nb\n"""\nx = 1\n') == "x = 1\n"
    text = '"""A."""\nx = """\n# b\n"""\n'
    assert digests.statements(text) == text


def test_every_header_that_a_kernel_includes_changes_its_digest_and_no_other_does(digests, tmp_path):
    root = copied(tmp_path).resolve()
    headers = sorted(root.rglob("*.h"))
    for family, source in families().items():
        before = digests.kernel_digest(source, "sm_90a", root)
        mine = digests.headers_of(source.text, family, root)
        assert mine and digests.kernel_digest(source, "sm_80", root) != before
        for path in (*mine, next(path for path in headers if path not in mine)):
            text = path.read_text(encoding="utf-8")
            path.write_text(text + "int changed;\n", encoding="utf-8")
            digests._content.cache_clear()
            assert (digests.kernel_digest(source, "sm_90a", root) != before) is (path in mine), f"{family}: {path}"
            path.write_text(text + "// changed\n", encoding="utf-8")
            digests._content.cache_clear()
            assert digests.kernel_digest(source, "sm_90a", root) == before, f"{family}: {path}"
            path.write_text(text, encoding="utf-8")
        digests._content.cache_clear()


def test_the_preprocessor_reads_no_header_that_is_not_digested(digests, tmp_path):
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("g++ is needed to list what a text includes")
    for family, source in families().items():
        code = tmp_path / f"{family}.cpp"
        code.write_text(source.text, encoding="utf-8")
        include = ["-include", str(SHIM), f"-I{CUTLASS_KERNELS / 'include'}", f"-I{CUTLASS_KERNELS}"]
        # -MG: NVIDIA's headers need not be there.
        command = [compiler, "-std=c++20", "-M", "-MG", *include, str(code)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        read = {Path(word).resolve() for word in done.stdout.replace("\\\n", " ").split() if word.startswith("/")}
        ours = {path for path in read if CUTLASS_KERNELS in path.parents}
        assert ours and ours <= set(digests.headers_of(source.text, family)), family


@pytest.mark.parametrize("line", ["#include NAME", '#include "gone.h"', "#include <boost/any.hpp>", "# include"])
def test_what_cannot_be_followed_is_an_error(digests, line):
    with pytest.raises(digests.UnknownInclude, match="a kernel"):
        digests.headers_of(f'#include "gemmsim/types.h"\n{line}\n', "a kernel")


def test_every_row_of_the_baseline_has_its_digest():
    rows = json.loads((ROOT / "benchmarks" / "baselines" / "kernels.json").read_text(encoding="utf-8"))
    assert all(len(row["digest"]) == 32 for row in rows)
    assert len({row["digest"] for row in rows}) == len(rows)
