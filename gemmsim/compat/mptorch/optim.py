"""mptorch.optim: gemmsim's optimizers, whose arguments are mptorch's. Quantisers are functions of one tensor (QOptim)
or three (``x + y * z``), or gemmsim's formats."""

from gemmsim.optim import QSGD as QSGD
from gemmsim.optim import QAdam as QAdam
from gemmsim.optim import QAdamW as QAdamW
from gemmsim.optim import QOptim as QOptim

#: Older names.
OptimLP = QOptim
OptimMP = QOptim
