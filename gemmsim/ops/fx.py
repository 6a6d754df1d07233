"""``torch.fx.symbolic_trace``: modules of this package stay whole, and functions become one call each.

A tracer looks into every module that does not live under ``torch.nn``, and would find code that asks tensors for their
dtypes, strides and devices, which its proxies do not have. Modules and functions therefore enter themselves into the
graph as what they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import wraps
from importlib import import_module
from itertools import chain
from typing import Any, ParamSpec, TypeVar

import torch
from torch.fx import Proxy

from gemmsim.arithmetic import Accumulator, GemmSpec
from gemmsim.formats import TENSOR_FORMATS, BlockFormat, Cast, Rounding
from gemmsim.formats.any_format import FORMATS

from . import forward_mode, subnormals
from .arrays import ORDINARY, are_traced, called_with_arrays, is_array, marked, traced_with_arrays
from .errors import ExportError, message
from .lazy_dynamo import uncompiled

__all__ = ["Whole", "formats_from", "traceable"]

_tracing = torch._C._get_tracing_state
_P = ParamSpec("_P")
_R = TypeVar("_R")
_VALUES = (Cast, Rounding, BlockFormat, *FORMATS, *TENSOR_FORMATS)


class Whole:
    """Mixin of modules that ``torch.fx`` keeps as one node, as it keeps those of ``torch.nn``, hooks included.

    What a tracer is told to do by its own ``is_leaf_module`` comes first where that says yes. A module that is itself
    the root of a trace is looked into, as those of ``torch.nn`` are.
    """

    @uncompiled
    def _call_impl(self, *args: Any, **kwargs: Any) -> Any:
        if not torch.compiler.is_compiling():
            if _tracing() is not None:
                self._check_export()
            proxy = _first_proxy((*args, *kwargs.values()))
            if proxy is not None:
                tracer: Any = proxy.tracer
                return tracer.create_proxy("call_module", tracer.path_of_module(self), args, kwargs)
        return super()._call_impl(*args, **kwargs)  # type: ignore[misc]

    def _is_torchs_own(self) -> bool:
        """Whether all that it computes are PyTorch's operators, or operators that files of ONNX know."""
        return False

    def _check_export(self) -> None:
        """``ExportError`` where the exporter records PyTorch's operators alone: a file would hold results, not us."""
        if torch.onnx.is_in_onnx_export() and not self._is_torchs_own():
            asked = f"torch.onnx.export(..., dynamo=False) of {self}"
            do = "Give dynamo=True and custom_translation_table=gemmsim.ops.onnx_translations()."
            raise ExportError(message(asked, "dynamo=True, which stores it as a separate operator", do))


def traceable(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """``function``, which becomes one ``call_function`` node of the graph when an argument is a tracer's proxy.

    Formats and specs enter the graph as their names or dictionaries, so that its code can be printed and pickled.
    numpy arrays are taken in place of tensors (``takes_arrays``).

    Raises:
        FormatError: for formats whose quantisers are functions, which a graph cannot name.
        DTypeError: for arrays beside tensors, and arrays that no tensor can be made of.
        GradError: for tensors with a tangent, of which derivatives in forward mode are asked.
    """
    by_position: Callable[..., _R] = getattr(function, "by_position", function)  # past what looks at keywords alone

    @wraps(function)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        found: _R
        if torch.compiler.is_compiling():
            if are_traced(args, kwargs):
                found = traced_with_arrays(function, args, kwargs)
                return found
        else:
            for value in chain(args, kwargs.values()) if kwargs else args:
                kind = type(value)
                if kind in ORDINARY:
                    continue
                if kind.__module__ == "numpy" and is_array(value):
                    found = called_with_arrays(call, args, kwargs)
                    return found
                if isinstance(value, Proxy):
                    return _node(call, value, args, kwargs)
            if forward_mode.is_on():
                with forward_mode.refused(function.__name__, args, kwargs):
                    return function(*args, **kwargs)
            if subnormals.are_flushed():
                return subnormals.kept(function, *args, **kwargs)
            if not kwargs:
                return by_position(*args)
        return function(*args, **kwargs)

    return uncompiled(marked(call))


def formats_from(kind: str, fields: dict[str, Any]) -> Any:
    """The formats object of class ``kind`` of ``gemmsim.ops`` that ``to_dict`` wrote; what graphs call."""
    return getattr(import_module("gemmsim.ops"), kind).from_dict(fields)


def _first_proxy(values: Iterable[Any]) -> Proxy | None:
    """The first proxy among these values, tuples and lists looked into."""
    for value in values:
        if isinstance(value, Proxy):
            return value
        if isinstance(value, (tuple, list)):
            found = _first_proxy(value)
            if found is not None:
                return found
    return None


def _node(function: Callable[..., Any], proxy: Proxy, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    named = {name: _named(proxy, value) for name, value in kwargs.items()}
    return proxy.tracer.create_proxy("call_function", function, tuple(_named(proxy, v) for v in args), named)


def _named(proxy: Proxy, value: Any) -> Any:
    """``value`` as graphs hold it: specs and formats by name, formats objects by their dictionary."""
    if isinstance(value, (GemmSpec, Accumulator)):
        return str(GemmSpec.of(value))
    if isinstance(value, _VALUES):
        return str(value)
    if hasattr(value, "to_dict") and type(value).__module__.startswith("gemmsim.ops."):
        return proxy.tracer.create_proxy("call_function", formats_from, (type(value).__name__, value.to_dict()), {})
    return value
