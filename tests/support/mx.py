"""Public MX vectors, as blocks of 32 floats with the codes or values another system gave for them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import numpy as np

GOLDEN = Path(__file__).resolve().parent.parent / "golden" / "mx"

_ELEMENTS = {
    "fp8_e4m3": "mxfp8_e4m3", "fp8_e5m2": "mxfp8_e5m2", "fp6_e2m3": "mxfp6_e2m3", "fp6_e3m2": "mxfp6_e3m2",
    "fp4_e2m1": "mxfp4", "int8": "mxint8", "int4": "mxint4", "int2": "mxint2",
}  # fmt: skip
_MODES = {"ao": "", "ao018": "/torchao-0.18", "ao061": "/torchao-0.6.1", "torchmx": "/torchmx", "mxc": "/microxcaling"}
_ROUNDINGS = {"nearest": "/rna", "even": "", "floor": "/rtz"}


@lru_cache(maxsize=8)
def archive(name: str):
    return dict(np.load(GOLDEN / f"mx_{name}.npz"))


@lru_cache(maxsize=4)
def inputs(tensor: str) -> np.ndarray:
    """[B, 32] float32; bf16 inputs widened."""
    data = archive("ao")
    if tensor == "f32":
        return data["in|x32"]
    bits = data["in|xb16"] if tensor == "bf16" else data["in|xb16_all"] ^ (data["in|xb16_all_flip"] * np.uint16(0x8000))
    return (bits.astype(np.uint32) << 16).view(np.float32)


def code_sets() -> Iterator[tuple[str, str, str]]:
    """(format name, tensor, key) of every vector set of element and scale codes."""
    for name in ("ao", "ao018", "ao061", "torchmx"):
        for key in archive(name):
            peer, *rest = key.split("|")
            if peer == name and rest[-1] == "scale" and rest[0] in ("f32", "bf16", "bf16all"):
                tensor, element, rule, _ = rest
                rule = "" if rule == "floor" else f"/{rule}"
                yield f"{_ELEMENTS[element]}{rule}{_MODES[name]}", tensor, key.removesuffix("|scale")


def value_sets() -> Iterator[tuple[str, str, str]]:
    """(format name, tensor, key) of every vector set of microxcaling's values."""
    for key in archive("mxc"):
        _, tensor, *rest = key.split("|")
        if tensor != "elemwise":
            flush = "/flush" if "flush" in rest else ""
            yield f"{_ELEMENTS[rest[0]]}{_ROUNDINGS[rest[1]]}/microxcaling{flush}", tensor, key


def codes(key: str) -> tuple[np.ndarray, np.ndarray]:
    data = archive(key.split("|")[0])
    return data[f"{key}|scale"], data[f"{key}|elem"]


def values(key: str) -> np.ndarray:
    """[B, 32] float32 of a value set."""
    planes = archive("mxc")[key].astype(np.uint32)
    bits = sum(planes[i] << np.uint32(8 * i) for i in range(4))
    return bits.astype(np.uint32).view(np.float32).reshape(-1, 32)
