"""Optimizers whose states and weights are numbers of a format: subclasses of ``torch.optim``'s, with their arguments.

gemmsim.optim.QSGD(model.parameters(), lr=0.1, momentum=0.9, momentum_quant="bf16", acc_quant="bf16/sr16")
gemmsim.optim.QOptim(torch.optim.AdamW(model.parameters()), weight_quant="e4m3", acc_quant="bf16")
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .adam import QAdam as QAdam
    from .adam import QAdamW as QAdamW
    from .sgd import QSGD as QSGD
    from .steps import OptimizerError as OptimizerError
    from .steps import multiply_add as multiply_add
    from .wrapper import QOptim as QOptim

_HOME = {
    "OptimizerError": "steps",
    "QAdam": "adam",
    "QAdamW": "adam",
    "QOptim": "wrapper",
    "QSGD": "sgd",
    "multiply_add": "steps",
}

__all__ = [
    "OptimizerError",
    "QAdam",
    "QAdamW",
    "QOptim",
    "QSGD",
    "multiply_add",
]


if not TYPE_CHECKING:  # type checkers know the names above, and that there are no others

    def __getattr__(name: str) -> Any:
        """Load a public name on first use (PEP 562)."""
        if name not in _HOME:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(f".{_HOME[name]}", __name__), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
