"""NF4: sixteen values that divide a normal distribution evenly, in blocks whose scales are quantised themselves."""

from __future__ import annotations

import torch
from torch import Tensor

from gemmsim.ops.arrays import takes_arrays

from .arguments import prepared
from .block_quantization import check_block_size, fake_blocks
from .errors import BlockSizeError, message
from .gradients import straight_through
from .operators import checked_op

__all__ = ["NF4", "nf4_fake_quant"]

#: The sixteen values, ascending, each a float32. Source: Dettmers et al., QLoRA, 2023, appendix E.
NF4 = (
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
    -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
    0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0,
)  # fmt: skip


@takes_arrays
def nf4_fake_quant(
    inputs: Tensor, block_size: int = 64, scale_bits: int | None = 8, scale_block_size: int = 256
) -> Tensor:
    """Quantise ``inputs`` to NF4 and back; blocks of ``block_size`` along the last dimension are scaled by their
    amax.

    The result is ``NF4[nearest to x / m] * m'`` in float32, each step rounded once. Here m is the block's largest
    magnitude (1 if that is 0), and m' is what remains of it when the scales are quantised. That is m minus the mean
    of all m, rounded to ``scale_bits`` integers in blocks of ``scale_block_size``, plus the mean. The result has the
    dtype and shape of ``inputs``.

    Args:
        inputs: any shape with a dimension, any strides; a short last block counts as filled with zeros.
        scale_bits: 2 to 23; None does not quantise the scales.

    Of two values equally near, the lower is chosen. Zeros are +0. NaN and infinities raise. The gradient passes.
    Source: QLoRA section 3; ModelOpt's ``NF4QTensor`` (not compared with it bit for bit).

    Raises:
        BlockSizeError (ValueError, AssertionError): unless both sizes are positive integers.
        BitsError (ValueError): for other ``scale_bits``.
        AmaxError (ValueError): for NaN or infinity among the inputs.
        DTypeError, DeviceError: as ``fake_tensor_quant``.

    Example:
        >>> gs.tensor_quant.nf4_fake_quant(torch.tensor([0.1, -0.5, 1.0]), scale_bits=None)
        tensor([ 0.0796, -0.5251,  1.0000])
    """
    owner = "nf4_fake_quant"
    size, outer = check_block_size(owner, block_size), check_block_size(owner, scale_block_size)
    x, _, _ = prepared(owner, inputs, None)
    if x.dim() == 0:
        raise BlockSizeError(message(f"{owner}: inputs without dimensions", "a dimension for blocks", "Use x[None]."))
    if x.numel() == 0:
        return x.clone()
    with torch.no_grad():
        length = x.shape[-1]
        cut = torch.nn.functional.pad(x.detach().float(), (0, -length % size)).unflatten(-1, (-1, size))
        largest = cut.abs().amax(-1, keepdim=True)
        largest = checked_op(largest, owner)
        scale = torch.where(largest == 0, 1.0, largest)
        if scale_bits is not None:
            largest = fake_blocks(largest, {"scale_bits": scale_bits, "scale_block_sizes": {-1: outer}})
        y = (_nearest(cut / scale) * largest).flatten(-2)[..., :length].to(x.dtype)
    return straight_through(x, y)


def _nearest(t: Tensor) -> Tensor:
    """The value of NF4 nearest to each element; middles are exact in float64."""
    values = torch.tensor(NF4, dtype=torch.float64, device=t.device)
    index = torch.bucketize(t.double(), (values[1:] + values[:-1]) / 2)
    return values[index].float()
