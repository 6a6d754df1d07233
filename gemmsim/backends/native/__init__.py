"""Products that an ordinary GEMM computes with the same bits, by proof: carrier-exact products."""

from .facts import Facts, facts_of_data, facts_of_formats
from .predicate import Proof, exact
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
