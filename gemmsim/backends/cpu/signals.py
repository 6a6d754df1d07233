"""Handles signals that arrive while the library computes: a long product lets the interpreter run their handlers."""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from ctypes import byref, c_ulong, c_void_p, cast
from typing import NoReturn

__all__ = ["listen", "raise_pending"]

_FUNCTIONS = (
    "PyThread_get_thread_ident",
    "PyGILState_Ensure",
    "PyGILState_Release",
    "PyErr_CheckSignals",
    "PyErr_Fetch",
)


class _InterpreterRecord(ctypes.Structure):
    """Interpreter of cutlass_kernels/cpu/product/interruption.h: the functions above, and the main thread."""

    _fields_ = [
        ("thread", c_void_p), ("hold", c_void_p), ("release", c_void_p), ("check", c_void_p), ("take", c_void_p),
        ("main", c_ulong),
    ]  # fmt: skip


def listen(lib: ctypes.CDLL) -> None:
    """Give ``lib`` the interpreter's functions for handling signals.

    An interpreter other than CPython does not provide them; the library then does not interrupt a call. As in Python,
    handlers run only in the main thread. An exception from a handler ends the product; otherwise the product continues.
    """
    lib.gemmsim_interpreter.argtypes = [c_void_p]
    lib.gemmsim_interpreter.restype = None
    lib.gemmsim_raised.argtypes = [c_void_p * 3]
    lib.gemmsim_raised.restype = None
    if sys.implementation.name != "cpython":
        return
    functions = [cast(getattr(ctypes.pythonapi, name), c_void_p).value for name in _FUNCTIONS]

    def tell() -> None:
        lib.gemmsim_interpreter(byref(_InterpreterRecord(*functions, threading.main_thread().ident or 0)))

    tell()
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=tell)  # the child's main thread is the one that called fork


def raise_pending(lib: ctypes.CDLL) -> NoReturn:
    """Raise the exception that a handler raised in this thread's last call of ``lib``."""
    three = (c_void_p * 3)()
    lib.gemmsim_raised(three)
    restore = ctypes.PYFUNCTYPE(None, c_void_p, c_void_p, c_void_p)(("PyErr_Restore", ctypes.pythonapi))
    restore(*three)
    raise AssertionError("an exception is set")
