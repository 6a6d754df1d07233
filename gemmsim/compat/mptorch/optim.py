"""mptorch.optim: gemmsim's optimizers, which have mptorch's arguments. Quantisers are functions of one tensor (QOptim)
or three (``x + y * z``), or gemmsim's formats."""

from gemmsim.optim import QSGD, QAdam, QAdamW, QOptim

#: Older names.
OptimLP = QOptim
OptimMP = QOptim

__all__ = ["OptimLP", "OptimMP", "QAdam", "QAdamW", "QOptim", "QSGD"]
