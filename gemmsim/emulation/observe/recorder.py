"""The dispatch mode below autograd that sees every operator and reports the products among them to observers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from .. import gemmsim_products  # noqa: F401  # importing it fills the table
from ..aten_products import Leaf, is_algebra, is_unknown, leaves
from ..dynamo_support import skip
from ..hidden import hiding
from .gemm_roles import Roles, Trail
from .report import INTEGER, NATIVE

__all__ = ["Found", "Recorder"]

#: Namespaces of operators that are looked up in the table; those that it lacks multiply nothing. Among them are the
#: communication of processes and PyTorch's bookkeeping.
_KNOWN = frozenset(
    ("aten", "prim", "prims", "gemmsim", "profiler", "c10d", "_c10d_functional", "c10d_functional", "_dtensor", "fsdp")
)
#: Classes of tensors that their own mode handles. Their products are ordinary products.
_TRANSPARENT = ("FakeTensor", "FunctionalTensor", "Parameter", "Tensor", "Buffer")
#: Fused kernels that call other operators. They run under the recorder.
_FUSED = tuple(
    packet
    for name in ("_transformer_encoder_layer_fwd", "_native_multi_head_attention")
    if (packet := getattr(torch.ops.aten, name, None)) is not None
)
_KEY = torch._C.DispatchKey
_LAZY = (_KEY.Conjugate, _KEY.Negative, _KEY.ZeroTensor)
_COMPOSITE, _NESTED_COMPOSITE = _KEY.CompositeImplicitAutograd, _KEY.CompositeImplicitAutogradNestedTensor


Caller = Callable[[Any, Sequence[Any], Mapping[str, Any]], Any]


def _call(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    return func(*args, **kwargs)


class Found(NamedTuple):
    """A product that is about to be computed: its sizes and operands, the operator's name, its role, path and spec."""

    leaf: Leaf
    op: str
    role: str
    module: str
    spec: str


class Recorder(TorchDispatchMode):
    """A context that observes the operators that run in this thread, and in the autograd engine on its behalf.

    Subclasses define what happens ``before`` and ``after`` a product is computed, before linear ``algebra``, and before
    ``opaque`` operators, about which nothing is known.

    Example:
        >>> after = lambda self, found, result: print(found.role, found.op, tuple(result.shape))
        >>> with type("Shapes", (gs.emulation.Recorder,), {"after": after})():
        ...     torch.nn.Linear(4, 2)(torch.ones(3, 4)).sum().backward()
        fprop aten.addmm (3, 2)
        wgrad aten.mm (2, 4)
    """

    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()
        self.trail = Trail()
        self.roles = Roles(self.trail)
        #: Calls primitive operations, plain operators and transforms, instead of the dispatcher.
        self.call: Caller = _call
        self._depth = 0
        self._hiding = ExitStack()

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Return True: compiled code stays compiled, and the recorder observes its operators when they run."""
        return True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """False: PyTorch must not wrap the handler in a function that the compiler skips.

        That would load the compiler, which takes seconds, and make each call slower. ``skip`` below makes the compiler
        run the handler as it is.
        """
        return False

    def __enter__(self) -> Any:
        """Puts the mode in force. It is entered again, in the same context, to look into an operator."""
        if not self._depth:
            self.trail.start()
            self._hiding.enter_context(hiding())
        self._depth += 1
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self._depth -= 1
        if not self._depth:
            self._hiding.close()
            self.trail.stop()

    def before(self, found: Found) -> None:
        """Called before a product is computed; ``found`` describes it.

        Example:
            >>> before = lambda self, found: print(found.role, found.op, found.spec)
            >>> with gs.emulate("e4m3 : fp32"), type("Specs", (gs.emulation.Recorder,), {"before": before})():
            ...     _ = torch.ones(3, 4) @ torch.ones(4, 2)
            fprop gemmsim.matmul e4m3 : e8m23
        """

    def after(self, found: Found, result: Any) -> None:
        """Called after a product was computed. ``result``: the product's own among the operator's results.

        Example:
            >>> after = lambda self, found, result: print(found.op, tuple(result.shape))
            >>> with type("Shapes", (gs.emulation.Recorder,), {"after": after})():
            ...     _ = torch.ones(3, 4) @ torch.ones(4, 2)
            aten.mm (3, 2)
        """

    def algebra(self, found: Found) -> None:
        """Called before linear algebra is computed.

        Example:
            >>> algebra = lambda self, found: print(found.op)
            >>> with type("Algebra", (gs.emulation.Recorder,), {"algebra": algebra})():
            ...     _ = torch.linalg.inv(torch.eye(2))
            aten.linalg_inv_ex
        """

    def opaque(self, name: str) -> None:
        """Called before an operator runs that the recorder cannot look into."""

    def higher(self, name: str, is_seen: bool) -> None:
        """Called before a higher-order operator runs.

        ``is_seen``: whether it takes functions, whose operators are seen.
        """

    def assumed(self, what: str) -> None:
        """Called when a run without values makes an assumption."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is _DEVICE and hasattr(args[0], "fake_device"):  # read from a fake tensor dozens of times a product
            return args[0].fake_device
        kwargs = {} if kwargs is None else kwargs
        if not isinstance(func, torch._ops.OpOverload):
            return self._higher_order(func, args, kwargs)
        if types and not all(_is_transparent(kind) for kind in types):
            return NotImplemented  # the subclass computes, with this mode in force
        nested = _kernel_of_nested(func, args)
        if nested is not None:
            with self:
                return func._op_dk(nested, *args, **kwargs)
        found = leaves(func, args, kwargs)
        if found is None:
            return self._other(func, args, kwargs)
        op, products = _name(func), []
        for leaf in found:
            role, path = self.roles.of(leaf)
            products.append(Found(leaf, op, role, path, _spec(leaf, args)))
            self.before(products[-1])
        result = self.call(func, args, kwargs)
        for product in products:
            self.after(product, result[product.leaf.result] if isinstance(result, (tuple, list)) else result)
        return result

    def _other(self, func: Any, args: Any, kwargs: Mapping[str, Any]) -> Any:
        """Calls an operator that is no primitive operation."""
        kind = _KINDS.get(func) or _kind(func)
        if kind == "plain":
            return self.call(func, args, kwargs)
        if kind == "transform":
            with _lazy_views():
                return self.call(func, args, kwargs)
        if kind == "composite":
            with self, _lazy_views():
                if self.call is not _call:  # without values, PyTorch's decompositions in Python follow shapes
                    return func.decompose(*args, **kwargs)
                return func._op_dk(_COMPOSITE, *args, **kwargs)
        if kind == "fused":
            with self:
                return func._op_dk(_key(args), *args, **kwargs)
        if kind == "opaque":
            self.opaque(_name(func))
            return func(*args, **kwargs)
        operand = next((t for t in args if isinstance(t, Tensor)), None)
        shape = () if operand is None else tuple(int(size) for size in operand.shape)
        leaf = Leaf(shape, operand)  # type: ignore[arg-type]
        role, path = self.roles.of(leaf)
        self.algebra(Found(leaf, _name(func), role, path, NATIVE))
        return func(*args, **kwargs)

    def _higher_order(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Calls a higher-order operator. The functions that it takes are seen, and so is attention's Python body."""
        self.higher(str(func), any(callable(value) and not isinstance(value, Tensor) for value in args))
        body = getattr(func, "py_kernels", {}).get(_KEY.CompositeExplicitAutograd)
        if body is not None and str(func).startswith("flex_attention"):
            with self:
                return body(*args, **kwargs)
        return func(*map(self._seen, args), **{name: self._seen(value) for name, value in kwargs.items()})

    def _seen(self, value: Any) -> Any:
        """``value``; if it is a function, this mode sees what it runs."""
        if isinstance(value, (tuple, list)):
            return type(value)(map(self._seen, value)) if type(value) in (tuple, list) else value
        if not callable(value) or isinstance(value, Tensor):
            return value

        def run(*args: Any, **kwargs: Any) -> Any:
            with self:
                return value(*args, **kwargs)

        return run


skip((Recorder.__torch_dispatch__,))

_DEVICE = torch.ops.prim.device.default
_NAMES: dict[Any, str] = {}


def _name(func: Any) -> str:
    """Name of an operator, without its overload."""
    found = _NAMES.get(func)
    if found is None:
        found = _NAMES[func] = str(func._overloadpacket).removesuffix("_with_operands")
    return found


def _is_transparent(kind: type) -> bool:
    if kind.__name__ in _TRANSPARENT:
        return True
    return kind.__torch_dispatch__ is torch._C._disabled_torch_dispatch_impl  # type: ignore[attr-defined]


#: Operator -> its kind: "plain", "composite" (composed of others for all devices and autograd), "transform" (Fourier's:
#: composite, but nothing in it multiplies matrices), "fused" (a kernel that calls others), "algebra", "opaque".
_KINDS: dict[Any, str] = {}


def _kind(func: Any) -> str:
    if func.namespace not in _KNOWN or is_unknown(func):
        found = "opaque"
    elif func._overloadpacket in _FUSED:
        found = "fused"
    elif is_algebra(func):
        found = "algebra"
    elif func.name().startswith("aten::fft_"):
        found = "transform"
    elif func.namespace == "aten" and _is_composite(func.name()):
        found = "composite"
    else:
        found = "plain"
    _KINDS[func] = found
    return found


@contextmanager
def _lazy_views() -> Iterator[None]:
    """Makes PyTorch resolve lazily conjugated or negated tensors for kernels, as outside a handler.

    A composite operator makes such tensors itself.
    """
    was = [torch._C._dispatch_tls_is_dispatch_key_excluded(key) for key in _LAZY]
    for key in _LAZY:
        torch._C._dispatch_tls_set_dispatch_key_excluded(key, False)
    try:
        yield
    finally:
        for key, excluded in zip(_LAZY, was, strict=True):
            torch._C._dispatch_tls_set_dispatch_key_excluded(key, excluded)


def _is_composite(name: str) -> bool:
    """Whether an operator is composed of others, and no device has a kernel of its own for it."""
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    return has(name, _COMPOSITE) and not any(has(name, key) for key in (_KEY.CPU, _KEY.CUDA))


def _kernel_of_nested(func: Any, args: Any) -> Any:
    """Key of the kernel for nested tensors in PyTorch's first layout; None if there are none in the arguments.

    Such tensors have no sizes to read. The kernel multiplies the matrices in them by operators that are seen.
    """
    for t in args:
        if isinstance(t, Tensor) and t.is_nested and t.layout is torch.strided:
            key = _KEY.NestedTensorCUDA if t.device.type == "cuda" else _KEY.NestedTensorCPU
            has = torch._C._dispatch_has_kernel_for_dispatch_key
            return next((k for k in (key, _NESTED_COMPOSITE) if has(func.name(), k)), None)
    return None


def _key(args: Any) -> Any:
    device = next(t.device.type for t in args if isinstance(t, Tensor))
    return _KEY.CUDA if device == "cuda" else _KEY.CPU


def _spec(leaf: Leaf, args: Any) -> str:
    """The spec that the operator names. For others it is native, or integer if the first operand's dtype is."""
    if leaf.spec != NATIVE:
        return leaf.spec
    operand = next((t for t in args if isinstance(t, Tensor)), None)
    if operand is None or operand.is_floating_point() or operand.is_complex():
        return NATIVE
    return INTEGER
