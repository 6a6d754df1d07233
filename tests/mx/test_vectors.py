"""Codes and values that other systems gave for public inputs: ours are the same, bit for bit, in every mode."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from support import mx as vectors

from gemmsim.backends import cpu
from gemmsim.formats import parse
from gemmsim.reference import encode_block, quantize_block

CODE_SETS = list(vectors.code_sets())
VALUE_SETS = list(vectors.value_sets())


@pytest.fixture(params=cpu.ISAS)
def isa(request):
    before = cpu.isa()
    try:
        cpu.set_isa(request.param)
    except cpu.LibraryError:
        pytest.skip(f"no {request.param} here")
    yield request.param
    cpu.set_isa(before)


def tensor_of(name):
    x = torch.from_numpy(vectors.inputs(name).copy())
    return x if name == "f32" else x.bfloat16()


def bits_differ(got: np.ndarray, want: np.ndarray) -> np.ndarray:
    return (got.view(np.uint32) != want.view(np.uint32)) & ~(np.isnan(got) & np.isnan(want))


def test_the_vectors_are_all_there():
    assert len(CODE_SETS) == 40 + 10 + 4 + 10
    assert len(VALUE_SETS) == 32 + 12 + 6


def test_codes_of_every_system(isa):
    for name, tensor, key in CODE_SETS:
        x = tensor_of(tensor)
        scale, codes = vectors.codes(key)
        got_codes, got_scales = torch.empty(x.shape, dtype=torch.uint8), torch.empty(len(x), 1, dtype=torch.uint8)
        cpu.encode_blocks(x, parse(name), got_codes, got_scales, -1, "bytes")
        assert (got_scales.numpy()[:, 0] == scale).all(), (name, tensor)
        # elements of NaN blocks are not part of what the systems promise
        assert ((got_codes.numpy() == codes) | (scale == 255)[:, None]).all(), (name, tensor)


def test_values_of_microxcaling(isa):
    for name, tensor, key in VALUE_SETS:
        x = torch.from_numpy(vectors.inputs(tensor).copy())
        got = torch.empty_like(x)
        cpu.quantize_blocks(x, parse(name), got, -1)
        assert not bits_differ(got.numpy(), vectors.values(key)).any(), (name, tensor)


@pytest.mark.kept(by="sources")
def test_the_reference_gives_the_codes():
    for number, (name, tensor, key) in enumerate(CODE_SETS):
        x, (scale, codes) = vectors.inputs(tensor), vectors.codes(key)
        for block in range(number % 31, len(x), 31 * len(x) // 706 + 1):
            source = "float32" if tensor == "f32" else "bfloat16"
            got, got_scale = encode_block(x[block].tolist(), parse(name), source=source)
            assert got_scale == scale[block], (name, tensor, block)
            assert got_scale == 255 or got == codes[block].tolist(), (name, tensor, block)


@pytest.mark.kept(by="sources")
def test_the_reference_gives_the_values():
    for number, (name, tensor, key) in enumerate(VALUE_SETS):
        x, want = vectors.inputs(tensor), vectors.values(key)
        for block in range(number % 31, len(x), 31 * len(x) // 706 + 1):
            got = np.array(quantize_block(x[block].tolist(), parse(name)), dtype=np.float32)
            assert not bits_differ(got, want[block]).any(), (name, tensor, block)


@pytest.mark.parametrize("name, scale", [("nvfp4", None), ("nvfp4/tensor", "nvfp4|pts")])
def test_nvfp4(name, scale, isa):
    import gemmsim as gs

    data = vectors.archive("ao")
    x = torch.from_numpy(data["nvfp4|x2" if scale else "nvfp4|x"])
    kind = "tensor" if scale else "block"
    second = float(data[scale]) if scale else None
    codes, scales, _ = gs.mx.encode(x, name, tensor_scale=second)
    assert (scales.numpy() == data[f"nvfp4|{kind}|scale"]).all()
    assert (codes.numpy() == data[f"nvfp4|{kind}|elem"]).all()
    if scale:
        assert gs.mx.tensor_scale(x, name).item() == second


@pytest.mark.parametrize("element", ["fp8_e4m3", "fp6_e2m3", "fp6_e3m2", "fp4_e2m1", "int8"])
def test_short_blocks_of_torchmx(element):
    import gemmsim as gs

    data = vectors.archive("torchmx")
    x = torch.from_numpy(data["torchmx|pad37|x"])
    name = vectors._ELEMENTS[element] + "/torchmx"
    packing = "hi_first" if element == "fp4_e2m1" else None
    encoded = gs.mx.encode(x.bfloat16(), name, packing=packing)
    assert (encoded.scales.numpy() == data[f"torchmx|pad37|{element}|scale"]).all()
    assert (encoded.codes.numpy() == data[f"torchmx|pad37|{element}|data"].view(np.uint8)).all()
    back = gs.mx.decode(encoded, name, packing=packing, size=37)
    assert not bits_differ(back.numpy(), data[f"torchmx|pad37|{element}|deq"]).any()


@pytest.mark.parametrize("shape", ["128x4", "32x4", "200x5", "1x1", "256x8"])
def test_swizzled_scales(shape):
    import gemmsim as gs

    data = vectors.archive("ao")
    scales = torch.from_numpy(data[f"swizzle|{shape}|in"])
    flat = gs.mx.to_blocked(scales)
    assert (flat.numpy() == data[f"swizzle|{shape}|out"]).all()
    assert torch.equal(gs.mx.from_blocked(flat, *scales.shape), scales)
    typed = gs.mx.to_blocked(scales.view(torch.float8_e8m0fnu))
    assert typed.dtype is torch.float8_e8m0fnu and torch.equal(typed.view(torch.uint8), flat)
