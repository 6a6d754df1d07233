"""Finds what a function that multiplies matrices computes: its order of additions, and the spec with the same bits.

gs.reveal(torch.mm, K=256).text                # "0:128 (128:256)" on one machine
gs.identify(torch.mm, M=64, N=64, K=256).text  # ":chunked(128, fp32)" on the same machine
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._lazy import exports

if TYPE_CHECKING:
    from .errors import ProbeError as ProbeError
    from .identification import Identification as Identification
    from .identification import identify as identify
    from .revelation import Revelation as Revelation
    from .revelation import reveal as reveal
    from .sum_tree import SumTree as SumTree
    from .survey import Survey as Survey
    from .survey import identify_over as identify_over
    from .trials import Difference as Difference
else:
    __getattr__, __dir__ = exports(__name__)
