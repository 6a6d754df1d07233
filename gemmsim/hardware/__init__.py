"""Matrix instructions of real chips: what is known of their arithmetic as data, and an exact model of it.

``instruction``, ``instructions``, ``families`` and ``largest`` look the tables up; ``mma`` computes on raw bits.
The facts come from a published software model. Each row has its source and evidence (``Source``), among them whether
outputs of the chip itself confirm it.
The tables only need the standard library; ``mma`` loads torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._lazy import exports

# The tables are loaded here; `instruction` is the function ever after, not the module.
from .catalogue import ARCHITECTURES as ARCHITECTURES
from .catalogue import OPS as OPS
from .catalogue import Op as Op
from .catalogue import families as families
from .catalogue import instruction as instruction
from .catalogue import instructions as instructions
from .catalogue import largest as largest
from .chips import CHIPS as CHIPS
from .describe import table as table
from .errors import HardwareError as HardwareError
from .evidence import Evidence as Evidence
from .evidence import Source as Source
from .instruction import Family as Family
from .instruction import Instruction as Instruction
from .instruction import Result as Result
from .instruction import Shape as Shape
from .operands import OPERANDS as OPERANDS
from .operands import Operand as Operand
from .operands import twin_of as twin_of
from .step_parameters import CONVERSIONS as CONVERSIONS
from .step_parameters import Conversion as Conversion
from .step_parameters import ExactSum as ExactSum
from .step_parameters import FlooredSum as FlooredSum
from .step_parameters import FmaChain as FmaChain
from .step_parameters import FusedBlock as FusedBlock
from .step_parameters import Model as Model
from .step_parameters import PairwiseTree as PairwiseTree
from .step_parameters import ScaledGroups as ScaledGroups
from .step_parameters import TwoBlocks as TwoBlocks

if TYPE_CHECKING:
    from .matrix_instruction import mma as mma
    from .probes import PROBES as PROBES
    from .probes import UNDECIDED as UNDECIDED
    from .probes import Probe as Probe
    from .tracing import StepTrace as StepTrace
    from .tracing import Term as Term
    from .tracing import Trace as Trace
    from .tracing import trace as trace
else:
    __getattr__, __dir__ = exports(__name__)
