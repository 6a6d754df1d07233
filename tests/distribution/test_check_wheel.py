"""What decides whether a wheel passes: README's first example, and equal bits on every instruction set."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import check_wheel
import prebuilt
import pytest
from source_digest import source_digest
from support import ROOT
from wheel_archive import platforms


def results(build: str, **digests: dict[str, str]) -> dict:
    return {"gemmsim": f"/{build}", "build": build, "library": build, "digests": digests}


def test_readmes_first_example_is_found_with_what_it_prints():
    code, table = check_wheel.first_example((ROOT / "README.md").read_text(encoding="utf-8"))
    assert "import gemmsim" in code
    assert "promote(hw(h100, wgmma, e4m3), 128)" in table and "%" in table


def test_a_page_without_an_example_is_refused():
    with pytest.raises(check_wheel.CheckError, match="no first example"):
        check_wheel.first_example("# gemmsim\n")


def test_equal_results_on_all_instruction_sets_pass():
    said = check_wheel.compare(
        results("GNU", avx512={"a": "1"}), results("wheel", avx2={"a": "1"}, baseline={"a": "1"})
    )
    assert said.startswith("1 results have equal bits") and "avx2, baseline" in said


@pytest.mark.parametrize("other", [{"a": "2"}, {}, {"a": "1", "b": "1"}])
def test_a_result_that_differs_or_is_missing_fails(other):
    with pytest.raises(check_wheel.CheckError, match="on baseline"):
        check_wheel.compare(results("GNU", avx512={"a": "1"}), results("wheel", avx512={"a": "1"}, baseline=other))


def test_nothing_compared_fails():
    with pytest.raises(check_wheel.CheckError, match="nothing was compared"):
        check_wheel.compare(results("GNU", avx512={"a": "1"}), results("wheel"))


def wheels_of_this_tree():
    folder = ROOT / "wheelhouse"
    machine, libc, digest = prebuilt.platform.machine(), prebuilt.glibc(), source_digest(ROOT)
    return [
        wheel
        for wheel in sorted(folder.glob("gemmsim-*.whl"))
        if any(prebuilt.fits(tag, machine, libc) for tag in platforms(wheel))
        and prebuilt.reason_to_compile(wheel, digest) is None
    ]


@pytest.mark.long
def test_a_wheel_of_this_tree_passes_in_an_environment_without_a_compiler():
    wheels = wheels_of_this_tree()
    if not wheels:
        pytest.skip("no wheel of these sources in wheelhouse (make wheels)")
    command = [sys.executable, ROOT / "packaging" / "check_wheel.py", "--borrow", wheels[0]]
    done = subprocess.run(command, capture_output=True, text=True, env=dict(os.environ))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "results have equal bits" in done.stdout


@pytest.mark.long
def test_digests_are_the_same_on_every_instruction_set_of_this_machine():
    script = ROOT / "packaging" / "result_digests.py"
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert len(answer["digests"]) >= 1
    assert len({json.dumps(digests, sort_keys=True) for digests in answer["digests"].values()}) == 1
