"""Names, defaults and errors of other systems on top of gemmsim's own: ``gemmsim.compat.torchao`` and the like.

Each system has its own package, with the system's modules, loaded on first use. A script only changes its imports:
``from mx.specs import MxSpecs`` becomes ``from gemmsim.compat.microxcaling.specs import MxSpecs``. No package needs the
system itself. docs/reference/compat.md has a table of import lines for each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._lazy import exports

if TYPE_CHECKING:
    from . import dmx as dmx
    from . import microxcaling as microxcaling
    from . import modelopt as modelopt
    from . import mptorch as mptorch
    from . import qtorch as qtorch
    from . import torchao as torchao
    from . import torchmx as torchmx
else:
    __getattr__, __dir__ = exports(__name__)
