"""Typed errors of the operators. Every message says what was asked, what is allowed and what to do."""

from __future__ import annotations

from gemmsim.formats.errors import message

__all__ = [
    "DeviceError",
    "DTypeError",
    "ExportError",
    "GradError",
    "OverlapError",
    "SeedError",
    "ShapeError",
    "ShardingError",
    "message",
]


class DTypeError(TypeError):
    """An argument of another kind than the operation takes: no tensor, another dtype or layout, no number."""


class DeviceError(ValueError):
    """Tensors on different devices, or on a device without a kernel."""


class ShapeError(ValueError):
    """Shapes that do not go together."""


class ShardingError(ValueError):
    """A DTensor sharded so that no process can compute its part of the result with the whole product's bits."""


class OverlapError(ValueError):
    """An ``out`` tensor that shares memory with itself or, other than entirely, with the input."""


class SeedError(ValueError):
    """A seed that is not an integer of 64 bits."""


class ExportError(ValueError):
    """A file format that has no place for an operation."""


class GradError(RuntimeError):
    """A gradient asked of an operation that has none."""
