"""Our operators in ONNX files: nodes of the domain ``gemmsim``, for ``torch.onnx.export(..., dynamo=True)``.

A node has the name and the arguments of the operator in ``torch.ops.gemmsim``: tensors are its inputs, everything else
(the spec, formats, sizes, a seed) its attributes; what is None is left out, and numbers that are no integers are text,
because ONNX has them in float32. ONNX itself has no such operators, so a
runtime needs an implementation of its own; ONNX Runtime names them when it refuses the file.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .product import operators as library  # noqa: F401  # registers the operators

__all__ = ["DOMAIN", "VERSION", "onnx_translations"]

#: Domain of the nodes, and its version: it changes when a node's meaning does.
DOMAIN, VERSION = "gemmsim", 1


def onnx_translations() -> dict[Callable[..., Any], Callable[..., Any]]:
    """The ``custom_translation_table`` for ``torch.onnx.export``: every operator as a node of the domain ``gemmsim``.

    The table has the operators of the parts that are loaded: call this after you made the model. Calibrated quantisers
    have nodes of the standard, ``gemmsim.tensor_quant.onnx_translations``; merge the tables for models with both. Needs
    the packages onnx and onnxscript, as that exporter does.

    Example:
        >>> table = gs.ops.onnx_translations()  # torch.onnx.export(..., custom_translation_table=table)
        >>> torch.ops.gemmsim.quantize.default in table
        True
    """
    table: dict[Callable[..., Any], Callable[..., Any]] = {}
    for name in torch.ops.gemmsim:
        operator = getattr(torch.ops.gemmsim, name).default
        if not name.startswith("tq_") and not operator._schema.is_mutable:
            table[operator] = _translation(operator)
    return table


def _translation(operator: Any) -> Callable[..., Any]:
    """A function of the exporter's values that adds the operator's node."""
    parameters = operator._schema.arguments

    def translate(*args: Any, **kwargs: Any) -> Any:
        given = dict(zip((p.name for p in parameters), args, strict=False)) | kwargs
        inputs = [given.get(p.name) for p in parameters if _is_tensor(p)]
        while inputs and inputs[-1] is None:
            inputs.pop()
        others = {p.name: given[p.name] for p in parameters if not _is_tensor(p) and given.get(p.name) is not None}
        return _node_of(operator)(*inputs, **{name: _attribute(value) for name, value in others.items()})

    translate.__name__ = operator._schema.name.partition("::")[2]
    return translate


def _is_tensor(parameter: Any) -> bool:
    return "Tensor" in str(parameter.type)


def _attribute(value: Any) -> Any:
    """A value as ONNX has it: integers, lists of them, and text, also for other numbers, which it has in float32."""
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, (bool, int)):
        return int(value)
    return [int(v) for v in value] if isinstance(value, (list, tuple)) else value


def _node_of(operator: Any) -> Any:
    """onnxscript's operator with the signature of ours."""
    from onnx import defs
    from onnxscript import values

    schema = operator._schema
    kinds = ["tensor(float)", "tensor(double)", "tensor(float16)", "tensor(bfloat16)", "tensor(int64)"]
    kinds += ["tensor(int32)", "tensor(int16)", "tensor(int8)", "tensor(uint8)", "tensor(bool)"]
    tensors = [p for p in schema.arguments if _is_tensor(p)]
    option = defs.OpSchema.FormalParameterOption
    inputs = [
        defs.OpSchema.FormalParameter(
            p.name, f"T{i}", param_option=option.Optional if "Optional" in str(p.type) else option.Single
        )
        for i, p in enumerate(tensors)
    ]
    outputs = [defs.OpSchema.FormalParameter(f"y{i}", f"R{i}") for i in range(len(schema.returns))]
    named = [f"T{i}" for i in range(len(inputs))] + [f"R{i}" for i in range(len(outputs))]
    name = schema.name.partition("::")[2]
    made = defs.OpSchema(
        name,
        DOMAIN,
        VERSION,
        inputs=inputs,
        outputs=outputs,
        type_constraints=[(one, kinds, "") for one in named],
        attributes=[_declared(defs.OpSchema, p) for p in schema.arguments if not _is_tensor(p)],
    )
    return values.Op(values.Opset(DOMAIN, VERSION), name, made)


def _declared(kinds: Any, parameter: Any) -> Any:
    text = str(parameter.type)
    kind = kinds.AttrType.STRING if "str" in text or "float" in text else kinds.AttrType.INT
    kind = kinds.AttrType.INTS if "List" in text else kind
    return kinds.Attribute(parameter.name, kind, "", required=False)
