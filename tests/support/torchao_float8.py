"""What torchao.float8 computes on a CPU: tests/golden/torchao_float8.npz, read by tests, and written where torchao is.

``python tests/support/torchao_float8.py FILE`` writes it with the torchao that is installed; it needs no gemmsim.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import sys
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

GOLDEN = Path(__file__).resolve().parent.parent / "golden" / "torchao_float8.npz"
RECIPES = ("tensorwise", "rowwise", "rowwise_with_gw_hp")
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
#: Rows of the input, input features, output features.
SHAPES = ((5, 32, 16), (3, 33, 7))
KINDS = ("normal", "wide", "zeros", "tiny", "huge", "nan", "infinity", "exact")
PRODUCTS = ("output", "grad_input", "grad_weight")


def values(kind: str, shape: tuple[int, int], generator: torch.Generator) -> Tensor:
    """Numbers of a kind, float32. "exact": multiples of 1/32 from 1 to 7 with signs, a 7 in each row and column."""
    x = torch.randn(shape, generator=generator)
    if kind == "wide":
        return x * torch.exp2(torch.randint(-30, 30, shape, generator=generator).float())
    if kind == "exact":
        size = torch.randint(32, 225, shape, generator=generator) / 32
        size[torch.randint(0, 2, shape, generator=generator) == 0] = 7.0
        size[0], size[:, 0] = 7.0, 7.0
        return size.copysign(x)
    if kind in ("nan", "infinity"):
        x[0, 1] = float("nan" if kind == "nan" else "-inf")
    if kind == "zeros":
        x[0] = 0.0
    return x * {"zeros": 1.0, "tiny": 1e-13, "huge": 1e30}.get(kind, 1.0)


def boundaries() -> Tensor:
    """Largest magnitudes whose scales lie near powers of two, of e4m3 and e5m2, and at the ends of the range."""
    near = []
    for largest, power in itertools.product((448.0, 57344.0), range(-110, 40, 3)):
        middle = np.float32(largest / 2.0**power)
        near.append(middle.view(np.int32) + np.arange(-26, 27, dtype=np.int32))
    ends = np.array([0.0, 1e-45, 1e-12, 9.9e-13, 1.1e-12, 448.0, 3.4028235e38, np.inf, np.nan], np.float32)
    return torch.from_numpy(np.concatenate([np.concatenate(near).view(np.float32), ends]))


class Case(NamedTuple):
    """One run of a layer, and everything that went in and came out, by the names that ``record`` gives."""

    recipe: str
    dtype: torch.dtype
    kind: str
    parts: dict[str, Tensor]

    def decoded(self, product: str, side: str) -> Tensor:
        """Elements of an operand over their scale, float32."""
        return self.parts[f"{product}/{side}/elements"].float() / self.parts[f"{product}/{side}/scale"]


@cache
def scales() -> dict[str, Tensor]:
    """Largest magnitudes ("amax") and their scales, by dtype and whether these are powers of two."""
    with np.load(GOLDEN) as stored:
        found = {key: torch.from_numpy(stored[key]) for key in stored.files if key.startswith("scales/")}
    return {key.removeprefix("scales/"): value for key, value in found.items()}


@cache
def cases() -> list[Case]:
    """All runs of the stored file."""
    with np.load(GOLDEN) as stored:
        index = json.loads(bytes(stored["index_json"]))
        flat = {key: torch.from_numpy(stored[key]) for key in stored.files if key.startswith("layers/")}
    at = dict.fromkeys(flat, 0)
    found = []
    for one in index["cases"]:
        parts = {}
        for part, (dtype, shape) in one["parts"].items():
            key, size = f"layers/{part}", math.prod(shape)
            tensor = flat[key][at[key] : at[key] + size].reshape(shape)
            at[key] += size
            kind = getattr(torch, dtype)
            parts[part] = tensor.view(kind) if kind.itemsize == 1 else tensor.to(kind)
        found.append(Case(one["recipe"], DTYPES[one["dtype"]], one["kind"], parts))
    assert all(at[key] == flat[key].numel() for key in flat)
    return found


def record(path: Path) -> None:
    """Run torchao's scales and its emulated layer, and store what goes in and what comes out."""
    import torchao
    from torchao.float8.float8_utils import amax_to_scale

    torch.set_num_threads(1)
    arrays = {"scales/amax": boundaries()}
    for dtype, power in itertools.product((torch.float8_e4m3fn, torch.float8_e5m2), (False, True)):
        arrays[f"scales/{_name(dtype)}/{power}"] = amax_to_scale(arrays["scales/amax"], dtype, power)
    flat: dict[str, list[np.ndarray]] = {}
    listed = []
    generator = torch.Generator().manual_seed(47)
    for recipe, (name, dtype), shape, kind in itertools.product(RECIPES, DTYPES.items(), SHAPES, KINDS):
        m, k, n = shape
        drawn = [values(kind, size, generator).to(dtype) for size in ((m, k), (n, k), (m, n))]
        given = dict(zip(("x", "w", "g"), drawn, strict=True))
        given["b"] = values("exact" if kind == "exact" else "normal", (2, n), generator)[1].to(dtype)
        parts = given | _layer(recipe, given)
        for part, tensor in parts.items():
            flat.setdefault(f"layers/{part}", []).append(_stored(tensor).reshape(-1))
        shapes = {part: (_name(tensor.dtype), list(tensor.shape)) for part, tensor in parts.items()}
        listed.append({"recipe": recipe, "dtype": name, "kind": kind, "parts": shapes})
    index = {"torchao": torchao.__version__, "torch": torch.__version__, "cases": listed}
    stored = {key: _stored(tensor) for key, tensor in arrays.items()}
    stored |= {key: np.concatenate(all_cases) for key, all_cases in flat.items()}
    np.savez_compressed(path, index_json=np.frombuffer(json.dumps(index).encode(), np.uint8), **stored)


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _stored(tensor: Tensor) -> np.ndarray:
    tensor = tensor.detach()
    return (tensor.view(torch.uint8) if tensor.dtype.itemsize == 1 else tensor.float()).numpy()


def _layer(recipe: str, given: dict[str, Tensor]) -> dict[str, Tensor]:
    """Output and gradients of a layer, and elements and scales of both operands of its float8 products."""
    from torchao.float8 import Float8LinearConfig, float8_ops
    from torchao.float8.float8_linear import Float8Linear

    mm = torch.ops.aten.mm.default
    original = float8_ops.FLOAT8_OPS_TABLE[mm]
    operands: dict[str, Tensor] = {}

    def recording(op: Any, args: Any, kwargs: Any = None) -> Any:
        roles = tuple(one._gemm_input_role.value for one in args[:2])
        product = {("input", "weight"): "output", ("grad_output", "weight"): "grad_input"}.get(roles, "grad_weight")
        for side, one in zip("ab", args, strict=False):
            operands[f"{product}/{side}/elements"] = one._data.contiguous()
            operands[f"{product}/{side}/scale"] = one._scale.contiguous()
        return original(op, args, kwargs)

    config = dataclasses.replace(Float8LinearConfig.from_recipe_name(recipe), emulate=True)
    layer = torch.nn.Linear(*reversed(given["w"].shape))
    layer.weight, layer.bias = (torch.nn.Parameter(given[name].clone()) for name in ("w", "b"))
    layer = Float8Linear.from_float(layer, config)
    x = given["x"].clone().requires_grad_()
    float8_ops.FLOAT8_OPS_TABLE[mm] = recording
    try:
        y = layer(x)
        y.backward(given["g"])
    finally:
        float8_ops.FLOAT8_OPS_TABLE[mm] = original
    return {"y": y, "gx": x.grad, "gw": layer.weight.grad, "gb": layer.bias.grad} | operands


if __name__ == "__main__":
    record(Path(sys.argv[1]))
