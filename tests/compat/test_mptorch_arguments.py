"""mptorch 0.3.0's arguments, orders and defaults, the traps included.

"id" is the identity function as a default. Arguments of ours come after, or by keyword only. The quantise and product
functions are in test_mptorch.py.
"""

from __future__ import annotations

import inspect

import pytest

from gemmsim.compat.mptorch import number, optim, quant, utils

CONV = (
    "in_channels out_channels kernel_size formats stride=1 padding=0 dilation=1 groups=1 bias=True padding_mode='zeros'"
)
TRANSPOSED = (
    "in_channels out_channels kernel_size formats stride=1 padding=0 output_padding=0 groups=1 bias=True dilation=1 "
    "padding_mode='zeros'"
)
QUANTS = "input_quant=id output_quant=id grad_quant=id"
SHEET = {
    number: {
        "FixedPoint": "wl fl clamp=True symmetric=False",
        "FloatingPoint": "exp man subnormals=False saturate=True",
        "SuperNormalFloat": "exp man binades saturate=False",
        "BlockFloatingPoint": "wl dim=-1",
        "Binary8": "P signed=True subnormals=True overflow_policy='saturate_maxfloat2'",
        "BinaryK": "K P signed=True domain='extended' bias=None subnormals=True",
    },
    quant: {
        "QAffineFormats": "fwd_mac=None bwd_mac=None fwd_rnd=None bwd_rnd=None weight_quant=id bias_quant=id input_quant=id "
        "output_quant=id grad_quant=id compensated=None use_scaling=False weight_scaled_format=None "
        "input_scaled_format=None grad_scaled_format=None scale_margin=0 rbits=0",
        "QSoftmaxFormats": "fwd_off=None fwd_exp=None fwd_acc=None fwd_lse=None bwd_add=None bwd_mul=None "
        f"fwd_rnd='nearest' bwd_rnd='nearest' {QUANTS}",
        "QLayerNormFormats": "fwd_acc=None fwd_mul=None fwd_div=None fwd_sqrt=None bwd_acc=None bwd_mul=None bwd_div=None "
        f"fwd_rnd='nearest' bwd_rnd='nearest' {QUANTS} weight_quant=id bias_quant=id",
        "QGELUFormats": "input_quant=id inter_quant=id output_quant=id grad_quant=id",
        "float_bmm": "a b man_add=23 exp_add=8 man_mul=23 exp_mul=8 rounding='nearest' fma=True subnormals=True "
        "saturate=True compensated=False rbits_add=0 rbits_mul=0",
        "fxp_mm": "a b wl_add=16 fl_add=8 wl_mul=16 fl_mul=8 symmetric=False rounding='nearest' fma=True",
        "mp_bmm": "a b formats use_forward=True",
        "cublas_bmm": "a b input_type output_type compute_type pedantic",
        "quantizer": "forward_number=None backward_number=None forward_rounding='stochastic' "
        "backward_rounding='stochastic' clamping_grad_zero=False backward_hooks=()",
        "make_quant_function": "num rounding prng_bits=0",
        "Quantizer": "forward_number=None backward_number=None forward_rounding='nearest' backward_rounding='nearest'",
        "QLinear": "in_features out_features formats bias=True",
        "QLazyLinear": "out_features formats bias=True device=None dtype=None",
        **{f"QConv{n}d": CONV for n in (1, 2, 3)},
        **{f"QConvTranspose{n}d": TRANSPOSED for n in (1, 2, 3)},
        "QAvgPool2d": "kernel_size fwd_quant bwd_quant stride=None padding=0 ceil_mode=False count_include_pad=True "
        "divisor_override=None",
        "QBatchNorm1d": "num_features fwd_quant bwd_quant",
        "QBatchNorm2d": "num_features fwd_quant bwd_quant",
        "QLayerNorm": "normalized_shape formats eps=1e-05 elementwise_affine=True bias=True",
        "QSoftmax": "dim formats",
        "QGELU": "formats approximate='none'",
    },
    quant.functional: {
        "qlinear": "input weight bias=None formats=None",
        "qmm": "input mat2 formats=None",
        "qmatmul": "input other formats=None",
        **dict.fromkeys(("qadd", "qmul", "qdiv"), "x y fwd_quant=id bwd_quant=id"),
        "qsqrt": "x fwd_quant=id bwd_quant=id",
        "qpow": "x fwd_quant=id bwd_quant=id n=2.0",
        "qsum": "x dim=None quant=id keepdim=False",
        "qmean": "x fwd_quant=id bwd_quant=id dim=3 keepdim=False",
        "qlayernorm": "x normalized_shape weight bias eps=1e-05 formats=None",
        "qsoftmax": "x dim formats",
        "qgelu": "x formats approximate='none'",
    },
    optim: {
        "QOptim": "optim weight_quant=None grad_quant=None momentum_quant=None acc_quant=None",
        "QSGD": "params lr=0.001 momentum=0 dampening=0 weight_decay=0 nesterov=False momentum_quant=None acc_quant=None "
        "compensated=False",
        "QAdamW": "params lr=0.001 betas=(0.9, 0.999) eps=1e-08 weight_decay=0.01 amsgrad=False acc_quant=None "
        "momentum_quant=None compensated=False",
    },
    utils: {
        "trainer": "net train_loader test_loader num_epochs lr batch_size start_epoch=0 start_acc=0 loss=None "
        "optimizer=None device=None scheduler=None plot_file=None init_scale=None log_wandb=False checkpoint=False",
        "get_lr": "optimizer",
    },
}
CASES = [
    pytest.param(module, name, text, id=f"{module.__name__.rsplit('.', 1)[-1]}.{name}")
    for module, names in SHEET.items()
    for name, text in names.items()
]


@pytest.mark.parametrize("module, name, text", CASES)
def test_names_orders_and_defaults(module, name, text):
    """Positional arguments are the sheet's in its order; an argument that it requires may have a default here."""
    found = [p for p in inspect.signature(getattr(module, name)).parameters.values() if p.kind is not p.KEYWORD_ONLY]
    want = text.replace("(0.9, 0.999)", "(0.9,0.999)").split()
    for parameter, wanted in zip(found, want, strict=False):
        key, equals, default = wanted.partition("=")
        assert parameter.name == key
        got = getattr(parameter.default, "__name__", None) == "identity" and "id" or repr(parameter.default)
        assert not equals or got.replace(" ", "") == default
    assert len(found) >= len(want)
    later = found[len(want) :]  # device, dtype and torch's other arguments
    assert all(p.default is not p.empty for p in later)
