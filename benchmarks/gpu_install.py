"""From a bundle to a running GPU check: wheels and kernels go into a folder of their own, then ``gpu_check.py`` starts.

Standard library only; no network, nothing outside of that folder. Called by ``gpu_run.sh``.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from gpu_machine import NotReady, check_ready

__all__ = ["install", "main"]

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
#: Of the bundle's folder.
DESCRIPTION, WHEELS, KERNELS = "bundle.json", "wheels.tar.xz", "kernels.tar.xz"
#: Most seconds that pip may take.
_PIP_SECONDS = 300


def read_bundle(root: Path) -> dict[str, Any]:
    """What the bundle says of itself. ``NotReady`` where there is none, or it is for another Python or machine."""
    path = root / DESCRIPTION
    if not path.is_file():
        do = "Make one with `make gpu-bundle`. In a source tree with everything installed, call `make gpu-check`."
        raise NotReady(f"no bundle in {root}; allowed: a folder that `make gpu-bundle` wrote.\n  {do}")
    bundle: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    if here != bundle["python"]:
        do = f"Name another Python (PYTHON=...), or make another bundle: make gpu-bundle PYTHON_VERSION={here}"
        raise NotReady(f"a bundle for Python {bundle['python']} under Python {here}; allowed: the same.\n  {do}")
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        raise NotReady(
            f"a bundle on {platform.system()} {platform.machine()}; allowed: Linux x86_64.\n  Take such a machine."
        )
    return bundle


def _work_folder(given: Path | None, digest: str) -> Path:
    """Where to install: what was asked for, else beside the bundle, else a temporary folder that later calls find."""
    if given is not None:
        return given / digest
    beside = ROOT / "work"
    try:
        beside.mkdir(exist_ok=True)
        with tempfile.TemporaryFile(dir=beside):
            return beside / digest
    except OSError:
        return Path(tempfile.gettempdir()) / f"gemmsim-gpu-{os.getuid()}" / digest


def _is_here(name: str) -> bool:
    try:
        version(name)
    except PackageNotFoundError:
        return False
    return True


def _unpack(archive: Path, folder: Path) -> None:
    with tarfile.open(archive, "r:xz") as tar:
        if hasattr(tarfile, "data_filter"):
            tar.extractall(folder, filter="data")
        else:
            tar.extractall(folder)


def install(root: Path, bundle: dict[str, Any], work: Path) -> None:
    """Wheels into ``work/site`` and kernels into ``work/kernels``; ``work`` is there whole or not at all.

    Wheels that the environment may have in a version of its own are left out where it has one.
    """
    if work.is_dir():
        return
    work.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=".partial-", dir=work.parent))
    try:
        _unpack(root / WHEELS, partial / "wheels")
        _unpack(root / KERNELS, partial / "kernels")
        wanted = [one["file"] for one in bundle["wheels"] if one["always"] or not _is_here(one["name"])]
        pip = next((partial / "wheels").glob("pip-*.whl"))
        command = [sys.executable, str(pip / "pip"), "--isolated", "--disable-pip-version-check", "install", "--quiet"]
        command += ["--no-index", "--no-deps", "--no-compile", "--no-cache-dir", "--target", str(partial / "site")]
        command += [str(partial / "wheels" / name) for name in wanted]
        # pip asks what is on the path for their versions, of which rustup's rustc writes to the home folder
        plain = {**os.environ, "PATH": os.defpath}
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PIP_SECONDS, env=plain)
        if done.returncode != 0:
            raise NotReady(f"the bundle's wheels could not be installed:\n{done.stderr[-2000:]}")
        shutil.rmtree(partial / "wheels")
        partial.rename(work)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def environment(bundle: dict[str, Any], work: Path) -> dict[str, str]:
    """Of the check: packages and kernels from ``work``."""
    path = [str(work / "site"), *([os.environ["PYTHONPATH"]] if os.environ.get("PYTHONPATH") else [])]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(path),
        "GEMMSIM_CACHE_DIR": str(work / "kernels"),
        "GEMMSIM_BUNDLE_DIGEST": bundle["digest"],
        "GEMMSIM_BUNDLE_REVISION": bundle["revision"],
    }


def main(argv: list[str] | None = None) -> int:
    """2 and the reason where the check cannot start; else this process becomes the check."""
    parser = argparse.ArgumentParser(prog="gpu_run.sh", description=(__doc__ or "").splitlines()[0], add_help=False)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=9.0)
    parser.add_argument("--work", type=Path)
    parser.add_argument("-h", "--help", action="store_true")
    if {"-h", "--help"} & set(sys.argv[1:] if argv is None else argv):
        print("gpu_run.sh --out DIR [--minutes N] [--work DIR] [--fresh] [--despite-smoke]")
        return 0
    options, rest = parser.parse_known_args(argv)
    begin = time.monotonic()
    try:
        bundle = read_bundle(ROOT)
        check_ready()
        work = _work_folder(options.work, bundle["digest"]).resolve()
        install(ROOT, bundle, work)
    except (NotReady, OSError, subprocess.TimeoutExpired) as reason:
        print(f"error: {reason}", file=sys.stderr)
        return 2
    spent = time.monotonic() - begin
    print(f"installed in {work} ({spent:.0f} s)", flush=True)
    minutes = max(0.1, options.minutes - spent / 60)
    command = [sys.executable, str(HERE / "gpu_check.py"), "--out", str(options.out), "--minutes", f"{minutes:.3f}"]
    command += ["--kernels", str(ROOT / "kernels.jsonl.xz"), "--draws", str(ROOT / "draws.jsonl.xz")]
    command += ["--times", str(ROOT / "times.json"), *rest]
    os.execve(sys.executable, command, environment(bundle, work))


if __name__ == "__main__":
    sys.exit(main())
