"""Published ways to train in narrow formats, as values for ``spec=``.

layer = gs.nn.QLinear(64, 32, spec=gs.recipes.deepseek_v3())

Each is a ``QAffineFormats``: frozen, comparable and picklable; ``dataclasses.replace`` makes variants. Published
recipes scale their gradients, so small ones do not vanish and large ones do not overflow. ``all_products``, which takes
any spec, does not scale. Recipes do not cover weights, optimizer states or anything else outside the three products.
docs/howto/recipes.md compares them.
"""

from __future__ import annotations

from .kept_layers import rules as rules
from .picture import svg as svg
from .presets import all_products as all_products
from .presets import deepseek_fp8 as deepseek_fp8
from .presets import fp16_accumulate as fp16_accumulate
from .presets import hopper_fp8 as hopper_fp8
from .presets import mxfp8 as mxfp8
from .presets import nvfp4 as nvfp4
from .published import deepseek_v3 as deepseek_v3
from .published import hopper_fp8_current as hopper_fp8_current
from .published import hopper_fp8_delayed as hopper_fp8_delayed
from .published import mxfp4_hadamard as mxfp4_hadamard
from .published import mxfp8_pretraining as mxfp8_pretraining
from .published import nvfp4_pretraining as nvfp4_pretraining
from .published import torchao_rowwise as torchao_rowwise
from .published import torchao_rowwise_gw_hp as torchao_rowwise_gw_hp
from .published import torchao_tensorwise as torchao_tensorwise

__all__ = [
    "all_products",
    "deepseek_fp8",
    "deepseek_v3",
    "fp16_accumulate",
    "hopper_fp8",
    "hopper_fp8_current",
    "hopper_fp8_delayed",
    "mxfp4_hadamard",
    "mxfp8",
    "mxfp8_pretraining",
    "nvfp4",
    "nvfp4_pretraining",
    "rules",
    "svg",
    "torchao_rowwise",
    "torchao_rowwise_gw_hp",
    "torchao_tensorwise",
]


def __dir__() -> list[str]:
    return sorted(__all__)
