"""Unmodified models under emulated arithmetic: contexts, audits, conversions and captures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._lazy import exports

if TYPE_CHECKING:
    from .growing import CaptureError as CaptureError
    from .mode import Emulation as Emulation
    from .mode import emulate as emulate
    from .observed import NativeGemmError as NativeGemmError
    from .observed import audit as audit
    from .record import Recorder as Recorder
    from .report import Record as Record
    from .report import Report as Report
    from .rules import Config as Config
    from .rules import ConfigError as ConfigError
    from .rules import Rule as Rule
    from .runs import DryRunError as DryRunError
    from .stream import capture as capture
else:
    __getattr__, __dir__ = exports(__name__, star_modules=False)
