"""Carrier-exact products: an ordinary GEMM computes them with the same bits, by proof."""

from .exactness_proof import Proof, exact
from .operand_bounds import Facts, facts_of_data, facts_of_formats
from .run import gemm, is_candidate, proof_for

__all__ = [
    "Facts",
    "Proof",
    "exact",
    "facts_of_data",
    "facts_of_formats",
    "gemm",
    "is_candidate",
    "proof_for",
]
