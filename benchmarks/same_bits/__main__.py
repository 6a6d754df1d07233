"""Digests of what the package computes: ``python -m benchmarks.same_bits FILE`` writes them, a sorted JSON file.

``--compare OLD`` says which keys differ between that file and the ones just found, and fails if any does. ``--quick``
takes about a fifth of the products, rows and casts; its keys are among those of the full dump. Keys of the dump:

* ``plan/``, ``block/``, ``tensor/``: records packed for the C library, pointers masked; ``refused/``: why a backend
  does not compute a spec; ``explain/``: what ``gemmsim.explain`` says;
* ``family/``, ``kernel/``: texts of generated CUDA kernels, their threads, memory and launch sizes;
* ``result/ISA/``, ``ran/ISA/``: bits of results and ``last_backend()`` on each instruction set of this machine, each in
  a process of its own on one thread.

Results of two machines may differ in ``ran/`` and, with other versions of PyTorch, in its own arithmetic: compare dumps
of one machine.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_EVERY = 5


def digest(data: bytes | str) -> str:
    return hashlib.sha256(data.encode() if isinstance(data, str) else data).hexdigest()[:16]


def _tried(call: object) -> bytes:
    """What a call returns, or the error it raises."""
    return _outcome(call)[0]


def _outcome(call: object) -> tuple[bytes, bool]:
    """What a call returns, or the error it raises; whether it returned."""
    try:
        found = call()  # type: ignore[operator]
    except Exception as error:  # what is refused, and how, belongs to the dump
        return f"{type(error).__name__}: {error}".encode(), False
    return _bytes_of(found), True


def _bytes_of(found: object) -> bytes:
    import torch

    if isinstance(found, torch.Tensor):
        x = found.detach().contiguous()
        return f"{x.dtype} {tuple(x.shape)} ".encode() + x.flatten().view(torch.uint8).numpy().tobytes()
    if isinstance(found, (list, tuple)):
        return b"".join(map(_bytes_of, found))
    return found if isinstance(found, bytes) else str(found).encode()


def plans() -> Iterator[tuple[str, bytes]]:
    """Packed records, refusals and explanations of every spec and format."""
    import gemmsim as gs
    from gemmsim.formats import parse_block, parse_tensor_format

    from . import inside, specs

    listed = [s for text in (*specs.LISTED, *specs.BLOCKS, *specs.ACCELERATED) if (s := specs.named(text)) is not None]
    for spec in (*listed, *specs.hardware(), *specs.grid(), *specs.random_specs(400)):
        yield f"plan/{spec}", _tried(lambda spec=spec: inside.packed_plan(spec))
        yield f"refused/{spec}", _tried(lambda spec=spec: inside.refusals(spec))
        yield f"explain/{spec}", _tried(lambda spec=spec: gs.explain(spec))
    for text in specs.BLOCK_FORMATS:
        yield f"block/{text}", _tried(lambda text=text: inside.block_plan(parse_block(text)))
    for text in specs.TENSOR_FORMATS:
        yield f"tensor/{text}", _tried(lambda text=text: inside.tensor_plan(parse_tensor_format(text)))


def kernels() -> Iterator[tuple[str, bytes]]:
    """Texts of CUDA kernels."""
    from gemmsim.formats import parse_block, parse_cast, parse_tensor_format

    from . import calls, inside, specs

    for name, text in inside.family_texts():
        yield f"family/{name}", text.encode()
    rng = random.Random(1)
    listed = [s for text in specs.LISTED if (s := specs.named(text)) is not None]
    for spec in (*listed, *specs.hardware(), *specs.grid(), *specs.random_specs(400)):
        a, b, select = calls.matrices(spec, rng, "normal")
        c = calls.operand(rng, a.shape[0], b.shape[1], a.dtype, "normal") if "init=c_" in str(spec) else None
        found = inside.kernels_of_products(spec, a, b, select, c)
        yield f"kernel/{spec}", "\n".join(map("\n".join, found)).encode()
    for text in specs.casts():
        x = calls.operand(rng, 4, 40, rng.choice(calls.DTYPES), "normal")
        dtype, strided = rng.choice(calls.DTYPES), rng.random() < 0.5

        def texts(text: str = text, x: object = x.T if strided else x, dtype: object = dtype) -> str:
            return str(inside.kernels_of_casts(parse_cast(text), x, dtype))  # type: ignore[arg-type]

        yield f"kernel/cast {text}", _tried(texts)
        yield (
            f"kernel/rows {text}",
            _tried(lambda t=text, x=x: inside.kernels_of_rows("softmax", [parse_cast(t)] * 4, x)),
        )
        yield f"kernel/sums {text}", _tried(lambda t=text, x=x: inside.kernels_of_rows("sum", [parse_cast(t)], x))
    for text in specs.TENSOR_FORMATS:
        x = calls.operand(rng, 48, 70, rng.choice(calls.DTYPES), "normal")
        yield (
            f"kernel/cast {text}",
            _tried(lambda t=text, x=x: inside.kernels_of_casts(parse_tensor_format(t), x, x.dtype)),
        )
    for text in specs.BLOCK_FORMATS:
        x = calls.operand(rng, 6, 96, rng.choice(calls.DTYPES), "normal")
        yield f"kernel/block {text}", _tried(lambda t=text, x=x: inside.kernels_of_blocks(parse_block(t), x))


def results(every: int) -> Iterator[tuple[str, bytes]]:
    """Results on the instruction set in force, and what they ran on."""
    import gemmsim as gs
    from gemmsim.backends import cpu

    from . import calls

    for name, call, recorded in (*calls.calls(every), *calls.accelerated()):
        found, returned = _outcome(call)
        yield f"result/{cpu.isa()}/{name}", found
        if recorded and returned:
            yield f"ran/{cpu.isa()}/{name}", str(gs.last_backend()).encode()


def _parts(quick: bool) -> dict[str, str]:
    """Everything, the results of each instruction set by a process of its own."""
    import torch

    from . import inside

    torch.set_num_threads(1)
    found = {key: digest(data) for key, data in (*plans(), *kernels())}
    for isa in inside.available_isas():
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "part.json"
            command = [sys.executable, "-m", "benchmarks.same_bits", str(file), "--results-of", isa]
            path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
            more = {"GEMMSIM_ISA": isa, "OMP_NUM_THREADS": "1", "PYTHONPATH": path}
            subprocess.run(command + ["--quick"] * quick, check=True, cwd=ROOT, env={**os.environ, **more})
            found |= json.loads(file.read_text(encoding="utf-8"))
    return found


def _write(file: Path, found: dict[str, str]) -> None:
    file.write_text(json.dumps(found, indent=0, sort_keys=True) + "\n", encoding="utf-8")


def differences(old: dict[str, str], new: dict[str, str], quick: bool) -> list[str]:
    """Keys that are not in both or whose digests differ; of a quick dump, only keys that it has."""
    lines = [f"changed {key}" for key in sorted(new) if key in old and old[key] != new[key]]
    lines += [f"only new {key}" for key in sorted(new.keys() - old.keys())]
    return lines if quick else lines + [f"only old {key}" for key in sorted(old.keys() - new.keys())]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, help="where the dump is written")
    parser.add_argument("--compare", type=Path, metavar="OLD", help="an earlier dump")
    parser.add_argument("--quick", action="store_true", help="about a fifth of the calls")
    parser.add_argument("--results-of", metavar="ISA", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.results_of:
        import torch

        torch.set_num_threads(1)
        _write(args.file, {key: digest(data) for key, data in results(_EVERY if args.quick else 1)})
        return 0
    found = _parts(args.quick)
    _write(args.file, found)
    print(f"{len(found)} digests in {args.file}")
    if args.compare is None:
        return 0
    lines = differences(json.loads(args.compare.read_text(encoding="utf-8")), found, args.quick)
    print("\n".join(lines[:200]) or "no difference")
    if len(lines) > 200:
        print(f"... and {len(lines) - 200} more")
    return 1 if lines else 0


if __name__ == "__main__":
    raise SystemExit(main())
