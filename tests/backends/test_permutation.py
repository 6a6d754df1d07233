"""The permutation by tensor operations is that of the slow reference."""

import pytest
import torch

from gemmsim.arithmetic.permutation import permutation as reference
from gemmsim.backends.permutation import permutation

CPU = torch.device("cpu")


@pytest.mark.parametrize("seed", [0, 5, 2**32 - 1, 2**32, 2**63 + 12345, 2**64 - 1])
@pytest.mark.parametrize("k", [0, 1, 2, 300, 2**16 + 3])  # the last: more than the block of indices of one step
def test_permutations_are_the_references(seed, k):
    found = permutation(seed, k, CPU)
    assert found.dtype == torch.int64 and found.tolist() == reference(seed, k)
