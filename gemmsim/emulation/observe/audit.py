"""``audit``: lists the products of a run with module path, role and arithmetic, as seen below autograd."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from threading import local
from types import FrameType
from typing import Any, overload

import torch
from torch import Tensor, nn

from gemmsim._keywords import takes_spec
from gemmsim.ops.errors import message

from ..rules import ConfigLike, matches
from .recorder import Found, Recorder
from .report import NATIVE, Record, Report
from .trial_runs import estimated, training_step

__all__ = ["Audit", "NativeGemmError", "audit"]


class NativeGemmError(RuntimeError):
    """Raised for a native product where every product should be emulated.

    Example:
        >>> gs.audit(torch.nn.Linear(4, 2), torch.ones(4), strict=True)
        Traceback (most recent call last):
            ...
        gemmsim.emulation.observe.audit.NativeGemmError: audit(strict=True): aten.addmm, 1 x 1 x 4 x 2, ...
    """


class Audit:
    """The class of ``gemmsim.audit``, which is its only instance; see ``__call__`` and ``dry_run``."""

    @overload
    def __call__(
        self, /, *, strict: bool = False, values: bool = False, without_products: str | Sequence[str] = ()
    ) -> Audited: ...

    @overload
    def __call__(
        self,
        model: nn.Module,
        /,
        *inputs: Any,
        strict: bool = False,
        values: bool = False,
        without_products: str | Sequence[str] = (),
        **kwargs: Any,
    ) -> Report: ...

    def __call__(
        self,
        model: nn.Module | None = None,
        /,
        *inputs: Any,
        strict: bool = False,
        values: bool = False,
        without_products: str | Sequence[str] = (),
        **kwargs: Any,
    ) -> Audited | Report:
        """Reports the products of a block of code, or of one training step of a model.

            with gs.audit() as report:
                model(x).sum().backward()
            print(report)

            report = gs.audit(model, x)  # the same

        The audit works below autograd and sees the operators that PyTorch's dispatcher runs. These include operators of
        the forward and backward pass, in this thread and in the engine's threads on its behalf, in compiled code, and
        in recomputed checkpoints. The audit may be opened inside ``emulate`` or around it. docs/howto/audit.md says
        what it cannot see.

        Args:
            model, inputs: the model is called with the inputs and ``kwargs``. The sum of the floating-point tensors
                that it returns is differentiated if it has a gradient. Gradients of parameters stay as they were. (The
                run is a real one: buffers and random generators advance.) Without a model the result is a context
                manager whose ``as`` is the report.
            strict: raise at the first product, or call of linear algebra, that is PyTorch's own, at the first operator
                that an audit cannot look into, and at the end if nothing was multiplied at all: no product, or none
                with a multiply-add. Products of integers are exact and pass.
            values: count NaN, infinite and zero results of every product. That reads each result once more.
            without_products: names of operators of other packages that multiply no matrices, with wildcards
                ("torchvision.nms", "mine.*"): ``strict`` lets them pass.

        Raises:
            NativeGemmError: in the context, if ``strict``, before such a product is computed; at its end.
            TypeError: for a first argument that is no module, and for arguments of a model without one.

        Example:
            >>> with gs.emulate("e4m3 : bf16"), gs.audit() as report:
            ...     _ = torch.ones(2, 8) @ torch.ones(8, 4)
            >>> [(one.module, one.op, one.role, one.shape, one.spec) for one in report.records]
            [('', 'gemmsim.matmul', 'fprop', (1, 2, 8, 4), 'e4m3 : e8m7')]
        """
        if model is None and not inputs and not kwargs:
            return Audited(strict, values, without_products)
        if not isinstance(model, nn.Module):
            asked = f"audit: {type(model).__name__} as the first argument"
            raise TypeError(message(asked, "a module and its inputs, or no inputs at all", "Write audit(model, x)."))
        with Audited(strict, values, without_products) as report:
            training_step(model, inputs, kwargs)
        return report

    @takes_spec("config")
    def dry_run(self, model: nn.Module, inputs: Any = (), spec: ConfigLike = None, *, backward: bool = True) -> Report:
        """The report of ``audit(model, *inputs)`` under ``emulate(spec)``, without computing anything.

        Only shapes and dtypes are followed ("fake tensors"). A model of billions of parameters therefore takes seconds
        and no memory, also if it was made under ``torch.device("meta")``. Code that asks for a tensor's values cannot
        run this way. Grouped products, whose group sizes are data (experts), run as if all groups had equal sizes;
        ``report.assumed`` says so.

        Args:
            model: any module; its parameters may be real, on the meta device, or fake. It does not change.
            inputs: a tuple for ``model(*inputs)``, a mapping for ``model(**inputs)``, else the one input; tensors may
                be on the meta device as well.
            spec: as ``emulate`` takes it; None: as the model itself computes. (``config``, the former keyword, is
                deprecated.)
            backward: whether to differentiate the sum of the outputs, too.

        Raises:
            ConfigError, SpecError, FormatError: for a spec or rules that mean nothing.
            UnsupportedSpec: for products that a spec has no meaning for.
            DryRunError: for a model whose code asks for the values of tensors.
            TypeError: for a model that is no module.

        Example:
            >>> model, x = torch.nn.Linear(1024, 1024, device="meta"), torch.ones(8, 1024, device="meta")
            >>> report = gs.audit.dry_run(model, x, ":fp32")
            >>> [(one.role, one.shape, one.spec) for one in report], report.total_macs
            ([('fprop', (1, 8, 1024, 1024), ':e8m23'), ('wgrad', (1, 1024, 8, 1024), ':e8m23')], 16777216)
        """
        args, kwargs = ((), dict(inputs)) if isinstance(inputs, Mapping) else (_tuple(inputs), {})
        with _Auditor(False, False, ()) as auditor:
            estimated(model, args, kwargs, spec, backward, auditor)
        return auditor.report

    def __repr__(self) -> str:
        return "<gemmsim.audit: audit(model, x), or with audit() as report; audit.dry_run(model, x, spec)>"


class _Open(local):
    """The audits that one object has open in this thread, innermost last."""

    def __init__(self) -> None:
        self.auditors: list[_Auditor] = []


class Audited:
    """The context manager that ``audit()`` returns. Each entry makes another report."""

    def __init__(self, strict: bool, values: bool, without_products: str | Sequence[str] = ()) -> None:
        self.strict, self.values = strict, values
        named = (without_products,) if isinstance(without_products, str) else tuple(without_products)
        for pattern in named:
            matches(pattern, "")
        self.without_products = named
        #: Whether ``strict`` requires a product at all: not where other threads or processes are part of the same run.
        self.needs_products = strict
        self._open = _Open()

    def __enter__(self) -> Report:
        auditor = _Auditor(self.strict, self.values, self.without_products)
        auditor.__enter__()
        self._open.auditors.append(auditor)
        return auditor.report

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        """Completes the report.

        Raises:
            NativeGemmError: if ``strict``, where its error came out as another one, and where there was no product.
        """
        auditor = self._open.auditors.pop()
        auditor.__exit__(kind, error, trace)
        if auditor.refused is not None and isinstance(error, RuntimeError) and not isinstance(error, NativeGemmError):
            raise auditor.refused from error  # TorchScript replaces it by an error without text
        if self.needs_products and kind is None and not auditor.report.total_macs:
            asked, do = "audit(strict=True): nothing was multiplied", "Run the model inside the context, in this thread"
            if auditor.report.records:
                asked += f" except products with a size of 0: {len(auditor.report)}"
                do = "Give the model inputs that are not empty"
            do += "; without strict an audit may be empty."
            raise NativeGemmError(message(asked, "at least one product", do))

    def __repr__(self) -> str:
        options = {"strict": self.strict, "values": self.values, "without_products": self.without_products}
        given = ", ".join(f"{name}={value!r}" for name, value in options.items() if value)
        return f"<gemmsim.audit({given}): use it in a with statement; the name after 'as' is the report>"


class _Auditor(Recorder):
    """Records all products in the report."""

    def __init__(self, strict: bool, values: bool, without_products: Sequence[str]) -> None:
        super().__init__()
        self.strict, self.values, self.without_products = strict, values, without_products
        self.report = Report()
        self.refused: NativeGemmError | None = None

    def _refuse(self, error: NativeGemmError) -> NativeGemmError:
        self.refused = error
        return error

    def before(self, found: Found) -> None:
        if self.strict and found.spec == NATIVE:
            raise self._refuse(_escaped(found, "is a native PyTorch product"))

    def after(self, found: Found, result: Any) -> None:
        dtype = result.dtype if isinstance(result, Tensor) else torch.float32
        counts = _counts(result) if self.values else (None, None, None)
        leaf = found.leaf
        plan = leaf.plan.split(", ") if leaf.plan else ()
        record = Record(found.op, leaf.shape, dtype, found.module, found.role, found.spec, leaf.macs, *counts, *plan)
        self.report.records.append(record)

    def algebra(self, found: Found) -> None:
        if self.strict:
            raise self._refuse(_escaped(found, "is linear algebra of PyTorch, which multiplies internally"))
        dtype = torch.float32 if found.leaf.a is None else found.leaf.a.dtype
        record = Record(found.op, found.leaf.shape, dtype, found.module, found.role, NATIVE, 0)
        self.report.algebra.append(record)

    def opaque(self, name: str) -> None:
        if self.strict and not any(matches(pattern, name) for pattern in self.without_products):
            asked = f"audit(strict=True): {name}, an operator that an audit cannot inspect"
            do = (
                f"If it multiplies no matrices, declare it: audit(strict=True, without_products={name!r}). If it does, "
                "its product is native: use a layer or function of PyTorch's instead. audit() without strict lists all."
            )
            raise self._refuse(NativeGemmError(message(asked, "PyTorch operators that an audit can inspect", do)))
        self.report.opaque[name] = self.report.opaque.get(name, 0) + 1

    def higher(self, name: str, is_seen: bool) -> None:
        if not is_seen:
            self.opaque(name)
            return
        self.report.opaque[name] = self.report.opaque.get(name, 0) + 1

    def assumed(self, what: str) -> None:
        self.report.assumed[what] = self.report.assumed.get(what, 0) + 1


def _escaped(found: Found, what: str) -> NativeGemmError:
    where = f"in module {found.module!r}" if found.module else "outside modules"
    sizes = " x ".join(map(str, found.leaf.shape))
    do = "Give it a spec: a rule of gemmsim.emulate for this module, kind and role. audit() without strict lists all."
    optimizer = _stepping()
    if optimizer is not None:
        where = f"in a step of {optimizer}"
        do = (
            "Steps of optimizers are PyTorch's by design, and no rule reaches them: step outside the audit, or use "
            "audit() without strict, which lists their products as native."
        )
    kind = _tensor_class()
    if kind is not None and optimizer is None:
        where += f", inside the operators of {kind.__module__}.{kind.__name__}"
        do = (
            f"{kind.__name__} is a tensor class with its own operators, which no rule reaches: give the module an "
            "ordinary weight (its values dequantized), or convert it with gemmsim.mx or gemmsim.nn."
        )
    asked = f"audit(strict=True): {found.op}, {sizes}, {found.role}, {where}, {what}"
    return NativeGemmError(message(asked, "products computed as a spec says", do))


def _stepping() -> str | None:
    """Name of the optimizer whose step makes the product, None if none does.

    A closure that a step calls runs the model, and is no part of the step.
    """
    frame: FrameType | None = sys._getframe(1)
    codes: set[Any] = set()
    while frame is not None:
        owner = frame.f_locals.get("self")
        if isinstance(owner, torch.optim.Optimizer):
            closure = frame.f_locals.get("closure")
            return None if _codes(closure) & codes else type(owner).__name__
        codes.add(frame.f_code)
        frame = frame.f_back
    return None


def _codes(function: Any) -> set[Any]:
    """Code of a function, and of the functions that it wraps."""
    found: set[Any] = set()
    while function is not None:
        found.add(getattr(function, "__code__", None))
        function = getattr(function, "__wrapped__", None)
    return found - {None}


def _tensor_class() -> type | None:
    """The tensor class whose operators are running; None for ordinary tensors."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == "__torch_dispatch__":
            kind = frame.f_locals.get("cls")
            if isinstance(kind, type) and issubclass(kind, Tensor):
                return kind
        frame = frame.f_back
    return None


def _counts(result: Any) -> tuple[int | None, int | None, int | None]:
    """Numbers of NaN, infinite and zero elements; None for tensors without values."""
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


#: The only ``gemmsim.audit``.
audit = Audit()
