"""A GPU for PyTorch that is none: tensors "on" it lie in host memory and say that their device is cuda:0.

Which storages are on it is known by a dispatch mode that sees every operator: what is made with ``device="cuda"``, copied
there or computed from such tensors is on it. Streams do nothing; a captured graph is the list of the operators that ran,
which a replay runs again.
"""

from __future__ import annotations

import functools
import math
import threading
import time
import types
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from standin_settings import settings
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

_CPU, _GPU = torch.device("cpu"), torch.device("cuda", 0)
_local = threading.local()
#: Addresses of the storages that are on the GPU.
_there: set[int] = set()
_real_device = torch._C.TensorBase.device.__get__
_real_is_cuda = torch._C.TensorBase.is_cuda.__get__


def on_host() -> bool:
    """Whether this thread is computing an answer of the GPU: then tensors say where they really are."""
    return getattr(_local, "host", 0) > 0


@contextmanager
def host() -> Iterator[None]:
    """Tensors are where they really are; what is made here is on the CPU."""
    _local.host = getattr(_local, "host", 0) + 1
    try:
        yield
    finally:
        _local.host -= 1


def _storage(x: torch.Tensor) -> int | None:
    try:
        return x.untyped_storage()._cdata
    except (RuntimeError, NotImplementedError):  # tensors without memory
        return None


def is_there(x: torch.Tensor) -> bool:
    """Whether ``x`` lies on the GPU."""
    return _storage(x) in _there


def put(x: torch.Tensor, there: bool) -> None:
    key = _storage(x)
    if key is not None:
        (_there.add if there else _there.discard)(key)


def _is_gpu(device: object) -> bool:
    return device is not None and torch.device(device).type == "cuda"


class Standin(TorchDispatchMode):
    """Runs every operator on the CPU and keeps account of what is on the GPU."""

    @classmethod
    def _should_skip_dynamo(cls):
        """No: to be skipped by torch.compile, every process would load it, which takes longer than most of them."""
        return False

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if on_host():
            return func(*args, **kwargs)
        given = [x for x in tree_flatten((args, kwargs))[0] if isinstance(x, torch.Tensor)]
        if func is torch.ops.aten.lift_fresh.default:  # made by torch.tensor, unseen, perhaps where another one was
            put(given[0], False)
        device = None if _is_gradient_of_a_cast(func, kwargs) else kwargs.get("device")
        there = any(is_there(x) for x in given) if device is None else _is_gpu(device)
        if device is not None and there:
            kwargs["device"] = _CPU
        func, args, kwargs = _known_to_the_cpu(func, args, kwargs)
        if not settings().answers:
            func = _shapes_only(func, args, kwargs, given)
        outermost = not getattr(_local, "depth", 0)
        _local.depth = getattr(_local, "depth", 0) + 1
        try:
            out = func(*args, **kwargs)
        finally:
            _local.depth -= 1
        old = {_storage(x) for x in given}
        for x in tree_flatten(out)[0]:
            if isinstance(x, torch.Tensor) and _storage(x) not in old:
                if not settings().answers and x.dtype is torch.uint8 and "aten.empty" in str(func):
                    x.zero_()  # scales that nobody writes: what is chosen by them must not depend on old memory
                put(x, there)
        graph = capturing()
        if graph is not None and outermost:
            graph.add(lambda: _again(func, args, kwargs, out))
        return out


def _is_gradient_of_a_cast(func, kwargs) -> bool:
    """Whether PyTorch's C++ code casts a gradient back: it names the device where it sees the tensor, the CPU."""
    backward = torch._C._current_graph_task_id() != -1
    return func is torch.ops.aten._to_copy.default and backward and kwargs.get("layout") is not None


def _known_to_the_cpu(func, args, kwargs):
    """Products that PyTorch has for GPUs only, by one that it has: sums in float64."""
    if func is torch.ops.aten.mm.dtype:
        dtype = kwargs.pop("out_dtype", None) or args[2]
        return (lambda a, b: (a.double() @ b.double()).to(dtype)), args[:2], kwargs
    if func is torch.ops.aten._scaled_mm.default:
        dtype = kwargs.pop("out_dtype", None) or (args[6] if len(args) > 6 else args[0].dtype)
        return (lambda a, b: (a.float().double() @ b.float().double()).to(dtype)), args[:2], {}
    return func, args, kwargs


#: Elements from which on an operator of PyTorch is not computed where nobody wants answers.
_LARGE = 1 << 20
_RANDOM = ("aten::randn", "aten::rand", "aten::randint.low", "aten::randint")


def _shapes_only(func, args, kwargs, given):
    """``func``, or for large tensors a function that gives tensors like its results, small ones full of 1."""
    if not isinstance(func, torch._ops.OpOverload) or func.namespace != "aten":
        return func
    if func.name() in _RANDOM:
        sizes = next(x for x in args if isinstance(x, (list, tuple)))
        return (lambda *a, **k: torch.empty(sizes, dtype=k.get("dtype"))) if math.prod(sizes) >= _LARGE else func
    aliases = any(one.alias_info is not None for one in func._schema.returns)
    if all(x.numel() < _LARGE for x in given):
        return func
    if aliases:  # a view, or written in place
        return (
            (lambda *a, **k: a[0])
            if any(one.alias_info and one.alias_info.is_write for one in func._schema.returns)
            else func
        )

    def shaped(*a, **k):
        with host():
            a, k = tree_map(_meta, (a, k))
            k.pop("device", None)
            return tree_map(_like, func(*a, **k))

    return shaped


def _meta(x):
    if not isinstance(x, torch.Tensor):
        return x
    return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device="meta")


def _like(x):
    if not isinstance(x, torch.Tensor):
        return x
    found = torch.empty(x.shape, dtype=x.dtype)
    return found.fill_(1) if x.numel() < _LARGE else found


def _again(func, args, kwargs, out):
    """Runs an operator again, its results where they were."""
    with host():
        again = func(*args, **kwargs)
        for old, new in zip(tree_flatten(out)[0], tree_flatten(again)[0], strict=True):
            if isinstance(old, torch.Tensor) and _storage(old) != _storage(new):
                old.copy_(new)


def in_mode(function):
    """``function`` with the mode on: kernels of operators in Python are called without it."""

    @functools.wraps(function)
    def call(*args, **kwargs):
        with Standin():
            return function(*args, **kwargs)

    return call


class Graph:
    """torch.cuda.CUDAGraph."""

    def __init__(self, *args, **kwargs):
        self.steps = []

    def add(self, step):
        self.steps.append(step)

    def replay(self):
        for step in self.steps:
            step()

    def reset(self):
        self.steps = []

    def pool(self):
        return (0, 0)


def capturing() -> Graph | None:
    """The graph that is being captured."""
    return getattr(_local, "graph", None)


@contextmanager
def _capture(graph, *args, **kwargs):
    _local.graph = graph
    try:
        yield
    finally:
        _local.graph = None


class Stream:
    """torch.cuda.Stream."""

    def __init__(self, *args, cuda_stream=0, **kwargs):
        self.cuda_stream = cuda_stream or id(self)
        self.device = _GPU

    def wait_stream(self, other):
        pass

    def wait_event(self, event):
        pass

    def synchronize(self):
        pass

    def record_event(self, event=None):
        event = event or Event()
        event.record()
        return event

    def __eq__(self, other):
        return self.cuda_stream == other.cuda_stream

    def __hash__(self):
        return hash(self.cuda_stream)


class Event:
    """torch.cuda.Event, with the host's clock."""

    def __init__(self, *args, **kwargs):
        self.time = 0.0

    def record(self, stream=None):
        self.time = time.perf_counter()

    def synchronize(self):
        pass

    def wait(self, stream=None):
        pass

    def query(self):
        return True

    def elapsed_time(self, end):
        return max((end.time - self.time) * 1e3, 1e-6)


_DEFAULT = Stream(cuda_stream=0x57D)


@contextmanager
def _stream(stream):
    before = getattr(_local, "stream", _DEFAULT)
    _local.stream = stream or before
    try:
        yield
    finally:
        _local.stream = before


def _copied(x: torch.Tensor, device: object) -> torch.Tensor:
    """``x`` moved by the operator that PyTorch leaves out because both devices are the CPU to it."""
    return torch.ops.aten._to_copy.default(x, device=device)


def _moves() -> None:
    """cpu() and to() of tensors on the GPU."""
    real_cpu, real_to = torch.Tensor.cpu, torch.Tensor.to

    def cpu(self, *args, **kwargs):
        if not on_host() and is_there(self):
            return _Moved.apply(self, False)
        return real_cpu(self, *args, **kwargs)

    def to(self, *args, **kwargs):
        wanted = [x for x in (*args, kwargs.get("device")) if isinstance(x, (str, torch.device))]
        if args and isinstance(args[0], torch.Tensor):
            wanted, args = [args[0].device], (args[0].dtype, *args[1:])
        if not wanted or on_host():
            return real_to(self, *args, **kwargs)
        rest = [x for x in args if not isinstance(x, (str, torch.device))]
        kwargs.pop("device", None)
        x, there = self, torch.device(wanted[0]).type == "cuda"
        if there != is_there(self):
            x = _Moved.apply(self, there)
        return real_to(x, *rest, **kwargs) if rest or kwargs else x

    def cuda(self, *args, **kwargs):
        return self if is_there(self) else _Moved.apply(self, True)

    torch.Tensor.cpu, torch.Tensor.to, torch.Tensor.cuda = cpu, to, cuda

    def made(make):
        def call(data, *args, device=None, **kwargs):
            if not _is_gpu(device):
                return make(data, *args, device=device, **kwargs)
            return to(make(data, *args, **kwargs), _GPU)

        return call

    torch.tensor, torch.as_tensor = made(torch.tensor), made(torch.as_tensor)


class _Moved(torch.autograd.Function):
    """A copy on the GPU, or on the CPU; its gradient goes back."""

    @staticmethod
    def forward(ctx, x, there):
        ctx.there = there
        return _copied(x, _GPU if there else _CPU)

    @staticmethod
    def backward(ctx, grad):
        return _copied(grad, _CPU if ctx.there else _GPU), None


def _places() -> None:
    """Tensors say where they are."""
    torch.Tensor.device = property(lambda x: _GPU if not on_host() and is_there(x) else _real_device(x))
    torch.Tensor.is_cuda = property(lambda x: (not on_host() and is_there(x)) or _real_is_cuda(x))
    torch.Tensor.record_stream = lambda self, stream: None
    torch.Tensor.get_device = lambda self: 0 if is_there(self) else -1


def _cuda_module() -> None:
    """torch.cuda of one H200."""
    cuda, memory = torch.cuda, int(settings().memory_gib * 2**30)
    properties = types.SimpleNamespace(
        name="stand-in for an NVIDIA H200",
        major=settings().capability[0],
        minor=settings().capability[1],
        multi_processor_count=132,
        total_memory=memory,
        L2_cache_size=60 << 20,
    )

    @contextmanager
    def nothing(*args, **kwargs):
        yield

    replaced = {
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "_lazy_init": lambda: None,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "set_device": lambda device: None,
        "get_device_capability": lambda device=None: tuple(settings().capability),
        "get_device_properties": lambda device=None: properties,
        "get_device_name": lambda device=None: properties.name,
        "current_stream": lambda device=None: getattr(_local, "stream", _DEFAULT),
        "default_stream": lambda device=None: _DEFAULT,
        "current_blas_handle": lambda: 1,
        "is_current_stream_capturing": lambda: capturing() is not None,
        "synchronize": lambda device=None: None,
        "empty_cache": lambda: None,
        "_sleep": lambda cycles: None,
        "mem_get_info": lambda device=None: (memory, memory),
        "manual_seed": lambda seed: None,
        "manual_seed_all": lambda seed: None,
        "get_rng_state_all": lambda: [],
        "Stream": Stream,
        "Event": Event,
        "CUDAGraph": Graph,
        "graph": _capture,
        "stream": _stream,
        "device": nothing,
    }
    for name, value in replaced.items():
        setattr(cuda, name, value)


def install() -> None:
    """Changes PyTorch in this process."""
    torch.version.cuda = settings().cuda or None
    if not settings().gpu or not settings().cuda:
        torch.cuda.is_available = lambda: False
        return
    _cuda_module()
    _moves()
    _places()
    real_run, real_impl = threading.Thread.run, torch.library.Library.impl

    def run(self):
        with Standin():
            real_run(self)

    def impl(self, name, function, *args, **kwargs):
        return real_impl(self, name, in_mode(function) if callable(function) else function, *args, **kwargs)

    threading.Thread.run = run
    torch.library.Library.impl = impl
    Standin().__enter__()


__all__ = ["Standin", "capturing", "host", "install", "is_there", "on_host", "put", "tree_map"]
