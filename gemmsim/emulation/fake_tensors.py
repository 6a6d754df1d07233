"""Computes operators on fake tensors for runs that follow only shapes and dtypes: equal calls get stored answers.

A model repeats its layers, so nearly every operator of a dry run gets tensors of the same shapes, strides and dtypes as
an earlier call. PyTorch's mode stores calls, too, and takes 160 microseconds to compare and answer one. This takes 19,
so that a dry run of billions of parameters takes about a second. PyTorch computes every new call, and every call whose
results depend on more than its arguments' shapes.
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
#: Reading properties of tensors here, in backward passes as well, must not reach modes.
_NoDispatch: Any = torch._C._DisableTorchDispatch
_NoFunctions: Any = torch._C.DisableTorchFunction
_NEW: Any = object()

#: Namespaces of operators whose fakes depend only on their arguments. Those of other packages may depend on more.
_KNOWN = frozenset(("aten", "prims", "gemmsim"))
#: Tags of operators whose results depend on values, or that change what a tensor is instead of its values.
_NEVER = (torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape, torch.Tag.inplace_view)
#: Arguments of this package's operators for the call site and its random bits. No fake reads them.
NEUTRAL = frozenset(("seed", "stream", "site", "row"))
_NUMBERS = (int, float, bool, complex)
_VALUES = frozenset((*_NUMBERS, str, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format))


class _Tensor(NamedTuple):
    """The properties of a fake tensor. ``keys``: its dispatch keys, which identify negated and conjugated views."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    dtype: torch.dtype
    device: torch.device
    keys: int


class _New(NamedTuple):
    """A result in memory of its own, or, if ``base`` is not None, in the memory of this argument."""

    like: _Tensor
    base: int | None


#: One result: a new tensor, or the index of an argument that is the result.
_Result: TypeAlias = "_New | int"
#: A call's results, and the class, tuple or list, if there may be several.
_Results: TypeAlias = "tuple[type | None, list[_Result]]"


class Answers:
    """The results of the operators of one run on the fake tensors of ``mode``, by what they depend on."""

    def __init__(self, mode: FakeTensorMode) -> None:
        self.mode = mode
        self._known: dict[Any, _Results | None] = {}
        self._attributes: dict[torch.device, dict[str, Any]] = {}
        unsafe = getattr(mode, "_allow_unsafe_data_ptr_access", True)
        name = "_set_warn_deprecated_on_mutable_data_ptr" if unsafe else "_set_throw_on_mutable_data_ptr"
        #: Sets what a fake tensor does if its memory is requested; None if this PyTorch lacks the function.
        self._protect = getattr(torch._C, name, None)

    def __call__(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """``func(*args, **kwargs)``, from the stored results of an equal call if there was one."""
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
        """All that the results depend on; None if they depend on more than a key can contain."""
        found = _OPERATORS.get(func, _NEW)
        if found is _NEW:
            found = _OPERATORS[func] = _read_schema(func)
        if found is None or (found.constructs and kwargs.get("device") is None):  # it depends on the default device
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
        """Adds arguments to a key, numbers with their types, because 1, 1.0 and True are equal.

        Returns whether all of them could be added.
        """
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
        """Whether a fake tensor is one of this run, dense, and no constant, whose value PyTorch stores."""
        return t.fake_mode is self.mode and t.constant is None and t.layout is torch.strided and not t.is_nested

    def _read(self, output: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> _Results | None:
        """The results of a call, in a form from which they can be made again; None if that is not possible."""
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
            if not bases:  # a call with another result in this memory is not stored
                memory.append(_memory(t))
            results.append(result)
        return kind, results

    def _made(self, result: _Result, args: Sequence[Any]) -> Any:
        """Makes one result of a call with these arguments."""
        if isinstance(result, int):
            return args[result]
        (shape, stride, offset, dtype, device, _), base = result
        t = torch.empty_strided(shape, stride, dtype=dtype, device="meta")
        if base is not None:
            t.set_(args[base].untyped_storage(), offset, shape, stride)
        return self._fake(t, device)

    def _fake(self, t: Tensor, device: torch.device) -> Any:
        """A fake tensor of this device like ``t``, which is on the meta device.

        The attributes that PyTorch's constructor gives it depend only on the device, so they are made once and copied.
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
    """The tensors among arguments, and in lists among them."""
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from _tensors(value)


class _Operator(NamedTuple):
    """Properties of an operator.

    ``constructs``: whether it takes no tensor. ``neutral``: indices of arguments that do not matter.
    """

    constructs: bool
    neutral: frozenset[int]


#: Operator -> its properties; None: its calls are not stored.
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
