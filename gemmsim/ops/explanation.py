"""A spec in words, and what would run it."""

from __future__ import annotations

import torch

from gemmsim.arithmetic import GemmSpec

from .affine_formats import QAffineFormats
from .matmul import FormatsLike

__all__ = ["explain"]


def explain(spec: FormatsLike) -> str:
    """What ``spec`` computes, step by step, and for each backend whether it runs it or why not.

    Of ``QAffineFormats`` every product is explained and every quantiser listed. Nothing is run or compiled, but the CPU
    library is loaded. ``SpecError`` for a spec that means nothing.
    """
    if isinstance(spec, QAffineFormats):
        return _explain_formats(spec)
    meaning = GemmSpec.of(spec)
    return f"{meaning.explain()}\n{_backends(meaning)}"


def _explain_formats(formats: QAffineFormats) -> str:
    parts = [repr(formats)]
    for role, words in (("fprop", "input * weight"), ("dgrad", "gradient * weight"), ("wgrad", "gradient * input")):
        meaning: GemmSpec | None = getattr(formats, role)
        text = "PyTorch's own product" if meaning is None else f"{meaning.explain()}\n{_backends(meaning)}"
        parts.append(f"{role} ({words}):\n" + "\n".join(f"  {line}" for line in text.splitlines()))
    return "\n".join(parts)


def _backends(spec: GemmSpec) -> str:
    from gemmsim.backends import cpu, cublas, cuda

    reason = cpu.supported(spec)
    words = f"yes, {cpu.isa()}; last_backend() after a call tells the kernel and what the data allowed to leave out"
    found = cublas.native_type(spec, torch.float32, torch.float32)
    native = f"native type {found}, under gemmsim.cublas_acceleration only"
    if not isinstance(found, cublas.NativeType):
        native = f"no, {found}"
    refused = cuda.supported(spec)
    gpu = "yes, for tensors on an NVIDIA GPU; kernels are compiled when first used (gemmsim[cuda])"
    instruction = None if refused is not None else cuda.tensor_core_words(spec)
    cores = "" if instruction is None else f"\ntensor cores: {instruction}"
    return (
        f"cpu: {words if reason is None else f'no, {reason}'}\n"
        f"cuda: {gpu if refused is None else f'no, {refused}'}{cores}\n"
        f"cublas: {native} (operands in float32)"
    )
