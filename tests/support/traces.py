"""Tests marked ``kept``: kernels on the host, and the integer reference, are not run where nothing about them changed.

Both are slow. A test is first played through: launches and calls of the reference are noted and not done, the latter
with NaN as their results, and so is what would be compared: the side that is wanted of what kernels computed, both sides
of anything else. A digest of all that is kept in ``golden/*_results.json`` once kernels and reference have confirmed it.
As long as their sources and the test are those of then, the same digest is the same confirmation: the CPU backend's
results, which are computed every time, have the bits they had. Otherwise, and in every long run, all is computed and
compared number by number.

``pytest --remember tests/backends ...`` computes all and writes the files. A test that looks at results by other means
than ``assert_bitwise_equal`` fails where nothing ran; it is not kept, and computes everything every time.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import importlib
import marshal
import math
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FunctionType, ModuleType, NoneType
from typing import Any

import pytest
import torch
from torch import Tensor

import support
from gemmsim import reference
from gemmsim.backends.cuda.jit.source import KernelSource
from gemmsim.backends.cuda.jit.toolchain import header_root
from support import GOLDEN, ROOT, bits
from support.kept import Kept, digest_of, statements

#: What specs become launches with.
_LAUNCHING = ("backends", "lowering")
_OTHER_BACKENDS = {"cpu", "cublas", "exact_blas"}
#: What the reference computes with.
_REFERENCE = ("reference", "arithmetic", "formats", "hardware")
HOST = ROOT / "tests" / "backends" / "cuda" / "host"


def _python(packages: tuple[str, ...]) -> list[Path]:
    top = ROOT / "gemmsim"
    found = [path for name in packages for path in sorted((top / name).rglob("*.py"))]
    return [path for path in found if not _OTHER_BACKENDS & set(path.relative_to(top).parts)]


def _host_sources() -> str:
    digest = hashlib.sha256(digest_of(_python(_LAUNCHING + _REFERENCE)).encode())
    for path in sorted(path for path in HOST.rglob("*") if path.is_file()):
        digest.update(path.relative_to(HOST).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:32]


SUPPORT = ROOT / "tests" / "support" / "__init__.py"

#: By tests that run kernels, and by those that do not.
RAN = Kept(GOLDEN / "host_results.json", _host_sources)
COMPUTED = Kept(GOLDEN / "reference_results.json", lambda: digest_of(_python(_REFERENCE)))
#: Of kernels whose machine code a test looked at; each digest has all that the code depends on.
COMPILED = Kept(GOLDEN / "compiled_results.json", lambda: "")


@functools.cache
def _texts(test: Path) -> bytes:
    """Of a file of tests and of the files of ``support`` that it imports."""
    found = [test]
    for path in found:
        text = path.read_text(encoding="utf-8")
        names = re.findall(r"^\s*from support\.(\w+) import|^\s*from support import (\w+)", text, re.MULTILINE)
        others = [ROOT / "tests" / "support" / f"{one or other}.py" for one, other in names]
        found += [path for path in dict.fromkeys([SUPPORT, *others]) if path.is_file() and path not in found]
    return b"".join(map(statements, found))


@functools.cache
def kernel_digests() -> ModuleType:
    """``benchmarks/kernel_digests.py``."""
    folder = str(ROOT / "benchmarks")
    sys.path.insert(0, folder)
    try:
        return importlib.import_module("kernel_digests")
    finally:
        sys.path.remove(folder)


@functools.cache
def _kernel(source: KernelSource) -> bytes:
    """Digest of a kernel's text and the headers it reads."""
    made, root = kernel_digests(), header_root().resolve()
    digest = hashlib.sha256(f"{source}\0{made.tokens(source.text)}\0{source.threads} {source.shared_bytes}".encode())
    for path in made.headers_of(source.text, str(source)):
        digest.update(path.relative_to(root).as_posix().encode() + b"\0" + made._content(path))
    return digest.digest()


def _numbers(args: ctypes.Structure) -> list[object]:
    """The fields of a record that are no addresses."""
    found: list[object] = []
    for name, kind, *_ in args._fields_:
        if kind is not ctypes.c_void_p:
            value = getattr(args, name)
            found.append(_numbers(value) if isinstance(value, ctypes.Structure) else value)
    return [list(x) if isinstance(x, ctypes.Array) else x for x in found]


class NeedsResults(Exception):
    """A test cannot be played through."""


def _content(x: object) -> bytes:
    """Of an argument: a tensor's bits, numbers, or how a spec or a format is written."""
    if isinstance(x, Tensor):
        return repr((x.dtype, tuple(x.shape))).encode() + bits(x).numpy().tobytes()
    if isinstance(x, (list, tuple, int, float, str, NoneType)):
        return marshal.dumps(x, 2)
    text = repr(x)
    if " at 0x" in text:
        raise NeedsResults
    return text.encode()


class Trace:
    """What a test launched, asked the reference, and compared. What comes twice counts once: a result is the same on every
    instruction set, of which each machine has others."""

    def __init__(self) -> None:
        self._noted: dict[bytes, None] = {}
        self.launches = self.calls = 0

    def _note(self, *parts: bytes) -> None:
        self._noted[hashlib.sha256(b"\0".join(parts)).digest()] = None

    def launch(self, source: KernelSource, blocks: tuple[int, ...], args: ctypes.Structure) -> None:
        self.launches += 1
        self._note(_kernel(source), repr((blocks, _numbers(args))).encode())

    def compared(self, got: Tensor, want: Tensor, nan_is_nan: bool) -> None:
        both = (want,) if self.launches else (got, want)
        if nan_is_nan:
            both = tuple(x.where(~x.isnan(), torch.nan) if x.is_floating_point() else x for x in both)
        self._note(*map(_content, both))

    def asked(self, name: str, arguments: tuple[object, ...], more: dict[str, object]) -> None:
        self.calls += 1
        self._note(name.encode(), *map(_content, arguments), *(_content(x) for item in more.items() for x in item))

    def digest(self, test: Path) -> str:
        return hashlib.sha256(b"".join(self._noted) + _texts(test)).hexdigest()[:32]


#: The one that is being made, if any.
current: Trace | None = None


def traced(source: KernelSource, blocks: tuple[int, ...], args: ctypes.Structure) -> bool:
    """Notes a launch, where nothing is to run."""
    if current is not None:
        current.launch(source, blocks, args)
    return current is not None


#: What the running test would confirm.
_pending: dict[str, str] = {}


def compiled_before(test: str, path: Path, kernels: Iterable[tuple[KernelSource, str]], ask: bool) -> bool:
    """Whether ``test`` looked at the machine code of these kernels for these architectures, and nothing was changed since.

    ``ask``: False where it is to look whatever is kept.
    """
    if current is not None:
        raise NeedsResults
    digest = hashlib.sha256(_texts(path))
    for source, arch in kernels:
        digest.update(kernel_digests().kernel_digest(source, arch).encode())
    _pending[test] = digest.hexdigest()[:32]
    return ask and COMPILED.confirms(test, _pending[test])


def _shaped(a: Any, b: Any, fill: Any) -> list[list[Any]]:
    """As the product of two matrices."""
    rows = len(a.codes if isinstance(a, reference.Blocked) else a)
    if not isinstance(b, reference.Blocked) and not len(b):
        raise NeedsResults  # columns that have no terms are not there to be counted
    columns = len(b.codes if isinstance(b, reference.Blocked) else b[0])
    return [[fill] * columns for _ in range(rows)]


def _filled(values: Any) -> Any:
    return list(map(_filled, values)) if isinstance(values, (list, tuple)) else math.nan


#: What functions of the reference give where they are not computed.
_RESULTS = {
    reference.gemm: lambda a, b, *rest, **more: _shaped(a, b, math.nan),
    reference.count_overflows: lambda a, b, *rest, **more: _shaped(a, b, -1),
    reference.count_events: lambda a, b, *rest, **more: _shaped(a, b, reference.EventCounts(-1, -1, -1, -1, -1)),
    reference.quantize_tensor: lambda x, *rest, **more: _filled(x),
    reference.quantize: lambda x, *rest, **more: _filled(x.tolist() if hasattr(x, "tolist") else x),
}


def _instead(function: Callable[..., Any], trace: Trace) -> Callable[..., Any]:
    def noted(*arguments: object, **more: object) -> object:
        trace.asked(function.__name__, arguments, more)
        return _RESULTS[function](*arguments, **more)

    return noted


@contextmanager
def _tracing(module: ModuleType | None) -> Iterator[Trace]:
    global current
    current = trace = Trace()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(support, "compared", trace.compared)
        users = [module, *(found for name, found in sys.modules.items() if name.startswith("support."))]
        for user in (reference, *filter(None, users)):
            for name, value in list(vars(user).items()):
                if user is not sys.modules[__name__] and isinstance(value, FunctionType) and value in _RESULTS:
                    patch.setattr(user, name, _instead(value, trace))
        try:
            yield trace
        finally:
            current = None


def played(call: Callable[[], object], test: Path, module: ModuleType | None = None) -> tuple[Kept, str] | None:
    """Digest of what a test of ``module`` notes, and where it is kept. None: it notes nothing, or needs results."""
    with _tracing(module) as trace:
        try:
            call()
        except (Exception, pytest.fail.Exception, pytest.skip.Exception):
            return None
    if not trace.launches + trace.calls:
        return None
    return RAN if trace.launches else COMPUTED, trace.digest(test)


@functools.cache
def _data() -> bytes:
    """Of what others computed, and of the models that others wrote."""
    tests, digest = ROOT / "tests", hashlib.sha256()
    for path in sorted([*GOLDEN.rglob("*.npz"), *(tests / "oracles").glob("*.py")]):
        digest.update(path.relative_to(tests).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.digest()


def reference_alone(test: str, path: Path, call: Callable[[], object], remember: bool) -> bool:
    """As ``confirmed``, of a test that nothing but the reference, stored vectors and oracles decide: nothing is played."""
    digest = hashlib.sha256(_texts(path) + _data()).hexdigest()[:32]
    if remember:
        call()
        COMPUTED.found[test] = digest
    return remember or COMPUTED.confirms(test, digest)


def confirmed(
    test: str, path: Path, call: Callable[[], object], remember: bool, module: ModuleType | None = None
) -> bool:
    """Whether ``test`` has been dealt with: its results are kept, or have just been found to be right."""
    test = re.sub("avx512fp16|avx512|avx2|neon|baseline", "*", test)  # results do not depend on the instruction set
    if not remember:
        if test not in RAN and test not in COMPUTED:
            return False
        found = played(call, path, module)
        return found is not None and found[0].confirms(test, found[1])
    before = played(call, path, module)
    _pending.clear()
    call()
    COMPILED.found.update(_pending)
    if before is not None and before == played(call, path, module):
        before[0].found[test] = before[1]
    return True
