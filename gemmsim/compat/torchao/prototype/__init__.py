"""torchao's prototypes: ``mx_formats``, and the training layers of ``moe_training``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...._lazy import exports

if TYPE_CHECKING:
    from . import moe_training as moe_training
    from . import mx_formats as mx_formats
else:
    __getattr__, __dir__ = exports(__name__)
