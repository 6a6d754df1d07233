"""A loaded libcublasLt through ctypes: its version, its heuristic, one product by a given algorithm.

Values and sizes are those of NVIDIA's public header, CUDA 12 and 13.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import byref, c_float, c_int, c_int8, c_int32, c_int64, c_size_t, c_uint16, c_uint32, c_uint64, c_void_p
from typing import Any, NamedTuple

from .call import FP8, Call
from .configuration import Config
from .errors import LibraryError, UnknownPlan, library_error

__all__ = ["LtLibrary", "Pointers"]

_COMPUTE_32F, _ROW_ORDER, _TRANSPOSED = 68, 1, 1
_DESC_TRANSA, _DESC_FAST_ACCUM, _LAYOUT_ORDER, _PREFERENCE_WORKSPACE = 3, 25, 1, 1
#: cudaDataType by format.
_TYPES = {"fp32": 0, "fp16": 2, "bf16": 14, "e4m3": 28, "e5m2": 29}
#: Types of the nine attributes of an algorithm.
_ATTRIBUTES = (c_int32, c_uint32, c_int32, c_uint32, c_uint32, c_uint32, c_uint32, c_uint16, c_uint16)
_STATUS = {
    1: "not initialised",
    3: "no memory",
    7: "invalid value",
    8: "architecture mismatch",
    11: "mapping error",
    13: "execution failed",
    14: "internal error",
    15: "not supported",
    16: "licence error",
}
_NOT_SUPPORTED = 15


class _Algo(ctypes.Structure):
    _fields_ = [("data", c_uint64 * 8)]


class _Result(ctypes.Structure):
    _fields_ = [
        ("algo", _Algo),
        ("workspace", c_size_t),
        ("state", c_int),
        ("waves", c_float),
        ("reserved", c_int * 4),
    ]


class Pointers(NamedTuple):
    """Addresses of the operands, the result, the workspace, and the stream."""

    a: int
    b: int
    out: int
    workspace: int
    stream: int


class LtLibrary:
    """One loaded library, by the path of its file.

    Raises:
        LibraryError: for a file that cannot be loaded or is no libcublasLt, and where a call of it fails.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        try:
            self._lib = ctypes.CDLL(path)
            self._lib.cublasLtGetVersion.restype = c_size_t
            self._names = {name: getattr(self._lib, f"cublasLt{name}") for name in _FUNCTIONS}
        except (OSError, AttributeError) as error:
            raise library_error(
                f"{path}: {error}", "a libcublasLt of CUDA 12 or 13", "Install PyTorch with CUDA."
            ) from None
        for name, types in _FUNCTIONS.items():
            self._names[name].argtypes, self._names[name].restype = types, c_int
        self._handle = c_void_p()
        self._do("Create", byref(self._handle))

    @property
    def version(self) -> str:
        """The version as numbers between dots: "13.1.1"."""
        number = int(self._lib.cublasLtGetVersion())
        if number < 120000:  # 12.8.3 is 120803
            raise library_error(f"{self.path} of version {number}", "CUDA 12 or 13", "Install a newer PyTorch.")
        return f"{number // 10000}.{number // 100 % 100}.{number % 100}"

    def configuration(self, call: Call, workspace: int) -> Config:
        """The first configuration that the heuristic returns.

        Raises:
            UnknownPlan: where the library has no algorithm for the call. LibraryError: where it fails.
        """
        with self._problem(call) as (desc, layouts), self._made("MatmulPreference") as preference:
            self._set("MatmulPreference", preference, _PREFERENCE_WORKSPACE, c_uint64(workspace))
            result, count = _Result(), c_int(0)
            status = self._names["MatmulAlgoGetHeuristic"](
                self._handle, desc, *layouts, preference, 1, byref(result), byref(count)
            )
            if status == _NOT_SUPPORTED or (status == 0 and (count.value < 1 or result.state)):
                raise UnknownPlan(
                    f"{call}, for which {self.path} has no algorithm",
                    "calls that the library computes",
                    "Check shapes, alignment and formats.",
                )
            self._check("MatmulAlgoGetHeuristic", status)
            return Config(*(self._attribute(result.algo, index) for index in range(len(_ATTRIBUTES))))

    def workspace_of(self, call: Call, config: Config) -> int:
        """Bytes of workspace that an algorithm needs.

        Raises:
            LibraryError: where the library does not take it for this call.
        """
        with self._problem(call) as (desc, layouts):
            return self._checked(call, config, desc, layouts)[1]

    def multiply(self, call: Call, config: Config, pointers: Pointers, workspace: int) -> None:
        """The product by exactly this algorithm, alpha 1 and beta 0.

        Raises:
            LibraryError: where the library does not take it for this call, or the workspace is too small.
        """
        with self._problem(call) as (desc, layouts):
            algo, needed = self._checked(call, config, desc, layouts)
            if needed > workspace:
                raise library_error(
                    f"{config}, which needs {needed} bytes of workspace", f"{workspace} bytes", "Allow more."
                )
            a, b, c, out = layouts
            first, second = (pointers.b, pointers.a) if call.a in FP8 else (pointers.a, pointers.b)
            one, zero = c_float(1.0), c_float(0.0)
            addend = None if call.out in FP8 else pointers.out
            self._do(
                "Matmul", self._handle, desc, byref(one), first, a, second, b, byref(zero), addend, c,
                pointers.out, out, byref(algo), pointers.workspace, workspace, pointers.stream,
            )  # fmt: skip

    # Inside

    def _check(self, name: str, status: int) -> None:
        """LibraryError for a status that is not 0."""
        if status:
            word = _STATUS.get(status, "unknown")
            raise LibraryError(
                f"cublasLt{name}: status {status}, {word}; allowed: 0.\n  The library refused the call: see its logs "
                "with CUBLASLT_LOG_LEVEL=5."
            )

    def _do(self, name: str, *arguments: Any) -> None:
        self._check(name, self._names[name](*arguments))

    @contextmanager
    def _made(self, kind: str, *arguments: Any) -> Iterator[c_void_p]:
        """An object of the library, destroyed at the end."""
        made = c_void_p()
        self._do(f"{kind}Create", byref(made), *arguments)
        try:
            yield made
        finally:
            self._names[f"{kind}Destroy"](made)

    def _set(self, kind: str, of: c_void_p, attribute: int, value: Any) -> None:
        self._do(f"{kind}SetAttribute", of, attribute, byref(value), ctypes.sizeof(value))

    def _attribute(self, algo: _Algo, index: int) -> int:
        value, written = _ATTRIBUTES[index](), c_size_t(0)
        size = ctypes.sizeof(value)
        self._do("MatmulAlgoConfigGetAttribute", byref(algo), index, byref(value), size, byref(written))
        if written.value != size:
            raise library_error(
                f"{Config._fields[index]} of {written.value} bytes",
                f"{size} bytes",
                "This library is newer than gemmsim.",
            )
        return int(value.value)

    @contextmanager
    def _problem(self, call: Call) -> Iterator[tuple[c_void_p, tuple[c_void_p, ...]]]:
        """Description of a call, and layouts of both operands, the addend (which is not read) and the result.

        fp16, bf16: row-major operands and result. FP8: both contiguous along K, as the transposed problem in
        column-major order, the only layout that all architectures take.
        """
        sizes = (call.M, call.K, call.K), (call.K, call.N, call.N), (call.M, call.N, call.N)
        if call.a in FP8:
            sizes = (call.K, call.N, call.K), (call.K, call.M, call.K), (call.N, call.M, call.N)
        shapes = [(c_uint64(rows), c_uint64(columns), c_int64(ld)) for rows, columns, ld in (*sizes, sizes[2])]
        kinds = _kinds(call)
        with (
            self._made("MatmulDesc", c_int(_COMPUTE_32F), c_int(_TYPES["fp32"])) as desc,
            self._made("MatrixLayout", kinds[0], *shapes[0]) as a,
            self._made("MatrixLayout", kinds[1], *shapes[1]) as b,
            self._made("MatrixLayout", kinds[2], *shapes[2]) as c,
            self._made("MatrixLayout", kinds[3], *shapes[3]) as out,
        ):
            layouts = (a, b, c, out)
            if call.a in FP8:
                self._set("MatmulDesc", desc, _DESC_TRANSA, c_int32(_TRANSPOSED))
                self._set("MatmulDesc", desc, _DESC_FAST_ACCUM, c_int8(call.fast))
            else:
                for layout in layouts:
                    self._set("MatrixLayout", layout, _LAYOUT_ORDER, c_int32(_ROW_ORDER))
            yield desc, layouts

    def _checked(self, call: Call, config: Config, desc: c_void_p, layouts: Any) -> tuple[_Algo, int]:
        """The algorithm of a configuration, and the workspace that it needs."""
        algo, result = _Algo(), _Result()
        compute, scale = c_int(_COMPUTE_32F), c_int(_TYPES["fp32"])
        self._do("MatmulAlgoInit", self._handle, compute, scale, *_kinds(call), config.ALGO_ID, byref(algo))
        for index, value in enumerate(config):
            if index and value is not None and value != self._attribute(algo, index):
                typed = _ATTRIBUTES[index](value)
                size = ctypes.sizeof(typed)
                self._do("MatmulAlgoConfigSetAttribute", byref(algo), index, byref(typed), size)
        self._do("MatmulAlgoCheck", self._handle, desc, *layouts, byref(algo), byref(result))
        return algo, int(result.workspace)


def _kinds(call: Call) -> list[c_int]:
    """The library's types of its first and second operand, the addend and the result.

    Raises:
        LibraryError: for formats that it does not have.
    """
    for name in (call.a, call.b, call.out):
        if name not in _TYPES:
            raise library_error(f"{call} by cuBLASLt", ", ".join(_TYPES), "Convert the operands.")
    operands = (call.b, call.a) if call.a in FP8 else (call.a, call.b)
    return [c_int(_TYPES[name]) for name in (*operands, "fp16" if call.out in FP8 else call.out, call.out)]


_P = c_void_p
_FUNCTIONS: dict[str, list[Any]] = {
    "Create": [_P],
    "MatmulDescCreate": [_P, c_int, c_int],
    "MatmulDescDestroy": [_P],
    "MatmulDescSetAttribute": [_P, c_int, _P, c_size_t],
    "MatrixLayoutCreate": [_P, c_int, c_uint64, c_uint64, c_int64],
    "MatrixLayoutDestroy": [_P],
    "MatrixLayoutSetAttribute": [_P, c_int, _P, c_size_t],
    "MatmulPreferenceCreate": [_P],
    "MatmulPreferenceDestroy": [_P],
    "MatmulPreferenceSetAttribute": [_P, c_int, _P, c_size_t],
    "MatmulAlgoGetHeuristic": [_P, _P, _P, _P, _P, _P, _P, c_int, _P, _P],
    "MatmulAlgoConfigGetAttribute": [_P, c_int, _P, c_size_t, _P],
    "MatmulAlgoConfigSetAttribute": [_P, c_int, _P, c_size_t],
    "MatmulAlgoInit": [_P, c_int, c_int, c_int, c_int, c_int, c_int, c_int, _P],
    "MatmulAlgoCheck": [_P, _P, _P, _P, _P, _P, _P, _P],
    "Matmul": [_P, _P, _P, _P, _P, _P, _P, _P, _P, _P, _P, _P, _P, _P, c_size_t, _P],
}
