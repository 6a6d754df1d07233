"""A spec in words, and what would run it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch

from gemmsim._keywords import takes_spec
from gemmsim.arithmetic import GemmSpec, Palette
from gemmsim.arithmetic.block_operands import takes_scales
from gemmsim.formats import BlockFormat

from .affine_formats import QAffineFormats, formats_named
from .matmul import FormatsLike

__all__ = ["explain"]


@takes_spec()
def explain(spec: FormatsLike) -> str:
    """What ``spec`` computes, step by step, and for each backend whether it runs it or why not.

    Of ``QAffineFormats``, and of the word of a recipe, every product is explained and every quantiser listed. Nothing
    is run or compiled, but the CPU library is loaded. ``SpecError`` for a spec that means nothing.

    Example:
        >>> print(gs.explain("e4m3 : fp16").splitlines()[3])
        each step   s = R(s + a*b), one rounding to e5m10 (max 65504), to nearest, ties to even
    """
    named = formats_named(spec) if isinstance(spec, str) else None
    if named is not None:
        return _explain_formats(named)
    if isinstance(spec, QAffineFormats):
        return _explain_formats(spec)
    meaning = GemmSpec.of(spec)
    return f"{meaning.explain()}\n{_backward(meaning)}\n{_backends(meaning)}"


def _backward(spec: GemmSpec) -> str:
    """What the backward products of a layer with this spec are, and what becomes of the gradient before them."""
    if isinstance(spec.accumulator, Palette):
        return "backward    none: indices choose for the forward product alone"
    formats = QAffineFormats.of(spec)
    dgrad, wgrad = formats.dgrad, formats.wgrad
    assert dgrad is not None and wgrad is not None
    products = f"dgrad {dgrad}" + (f", wgrad {wgrad}" if wgrad != dgrad else " and the same for wgrad")
    if dgrad.has_blocks:
        return f"backward    {products}: every operand is encoded anew, the gradient, too"
    if dgrad.cast_a is not None:
        return f"backward    {products}: the gradient is rounded to {dgrad.cast_a}"
    if spec.cast_a is None and spec.cast_b is None:
        return f"backward    {products}"
    rounds = "QAffineFormats(dgrad=..., wgrad=...) or a recipe rounds it"
    return f"backward    {products}: the gradient is multiplied as it comes, in no format of the operands; {rounds}"


def _explain_formats(formats: QAffineFormats) -> str:
    parts = [repr(formats)]
    for role, words in (("fprop", "input * weight"), ("dgrad", "gradient * weight"), ("wgrad", "gradient * input")):
        meaning: GemmSpec | None = getattr(formats, role)
        text = "PyTorch's own product" if meaning is None else f"{meaning.explain()}\n{_backends(meaning)}"
        parts.append(f"{role} ({words}):\n" + "\n".join(f"  {line}" for line in text.splitlines()))
    return "\n".join(parts)


def _backends(spec: GemmSpec) -> str:
    from gemmsim.backends import cpu, python_fallback

    if spec.accumulator.is_lookup:
        from gemmsim.backends import cuda

        found = (("cpu", "", cpu.lookup_refuses(spec)), ("cuda", f", {_ON_GPU}", cuda.lookup_refuses(spec)))
        yes = "yes, by looking products up"
        return "\n".join(f"{name}: {yes + more if why is None else f'no, {why}'}" for name, more, why in found)
    if spec.needs_steps:
        inner = replace(spec, a=None, b=None, out=None)
        if not inner.needs_steps:
            return f"operands or output are looked up in PyTorch; the product itself:\n{_backends(inner)}"
        reason = python_fallback.refuses(inner)
        words = "yes, a step for each term in PyTorch, on the tensors' device"
        return f"stepwise: {words if reason is None else f'no, {reason}'}"
    reason = cpu.refuses(spec)
    words = f"yes, {cpu.isa()}; last_backend() after a call tells the kernel and what the data allowed to leave out"
    first = f"cpu: {words if reason is None else f'no, {reason}'}"
    return "\n".join([first, *_cuda_lines(spec), _cublas_line(spec), *_cutlass_lines(spec)])


_ON_GPU = "for tensors on an NVIDIA GPU; kernels are compiled when first used (gemmsim[cuda])"


def _cuda_lines(spec: GemmSpec) -> Iterator[str]:
    from gemmsim.backends import cuda

    refused = cuda.refuses(spec)
    if refused is not None:
        yield f"cuda: no, {refused}"
        return
    yield f"cuda: yes, {_ON_GPU}"
    how = cuda.block_words(spec)
    if how is not None:
        yield f"blocks on cuda: {how}"
    cores = [words for words in (cuda.tensor_core_words(spec), cuda.block_core_words(spec)) if words is not None]
    if cores:
        yield f"tensor cores: {'. '.join(cores)}"


def _cublas_line(spec: GemmSpec) -> str:
    from gemmsim.backends import cublas

    found = cublas.native_type(spec, torch.float32, torch.float32)
    decoded = _decoded_type(spec)
    if isinstance(found, cublas.NativeType):
        other = "" if decoded is None else f"; where a GPU is older than a Blackwell, {decoded}"
        return f"cublas: native type {found}, under gemmsim.cublas_acceleration only{other} (operands in float32)"
    if decoded is not None:
        return f"cublas: {decoded}, under gemmsim.cublas_acceleration only; codes and scales themselves: no, {found}"
    return f"cublas: no, {found} (operands in float32)"


def _cutlass_lines(spec: GemmSpec) -> Iterator[str]:
    from gemmsim.backends import cutlass

    values = _values(spec)
    named, dtype = values or (spec, torch.float32)
    found = cutlass.mainloop_of(named, dtype, dtype)
    if isinstance(found, tuple):
        a, b, promoted = found
        how = f"{a} by {b}" + (f", promoted every {promoted} terms" if promoted else "")
        held = "" if values is None else f" of the operands' values, if {str(dtype)[6:]} holds them"
        yield f"cutlass: mainloop {how}{held}, on Hopper under gemmsim.cutlass_acceleration (operands in float32)"


def _values(spec: GemmSpec) -> tuple[GemmSpec, torch.dtype] | None:
    """The product of the operands' values and their dtype, where block formats are decoded beforehand."""
    if not spec.has_blocks or takes_scales(spec.accumulator):
        return None
    from gemmsim.backends.route import plain_spec

    both = isinstance(spec.a, BlockFormat) and isinstance(spec.b, BlockFormat)
    return plain_spec(spec), torch.bfloat16 if both else torch.float32


def _decoded_type(spec: GemmSpec) -> str | None:
    """The native type of operands whose values were taken out of block formats; ``None`` where there is none."""
    values = _values(spec)
    if values is None:
        return None
    from gemmsim.backends import cublas

    plain, dtype = values
    found = cublas.native_type(plain, dtype, dtype)
    if not isinstance(found, cublas.NativeType):
        return None
    return f"native type {found} of the operands' values, if {str(dtype)[6:]} holds them"
