"""What libraries of matrix products compute: a function from a call to a spec.

    lib = gs.libraries.cublaslt("h100", version="13.1")
    plan = lib.plan(64, 4096, 4096, "bf16", config="66,,4,,,,35")
    print(plan.explain())

A plan is data: family of kernels, ``GemmSpec``, evidence. A call that was never measured raises ``UnknownPlan``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._lazy import exports

if TYPE_CHECKING:
    from .call import Call as Call
    from .configuration import Config as Config
    from .cublas import CublasLt as CublasLt
    from .cublas import cublaslt as cublaslt
    from .errors import LibraryError as LibraryError
    from .errors import TableError as TableError
    from .errors import UnknownPlan as UnknownPlan
    from .library import Library as Library
    from .live import LiveCublasLt as LiveCublasLt
    from .live import here as here
    from .overview import Known as Known
    from .overview import known as known
    from .plan import Plan as Plan
    from .presets import BatchInvariant as BatchInvariant
    from .presets import CutlassSplitK as CutlassSplitK
    from .presets import batch_invariant as batch_invariant
    from .presets import cutlass_splitk as cutlass_splitk
    from .presets import transformer_engine as transformer_engine
    from .table import Header as Header
    from .table import Table as Table
    from .table import TableRow as TableRow
    from .table import make_table as make_table
    from .table_files import read_table as read_table
    from .table_files import write_table as write_table
    from .verification import Verified as Verified
    from .verification import verify as verify
else:
    __getattr__, __dir__ = exports(__name__)
