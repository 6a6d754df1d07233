"""The part of the GPU check that asks cuBLASLt, with a stub in its place on a stand-in for a GPU."""

from __future__ import annotations

import gzip
import json
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import torch
from support import ROOT
from support.gpu_kit import environment

import gemmsim as gs

pytestmark = pytest.mark.cuda

STUB = Path(__file__).parent / "library_stub.py"
FAMILIES = {"nvjet", "cutlass", "gemmsn", "gemv", "dot"}


def run(folder: Path, wrong_kernel: str = "", **settings) -> tuple[dict, subprocess.CompletedProcess[str]]:
    """The verdict by family, and the process."""
    command = [sys.executable, str(STUB), str(folder), json.dumps(settings)]
    env = environment(wrong=wrong_kernel)
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=1200)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1]), done


@pytest.fixture
def found(kit):
    """The findings of a folder by key."""
    return lambda folder: kit("gpu_results").read_runs(folder / "results.jsonl")[-1].part("libraries")


#: A last bit of this family's results differs, and results of a kernel on the GPU.
WRONG, WRONG_ALGO, WRONG_KERNEL = "dot", 14, "chunked(128"


@pytest.fixture(scope="module")
def complete(tmp_path_factory) -> tuple[Path, dict, str]:
    """A folder of a run that was late at first and then went on, its verdict, and what the file had before."""
    folder = tmp_path_factory.mktemp("complete")
    run(folder, WRONG_KERNEL, seconds=6, slow=0.4, wrong=WRONG_ALGO)
    before = (folder / "results.jsonl").read_text()
    return folder, run(folder, WRONG_KERNEL, wrong=WRONG_ALGO)[0], before


def test_a_second_call_goes_on(complete, found):
    folder, _, before = complete
    after = (folder / "results.jsonl").read_text()
    assert after.startswith(before) and 0 < before.count('"recorded/') < 16, "it was late while it recorded"
    keys = [line["key"] for line in map(json.loads, after.splitlines()) if line["kind"] == "finding"]
    assert {key for key, count in Counter(keys).items() if count > 1} <= {"verdict"}, "nothing is done twice"
    assert sum(key.startswith("recorded/") for key in keys) == 16


def test_every_family_is_compared_and_those_that_are_right_are_equal(complete, found):
    folder, verdict, _ = complete
    assert FAMILIES <= set(verdict)
    for family in FAMILIES - {WRONG}:
        counts = verdict[family]
        assert counts["equal"] == counts["products"] > 0 and counts["outputs"] == counts["outputs_equal"] > 0, family
    counts = verdict[WRONG]
    assert counts["equal"] == 0 < counts["products"] and 0 < counts["outputs_equal"] < counts["outputs"]
    assert verdict["no plan, or refused"]["products"] > 0, "ALGO_ID 41"
    part = found(folder)
    assert part["verdict"].value == verdict and "stub of cublaslt('h100'" in part["the library"].value["library"]
    compared = [one.value for key, one in part.items() if key.startswith("compared/")]
    outputs = {(one["family"], one["out"]) for one in compared if "out" in one}
    assert ("nvjet", "fp32") in outputs and ("gemv", "bf16") in outputs, "registers where the library allows"
    serial = [one for one in compared if "via(" in one.get("spec", "")]
    assert serial and all(one["out"] == "bf16" for one in serial)
    assert any("partial=bf16" in one.get("spec", "") for one in compared)


def test_only_that_gpu_and_host_differ_is_a_failure(complete, found):
    bad = [key for key, one in found(complete[0]).items() if not one.ok]
    assert len(bad) == 1 and bad[0].startswith("backends/") and WRONG_KERNEL in bad[0], bad


def test_tables_are_recorded_for_each_workspace(complete, found):
    folder = complete[0]
    names = {path.name for path in folder.glob("cublaslt_*")}
    assert names == {f"cublaslt_{kind}_{space}mib.jsonl.gz" for kind in ("bf16", "e4m3") for space in (32, 0)}
    table = gs.libraries.read_table(folder / "cublaslt_bf16_32mib.jsonl.gz")
    assert len(table) > 20 and (table.header.workspace, table.header.gpu) == (32 << 20, "h100")
    library = gs.libraries.cublaslt("h100", version="13.1", table=folder / "cublaslt_bf16_32mib.jsonl.gz")
    row = json.loads(gzip.open(folder / "cublaslt_bf16_32mib.jsonl.gz").read().splitlines()[1])
    if row["config"][0] != 41:
        assert library.plan(row["M"], row["N"], row["K"], "bf16").source == "table"


def test_lost_terms_unknown_orders_and_unpublished_arithmetic(complete, found):
    part = found(complete[0])
    kinds = Counter(key.partition("/")[0] for key in part)
    assert kinds["lost"] > 0 and kinds["orders"] > 0 and kinds["unmeasured"] >= 14 and kinds["backends"] >= 12
    lost = [one.value for key, one in part.items() if key.startswith("lost/")]
    assert all(one["lost"] == [one["planned"]] * 2 for one in lost) and any(one["planned"] > 0 for one in lost)
    orders = [one.value for key, one in part.items() if key.startswith("orders/ALGO_ID 41")]
    met = {(i, j): n for i, j, n in orders[0]["met"]}
    assert (met[0, 2], met[0, 4]) == (2, 3) and met[0, 1] == max(met.values()), "two lanes: even terms and odd ones"
    wide = part["wide vectors/bf16/1x8500x260"].value
    assert wide["equal"].pop("bf16 : interleaved(26, fp32, halves, width=4)") == 64 > max(wide["equal"].values())
    assert part["unmeasured/bias, bf16"].value["equal"]["added in fp32, then rounded"] == 48 * 48


def test_a_machine_without_the_library(found, tmp_path):
    verdict, _ = run(tmp_path, missing=True)
    part = found(tmp_path)
    assert verdict == {} and "without libcublasLt" in part["the library"].value["refused"]
    assert {key.partition("/")[0] for key in part} == {"the library", "backends", "verdict"}


@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is needed to make a library")
def test_the_library_of_the_process_is_found_and_asked(found, tmp_path):
    """One that is compiled here: its answers are one configuration, its products sums in float32."""
    library = tmp_path / "libcublasLt.so.13"
    source = ROOT / "tests" / "libraries" / "stub_cublaslt.c"
    subprocess.run(["gcc", "-O1", "-shared", "-fPIC", str(source), "-o", str(library)], check=True)
    verdict, _ = run(tmp_path / "out", compiled=str(library), shapes=12)
    part = found(tmp_path / "out")
    assert part["the library"].value["library"].startswith("cublaslt('h200', version='13.1.1'")
    assert gs.libraries.read_table(tmp_path / "out" / "cublaslt_bf16_0mib.jsonl.gz").header.workspace == 0
    assert verdict["nvjet"]["products"] > 0 and all(one.ok for one in part.values())


def test_shapes(kit):
    shapes = kit("library_shapes").shapes
    plain, fp8 = shapes(2000), shapes(2000, 16)
    assert plain == shapes(2000) and len(set(plain)) == len(plain) and 1900 < len(plain) < 2500
    assert sum(1 in one[:2] for one in plain) > 300 and sum(2 <= one[0] <= 16 and one[2] <= 1200 for one in plain) > 300
    assert (128, 4096, 11008) in plain and all(value % 16 == 0 for one in fp8 for value in one)


def test_rows_of_a_kind(kit, tmp_path):
    rows = kit("library_rows")
    path = tmp_path / "t.jsonl"
    facts = {"M": 8, "N": 8, "a": "bf16", "b": "bf16", "out": "bf16", "fast": False}
    lines = [{**facts, "K": 64 * s, "config": [66, 0, s, 2, 0, 0, 35, 0, 0]} for s in (3, 3, 2, 4)]
    lines += [{**facts, "K": 32, "config": [66, 5, 1, 0, 0, 0, 35, 0, 0]}]
    text = "\n".join(map(json.dumps, [{"format": "gemmsim-cublaslt/1"}, *lines])) + '\n{"M": 8, "N'
    path.write_text(text)
    found = rows.read_rows(path)
    assert len(found) == 5 and found[0].splits == 3 and found[0].size == 2 * 8 * 192 + 64
    by_kind = rows.kinds(found, 3, 10_000)
    assert [len(some) for some in by_kind.values()] == [1, 3], "the rarest first"
    assert [row.splits for row in list(by_kind.values())[1]] == [2, 3, 4]
    assert rows.kinds(found, 3, 1000) == {found[4].kind: [found[4]]}


def test_orders_are_read_from_sums(kit):
    orders = kit("library_orders")
    assert len(orders.pairs_of(9)) == 36 and len(orders.pairs_of(4000)) == 2 * 3999 - 1

    def product(a, b):
        return gs.qmatmul(a, b, "bf16 : chunked(4, fp32)")

    met = {(i, j): n for i, j, n in orders.met_after(product, (5, 2, 10), "bf16", orders.pairs_of(10))}
    assert (
        met[0, 1] == 2 and met[0, 3] == 4 and met[1, 3] == 4 and met[0, 4] == 8 and met[4, 6] == 3 and met[3, 9] == 10
    )


def test_guesses_are_counted(kit):
    matches = kit("library_unmeasured").matches
    got = torch.tensor([0.0, 1.0, 2.0])
    found = matches(got, {"right": got.clone(), "other": torch.tensor([-0.0, 1.0, 3.0])})
    assert found == {"outputs": 3, "equal": {"right": 3, "other": 1}, "telling": 2}
