"""DTensors as operands: the rules are registered once ``torch.distributed.tensor`` is there; nothing here loads it."""

from __future__ import annotations

import sys

import torch

from ..lazy_dynamo import assume_constant_result

__all__ = ["prepare"]

_prepared = False


def prepare() -> None:
    """Registers what the operators do with DTensors, once there can be any. Called with tensors that are not plain."""
    if torch.compiler.is_compiling():
        _prepare_tracer()
    elif not _prepared:
        _prepare()


def _prepare() -> bool:
    global _prepared
    if not _prepared and "torch.distributed.tensor" in sys.modules:
        from . import sharding_rules

        sharding_rules.register()
        _prepared = True
    return _prepared


@assume_constant_result
def _prepare_tracer() -> bool:
    """The same while code is compiled: this runs, and its result is a constant."""
    return _prepare()
