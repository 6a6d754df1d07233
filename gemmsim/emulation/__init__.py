"""Unmodified models under emulated arithmetic: contexts, audits, conversions and captures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._lazy import exports

if TYPE_CHECKING:
    from .context import emulate as emulate
    from .growing import CaptureError as CaptureError
    from .later import carry as carry
    from .later import checkpoint_contexts as checkpoint_contexts
    from .mode import Emulation as Emulation
    from .modules import Arithmetic as Arithmetic
    from .modules import arithmetic_of as arithmetic_of
    from .modules import convert as convert
    from .modules import from_pretrained as from_pretrained
    from .modules import load as load
    from .modules import save as save
    from .modules import undo as undo
    from .observed import NativeGemmError as NativeGemmError
    from .observed import audit as audit
    from .record import Recorder as Recorder
    from .report import Record as Record
    from .report import Report as Report
    from .rules import Config as Config
    from .rules import ConfigError as ConfigError
    from .rules import Rule as Rule
    from .runs import DryRunError as DryRunError
    from .state import load_state_dict as load_state_dict
    from .state import state_dict as state_dict
    from .stream import capture as capture
else:
    __getattr__, __dir__ = exports(__name__, star_modules=False)
