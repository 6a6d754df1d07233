"""Convolutions by their definition: a matrix of windows, gathered number by number, and one product for each group."""

from __future__ import annotations

import itertools

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


def by_group(left: Tensor, right: Tensor, spec: str, group: int, seed: int) -> Tensor:
    """The product of one group, whose random bits belong to its columns among those of all groups."""
    skipped = right.new_zeros(right.shape[0], group * right.shape[1])
    return gs.qmatmul(left, torch.cat([skipped, right], 1), spec, seed=seed)[:, skipped.shape[1] :]


def conv(x, weight, spec, count, stride, padding, dilation, groups, seed=0) -> Tensor:
    """The convolution with ``count`` windows."""
    found = []
    for g, (part, w) in enumerate(zip(x.chunk(groups, 1), weight.chunk(groups), strict=True)):
        left = windows(part, count, weight.shape[2:], stride, padding, dilation)
        found.append(by_group(left, w.flatten(1).T, spec, g, seed))
    return torch.cat(found, 1).unflatten(0, (x.shape[0], *count)).movedim(-1, 1)


def transposed(x, weight, spec, size, stride, padding, dilation, groups, seed=0) -> Tensor:
    """The transposed convolution with a result of ``size``."""
    flipped = weight.flip(tuple(range(2, weight.dim())))
    swapped = torch.cat([w.transpose(0, 1) for w in flipped.chunk(groups)])
    before = [d * (k - 1) - p for d, k, p in zip(dilation, weight.shape[2:], padding, strict=True)]
    return conv(stuffed(x, stride), swapped, spec, size, (1,) * len(size), before, dilation, groups, seed)


def weight_gradient(large, small, spec, kernel, stride, padding, dilation, groups, seed=0) -> Tensor:
    """(channels of small, channels of large / groups, *kernel): sums over images, then windows."""
    found = []
    for g, (part, one) in enumerate(zip(large.chunk(groups, 1), small.chunk(groups, 1), strict=True)):
        left = windows(part, small.shape[2:], kernel, stride, padding, dilation).T
        right = one.flatten(2).transpose(0, 1).flatten(1).T
        found.append(by_group(left, right, spec, g, seed).T)
    return torch.cat(found).unflatten(1, (large.shape[1] // groups, *kernel))
