"""Scaled casts and formats of tensors on a GPU: the values and gradients of the CPU, every grid, scale, dtype and layout."""

from __future__ import annotations

import pytest
import torch
from support import assert_bitwise_equal

import gemmsim as gs
from gemmsim import tensor_quant as tq
from gemmsim.compat import dmx, qtorch

pytestmark = pytest.mark.gpu

DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
CALLS = {
    **{f"int{b}-{u}-{n}": (lambda x, b=b, u=u, n=n: tq.fake_tensor_quant(x.abs() if u else x, 2.5, None, b, u, n))
       for b in (2, 4, 8, 16) for u in (False, True) for n in (False, True)},
    **{f"float{e}": (lambda x, e=e: tq.scaled_e4m3(x, x.abs().amax(0), None, *e))
       for e in ((4, 3), (5, 2), (3, 2), (2, 3), (2, 1), (3, 0), (1, 2), (0, 3))},
    "by row": lambda x: tq.fake_tensor_quant(x, x.abs().amax(1, keepdim=True)),
    "by column": lambda x: tq.fake_tensor_quant(x, x.abs().amax(0, keepdim=True), 0.25, 4),
    "by element": lambda x: tq.fake_tensor_quant(x, x.abs() + 1),
    "integers": lambda x: tq.tensor_quant(x, 3.0)[0],
    "range": lambda x: tq.fake_affine_tensor_quant(x, -1.0, 2.0),
    "e4m3 without amax": lambda x: tq.scaled_e4m3(x, None, None, 4, 3),
    "learned": lambda x: tq.learned_fake_tensor_quant(x, torch.tensor(2.0, device=x.device), 4),
    **{f"blocks of {size}, {bits}, {scale}": (lambda x, s=size, b=bits, c=scale: tq.dynamic_block_quant(x, s, None, None, b, c))
       for size in (8, 12, 16, 32, 100) for bits, scale in (((4, 3), (8, 0)), ((2, 1), (4, 3)), (8, None), ((3, 0), (8, 0)))},
    "toward zero": lambda x: tq.dynamic_block_quant(x, 32, None, None, (2, 1), (8, 0), ties="toward_zero"),
}  # fmt: skip


def data(dtype: torch.dtype) -> torch.Tensor:
    g = torch.Generator().manual_seed(3)
    x = torch.randn(130, 160, generator=g) * torch.exp2(torch.randint(-10, 8, (130, 1), generator=g).float())
    x[0, :40] = torch.arange(-20, 20) / 4
    x[1] = 0
    return x.to(dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", CALLS)
def test_functions_and_gradients(name, dtype):
    for arrange in (lambda t: t, lambda t: t.t().contiguous().t(), lambda t: t[:, ::2]):
        results = []
        for device in ("cuda", "cpu"):
            x = data(dtype).to(device)
            leaf = arrange(x).detach().requires_grad_()
            y = CALLS[name](leaf)
            y.sum().backward()
            results.append((y.detach().cpu().contiguous(), leaf.grad.cpu().contiguous()))
        for got, want in zip(*results, strict=True):
            assert_bitwise_equal(got, want, nan_is_nan=True, context=f"{name} {dtype}")


def test_errors_need_values():
    x = data(torch.float32).cuda()
    with pytest.raises(tq.SignError):
        tq.fake_tensor_quant(x, 1.0, None, 8, True)
    with pytest.raises(tq.AmaxError):
        tq.fake_tensor_quant(x, torch.tensor(float("nan"), device="cuda"))
    x[3, 3] = torch.inf
    with pytest.raises(tq.AmaxError):
        tq.dynamic_block_quant(x, 32, None, None, 8, None)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    "name",
    [
        "FP[1|4|3,7](_N)", "FP[1|5|10,15](FN)", "FP[0|4|4,7](FN)", "FP[1|4|0,7](_S)", "MXFP8[E4M3]{5}", "MXFP4[E2M1]{32,0}",
        "MXFP6[E3M2]{20000}", "SBFP<XP[4,0](CSN)><FP[0|4|4,7](FN)>{16}", "SBFP<XP[8,0](_SN)><FP[0|5|10,9](_N)>{3,0}",
        "BFP[8|8]{64}(SN)", "BFP[6|8]{16}(_U)", "MXINT8{32}", "XP[8,+4](CSN)",
    ],
)  # fmt: skip
def test_formats_of_tensors(name, dtype):
    x = data(dtype)
    x[2, :3] = torch.tensor([torch.nan, torch.inf, -torch.inf])
    for view in (x, x.t(), x[:, ::2]):
        assert_bitwise_equal(
            gs.quantize(view.cuda(), name, seed=2).cpu().contiguous(),
            gs.quantize(view, name, seed=2).contiguous(),
            context=name,
        )
    fmt = dmx.Format.from_shorthand(name)
    if "S)" not in name:
        assert_bitwise_equal(fmt.cast(x.cuda(), -1).cpu(), fmt.cast(x, -1), context=name)


def test_products_and_qtorch():
    g = torch.Generator().manual_seed(0)
    a, b = torch.randn(33, 100, generator=g), torch.randn(100, 17, generator=g)
    for text in (
        "MXFP8[E4M3]{8} : e5m10",
        "SBFP<XP[4,0](CSN)><FP[0|4|4,7](FN)>{16} : fp32",
        "FP[1|4|3,7](FN)*BFP[8|8]{16}(SN) : fp32",
    ):
        assert_bitwise_equal(gs.qmatmul(a.cuda(), b.cuda(), text).cpu(), gs.qmatmul(a, b, text), context=text)
    calls = [
        lambda t: qtorch.float_quantize(t, 4, 3, rounding="nearest"),
        lambda t: qtorch.block_quantize(t, 8, 0, rounding="nearest"),
        lambda t: qtorch.block_quantize(t, 8, rounding="nearest"),
        lambda t: qtorch.fixed_point_quantize(t, 8, 4, rounding="nearest"),
        lambda t: qtorch.float_quantize(t, 5, 2, rounding="nearest", bug_compatible=True),
        lambda t: dmx.Format.from_shorthand("BFP[8|8]{64}(SN)").cast(t, -1, bug_compatible=True),
        lambda t: dmx.Format.from_shorthand("MXFP8[E4M3]{32}").cast(t, -1, bug_compatible=True),
    ]
    for i, call in enumerate(calls):
        assert_bitwise_equal(call(a.cuda()).cpu(), call(a), context=f"call {i}")
