"""Fake tensors for a run of which only shapes and dtypes are asked: a call like one before is not looked into again.

A model repeats its layers, so nearly every operator of a dry run gets tensors of the same shapes, strides and dtypes
as an earlier call. PyTorch's mode remembers such calls too, and then takes 160 microseconds to compare and answer one;
this takes 25, which is what makes a dry run of billions of parameters a matter of a second. What cannot be remembered,
and every call that is new, is PyTorch's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

__all__ = ["Answers"]

_dispatch_keys = torch._C._dispatch_keys
_NoDispatch: Any = torch._C._DisableTorchDispatch
#: Operators whose fakes depend on nothing but their arguments: those of other packages may.
_KNOWN = frozenset(("aten", "prims", "gemmsim"))
#: Operators whose results depend on values, or that change what a tensor is instead of what is in it.
_NEVER = (torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape, torch.Tag.inplace_view)
#: Arguments of this package's operators that say whose product it is and with which random bits: no fake reads them.
_NEUTRAL = frozenset(("seed", "stream", "site", "row"))
_VALUES = frozenset(
    (*(int, float, bool, complex, str, type(None)),)
    + (torch.dtype, torch.device, torch.layout, torch.memory_format)
)  # fmt: skip


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
#: A call's results; ``kind``: tuple or list where there are several.
_Results: TypeAlias = "tuple[type | None, list[_Result]]"


class Answers:
    """What the operators of one run on fake tensors gave, by what it depends on."""

    def __init__(self, mode: FakeTensorMode) -> None:
        self.mode = mode
        self._known: dict[Any, _Results | None] = {}
        self._attributes: dict[torch.device, dict[str, Any]] = {}

    def __call__(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """``func(*args, **kwargs)``."""
        key = self._key(func, args, kwargs) if _is_remembered(func) else None
        if key is None:
            return func(*args, **kwargs)
        if key not in self._known:
            output = func(*args, **kwargs)
            with _NoDispatch():
                self._known[key] = self._read(output, args)
            return output
        found = self._known[key]
        if found is None:
            return func(*args, **kwargs)
        kind, results = found
        with _NoDispatch():
            if kind is None:
                return self._made(results[0], args)
            return kind([self._made(result, args) for result in results])

    def _key(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """All that the results follow from; None where they follow from more than a key can say."""
        key = [func, torch.get_default_dtype(), torch.is_inference_mode_enabled()]
        neutral = _neutral_of(func)
        if neutral:
            at, names = neutral
            args = [value for i, value in enumerate(args) if i not in at]
            kwargs = {name: value for name, value in kwargs.items() if name not in names}
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

    def _read(self, output: Any, args: Sequence[Any]) -> _Results | None:
        """The results of a call, to be made again; None for those that cannot be."""
        kind = type(output) if type(output) in (tuple, list) else None
        outputs = (output,) if kind is None else output
        bases = {t.untyped_storage()._cdata: i for i, t in enumerate(args) if type(t) is FakeTensor}
        results: list[_Result] = []
        for t in outputs:
            if type(t) is not FakeTensor or not self._is_plain(t) or t.requires_grad:
                return None
            same = next((i for i, given in enumerate(args) if given is t), None)
            if same is not None:
                results.append(same)
                continue
            result = _New(_described(t), bases.get(t.untyped_storage()._cdata))
            again = self._made(result, args)
            if _described(again) != result.like or _bytes(again) != _bytes(t):
                return None
            results.append(result)
        fresh = {t.untyped_storage()._cdata for t, r in zip(outputs, results, strict=True) if _is_fresh(r)}
        return (kind, results) if len(fresh) == sum(map(_is_fresh, results)) else None

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
        if device not in self._attributes:
            made = FakeTensor(self.mode, t, device)
            self._attributes[device] = dict(vars(made))
            return made
        found = Tensor._make_subclass(FakeTensor, t, False, dispatch_device=True, device_for_backend_keys=device)
        torch._C._set_throw_on_mutable_data_ptr(found)
        found.__dict__.update(self._attributes[device])
        return found


def _described(t: Any) -> _Tensor:
    return _Tensor(t.shape, t.stride(), t.storage_offset(), t.dtype, t.fake_device, _dispatch_keys(t).raw_repr())


def _bytes(t: Tensor) -> int:
    return t.untyped_storage().nbytes()


def _is_fresh(result: _Result) -> bool:
    return not isinstance(result, int) and result.base is None


#: Operator -> whether its calls are remembered; and of this package's the arguments that do not matter.
_REMEMBERED: dict[Any, bool] = {}
_IGNORED: dict[Any, tuple[frozenset[int], frozenset[str]] | None] = {}


def _once(known: dict[Any, Any], read: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """``read``, of each operator once: schemas are slow to read."""

    def asked(func: Any) -> Any:
        if func not in known:
            known[func] = read(func)
        return known[func]

    return asked


def _may_remember(func: Any) -> bool:
    if not isinstance(func, torch._ops.OpOverload) or func.namespace not in _KNOWN:
        return False
    if any(tag in func.tags for tag in _NEVER):
        return False
    arguments = func._schema.arguments
    if not any("Tensor" in str(one.type) for one in arguments):  # constructors: little to save, and a default device
        return False
    written = [i for i, one in enumerate(arguments) if one.alias_info is not None and one.alias_info.is_write]
    return not written or (written == [0] and func._schema.name.endswith("_"))


def _read_neutral(func: Any) -> tuple[frozenset[int], frozenset[str]] | None:
    if func.namespace != "gemmsim":
        return None
    names = [one.name for one in func._schema.arguments]
    return frozenset(i for i, name in enumerate(names) if name in _NEUTRAL), _NEUTRAL


_is_remembered = _once(_REMEMBERED, _may_remember)
_neutral_of = _once(_IGNORED, _read_neutral)
