"""Carrier-exact products: an ordinary GEMM computes them with the same bits, by proof."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..._lazy import exports
from .exactness_proof import Proof as Proof
from .exactness_proof import exact as exact
from .operand_bounds import Facts as Facts
from .operand_bounds import facts_of_data as facts_of_data
from .operand_bounds import facts_of_formats as facts_of_formats
from .run import gemm as gemm
from .run import is_candidate as is_candidate
from .run import proof_for as proof_for

if not TYPE_CHECKING:
    __getattr__, __dir__ = exports(__name__)
