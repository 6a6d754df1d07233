"""Runs unmodified PyTorch models in emulated arithmetic: contexts, audits, conversions and captures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._lazy import exports

if TYPE_CHECKING:
    from .context import emulate as emulate
    from .conversion import Arithmetic as Arithmetic
    from .conversion import arithmetic_of as arithmetic_of
    from .conversion import convert as convert
    from .conversion import from_pretrained as from_pretrained
    from .conversion import load as load
    from .conversion import save as save
    from .conversion import undo as undo
    from .deferred_contexts import carry as carry
    from .deferred_contexts import checkpoint_contexts as checkpoint_contexts
    from .mode import Emulation as Emulation
    from .observe.audit import NativeGemmError as NativeGemmError
    from .observe.audit import audit as audit
    from .observe.capture import capture as capture
    from .observe.recorder import Recorder as Recorder
    from .observe.report import Record as Record
    from .observe.report import Report as Report
    from .observe.safetensors_writer import CaptureError as CaptureError
    from .observe.trial_runs import DryRunError as DryRunError
    from .ranks import reduce_amax as reduce_amax
    from .rules import Config as Config
    from .rules import ConfigError as ConfigError
    from .rules import Rule as Rule
    from .state import load_state_dict as load_state_dict
    from .state import state_dict as state_dict
else:
    __getattr__, __dir__ = exports(__name__, star_modules=False)
