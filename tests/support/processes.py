"""Programs that run in two processes of one gloo group."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

#: For tests that need such a group.
needs_processes = pytest.mark.skipif(
    not torch.distributed.is_available(), reason="PyTorch was built without torch.distributed"
)

_BEFORE = """
import os, sys, torch, torch.distributed as dist, gemmsim as gs
torch.set_num_threads(1)
rank = int(sys.argv[1])
dist.init_process_group("gloo", store=dist.FileStore(sys.argv[2], 2), rank=rank, world_size=2)
"""

# A thread of gloo that still runs when the interpreter is taken down ends the process by an abort, now and then.
_AFTER = """
dist.barrier()
dist.destroy_process_group()
os._exit(0)
"""


def run_two_processes(code: str, folder: Path, timeout: float = 240) -> None:
    """Runs ``code`` as ranks 0 and 1; it finds ``torch``, ``dist``, ``gs`` and its ``rank``. Fails with what they wrote."""
    command = [sys.executable, "-c", _BEFORE + code + _AFTER]
    workers = [
        subprocess.Popen([*command, str(rank), str(folder / "store")], stderr=subprocess.PIPE, text=True)
        for rank in range(2)
    ]
    try:
        errors = [worker.communicate(timeout=timeout)[1] for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
    assert [worker.returncode for worker in workers] == [0, 0], "\n".join(errors)
