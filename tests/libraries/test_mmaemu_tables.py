"""mmaemu's recordings as tables: its rows and bounds, against what that package says of the same calls."""

from __future__ import annotations

import json
import random
import warnings
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

import gemmsim as gs
from gemmsim.libraries import TableError, UnknownPlan, cublaslt
from gemmsim.libraries import mmaemu_table as tables

needs_mmaemu = pytest.mark.skipif(find_spec("mmaemu") is None, reason="mmaemu is not installed (pip install mmaemu)")
MIB = 1 << 20
DTYPES = {
    "fp32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "e4m3": torch.float8_e4m3fn,
    "e5m2": torch.float8_e5m2,
}
#: mmaemu's profile of a GPU and workspace.
PROFILES = {
    ("h100-pcie", 0): "hopper-ws0",
    ("h100-pcie", MIB): "hopper",
    ("h100-pcie", 32 * MIB): "hopper-te",
    ("rtx4060", 0): "ada-ws0",
    ("rtx4060", MIB): "ada",
    ("rtx4060", 4 * MIB): "ada-te",
}


@needs_mmaemu
@pytest.mark.parametrize(("gpu", "workspace"), PROFILES)
def test_the_choice_is_mmaemus(gpu, workspace):
    """Of random calls around its tables and bounds: the number of slices and their order, or unknown in both."""
    import mmaemu

    library = cublaslt(gpu, workspace=workspace, table="mmaemu")
    rng, kinds = random.Random(4), {"table": 0, "bound": 0, "unknown": 0}
    rows = [row.call for row in library.table]
    for draw in range(3000):
        call = rng.choice(rows)
        if draw % 2:
            call = call._replace(M=rng.choice((call.M, rng.randint(1, 300), 1 << rng.randint(0, 14))))
        if draw % 3 == 2:
            call = call._replace(N=16 * rng.randint(1, 4000), K=16 * rng.randint(1, 8000))
        asked = {"a_dtype": DTYPES[call.a], "b_dtype": DTYPES[call.b], "out_dtype": DTYPES[call.out]}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                theirs = mmaemu.resolve_splitk(
                    call.M, call.N, call.K, **asked, use_fast_accum=call.fast, profile=PROFILES[gpu, workspace]
                )
            except mmaemu.SplitKUnknownError:
                theirs = None
        try:
            ours = library.plan(*call[:6], fast_accumulation=call.fast)
        except UnknownPlan:
            ours = None
        if theirs is None or ours is None:
            assert theirs is None and ours is None, (call, theirs, ours)
            kinds["unknown"] += 1
            continue
        assert ours.config.slices == theirs.S, (call, theirs, ours)
        if theirs.S > 1:
            assert {"contiguous": "splitk(", "serial": ", sequential", "pairwise": ", tree("}[
                theirs.scheme
            ] in ours.text
        kinds[ours.source] += 1
    assert kinds["table"] > 100 and (kinds["bound"] > 100)
    assert (kinds["unknown"] > 10) == (workspace > 0)


@needs_mmaemu
@pytest.mark.parametrize(("gpu", "M", "N", "K"), [("h100-pcie", 1, 20, 4096), ("rtx4060", 1, 212992, 4000)])
def test_both_sides_of_a_bound(gpu, M, N, K):
    library = cublaslt(gpu, workspace=MIB, table="mmaemu")
    bounds = library.table._bounds["e4m3", "e4m3", "fp32", False]
    limit = next(n for k, n in zip(bounds.upto, bounds.outputs, strict=True) if k >= K)
    call = gs.libraries.Call(1, limit, K, "e4m3", "e4m3", "fp32", False)
    assert not library.table.splits_nothing(call) and library.table.splits_nothing(call._replace(N=limit + 1))
    assert not library.table.splits_nothing(call._replace(N=limit + 1, a="e5m2", b="e5m2"))
    assert not library.table.splits_nothing(call._replace(N=1 << 30, K=bounds.lowest - 1))
    plan = library.plan(1, 16 * (limit // 16 + 1), K, "e4m3", out="fp32")
    assert (plan.source, plan.evidence) in (("bound", "inferred"), ("table", "silicon"))


@needs_mmaemu
def test_its_table_is_part_of_the_library():
    library = cublaslt("h100-pcie", workspace=MIB, table="mmaemu")
    assert len(library.table) > 100_000 and library.table.header.sms == 114 and "mmaemu" in str(library)
    assert gs.libraries.transformer_engine("rtx4060", table="mmaemu").workspace == 4 * MIB


@needs_mmaemu
def test_what_it_does_not_have():
    with pytest.raises(TableError, match="h100 13.1.1"):
        cublaslt("h100", table="mmaemu")
    with pytest.raises(TableError, match="workspace of 2097152 bytes"):
        cublaslt("h100-pcie", workspace=2 * MIB, table="mmaemu")
    with pytest.raises(TableError, match="12.9"):
        cublaslt("h100-pcie", assume_version="12.9", table="mmaemu")


def test_without_the_package_it_says_how_to_install_it(monkeypatch):
    monkeypatch.setattr(tables, "find_spec", lambda name: None)
    tables.read_mmaemu.cache_clear()
    with pytest.raises(TableError, match="pip install mmaemu"):
        cublaslt("rtx4060", workspace=MIB, table="mmaemu")
    tables.read_mmaemu.cache_clear()


@pytest.mark.parametrize("damage", ["no file", "another digest", "another format", "no JSON", "a missing column"])
def test_other_files_in_its_place(monkeypatch, tmp_path, damage):
    """A small copy of its layout, whole and damaged."""
    _small_copy(tmp_path, damage)
    monkeypatch.setattr(tables, "_folder", lambda: tmp_path)
    tables.read_mmaemu.cache_clear()
    with pytest.raises(TableError, match=r"mmaemu==0\.1\.0"):
        cublaslt("rtx4060", workspace=MIB, table="mmaemu")
    tables.read_mmaemu.cache_clear()


def test_a_small_copy_is_read(monkeypatch, tmp_path):
    _small_copy(tmp_path, "")
    monkeypatch.setattr(tables, "_folder", lambda: tmp_path)
    tables.read_mmaemu.cache_clear()
    library = cublaslt("rtx4060", workspace=MIB, table="mmaemu")
    assert library.plan(16, 16, 512, "e4m3", out="fp32").config.slices == 3
    assert library.plan(16, 32, 512, "e4m3", out="fp32").source == "bound"
    with pytest.raises(UnknownPlan):
        library.plan(16, 16, 528, "e4m3", out="fp32")
    tables.read_mmaemu.cache_clear()


def _small_copy(folder: Path, damage: str) -> None:
    import hashlib

    import numpy as np

    one = {"M": 16, "N": 16, "K": 512, "fa": 0, "fb": 0, "out": 0, "fast": 0, "ws": 1}
    one |= {"algo": 35, "tile": 13, "splitK": 3, "reduction": 2, "swizzle": 0, "custom": 1, "stages": 17}
    if damage == "a missing column":
        del one["stages"]
    name = folder / "heur_rtx4060_lt12.8.3.14"
    np.savez(f"{name}.npz", **{key: np.array([value]) for key, value in one.items()})
    digest = hashlib.sha256(Path(f"{name}.npz").read_bytes()).hexdigest()
    setting = {"fast": False, "fmt_a": "e4m3", "fmt_b": "e4m3", "max_split_MN": 200, "out": "float32", "ws": MIB}
    facts = {
        "codes": {"fa/fb": {"0": "e4m3", "1": "e5m2"}, "out": {"0": "float32", "1": "bfloat16"}, "ws": [0, MIB]},
        "format": "mmaemu-splitk-table/1" if damage != "another format" else "mmaemu-splitk-table/2",
        "npz_sha256": digest if damage != "another digest" else "0" * 64,
        "profile_device": {"cublaslt": "12.8.3.14", "sm_count": 24},
        "settings": [setting],
    }
    Path(f"{name}.json").write_text("{" if damage == "no JSON" else json.dumps(facts))
    if damage == "no file":
        Path(f"{name}.npz").unlink()
