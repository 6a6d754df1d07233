"""Convolutions by their definition: a matrix of windows, gathered number by number, and one product for each group."""

from __future__ import annotations

import itertools
import math

import torch
from torch import Tensor

import gemmsim as gs

CONVS = (gs.qconv1d, gs.qconv2d, gs.qconv3d)
TRANSPOSES = (gs.qconv_transpose1d, gs.qconv_transpose2d, gs.qconv_transpose3d)


def indices(sizes):
    return list(itertools.product(*map(range, sizes)))


def windows(x: Tensor, count, kernel, stride, padding, dilation) -> Tensor:
    """(B * windows, C * positions): what each window of ``x`` holds, zeros beyond ``x``."""
    places = []
    for o in indices(count):
        for j in indices(kernel):
            at = [a * s + b * d - p for a, s, b, d, p in zip(o, stride, j, dilation, padding, strict=True)]
            inside = all(0 <= i < n for i, n in zip(at, x.shape[2:], strict=True))
            flat = 0
            for i, n in zip(at, x.shape[2:], strict=True):
                flat = flat * n + i
            places.append(flat if inside else -1)
    padded = torch.cat([x.flatten(2), x.new_zeros(*x.shape[:2], 1)], 2)
    found = padded[:, :, places].unflatten(2, (len(indices(count)), -1))
    return found.transpose(1, 2).flatten(2).flatten(0, 1)


def stuffed(x: Tensor, stride) -> Tensor:
    """``x`` with ``stride - 1`` zeros between its elements."""
    out = x.new_zeros(*x.shape[:2], *((n - 1) * s + 1 for n, s in zip(x.shape[2:], stride, strict=True)))
    out[(..., *(slice(None, None, s) for s in stride))] = x
    return out


def by_group(left: Tensor, right: Tensor, spec: str, group: int, seed: int, dtype: torch.dtype | None = None) -> Tensor:
    """The product of one group, whose random bits belong to its columns among those of all groups."""
    skipped = right.new_zeros(right.shape[0], group * right.shape[1])
    whole = torch.cat([skipped, right], 1)
    return gs.qmatmul(left, whole, spec, seed=seed, out_dtype=dtype)[:, skipped.shape[1] :]


def conv(x, weight, spec, count, stride, padding, dilation, groups, seed=0) -> Tensor:
    """The convolution with ``count`` windows."""
    found = []
    for g, (part, w) in enumerate(zip(x.chunk(groups, 1), weight.chunk(groups), strict=True)):
        left = windows(part, count, weight.shape[2:], stride, padding, dilation)
        found.append(by_group(left, w.flatten(1).T, spec, g, seed))
    return torch.cat(found, 1).unflatten(0, (x.shape[0], *count)).movedim(-1, 1)


def transposed(x, weight, spec, size, stride, padding, dilation, groups, seed=0) -> Tensor:
    """The transposed convolution with a result of ``size``: products over the channels, then numbers added one by one
    in float32 (float64, if the accumulator has numbers that float32 does not), kernel positions ascending."""
    meaning = gs.GemmSpec.of(spec)
    last, wide = meaning.out, meaning.out is None and "e11m52" in str(meaning.accumulator)
    dtype = torch.float64 if wide or torch.float64 in (x.dtype, weight.dtype) else torch.float32
    kernel, places = tuple(weight.shape[2:]), indices(x.shape[2:])
    rows = [part.flatten(2).transpose(1, 2).flatten(0, 1) for part in x.chunk(groups, 1)]
    columns = [w.flatten(1) for w in weight.chunk(groups)]
    found = [by_group(a, b, spec, g, seed, dtype) for g, (a, b) in enumerate(zip(rows, columns, strict=True))]
    products = torch.cat(found, 1).unflatten(0, (x.shape[0], len(places))).unflatten(2, (-1, len(indices(kernel))))
    out: dict[tuple[int, ...], Tensor] = {}
    for tap, j in enumerate(indices(kernel)):
        for place, i in enumerate(places):
            at = tuple(a * s + b * d - p for a, s, b, d, p in zip(i, stride, j, dilation, padding, strict=True))
            if all(0 <= o < n for o, n in zip(at, size, strict=True)):
                one = products[:, place, :, tap]
                out[at] = out[at] + one if at in out else one
    nothing = torch.zeros(x.shape[0], weight.shape[1] * groups, dtype=dtype)
    total = torch.stack([out.get(at, nothing) for at in indices(size)], 2).unflatten(2, tuple(size))
    total = total.nan_to_num(math.nan, math.inf, -math.inf)
    total = total if last is None else gs.quantize(total, last)
    return total.to(torch.promote_types(x.dtype, weight.dtype))


def transposed_with_zeros(x, weight, spec, size, stride, padding, dilation, groups, seed=0) -> Tensor:
    """The same as one sum over channels and kernel positions, of ``x`` with zeros between its elements."""
    flipped = weight.flip(tuple(range(2, weight.dim())))
    swapped = torch.cat([w.transpose(0, 1) for w in flipped.chunk(groups)])
    before = [d * (k - 1) - p for d, k, p in zip(dilation, weight.shape[2:], padding, strict=True)]
    return conv(stuffed(x, stride), swapped, spec, size, (1,) * len(size), before, dilation, groups, seed)


def transposed_by_taps(x, weight, spec, size, stride, padding, dilation, groups) -> Tensor:
    """The same as one sum over channels and those kernel positions, from the last, that contribute to a place."""
    places, found = {place: n for n, place in enumerate(indices(x.shape[2:]))}, []
    flat = torch.cat([x.flatten(2), x.new_zeros(*x.shape[:2], 1)], 2)
    for o in indices(size):
        met, at = [], []
        for tap, j in reversed(list(enumerate(indices(weight.shape[2:])))):
            reached = [a + p - b * d for a, p, b, d in zip(o, padding, j, dilation, strict=True)]
            if all(r % s == 0 for r, s in zip(reached, stride, strict=True)):
                met.append(tap)
                at.append(places.get(tuple(r // s for r, s in zip(reached, stride, strict=True)), -1))
        rows = [part.flatten(1) for part in flat[:, :, at].chunk(groups, 1)]
        columns = [w.flatten(2)[:, :, met].movedim(2, 1).flatten(0, 1) for w in weight.chunk(groups)]
        found.append(torch.cat([gs.qmatmul(a, b, spec) for a, b in zip(rows, columns, strict=True)], 1))
    return torch.stack(found, 2).unflatten(2, tuple(size))


def weight_gradient(large, small, spec, kernel, stride, padding, dilation, groups, seed=0) -> Tensor:
    """(channels of small, channels of large / groups, *kernel): sums over images, then windows."""
    found = []
    for g, (part, one) in enumerate(zip(large.chunk(groups, 1), small.chunk(groups, 1), strict=True)):
        left = windows(part, small.shape[2:], kernel, stride, padding, dilation).T
        right = one.flatten(2).transpose(0, 1).flatten(1).T
        found.append(by_group(left, right, spec, g, seed).T)
    return torch.cat(found).unflatten(1, (large.shape[1] // groups, *kernel))
