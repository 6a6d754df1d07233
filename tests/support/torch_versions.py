"""Tests of what only newer releases of PyTorch have; each reason names the release (docs/howto/pytorch_tools.md).

Where the compiler cannot follow this package (``COMPILES``), ``torch.compile`` ignores ``fullgraph=True`` in tests: bits
are compared across the breaks of the graph, and what asserts a number of graphs or a whole one is skipped.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import pytest
import torch

from gemmsim.ops.torch_versions import COMPILES, NORMS_WITHOUT_BIAS, VIEWS_UNDER_VMAP, has

WHOLE_GRAPHS = "needs gemmsim's calls inside of a compiled graph"
#: (the first release with it, what it is, tests).
NEWER = (
    (COMPILES, WHOLE_GRAPHS, r"ops/test_lazy_dynamo|emulation/test_compiled.*(switching_back|changing_sizes|first_context|private_names)"),
    (COMPILES, WHOLE_GRAPHS, r"emulation/test_bodies.*in_the_body_of_a_whole_graph|emulation/test_inside.*(made_outside|made_inside|changes_outside)"),
    (COMPILES, WHOLE_GRAPHS, r"emulation/test_replaced.*nothing_in_pytorch_is_another_object"),
    (COMPILES, WHOLE_GRAPHS, r"mx/test_convert.*compiled_code_of_formats_that_nothing_has_named"),
    (COMPILES, "exports by the compiler (strict=True)", r"^tests/test_export\.py.*-True\]|emulation/test_(inside|transforms).*test_export\[True\]|emulation/test_scaled.*strict export"),
    (COMPILES, WHOLE_GRAPHS, r"nn/test_call_children.*compiled_attention|nn/test_readings.*compiled_code_and_transforms"),
    (NORMS_WITHOUT_BIAS, "the argument bias of group and batch norms", r"nn/test_every_module.*constructors_are_torchs.*\[Q(BatchNorm|GroupNorm)"),
    (VIEWS_UNDER_VMAP, "views of bits under torch.vmap", r"tensor_quant/test_refusals.*compile_and_map\[(nf4|fp4)\]"),
    ((2, 10), "strides that are tensors, in convolutions", r"ops/test_torch_refusals.*\[conv"),
    ((2, 10), "exports with open sizes of a product and then rows", r"test_export.*test_batch_sizes_may_be_left_open"),
    ((2, 13), "torch.nn.functional.linear_cross_entropy", r"emulation/test_products.*linear_cross_entropy"),
    ((2, 12), "torch._scaled_mm with scales per row on a CPU", r"emulation/test_scaled.*test_wide_accumulators.*-(True-False|True-True)\]"),
)  # fmt: skip


def mark_newer(items: Iterable[pytest.Item]) -> None:
    """Skips the tests of what the installed release lacks."""
    lacking = [(release, what, re.compile(tests)) for release, what, tests in NEWER if not has(release)]
    for item in items:
        for release, what, tests in lacking:
            if tests.search(item.nodeid):
                reason = f"PyTorch {release[0]}.{release[1]} or newer: {what} (this is {torch.__version__})"
                item.add_marker(pytest.mark.skip(reason=reason))


def allow_broken_graphs() -> None:
    """``fullgraph=True`` is ignored from now on in this process, with a release that cannot have it."""
    if has(COMPILES):
        return

    def without(original: Any) -> Any:
        def compile_(*args: Any, fullgraph: bool = False, **kwargs: Any) -> Any:
            return original(*args, **kwargs)

        return compile_

    torch.compile = without(torch.compile)
    torch.nn.Module.compile = without(torch.nn.Module.compile)  # type: ignore[method-assign]
