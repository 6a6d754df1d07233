"""Names, defaults and errors of other systems on top of gemmsim's own: ``gemmsim.compat.torchao`` and the like.

Each system is a package of its own with the system's modules, loaded when it is first named, so that a script changes
its imports alone: ``from mx.specs import MxSpecs`` becomes ``from gemmsim.compat.microxcaling.specs import MxSpecs``.
None of them needs the system itself. docs/reference/compat.md has a table of import lines for each.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import dmx as dmx
    from . import microxcaling as microxcaling
    from . import modelopt as modelopt
    from . import mptorch as mptorch
    from . import qtorch as qtorch
    from . import torchao as torchao
    from . import torchmx as torchmx

_SYSTEMS = (
    "dmx",
    "qtorch",
    "microxcaling",
    "modelopt",
    "mptorch",
    "torchao",
    "torchmx",
)

__all__ = [
    "dmx",
    "qtorch",
    "microxcaling",
    "modelopt",
    "mptorch",
    "torchao",
    "torchmx",
]


if not TYPE_CHECKING:  # type checkers know the names above, and that there are no others

    def __getattr__(name: str) -> Any:
        """Load a system on first use (PEP 562)."""
        if name not in _SYSTEMS:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return import_module(f".{name}", __name__)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
