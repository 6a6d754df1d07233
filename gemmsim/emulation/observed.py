"""``audit``: the products of a run, each with its place, role and arithmetic, seen below autograd."""

from __future__ import annotations

from collections.abc import Mapping
from threading import local
from typing import Any, overload

import torch
from torch import Tensor, nn

from gemmsim.ops.errors import message

from .record import Found, Recorder
from .report import NATIVE, Record, Report
from .rules import ConfigLike
from .runs import estimated, training_step

__all__ = ["Audit", "NativeGemmError", "audit"]


class NativeGemmError(RuntimeError):
    """A product in PyTorch's own arithmetic where every product should be emulated."""


class Audit:
    """``gemmsim.audit``. One object; see ``__call__`` and ``dry_run``."""

    @overload
    def __call__(self, /, *, strict: bool = False, values: bool = False) -> Audited: ...

    @overload
    def __call__(
        self, model: nn.Module, /, *inputs: Any, strict: bool = False, values: bool = False, **kwargs: Any
    ) -> Report: ...

    def __call__(
        self, model: nn.Module | None = None, /, *inputs: Any, strict: bool = False, values: bool = False, **kwargs: Any
    ) -> Audited | Report:
        """What is multiplied while a block runs, or in one training step of a model.

            with gs.audit() as report:
                model(x).sum().backward()
            print(report)

            report = gs.audit(model, x)  # the same

        The audit stands below autograd and looks at the operators that PyTorch's dispatcher runs: in the forward and
        backward pass, in this thread and in the engine's threads on its behalf, in compiled code, in recomputed
        checkpoints. It may be opened inside ``emulate`` or around it. docs/howto/audit.md says what it cannot see.

        Args:
            model, inputs: the model is called with the inputs and ``kwargs``, the sum of the floating-point tensors it
                returns is differentiated where it has a gradient, gradients of parameters are left as they were. (The
                run is a real one: buffers and random generators move on.) Without a model the result is a context
                manager whose ``as`` is the report.
            strict: raise at the first product, or call of linear algebra, that is PyTorch's own. Products of integers
                are exact and pass.
            values: count NaN, infinite and zero results of every product. That reads each result once more.

        Raises:
            NativeGemmError: in the context, if ``strict``, before such a product is computed.
            TypeError: for a first argument that is no module, and for arguments of a model without one.
        """
        if model is None and not inputs and not kwargs:
            return Audited(strict, values)
        if not isinstance(model, nn.Module):
            asked = f"audit: {type(model).__name__} as the first argument"
            raise TypeError(message(asked, "a module and its inputs, or no inputs at all", "Write audit(model, x)."))
        with Audited(strict, values) as report:
            training_step(model, inputs, kwargs)
        return report

    def dry_run(
        self, model: nn.Module, inputs: Any = (), config: ConfigLike = None, *, backward: bool = True
    ) -> Report:
        """The report of ``audit(model, *inputs)`` under ``emulate(config)``, nothing being computed.

        Only shapes and dtypes are followed ("fake tensors"), so that a model of billions of parameters takes seconds
        and no memory, also one made under ``torch.device("meta")``. Code that asks for a tensor's values cannot run so.
        Grouped products, whose groups' sizes are data (experts), run as if all groups were equally large:
        ``report.assumed`` says it.

        Args:
            model: any module; its parameters may be real, on the meta device, or fake. It is left as it is.
            inputs: a tuple for ``model(*inputs)``, a mapping for ``model(**inputs)``, else the one input; tensors may
                be on the meta device as well.
            config: as ``emulate`` takes it; None: as the model itself computes.
            backward: whether to differentiate the sum of the outputs, too.

        Raises:
            ConfigError, SpecError, FormatError: for a config that means nothing.
            UnsupportedSpec: for products that a spec has no meaning for.
            DryRunError: for a model whose code asks for the values of tensors.
            TypeError: for a model that is no module.
        """
        args, kwargs = ((), dict(inputs)) if isinstance(inputs, Mapping) else (_tuple(inputs), {})
        with _Auditor(False, False) as auditor:
            estimated(model, args, kwargs, config, backward, auditor)
        return auditor.report


class _Open(local):
    """The audits that one object has open in this thread, innermost last."""

    def __init__(self) -> None:
        self.auditors: list[_Auditor] = []


class Audited:
    """The context manager that ``audit()`` gives; entered again it makes another report."""

    def __init__(self, strict: bool, values: bool) -> None:
        self.strict, self.values = strict, values
        self._open = _Open()

    def __enter__(self) -> Report:
        auditor = _Auditor(self.strict, self.values)
        auditor.__enter__()
        self._open.auditors.append(auditor)
        return auditor.report

    def __exit__(self, *error: Any) -> None:
        self._open.auditors.pop().__exit__(*error)


class _Auditor(Recorder):
    """Keeps a record of everything."""

    def __init__(self, strict: bool, values: bool) -> None:
        super().__init__()
        self.strict, self.values = strict, values
        self.report = Report()

    def before(self, found: Found) -> None:
        if self.strict and found.spec == NATIVE:
            raise _escaped(found, "is PyTorch's own product")

    def after(self, found: Found, result: Any) -> None:
        dtype = result.dtype if isinstance(result, Tensor) else torch.float32
        counts = _counts(result) if self.values else (None, None, None)
        leaf = found.leaf
        record = Record(found.op, leaf.shape, dtype, found.module, found.role, found.spec, leaf.macs, *counts)
        self.report.records.append(record)

    def algebra(self, found: Found) -> None:
        if self.strict:
            raise _escaped(found, "is linear algebra of PyTorch's libraries, which multiply inside")
        dtype = torch.float32 if found.leaf.a is None else found.leaf.a.dtype
        record = Record(found.op, found.leaf.shape, dtype, found.module, found.role, NATIVE, 0)
        self.report.algebra.append(record)

    def opaque(self, name: str) -> None:
        self.report.opaque[name] = self.report.opaque.get(name, 0) + 1

    def assumed(self, what: str) -> None:
        self.report.assumed[what] = self.report.assumed.get(what, 0) + 1


def _escaped(found: Found, what: str) -> NativeGemmError:
    where = f"in module {found.module!r}" if found.module else "outside modules"
    sizes = " x ".join(map(str, found.leaf.shape))
    asked = f"audit(strict=True): {found.op}, {sizes}, {found.role}, {where}, {what}"
    do = "Give it a spec: a rule of gemmsim.emulate for this module, kind and role. audit() without strict lists all."
    return NativeGemmError(message(asked, "products computed as a spec says", do))


def _counts(result: Any) -> tuple[int | None, int | None, int | None]:
    """NaN, infinite and zero elements; of tensors without values nothing."""
    if (
        not isinstance(result, Tensor)
        or result.is_meta
        or result.layout is not torch.strided
        or type(result).__name__ == "FakeTensor"
    ):
        return None, None, None
    flat = result.detach()
    if not flat.is_floating_point():
        return 0, 0, int((flat == 0).sum())
    return int(flat.isnan().sum()), int(flat.isinf().sum()), int((flat == 0).sum())


def _tuple(inputs: Any) -> tuple[Any, ...]:
    return tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,)


#: The one ``gemmsim.audit``.
audit = Audit()
