"""Matrix instructions of real chips: what is known of their arithmetic as data, and an exact model of it.

``instruction``, ``instructions``, ``families`` and ``largest`` look the tables up; ``mma`` computes on raw bits.
The facts come from a published software model, not from silicon; each row names its source.
The tables need the standard library alone; torch is loaded with ``mma``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .catalogue import ARCHITECTURES, OPS, Op, families, instruction, instructions, largest
from .describe import table
from .errors import HardwareError
from .instruction import Family, Instruction, Shape, Source
from .models import CONVERSIONS, Conversion, FlooredSum, FmaChain, FusedBlock, Model, PairwiseTree, ScaledGroups
from .operands import OPERANDS, Operand

if TYPE_CHECKING:
    from .probes import PROBES, Probe
    from .product import mma
    from .tracing import StepTrace, Term, Trace, trace

__all__ = [
    "ARCHITECTURES",
    "CONVERSIONS",
    "OPERANDS",
    "OPS",
    "Conversion",
    "Family",
    "FlooredSum",
    "FmaChain",
    "FusedBlock",
    "HardwareError",
    "Instruction",
    "Model",
    "Op",
    "Operand",
    "PROBES",
    "PairwiseTree",
    "Probe",
    "ScaledGroups",
    "Shape",
    "Source",
    "StepTrace",
    "Term",
    "Trace",
    "families",
    "instruction",
    "instructions",
    "largest",
    "mma",
    "table",
    "trace",
]

#: Public names loaded on first use, since they need torch or few need them, by the module that defines them.
_HOME = {
    "mma": "product",
    "PROBES": "probes",
    "Probe": "probes",
    "StepTrace": "tracing",
    "Term": "tracing",
    "Trace": "tracing",
    "trace": "tracing",
}


if not TYPE_CHECKING:  # type checkers know the names above, and that there are no others

    def __getattr__(name: str) -> Any:
        """Load a name that needs torch on first use (PEP 562)."""
        if name not in _HOME:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(f".{_HOME[name]}", __name__), name)
        globals()[name] = value
        return value
