"""Optimizers that round their states and weights to a format: subclasses of ``torch.optim``'s, with their arguments.

gemmsim.optim.QSGD(model.parameters(), lr=0.1, momentum=0.9, momentum_quant="bf16", acc_quant="bf16/sr16")
gemmsim.optim.QOptim(torch.optim.AdamW(model.parameters()), weight_quant="e4m3", acc_quant="bf16")
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._lazy import exports

if TYPE_CHECKING:
    from .adam import QAdam as QAdam
    from .adam import QAdamW as QAdamW
    from .sgd import QSGD as QSGD
    from .steps import OptimizerError as OptimizerError
    from .steps import multiply_add as multiply_add
    from .wrapper import QOptim as QOptim
else:
    __getattr__, __dir__ = exports(__name__)
