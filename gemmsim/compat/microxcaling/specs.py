"""``mx_specs``: every setting of microxcaling's operations, as one dictionary."""

from __future__ import annotations

import json
import os
from argparse import ArgumentParser, Namespace
from collections import UserDict
from collections.abc import Mapping
from typing import Any

__all__ = [
    "MxSpecs",
    "add_mx_args",
    "apply_mx_specs",
    "finalize_mx_specs",
    "get_backwards_mx_specs",
    "get_default_mx_specs",
    "get_mx_specs",
    "mx_assert_test",
]

_ROUND = "nearest"
#: Key, default, help.
_SETTINGS: tuple[tuple[str, Any, str], ...] = (
    ("scale_bits", 0, "bits of the shared exponent; 0 means 8"),
    ("w_elem_format", None, "elements of weights: int8 int4 int2 fp8_e5m2 fp8_e4m3 fp6_e3m2 fp6_e2m3 fp4 fp16 bf16"),
    ("a_elem_format", None, "elements of activations"),
    ("w_elem_format_bp", None, "elements of weights in the backward pass"),
    ("a_elem_format_bp", None, "elements of activations in the backward products of matmul and bmm"),
    ("a_elem_format_bp_ex", None, "elements of inputs and gradients in the product for the weight's gradient"),
    ("a_elem_format_bp_os", None, "elements of gradients in products for an input's gradient"),
    ("mx_flush_fp32_subnorms", False, "blocks whose largest magnitude is a float32 subnormal become zero"),
    ("shared_exp_method", "max", "max: one exponent a block; none: one an element"),
    ("block_size", 0, "elements to a shared exponent; 0 means the whole axis"),
    ("bfloat", 0, "width of the format of element-wise steps with 8 exponent bits, 10 to 32; 0 is off"),
    ("fp", 0, "width of the format of element-wise steps with 5 exponent bits, 7 or more; 0 is off"),
    ("bfloat_subnorms", True, "the format of element-wise steps has subnormals"),
    ("quantize_backprop", True, "quantise in the backward pass too"),
    ("round", _ROUND, "rounding of element-wise steps: nearest (ties away), even, floor (toward zero), dither"),
    ("round_m", _ROUND, "of optimizer states"),
    ("round_weight", _ROUND, "element-wise, of weights"),
    ("round_output", _ROUND, "element-wise, of activations"),
    ("round_grad_weight", _ROUND, "element-wise, of the weight's gradient"),
    ("round_grad_input", _ROUND, "element-wise, of the input's gradient"),
    ("round_mx_output", _ROUND, "of blocks, in the forward product"),
    ("round_mx_input_grad_input", _ROUND, "of a product's operands for the gradient of the other"),
    ("round_mx_weight_grad_input", _ROUND, "of the weight's blocks for the input's gradient"),
    ("round_mx_grad_output_grad_input", _ROUND, "of the gradient's blocks for the input's gradient"),
    ("round_mx_input_grad_weight", _ROUND, "of the input's blocks for the weight's gradient"),
    ("round_mx_grad_output_grad_weight", _ROUND, "of the gradient's blocks for the weight's gradient"),
    ("softmax_exp2", False, "softmax with powers of 2"),
    ("vec_use_exp2", False, "e^x as 2^(x * 1.4453125)"),
    ("vec_use_recip", False, "a / b as a * (1 / b)"),
    ("custom_cuda", False, "the values of microxcaling's CUDA kernels, which take exponents from the bits"),
)
_DEFAULTS = {key: default for key, default, _ in _SETTINGS}
_FORMATS = tuple(key for key, _, _ in _SETTINGS if "elem_format" in key)
#: Settings that follow another one where they are not given.
_FOLLOWS = {
    "w_elem_format_bp": "w_elem_format",
    "a_elem_format_bp": "a_elem_format",
    "a_elem_format_bp_os": "a_elem_format",
    "a_elem_format_bp_ex": "a_elem_format",
    **{f"round_{name}": "round" for name in ("m", "output", "grad_weight", "grad_input", "weight", "mx_output")},
    **{
        f"round_mx_{name}": "round_grad_input"
        for name in (
            "input_grad_input",
            "weight_grad_input",
            "grad_output_grad_input",
            "input_grad_weight",
            "grad_output_grad_weight",
        )
    },
}


class MxSpecs(UserDict):
    """A dictionary with every key; keys that are not given have their defaults.

    Raises:
        AssertionError: for an unknown key.

    Example:
        >>> from gemmsim.compat import microxcaling as mx
        >>> specs = mx.MxSpecs(bfloat=16)
        >>> specs["bfloat"], specs["round"]
        (16, 'nearest')
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.help_strings = {key: text for key, _, text in _SETTINGS}
        unknown = [key for key in self.data if key not in _DEFAULTS]
        if unknown:
            raise AssertionError(f"mx_specs: unknown key {unknown[0]!r}; allowed: {', '.join(_DEFAULTS)}")
        self.data = {**_DEFAULTS, **self.data}

    def safe_json(self, indent: int | None = None) -> str:
        """The settings as JSON; a value that JSON does not have is named by its type."""
        return json.dumps(self.data, indent=indent, default=lambda value: f"<<{type(value).__qualname__}>>")

    def __str__(self) -> str:
        return self.safe_json(indent=4)


def get_default_mx_specs() -> MxSpecs:
    """Settings that quantise nothing.

    Example:
        >>> from gemmsim.compat import microxcaling as mx
        >>> mx.get_default_mx_specs()["bfloat"]
        0
    """
    return MxSpecs()


def get_backwards_mx_specs(specs: MxSpecs) -> MxSpecs:
    """The settings of the backward pass: ``specs``, or without ``quantize_backprop`` a copy that quantises nothing.

    Example:
        >>> from gemmsim.compat import microxcaling as mx
        >>> mx.get_backwards_mx_specs(mx.MxSpecs(bfloat=16, quantize_backprop=False))["bfloat"]
        0
    """
    backward = MxSpecs(dict(specs))
    if not backward["quantize_backprop"]:
        backward.update(dict.fromkeys(_FORMATS), block_size=0, bfloat=0, fp=0)
    return backward


def apply_mx_specs(mx_specs: Mapping[str, Any] | None, default_mx_specs: MxSpecs | None = None) -> MxSpecs:
    """``default_mx_specs`` (all defaults) with the values of ``mx_specs`` that are not None.

    Raises:
        KeyError: for an unknown key.

    Example:
        >>> from gemmsim.compat import microxcaling as mx
        >>> mx.apply_mx_specs({"bfloat": 16})["bfloat"]
        16
    """
    settings = get_default_mx_specs() if default_mx_specs is None else default_mx_specs
    for key, value in (mx_specs or {}).items():
        if value is None:
            continue
        if key not in settings:
            raise KeyError(f"mx_specs: unknown key {key!r}; allowed: {', '.join(_DEFAULTS)}")
        settings[key] = value
    return settings


def finalize_mx_specs(specs: Mapping[str, Any], early_exit: bool = True) -> MxSpecs | None:
    """Complete settings from a partial dictionary: a missing key follows its base setting, or has its default.

    ``*_bp*`` formats follow the forward ones, roundings follow ``round`` or ``round_grad_input``. The given dictionary
    is not changed. The result is None if nothing would be quantised, unless ``early_exit`` is False.

    Raises:
        KeyError: for an unknown key.

    Example:
        >>> from gemmsim.compat import microxcaling as mx
        >>> mx.finalize_mx_specs({"w_elem_format": "fp8_e4m3", "round": "even"})["w_elem_format_bp"]
        'fp8_e4m3'
    """
    given = {key: value for key, value in specs.items() if value is not None}
    if early_exit and not any(given.get(key) for key in (*_FORMATS, "bfloat", "fp")):
        return None
    for key, base in _FOLLOWS.items():
        if key not in given and base in given:
            given[key] = given[base]
    return apply_mx_specs(given)


def add_mx_args(parser: ArgumentParser) -> ArgumentParser:
    """Add an option for each key to ``parser``, and return it; switches that are on by default become ``--no_KEY``.

    Example:
        >>> from argparse import ArgumentParser
        >>> from gemmsim.compat import microxcaling as mx
        >>> mx.add_mx_args(ArgumentParser()).parse_args(["--bfloat", "16"]).bfloat
        16
    """
    group = parser.add_argument_group("mx", "MX specs")
    group.add_argument("--mx_dir", type=str, default=None, help="accepted, not used")
    for key, default, text in _SETTINGS:
        if isinstance(default, bool):
            group.add_argument(f"--no_{key}" if default else f"--{key}", action="store_true", help=text)
        else:
            kind = str if default is None else type(default)
            group.add_argument(f"--{key}", type=kind, default=None, help=text)
    group.add_argument("--skip_early_exit", action="store_true", help="settings also where nothing is quantised")
    return parser


def get_mx_specs(parsed_args: Namespace) -> MxSpecs | None:
    """``finalize_mx_specs`` of the options that ``add_mx_args`` defined.

    Example:
        >>> from argparse import ArgumentParser
        >>> from gemmsim.compat import microxcaling as mx
        >>> mx.get_mx_specs(mx.add_mx_args(ArgumentParser()).parse_args(["--bfloat", "16"]))["bfloat"]
        16
    """
    options = vars(parsed_args)
    given: dict[str, Any] = {}
    for key, default, _ in _SETTINGS:
        if default is True and f"no_{key}" in options:
            given[key] = not options[f"no_{key}"]
        elif default is not True and key in options:
            given[key] = options[key]
    return finalize_mx_specs(given, early_exit=not options.get("skip_early_exit", False))


def mx_assert_test(mx_specs: Mapping[str, Any] | None) -> None:
    """Refuse ``mx_specs`` None if the environment has ``MX_ASSERT=True``.

    Raises:
        ValueError: in that case.

    Example:
        >>> from gemmsim.compat import microxcaling as mx
        >>> mx.mx_assert_test(mx.MxSpecs(bfloat=16))
    """
    if mx_specs is None and os.environ.get("MX_ASSERT", "False") == "True":
        raise ValueError(
            "MX assert test failed: mx_specs is None; allowed with MX_ASSERT=True: settings.\n  Pass some."
        )
