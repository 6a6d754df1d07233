"""What the stand-in is to be, from the JSON object in ``GEMMSIM_STANDIN``; unknown names are an error."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from functools import lru_cache

VARIABLE = "GEMMSIM_STANDIN"


@dataclass(frozen=True)
class Settings:
    """``gpu``: whether PyTorch has one. ``cuda``: the CUDA version PyTorch was built for, "" for a CPU build.

    ``answers``: results are those of the CPU backend; else nothing is computed. ``compile``: kernels are compiled and
    cached as for a GPU; else they have no code. ``record``: folder for what was launched. ``wrong``, ``fails``: names of
    kernels (parts of them) whose results have one wrong bit, or whose launches fail; ``faults``: that take the GPU away
    from the process. ``slow``: seconds of each launch of ``slow_kernel``.
    """

    gpu: bool = True
    cuda: str = "13.0"
    answers: bool = True
    compile: bool = True
    record: str = ""
    wrong: str = ""
    fails: str = ""
    faults: str = ""
    slow_kernel: str = ""
    slow: float = 0.0
    memory_gib: float = 8.0
    capability: tuple[int, int] = (9, 0)


@lru_cache(maxsize=1)
def settings() -> Settings:
    """Of this process."""
    given = json.loads(os.environ.get(VARIABLE) or "{}")
    return Settings(**given)
