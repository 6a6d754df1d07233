"""Dask's deployer for Slurm, as docs/howto/studies_on_clusters.md uses it, where ``sbatch`` runs the script at once."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest
from study.test_pool import found

from gemmsim import study

#: A job is the script, run at once in a session of its own, whose id is the job's.
SBATCH = """#!/bin/bash
cp "$1" "$0.job"
setsid bash "$0.job" >"$0.log" 2>&1 &
echo "Submitted batch job $!"
"""
SCANCEL = """#!/bin/bash
kill -- "${@/#/-}"
echo "$@" >>"$0.log"
"""


@pytest.fixture
def slurm(tmp_path, monkeypatch) -> Path:
    """The folder of ``sbatch`` and ``scancel``, first in the search path."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, text in (("sbatch", SBATCH), ("scancel", SCANCEL)):
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return folder


def test_a_slurm_cluster_gives_the_rows_of_a_run_here(slurm, tmp_path):
    deployers = pytest.importorskip("dask_jobqueue", reason="needs dask-jobqueue")
    growth = study.kind("growth")(spec=["e5m10", "kahan(e5m10)"], K="16,64", M=8, N=8, dist="randn,rand01")
    inline = study.run(growth, tmp_path / "inline")
    cluster = deployers.SLURMCluster(
        cores=2, processes=2, memory="2GB", walltime="00:10:00", python=sys.executable, log_directory=str(tmp_path),
        scheduler_options={"dashboard_address": None},
    )  # fmt: skip
    with cluster:
        cluster.adapt(minimum_jobs=1, maximum_jobs=1)
        summary = study.run(growth, tmp_path / "cluster", executor=study.Cluster(cluster.scheduler_address))
    assert (summary.computed, summary.failures) == (8, [])
    assert found(summary.rows) == found(inline.rows)
    assert "#SBATCH" in (slurm / "sbatch.job").read_text()
    until = time.monotonic() + 10
    while not (slurm / "scancel.log").exists() and time.monotonic() < until:
        time.sleep(0.05)
    assert (slurm / "scancel.log").exists(), "the job was ended"
