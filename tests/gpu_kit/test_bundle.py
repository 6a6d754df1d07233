"""A small bundle, made here, runs in an empty environment without an index and without a network."""

from __future__ import annotations

import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support import ROOT
from support.gpu_kit import BENCHMARKS, STANDIN, driver_folder

pytestmark = pytest.mark.cuda

#: What a PyTorch for CUDA 13 brings itself: its own needs, and the compiler.
BROUGHT = ("torch", "sympy", "networkx", "jinja2", "MarkupSafe", "filelock", "fsspec", "mpmath", "typing_extensions",
           "nvidia-cuda-nvrtc", "setuptools")  # fmt: skip
TESTS = "test_overflows_of_scaled_sums or test_mixed_devices"


def make(out: Path) -> subprocess.CompletedProcess[str]:
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    command = [
        sys.executable,
        str(BENCHMARKS / "gpu_bundle.py"),
        "--python",
        python,
        "--arch",
        "sm_90a",
        "--out",
        str(out),
    ]
    command += ["--draws", "3", "--select", TESTS, "--parts", "smoke", "tests", "random"]
    env = {key: value for key, value in os.environ.items() if not key.startswith(("PYTEST", "GEMMSIM"))}
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=900)


def environment_with_torch_alone(folder: Path) -> Path:
    """A virtual environment with what PyTorch brings, as links, and no pip."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    site = next(folder.glob("lib/python*/site-packages"))
    for name in BROUGHT:
        package = importlib.metadata.distribution(name)
        for file in package.files or []:
            parts = Path(str(file)).parts
            if ".." in parts or parts[-1].endswith(".pyc"):
                continue
            depth = len(parts) if parts[0] == "nvidia" else 1  # shared with packages that are not brought
            link = site.joinpath(*parts[:depth])
            if not link.exists():
                link.parent.mkdir(parents=True, exist_ok=True)
                link.symlink_to(Path(str(package.locate_file(""))).joinpath(*parts[:depth]))
    return folder / "bin" / "python"


def offline() -> list[str]:
    """What takes the network from a command, where the machine allows it."""
    tool = shutil.which("unshare")
    if tool is None:
        return []
    for options in (["-n"], ["-r", "-n"]):
        if subprocess.run([tool, *options, "true"], capture_output=True).returncode == 0:
            return [tool, *options]
    return []


@pytest.mark.long
def test_a_bundle_is_made_and_runs_by_itself(kit, tmp_path):
    made = make(tmp_path / "bundle")
    assert made.returncode == 0, made.stderr[-3000:]
    here = tmp_path / "elsewhere" / "bundle"
    here.parent.mkdir()
    shutil.move(tmp_path / "bundle", here)
    assert sum(path.stat().st_size for path in here.rglob("*") if path.is_file()) < 60 << 20
    described = json.loads((here / "bundle.json").read_text())
    assert described["arch"] == "sm_90a" and described["kernels"] > 3
    assert {"gemmsim", "cuda-core", "nvidia-cutlass", "numpy", "pytest"} <= {one["name"] for one in described["wheels"]}
    assert "torch" not in {one["name"] for one in described["wheels"]}

    python = environment_with_torch_alone(tmp_path / "env")
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path / "home"),
        "PYTHON": str(python),
        "PIP_INDEX_URL": "file:///x",
    }
    env |= {"PYTHONPATH": str(STANDIN), "LD_LIBRARY_PATH": str(driver_folder()), "GEMMSIM_STANDIN": "{}"}
    env["PYTEST_ADDOPTS"] = f'-k "{TESTS}"'
    out = tmp_path / "out"
    command = [
        *offline(),
        str(here / "benchmarks" / "gpu_run.sh"),
        "--out",
        str(out),
        "--minutes",
        "600",
        "--patience",
        "20",
    ]
    done = subprocess.run(
        [*command, "--only", "tests", "random"], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=1800
    )
    run = kit("gpu_results").read_runs(out / "results.jsonl")[-1]
    assert done.returncode == 0, done.stdout + done.stderr
    assert run.code == described["digest"] and len(run.part("random")) == 3
    assert sum(one.value["outcome"] == "passed" for one in run.part("tests").values()) >= 2
    log = (out / "compile.log").read_text()
    assert f"{described['kernels']} were there, 0 failed" in log and "compiled ahead: 0 kernels" in log, log
    assert not (tmp_path / "home").exists(), "nothing global"

    version = json.dumps({**described, "python": "3.9"})
    (here / "bundle.json").write_text(version)
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == 2 and "a bundle for Python 3.9 under Python" in done.stderr


def test_a_tree_without_a_bundle_says_how_to_make_one(tmp_path):
    done = subprocess.run(
        [str(BENCHMARKS / "gpu_run.sh"), "--out", str(tmp_path)], env={**os.environ, "PYTHON": sys.executable},
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 2 and "make gpu-bundle" in done.stderr
    done = subprocess.run(
        [str(BENCHMARKS / "gpu_run.sh")], env={**os.environ, "PYTHON": "nopython"}, capture_output=True, text=True
    )
    assert done.returncode == 2 and "'nopython' not found" in done.stderr


@pytest.mark.parametrize("python", ["3.10", "3.11", "3.12", "3.13"])
def test_every_package_of_a_bundle_has_a_pinned_version(kit, python):
    bundle = kit("gpu_bundle")
    names, pins = bundle.closure(bundle.OTHERS, python), bundle.constraints(python)
    assert {"numpy", "pytest", "pytest-xdist", "hypothesis", "typer", "pygments"} <= set(names)
    assert "exceptiongroup" in names or python != "3.10"
    assert not [name for name in (*names, *bundle.PINNED) if name not in pins] and "torch" not in names
    assert (pins["cuda-pathfinder"] == "1.8.3") == (python == "3.10")


@pytest.mark.parametrize(
    ("options", "words"), [(["--arch", "sm_75"], "sm_80 (the oldest)"), (["--python", "3.9"], "allowed: 3.10, 3.11")]
)
def test_a_bundle_for_what_there_is_not(kit, tmp_path, capsys, options, words):
    with pytest.raises(SystemExit, match="2"):
        kit("gpu_bundle").main([*options, "--out", str(tmp_path / "out")])
    assert words in capsys.readouterr().err and not (tmp_path / "out").exists()


@pytest.mark.parametrize(("arch", "capability"), [("sm_80", [8, 0]), ("sm_90a", [9, 0]), ("sm_120f", [12, 0])])
def test_kernels_are_those_of_the_architecture_that_was_asked_for(kit, arch, capability):
    found = kit("gpu_bundle")._standin(Path("record"), True, arch)
    assert json.loads(found["GEMMSIM_STANDIN"])["capability"] == capability
