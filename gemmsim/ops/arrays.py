"""numpy arrays as arguments: a function of tensors gets tensors on the arrays' memory, and returns arrays.

numpy is no requirement: no array comes from anywhere without it, and nothing here loads it before one does.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterable
from dataclasses import fields, is_dataclass, replace
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor
from torch.nn import Parameter

from .errors import DTypeError, message
from .lazy_dynamo import uncompiled

__all__ = [
    "ORDINARY",
    "are_given",
    "called_with_arrays",
    "are_traced",
    "is_array",
    "marked",
    "takes_arrays",
    "takes_arrays_too",
    "traced_with_arrays",
]

_P = ParamSpec("_P")
_R = TypeVar("_R")
#: numpy's class, of which there are no objects while numpy is not loaded; torch loads it where it is installed.
_NDARRAY: Any = getattr(sys.modules.get("numpy"), "ndarray", ())
#: Classes of most arguments, which are no arrays and hold none.
ORDINARY = frozenset({Tensor, Parameter, str, int, float, bool, type(None), torch.dtype})
#: Arguments that a function may write to: they have to be the array's own memory.
_WRITTEN = ("out", "running_mean", "running_var")
_ALONE = "only tensors, or only arrays"
#: Classes of numpy that are plain arrays. Others mean more than their numbers: masks, units, another product.
_PLAIN = ("ndarray", "memmap")


def is_array(value: Any) -> bool:
    """Whether ``value`` is a plain numpy array."""
    kind = type(value)
    return kind.__module__ == "numpy" and kind.__name__ in _PLAIN


def are_given(values: Iterable[Any]) -> bool:
    """Whether a numpy array is among these values, tuples looked into."""
    for value in values:
        kind = type(value)
        if kind in ORDINARY:
            continue
        if kind.__module__ == "numpy" and is_array(value):
            return True
        if isinstance(value, tuple) and are_given(value):
            return True
    return False


def takes_arrays(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """``function``, which takes numpy arrays in place of tensors, too, and then returns arrays.

    Raises:
        DTypeError: for arrays beside tensors, and arrays that no tensor can be made of.
    """

    @wraps(function)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        found: _R
        if torch.compiler.is_compiling():
            if are_traced(args, kwargs):
                found = traced_with_arrays(function, args, kwargs)
                return found
        elif are_given(args) or are_given(kwargs.values()):
            found = called_with_arrays(function, args, kwargs)
            return found
        return function(*args, **kwargs)

    return uncompiled(marked(call))


def marked(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """``function``, which takes arrays, marked as such for messages."""
    function.takes_arrays = True  # type: ignore[attr-defined]
    return function


def takes_arrays_too(owner: str) -> bool:
    """Whether the public function that messages call ``owner``, "qmatmul" or "mx.quantize", takes arrays."""
    found: Any = sys.modules.get("gemmsim")
    for name in owner.split("."):
        found = getattr(found, name, None)
    return bool(getattr(found, "takes_arrays", False))


def traced_with_arrays(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """``called_with_arrays`` for ``torch.compile``, whose tracer has tensors in place of arrays already.

    Raises:
        DTypeError: for arrays beside tensors.
    """
    if any(isinstance(value, Tensor) for value in (*args, *kwargs.values())):
        raise DTypeError(message(f"{_owner(function)}: tensors and numpy arrays", _ALONE, "Use torch.from_numpy."))
    values = [torch.from_numpy(value) if isinstance(value, _NDARRAY) else value for value in args]
    named = {name: torch.from_numpy(v) if isinstance(v, _NDARRAY) else v for name, v in kwargs.items()}
    result = function(*values, **named)
    return result.numpy() if type(result) is Tensor else result


def are_traced(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether code that is being compiled calls with arrays."""
    for value in args:
        if isinstance(value, _NDARRAY):
            return True
    for value in kwargs.values():
        if isinstance(value, _NDARRAY):
            return True
    return False


def called_with_arrays(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], owner: str | None = None
) -> Any:
    """What ``function`` returns for these arguments with tensors in place of the arrays, as arrays; tensors of other
    classes, MXTensor, as they are.

    Results that are an argument (``out``) are that array itself. Arrays of ``ml_dtypes`` (bfloat16, float8) have the
    dtypes of torch with the same names, and results of these dtypes are such arrays. ``owner``: the name for messages.

    Raises:
        DTypeError: for arrays beside tensors, dtypes that torch does not have, arrays to write to whose memory torch
            cannot share, and results in bfloat16 of arrays in other dtypes.
    """
    owner = _owner(function) if owner is None else owner
    names = list(inspect.signature(function).parameters)
    given = [*((names[i] if i < len(names) else str(i), value) for i, value in enumerate(args)), *kwargs.items()]
    tensor = next((name for name, value in given if isinstance(value, Tensor)), None)
    if tensor is not None:
        array = next((name for name, value in given if are_given((value,))), "another")
        asked = f"{owner}: {tensor} is a tensor and {array} a numpy array"
        raise DTypeError(message(asked, _ALONE, f"Use torch.from_numpy({array})."))
    known = _Known(owner)
    values = [known.tensors(name, value) for name, value in given]
    named = dict(zip(kwargs, values[len(args) :], strict=True))
    try:
        result = function(*values[: len(args)], **named)
    except DTypeError as error:
        raise DTypeError(_of_arrays(str(error))) from None
    return known.arrays(result)


#: What messages say of tensors, and what they say of the arrays in their place.
_WORDS = (
    (re.compile(r"torch\.as_tensor\((\w+)\)\.to\(torch\.(\w+)\)"), r"\1.astype(numpy.\2)"),
    (re.compile(r"\b(\w+)\.to\(torch\.(float(?:16|32|64)|u?int\d+)\)"), r"\1.astype(numpy.\2)"),
    (re.compile(r", or torch\.view_as_real\(\w+\)"), ""),
    (re.compile(r"dtype torch\.(\w+)"), r"dtype \1"),
    (re.compile(r"a tensor of torch\.(\w+)"), r"an array of \1"),
)


def _of_arrays(said: str) -> str:
    """A message about tensors in words for the arrays that they stand for."""
    for pattern, words in _WORDS:
        said = pattern.sub(words, said)
    return said


def _owner(function: Callable[..., Any]) -> str:
    """The function's name, as messages have it."""
    part = function.__module__.split(".")[1]
    return f"{part}.{function.__name__}" if part in ("mx", "sliced") else function.__name__


class _Known:
    """The tensors that stand for arrays in one call."""

    def __init__(self, owner: str) -> None:
        self.owner = owner
        self.pairs: list[tuple[Any, Tensor]] = []

    def tensors(self, name: str, value: Any) -> Any:
        """``value`` with tensors in place of arrays."""
        if isinstance(value, tuple):
            return _same_kind(value, (self.tensors(name, part) for part in value))
        if not is_array(value):
            return value
        made = _tensor(self.owner, name, value)
        self.pairs.append((value, made))
        return made

    def arrays(self, result: Any) -> Any:
        """``result`` with arrays in place of tensors."""
        if isinstance(result, tuple):
            return _same_kind(result, map(self.arrays, result))
        if is_dataclass(result) and not isinstance(result, type):
            changed = {f.name: getattr(result, f.name) for f in fields(result)}
            return replace(result, **{k: self.arrays(v) for k, v in changed.items() if isinstance(v, Tensor)})
        if type(result) not in (Tensor, Parameter):
            return result  # tensors of other classes, MXTensor, are more than their numbers
        given = next((array for array, tensor in self.pairs if tensor is result), None)
        return self._array(result) if given is None else given

    def _array(self, result: Tensor) -> Any:
        result = result.detach().cpu()
        name = str(result.dtype).removeprefix("torch.")
        given = (array.dtype for array, _ in self.pairs if _is_theirs(array.dtype) and array.dtype.name == name)
        dtype = next(given, None)
        try:
            return result.numpy() if dtype is None else result.view(_bits(result.dtype)).numpy().view(dtype)
        except TypeError:
            asked = f"{self.owner}: a result in {name}, which numpy does not have"
            do = "Use out_dtype=torch.float32, arrays of ml_dtypes, or tensors."
            raise DTypeError(message(asked, "results in float64, float32 and float16", do)) from None


def _tensor(owner: str, name: str, array: Any) -> Tensor:
    """A tensor on ``array``'s memory, or on a copy where torch cannot share it."""
    dtype = array.dtype
    theirs = getattr(torch, dtype.name, None) if _is_theirs(dtype) else None
    placed = all(step >= 0 and step % dtype.itemsize == 0 for step in array.strides)
    if not (placed and dtype.isnative and array.flags.writeable):
        if name in _WRITTEN:
            asked = f"{owner}: {name} is an array whose memory a tensor cannot share"
            allowed = "arrays of this machine's byte order that can be written to, without negative strides"
            raise DTypeError(message(asked, allowed, f"Use {name}.copy()."))
        array = array.astype(dtype.newbyteorder("="), order="C", copy=True)
    try:
        if isinstance(theirs, torch.dtype):
            return torch.from_numpy(array.view(f"u{dtype.itemsize}")).view(theirs)
        return torch.from_numpy(array)
    except TypeError:
        do = f"Use {name}.astype(numpy.float64)."
        asked = f"{owner}: {name} is an array of {dtype}"
        raise DTypeError(message(asked, "arrays of dtypes that torch has", do)) from None


def _is_theirs(dtype: Any) -> bool:
    """Whether a dtype is one of the package ``ml_dtypes``, whose names are torch's."""
    return bool(dtype.type.__module__ == "ml_dtypes")


def _bits(dtype: torch.dtype) -> torch.dtype:
    return {1: torch.uint8, 2: torch.int16}.get(dtype.itemsize, dtype)


def _same_kind(value: tuple[Any, ...], parts: Iterable[Any]) -> Any:
    """A tuple of the same class, named ones too."""
    return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
