"""Operators on fake tensors, for a run of which only shapes and dtypes are asked: equal calls get equal answers.

A model repeats its layers, so nearly every operator of a dry run gets tensors of the same shapes, strides and dtypes
as an earlier call. PyTorch's mode remembers calls, too, and takes 160 microseconds to compare and answer one; this
takes 19, which is what makes a dry run of billions of parameters a matter of a second. Every call that is new is
PyTorch's, and so are those whose results follow from more than their arguments' shapes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from .fake_tensor_assumptions import call_fake

__all__ = ["Answers"]

_dispatch_keys = torch._C._dispatch_keys
#: What is asked of tensors here, in backward passes as well, is no business of modes.
_NoDispatch: Any = torch._C._DisableTorchDispatch
_NoFunctions: Any = torch._C.DisableTorchFunction
_NEW: Any = object()

#: Operators whose fakes depend on nothing but their arguments: those of other packages may.
_KNOWN = frozenset(("aten", "prims", "gemmsim"))
#: Of operators whose results depend on values, or that change what a tensor is instead of what is in it.
_NEVER = (torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape, torch.Tag.inplace_view)
#: Arguments of this package's operators that say whose product it is and with which random bits: no fake reads them.
NEUTRAL = frozenset(("seed", "stream", "site", "row"))
_NUMBERS = (int, float, bool, complex)
_VALUES = frozenset((*_NUMBERS, str, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format))


class _Tensor(NamedTuple):
    """What there is to know of a fake tensor. ``keys``: its dispatch keys, which tell negated and conjugated views."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    dtype: torch.dtype
    device: torch.device
    keys: int


class _New(NamedTuple):
    """A result in memory of its own, or, where ``base`` is not None, in that of this argument."""

    like: _Tensor
    base: int | None


#: One result: a new tensor, or the argument of this index.
_Result: TypeAlias = "_New | int"
#: A call's results; the class says tuple or list where there may be several.
_Results: TypeAlias = "tuple[type | None, list[_Result]]"


class Answers:
    """What the operators of one run on the fake tensors of ``mode`` gave, by what that depends on."""

    def __init__(self, mode: FakeTensorMode) -> None:
        self.mode = mode
        self._known: dict[Any, _Results | None] = {}
        self._attributes: dict[torch.device, dict[str, Any]] = {}
        unsafe = getattr(mode, "_allow_unsafe_data_ptr_access", True)
        name = "_set_warn_deprecated_on_mutable_data_ptr" if unsafe else "_set_throw_on_mutable_data_ptr"
        #: What a fake tensor says to those who ask for its memory; None where this PyTorch has it otherwise.
        self._protect = getattr(torch._C, name, None)

    def __call__(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """``func(*args, **kwargs)``."""
        with _NoFunctions(), _NoDispatch():
            key = self._key(func, args, kwargs)
            found = None if key is None else self._known.get(key, _NEW)
            if found is not None and found is not _NEW:
                kind, results = found
                if kind is None:
                    return self._made(results[0], args)
                return kind([self._made(result, args) for result in results])
        output = call_fake(func, args, kwargs)
        if found is _NEW:
            with _NoFunctions(), _NoDispatch():
                self._known[key] = self._read(output, args, kwargs)
        return output

    def _key(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """All that the results follow from; None where they follow from more than a key can say."""
        found = _OPERATORS.get(func, _NEW)
        if found is _NEW:
            found = _OPERATORS[func] = _read_schema(func)
        if found is None or (found.constructs and kwargs.get("device") is None):  # which device is the default one
            return None
        key = [func, torch.get_default_dtype(), torch.is_inference_mode_enabled()]
        if found.neutral:
            args = [value for i, value in enumerate(args) if i not in found.neutral]
            kwargs = {name: value for name, value in kwargs.items() if name not in NEUTRAL}
        if not self._add(key, args):
            return None
        for name, value in kwargs.items():
            key.append(name)
            if not self._add(key, (value,)):
                return None
        return tuple(key)

    def _add(self, key: list[Any], values: Sequence[Any]) -> bool:
        """Arguments into a key, numbers with their types: 1, 1.0 and True are equal. Whether all of them went in."""
        for value in values:
            kind = type(value)
            if kind is FakeTensor:
                if not self._is_plain(value):
                    return False
                key.append(_described(value))
            elif kind in _VALUES:
                key.append(kind)
                key.append(value)
            elif kind is list or kind is tuple:
                key.append(len(value))
                if not self._add(key, value):
                    return False
            else:
                return False
        return True

    def _is_plain(self, t: Any) -> bool:
        """Whether a fake tensor is one of this run, dense, and no constant, whose value PyTorch keeps."""
        return t.fake_mode is self.mode and t.constant is None and t.layout is torch.strided and not t.is_nested

    def _read(self, output: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> _Results | None:
        """The results of a call, to be made again; None for those that cannot be."""
        kind = type(output) if type(output) in (tuple, list) else None
        outputs = (output,) if kind is None else output
        memory = [_memory(t) for t in _tensors((*args, *kwargs.values()))]
        results: list[_Result] = []
        for t in outputs:
            if type(t) is not FakeTensor or not self._is_plain(t) or t.requires_grad:
                return None
            same = [i for i, given in enumerate(args) if given is t]
            if same:
                results.append(same[0])
                continue
            bases = [i for i, given in enumerate(args) if type(given) is FakeTensor and _memory(given) == _memory(t)]
            if len(bases) != memory.count(_memory(t)) or len(bases) > 1:
                return None
            result = _New(_described(t), bases[0] if bases else None)
            again = self._made(result, args)
            if _described(again) != result.like or _bytes(again) != _bytes(t) or vars(again).keys() != vars(t).keys():
                return None
            if not bases:  # another result that shares this memory is not made again
                memory.append(_memory(t))
            results.append(result)
        return kind, results

    def _made(self, result: _Result, args: Sequence[Any]) -> Any:
        """One result of a call with these arguments."""
        if isinstance(result, int):
            return args[result]
        (shape, stride, offset, dtype, device, _), base = result
        t = torch.empty_strided(shape, stride, dtype=dtype, device="meta")
        if base is not None:
            t.set_(args[base].untyped_storage(), offset, shape, stride)
        return self._fake(t, device)

    def _fake(self, t: Tensor, device: torch.device) -> Any:
        """A fake tensor of this device like ``t``, which is on the meta device.

        All that PyTorch's constructor gives one is the same for each but for ``t``: it is made once, and copied.
        """
        attributes = self._attributes.get(device)
        if attributes is None or self._protect is None:
            made = FakeTensor(self.mode, t, device)
            self._attributes[device] = dict(vars(made))
            return made
        found = Tensor._make_subclass(FakeTensor, t, False, dispatch_device=True, device_for_backend_keys=device)
        self._protect(found)
        found.__dict__.update(attributes)
        return found


def _described(t: Any) -> _Tensor:
    return _Tensor(t.shape, t.stride(), t.storage_offset(), t.dtype, t.fake_device, _dispatch_keys(t).raw_repr())


def _bytes(t: Tensor) -> int:
    return t.untyped_storage().nbytes()


def _memory(t: Tensor) -> Any:
    return t.untyped_storage()._cdata


def _tensors(values: Sequence[Any]) -> Iterator[Tensor]:
    """Those among arguments, and in lists among them."""
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from _tensors(value)


class _Operator(NamedTuple):
    """``constructs``: it is given no tensor. ``neutral``: indices of arguments that do not matter."""

    constructs: bool
    neutral: frozenset[int]


#: What there is to know of operators; None: their calls are not remembered.
_OPERATORS: dict[Any, _Operator | None] = {}


def _read_schema(func: Any) -> _Operator | None:
    if not isinstance(func, torch._ops.OpOverload) or func.namespace not in _KNOWN:
        return None
    if any(tag in func.tags for tag in _NEVER):
        return None
    arguments = func._schema.arguments
    written = [i for i, one in enumerate(arguments) if one.alias_info is not None and one.alias_info.is_write]
    if written and (written != [0] or not func._schema.name.endswith("_")):
        return None
    ours = func.namespace == "gemmsim"
    neutral = frozenset(i for i, one in enumerate(arguments) if ours and one.name in NEUTRAL)
    return _Operator(not any("Tensor" in str(one.type) for one in arguments), neutral)
