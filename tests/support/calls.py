"""Calls of the CPU library in a file: arguments, what they point to, and what was there afterwards.

``tests/cpp/replay.cpp`` makes the same calls to a library for another processor and compares the memory.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

from gemmsim.backends.cpu import shared_library

__all__ = ["Recorder"]

MAGIC = b"gemmsim calls 1\n"
FUNCTIONS = [
    "gemmsim_gemm",
    "gemmsim_gathered_gemm",
    "gemmsim_lookup_gemm",
    "gemmsim_quantize",
    "gemmsim_block",
    "gemmsim_block_float",
    "gemmsim_rows",
    "gemmsim_scaled_cast",
]
#: Bytes of memory up to which a call is written; those of products from tables, which are large.
MOST, MOST_LOOKUP = 1 << 17, 1 << 20
_address = ctypes.addressof
_WORD = struct.Struct("=Q")


@dataclass
class Memory:
    """A stretch of memory; ``address`` 0 for bytes that have none of their own. ``records``: may hold pointers."""

    address: int
    size: int
    records: bool
    owner: object

    def read(self) -> bytes:
        return self.owner if isinstance(self.owner, bytes) else ctypes.string_at(self.address, self.size)


class _Known:
    """Memory whose address was asked for: tensors until the next call, records of ctypes for good."""

    def __init__(self) -> None:
        self.records: dict[int, Memory] = {}
        self.tensors: dict[int, Memory] = {}

    def tensor(self, x: torch.Tensor, pointer: int) -> None:
        if x.device.type == "cpu" and pointer:
            storage = x.untyped_storage()
            start = pointer - x.storage_offset() * x.element_size()
            self.tensors[start] = Memory(start, storage.nbytes(), False, storage)

    def record(self, x: ctypes._CData, pointer: int) -> None:
        self.records[pointer] = Memory(pointer, ctypes.sizeof(x), True, x)

    def at(self, pointer: int) -> Memory | None:
        for memory in self.tensors.values():
            if memory.address <= pointer < memory.address + max(memory.size, 1):
                return memory
        return self.records.get(pointer)


class _Call:
    """The memory of one call and the pointers in it."""

    def __init__(self, known: _Known, arguments: tuple[object, ...]):
        self.memories: list[Memory] = []
        self.pointers: list[tuple[int, int, int, int]] = []  # memory, offset; what is there: memory, offset
        for argument in arguments:
            if isinstance(argument, bytes):
                self.memories.append(Memory(0, len(argument), True, argument))
            else:
                record = argument._obj  # type: ignore[attr-defined]  # of byref
                self.memories.append(Memory(_address(record), ctypes.sizeof(record), True, record))
        self.arguments = len(self.memories)
        at = 0
        while at < len(self.memories):  # memories that others point to are found on the way
            if self.memories[at].records:
                self._follow(at, known)
            at += 1
        self.before = [memory.read() for memory in self.memories]

    def _follow(self, at: int, known: _Known) -> None:
        content = self.memories[at].read()
        for offset in range(0, len(content) - 7, 8):
            pointer = _WORD.unpack_from(content, offset)[0]
            found = known.at(pointer) if pointer > 0xFFFF else None
            if found is None:
                continue
            index = next((i for i, memory in enumerate(self.memories) if memory is found), None)
            if index is None:
                index = len(self.memories)
                self.memories.append(found)
            self.pointers.append((at, offset, index, pointer - found.address))

    def text(self, name: str, result: int) -> Iterator[bytes]:
        yield struct.pack("=I", len(name)) + name.encode()
        yield struct.pack("=qIII", result, self.arguments, len(self.memories), len(self.pointers))
        for memory, before in zip(self.memories, self.before, strict=True):
            after = memory.read()
            changed = not memory.records and after != before
            yield struct.pack("=QII", memory.size, memory.address % 64, 2 * memory.records + changed)
            yield before
            if changed:
                yield after
        for pointer in self.pointers:
            yield struct.pack("=IQIQ", *pointer)


class _Function:
    """A function of the library that writes calls down."""

    def __init__(self, name: str, function: ctypes._NamedFuncPointer, recorder: Recorder):
        self.__dict__.update(name=name, function=function, recorder=recorder)

    def __call__(self, *arguments: object) -> int:
        return int(self.recorder.call(self.name, self.function, arguments))

    def __setattr__(self, name: str, value: object) -> None:  # argtypes, restype
        setattr(self.function, name, value)


class _Library:
    def __init__(self, library: ctypes.CDLL, recorder: Recorder):
        self._library = library
        self._functions = {name: _Function(name, getattr(library, name), recorder) for name in FUNCTIONS}

    def __getattr__(self, name: str) -> object:
        return self._functions.get(name) or getattr(self._library, name)


class Recorder:
    """Writes calls of the CPU library to ``path`` while its ``with`` lasts, those for which ``wanted`` says so.

    Addresses are learnt where Python asks for them, so whatever keeps records from earlier calls must be new: to be
    used in a process of its own, before any product. Calls with more than ``MOST`` bytes of memory are left out.
    """

    def __init__(self, path: Path, wanted: Callable[[str], bool]):
        self.path, self.wanted = path, wanted
        self.known = _Known()

    def call(self, name: str, function: Callable[..., int], arguments: tuple[object, ...]) -> int:
        call = _Call(self.known, arguments) if self.wanted(name) else None
        result = function(*arguments)
        most = MOST_LOOKUP if name == "gemmsim_lookup_gemm" else MOST
        if call is not None and sum(memory.size for memory in call.memories) <= most:
            self.file.writelines(call.text(name, result))
        self.known.tensors.clear()
        return result

    def __enter__(self) -> Recorder:
        data_ptr, addressof, library = torch.Tensor.data_ptr, ctypes.addressof, shared_library.library()

        def tensor_address(x: torch.Tensor) -> int:
            pointer = data_ptr(x)
            self.known.tensor(x, pointer)
            return pointer

        def record_address(x: ctypes._CData) -> int:
            pointer = addressof(x)
            self.known.record(x, pointer)
            return pointer

        self.file = self.path.open("wb")
        self.file.write(MAGIC)
        self.before = data_ptr, addressof, library
        torch.Tensor.data_ptr, ctypes.addressof = tensor_address, record_address  # type: ignore[method-assign]
        shared_library._loaded = _Library(library, self)  # type: ignore[assignment]
        return self

    def __exit__(self, *error: object) -> None:
        torch.Tensor.data_ptr, ctypes.addressof, shared_library._loaded = self.before  # type: ignore[method-assign]
        self.file.close()
