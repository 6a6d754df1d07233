"""``gemmsim identify``: the spec that a function of some module computes."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import torch

import gemmsim as gs
from gemmsim._files import write_text

from .console import say, say_json

__all__ = ["Asked", "identify", "read_function", "read_numbers"]


class Asked(NamedTuple):
    """What was asked, as words of the command line."""

    function: str
    dtype: str
    shape: str
    over_k: str | None
    over_m: str | None
    spec: str | None
    at: str
    device: str
    seed: int


#: Names of dtypes that people use.
_DTYPES = {"fp64": "float64", "fp32": "float32", "fp16": "float16", "bf16": "bfloat16", "half": "float16"}
_DTYPES |= {"e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2"}
#: Sizes that one survey looks at, at most.
_MOST = 1000


def identify(asked: Asked, as_json: bool, svg: Path | None) -> bool:
    """Prints the answer, or the answers for ranges of M and K; whether each was verified and no spec to be compared
    differs.

    Raises:
        ProbeError: for words that mean nothing, and as ``gs.identify``.
        SpecError: for a spec to be compared that means nothing.
        FileError: where the picture cannot be written.
    """
    f, dtype = read_function(asked.function), _dtype(asked.dtype)
    if svg is not None and not svg.absolute().parent.is_dir():
        raise gs.ProbeError(
            f"--svg '{svg}': this folder does not exist; allowed: a file in an existing folder.\n  Create it first."
        )
    M, K, N = _shape(asked.shape)
    if asked.over_k is None and asked.over_m is None:
        one = gs.identify(f, M, N, K, dtype, spec=asked.spec, at=_at(asked.at), device=asked.device, seed=asked.seed)
        if svg is not None:
            write_text(svg, one.svg())
        if as_json:
            say_json(one.to_dict())
        else:
            say(str(one))
        return one.verified and one.difference is None
    alone = {"--compare": asked.spec is not None, "--svg": svg is not None, "--at": asked.at != "0,0"}
    if any(alone.values()):
        what = next(name for name, given in alone.items() if given)
        raise gs.ProbeError(f"{what} with a range of sizes; allowed: one shape.\n  Leave --over-K and --over-M out.")
    rows = [M] if asked.over_m is None else read_numbers(asked.over_m, "--over-M")
    lengths = [K] if asked.over_k is None else read_numbers(asked.over_k, "--over-K")
    over = gs.identify_over(f, rows, N, lengths, dtype, device=asked.device, seed=asked.seed)
    if as_json:
        say_json(over.to_dict())
    else:
        say(str(over))
    return not over.refused and all(one.verified for one in over.answers)


def read_function(text: str) -> Any:
    """The function ``torch.mm``, ``numpy.matmul``, ``torch.nn.functional.linear`` or ``MODULE:FUNCTION``; modules of
    the current folder, too.

    Raises:
        ProbeError: where there is none.
    """
    module, colon, name = text.partition(":")
    if not colon:
        module, _, name = text.rpartition(".")
    if not module or not name:
        raise _no_function(text, "a module and a function in it")
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        found: Any = import_module(module)
        for part in name.split("."):
            if not hasattr(found, part):
                raise _no_function(text, f"{found.__name__} has no {part!r}", get_close_matches(part, dir(found)))
            found = getattr(found, part)
    except ImportError as error:
        raise _no_function(text, f"{type(error).__name__}: {error}") from None
    if not callable(found):
        raise _no_function(text, f"it is a {type(found).__name__}")
    return found


def _no_function(text: str, why: str, near: Sequence[str] = ()) -> gs.ProbeError:
    do = (
        f"Did you mean {near[0]}?"
        if near
        else "Name a function of two matrices that Python can import from this folder."
    )
    return gs.ProbeError(
        f"no function {text!r}: {why}; allowed: torch.mm, numpy.matmul, torch.nn.functional.linear, MODULE:FUNCTION.\n"
        f"  {do}"
    )


def _dtype(text: str) -> torch.dtype:
    found = getattr(torch, _DTYPES.get(text.lower(), text.lower().removeprefix("torch.")), None)
    if not isinstance(found, torch.dtype):
        raise gs.ProbeError(f"--dtype {text!r}; allowed: {', '.join(_DTYPES)}, or a name of torch.\n  Try bf16.")
    return found


def _shape(text: str) -> tuple[int, int, int]:
    match = re.fullmatch(r"(\d+)x(\d+)x(\d+)", text.strip().lower())
    if not match:
        raise gs.ProbeError(f"--shape {text!r}; allowed: MxKxN, such as 64x512x64.\n  Give three numbers.")
    return int(match[1]), int(match[2]), int(match[3])


def _at(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"\s*(\d+)\s*,\s*(\d+)\s*", text)
    if not match:
        raise gs.ProbeError(f"--at {text!r}; allowed: M,N, such as 0,63.\n  Give the position of an output.")
    return int(match[1]), int(match[2])


def read_numbers(text: str, option: str) -> list[int]:
    """The numbers of ``1:16`` (both ends), ``64:512:64``, ``64:4096:x2``, ``1,2,8`` and of lists of these.

    Raises:
        ProbeError: for other texts, and more than a thousand numbers.
    """
    found: list[int] = []
    for item in text.split(","):
        match = re.fullmatch(r"(\d+)(?::(\d+)(?::([x+]?)(\d+))?)?", item.strip().lower())
        if not match:
            raise _no_range(option, text)
        low, high, by = int(match[1]), int(match[2] or match[1]), int(match[4] or 1)
        times = match[3] == "x"
        if low < 1 or by < (2 if times else 1) or (high - low) // by > _MOST and not times:
            raise _no_range(option, text)
        while low <= high:
            found.append(low)
            low = low * by if times else low + by
    if not 1 <= len(found) <= _MOST:
        raise _no_range(option, text)
    return found


def _no_range(option: str, text: str) -> gs.ProbeError:
    return gs.ProbeError(
        f"{option} {text!r}; allowed: 1:16 (both ends), 64:512:64, 64:4096:x2, 1,2,8; at most {_MOST} numbers of 1 or "
        "more.\n  Give such a range."
    )
