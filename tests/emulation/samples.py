"""PyTorch's own samples of its operators."""

from __future__ import annotations

import sys
import types
import unittest

import pytest
import torch

__all__ = ["operators"]


def operators() -> list:
    """PyTorch's table of operators with samples; a package that only its test runner needs may be missing."""
    pytest.importorskip("numpy")
    if "expecttest" not in sys.modules:
        try:
            import expecttest  # noqa: F401
        except ImportError:
            stand_in = types.ModuleType("expecttest")
            stand_in.TestCase = unittest.TestCase
            sys.modules["expecttest"] = stand_in
    from torch.testing._internal.common_methods_invocations import op_db

    return [op for op in op_db if torch.float32 in op.dtypes and "jiterator" not in op.name]
