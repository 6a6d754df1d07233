"""What the operators do with DTensors: which operands each process needs whole, and where the results lie.

Rows, columns and batches of a product are independent of each other, so processes that hold some of them compute their
own part and get the bits of the whole product. Three things are not independent of what other processes hold:

* The sum. Partial sums of several processes would be added in another order than the accumulator's, so a forward
  product over a sharded sum is refused. Of a backward product, whose sum runs over what the forward pass could shard,
  the operands are gathered first. Not so for products with a ``site``: an emulation of PyTorch's program replaces the
  products that PyTorch makes, which are those of each process; PyTorch adds their results as it always does.
* Random bits, which belong to an element's place in the whole result: operands are gathered, and every process computes
  the whole result with one seed.
* Formats with a scale or an exponent for more than a row's or column's block: gathered as well.

``torch.distributed.tensor.experimental.register_sharding`` would not do: PyTorch remembers what it chose by shapes and
integers alone, and would take a spec without random bits for one with them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DeviceMesh, DTensor, Partial, Replicate, Shard

from gemmsim.formats import TENSOR_FORMATS, BlockFormat

from ..cast_arguments import target_of
from ..errors import ShardingError, message
from ..registration import LIBRARY
from ..seeds import Stream, draw_seed, needs_seed
from . import eager
from .shapes import matmul_shape

__all__ = ["register"]

_OPERANDS = ("a", "b", "c", "select", "bias")


def register() -> None:
    """Registers the rules with PyTorch."""
    for name, rule in (("matmul", _matmul), ("matmul_with_operands", _matmul), ("quantize", _quantize)):
        torch.library.register_torch_dispatch(f"gemmsim::{name}", DTensor, rule, lib=LIBRARY)


@torch.no_grad()  # rules run below autograd
def _matmul(cls: Any, operator: Any, types: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    given = _named(operator, args, kwargs)
    spec = eager.spec_of(given["spec"])
    tensors = {name: given[name] for name in _OPERANDS if given[name] is not None}
    mesh = _mesh(tensors, given["stream"] == Stream.ADDEND_GRAD)
    a, b = tensors["a"], tensors["b"]
    shape = matmul_shape("matmul", a, b)
    parts = () if given["site"] is None else _sharded_sums(a, b, mesh)
    if given["stream"] == Stream.FPROP and not parts:
        _check_sum(a, b, mesh)
    whole = spec.is_stochastic or _spans(spec.a) or _spans(spec.b)
    kept = [None if whole else _kept(a, b, i, shape) for i in range(mesh.ndim)]
    places = {name: [_placement(name, t, dim, len(shape)) for dim in kept] for name, t in tensors.items()}
    for i in parts:
        places["a"][i], places["b"][i] = Shard(a.dim() - 1), Shard(b.dim() - 2)
    for name, t in tensors.items():
        given[name] = _local(t, mesh, places[name])
    if needs_seed(spec):
        given["seed"] = (_common_seed(mesh) if given["seed"] is None else given["seed"]) + _of_parts(mesh, parts)
    results = operator(**given)
    found = [Partial() if i in parts else place for i, place in enumerate(_shards(kept))]
    out = _global(results if isinstance(results, Tensor) else results[0], mesh, found, shape)
    if isinstance(results, Tensor):
        return out
    casts = zip(results[1:], ("a", "b"), (spec.cast_a, spec.cast_b), strict=True)
    return out, *(
        _global(t, mesh, [Replicate()] * mesh.ndim, t.shape)
        if cast is None
        else _global(t, mesh, places[name], tensors[name].shape)
        for t, name, cast in casts
    )


@torch.no_grad()
def _quantize(cls: Any, operator: Any, types: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    given = _named(operator, args, kwargs)
    x, target = given["x"], target_of(given["cast"])
    whole = target.is_stochastic or isinstance(target, TENSOR_FORMATS)
    kept = [p if type(p) is Shard and not whole else Replicate() for p in x.placements]
    if target.is_stochastic and given["seed"] is None:
        given["seed"] = _common_seed(x.device_mesh)
    given["x"] = _local(x, x.device_mesh, kept)
    return _global(operator(**given), x.device_mesh, kept, x.shape)


def _named(operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Arguments by name, defaults included."""
    parameters = operator._schema.arguments
    given = {p.name: p.default_value for p in parameters if p.has_default_value()}
    given.update(zip((p.name for p in parameters), args, strict=False))
    given.update(kwargs)
    return given


def _spans(fmt: Any) -> bool:
    """Whether an operand's format has numbers that belong to more than one row or column of it."""
    return isinstance(fmt, TENSOR_FORMATS) or (isinstance(fmt, BlockFormat) and bool(fmt.tensor_scale))


def _mesh(tensors: dict[str, Tensor], plain: bool) -> DeviceMesh:
    """The one mesh of all operands; ``plain`` ones are whole in every process."""
    found = [(name, t.device_mesh) for name, t in tensors.items() if isinstance(t, DTensor)]
    mesh = found[0][1]
    others = [name for name, t in tensors.items() if not isinstance(t, DTensor)]
    if others and not plain:
        asked = f"product of the DTensor {found[0][0]} and the plain tensor {', '.join(others)}"
        do = "Use torch.distributed.tensor.distribute_tensor, or DTensor.from_local with [Replicate()]."
        raise ShardingError(message(asked, "DTensors of one mesh", do))
    for name, other in found[1:]:
        if other != mesh:
            asked = f"product of {found[0][0]} on {mesh} and {name} on {other}"
            raise ShardingError(message(asked, "DTensors of one mesh", "Redistribute one of them."))
    return mesh


def _check_sum(a: DTensor, b: DTensor, mesh: DeviceMesh) -> None:
    """``ShardingError`` where an operand of a forward product is sharded along the sum."""
    for name, t, summed in (("a", a, a.dim() - 1), ("b", b, b.dim() - 2)):
        for i, placement in enumerate(t.placements):
            if isinstance(placement, Shard) and placement.dim % t.dim() == summed and mesh.size(i) > 1:
                asked = f"product over a sharded sum: {name} {tuple(t.shape)} is {placement} over {mesh.size(i)} ranks"
                allowed = (
                    "shards of rows, columns and batches: partial sums of several processes would be added in another "
                    "order than the accumulator's, with other bits"
                )
                do = (
                    f"Gather it first: {name}.redistribute(placements=[Replicate()]), shard the other dimension of the "
                    "weight, or take PyTorch's own product (spec=None)."
                )
                raise ShardingError(message(asked, allowed, do))


def _sharded_sums(a: Tensor, b: Tensor, mesh: DeviceMesh) -> tuple[int, ...]:
    """Dimensions of the mesh over which both operands are sharded along the sum."""
    if not (isinstance(a, DTensor) and isinstance(b, DTensor)):
        return ()
    sums = (Shard(a.dim() - 1), Shard(b.dim() - 2))
    return tuple(i for i in range(mesh.ndim) if (a.placements[i], b.placements[i]) == sums)


def _of_parts(mesh: DeviceMesh, parts: Sequence[int]) -> int:
    """What makes the random bits of one process' part of a sum different from those of another's."""
    found = 0
    for i in parts:
        found = found * mesh.size(i) + mesh.get_local_rank(i)
    return found


def _kept(a: DTensor, b: DTensor, i: int, shape: Sequence[int]) -> int | None:
    """The dimension of the result that stays sharded over dimension ``i`` of the mesh; None: every process has all.

    The rows' and batches' shards come first: the other operand, mostly a weight, is then gathered.
    """
    for t, summed in ((a, a.dim() - 1), (b, b.dim() - 2)):
        placement = t.placements[i] if isinstance(t, DTensor) else None
        if type(placement) is Shard:
            dim = placement.dim % t.dim()
            at = dim + len(shape) - t.dim()
            if dim != summed and t.shape[dim] == shape[at]:
                return at
    return None


def _placement(name: str, t: Tensor, dim: int | None, rank: int) -> Any:
    """What a process needs of an operand to compute its part along dimension ``dim`` of the result."""
    if dim is None or t.dim() == 0:
        return Replicate()
    own = dim - (rank - t.dim())
    last = (rank - 1, t.dim() - 1) if name == "a" else (rank - 2, t.dim() - 2) if name == "b" else None
    if last is not None and dim == last[0]:
        return Replicate()  # the result's dimension there is the other operand's; this one's is the sum's
    return Shard(own) if own >= 0 and t.shape[own] != 1 else Replicate()


def _shards(kept: Sequence[int | None]) -> list[Any]:
    return [Replicate() if dim is None else Shard(dim) for dim in kept]


def _local(t: Any, mesh: DeviceMesh, placements: Sequence[Any]) -> Tensor:
    """The part of ``t`` that this process needs."""
    if not isinstance(t, DTensor):
        t = DTensor.from_local(t, mesh, [Replicate()] * mesh.ndim, run_check=False)
    if tuple(t.placements) != tuple(placements):
        # detached, because PyTorch before 2.12 cannot gather a tensor that requires a gradient below autograd
        t = t.detach().redistribute(mesh, placements)
    local: Tensor = t.to_local()
    return local


def _global(local: Tensor, mesh: DeviceMesh, placements: Sequence[Any], shape: Sequence[int]) -> DTensor:
    """The DTensor of which every process has ``local``."""
    size = torch.Size(shape)
    stride: list[int] = []
    step = 1
    for n in reversed(size):
        stride.insert(0, step)
        step *= max(n, 1)
    return DTensor.from_local(local.contiguous(), mesh, placements, run_check=False, shape=size, stride=tuple(stride))


def _common_seed(mesh: DeviceMesh) -> int:
    """A seed of the mesh's first process, drawn by all, so that their generators move on together."""
    seed = torch.tensor([draw_seed()], dtype=torch.int64, device=mesh.device_type)
    for i in range(mesh.ndim):
        dist.broadcast(seed, group=mesh.get_group(i), group_src=0)
    return int(seed)
