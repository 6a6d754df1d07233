"""``gemmsim library``: what libraries compute, recorded configurations, comparisons."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import gemmsim as gs

from .console import say, say_json

#: Rows and columns of a product that ``diff`` compares: outputs do not depend on each other.
_EDGE = 64


class Asked(NamedTuple):
    """One call as the command line has it: (M, N, K), formats, configuration, flag, assumption."""

    shape: tuple[int, int, int]
    a: str
    b: str | None
    result: str | None
    config: str | None
    fast: bool
    assume: str | None


def _error(asked: str, allowed: str, do: str) -> Exception:
    return gs.libraries.LibraryError(f"{asked}; allowed: {allowed}.\n  {do}")


def read_shape(text: str) -> tuple[int, int, int]:
    """(M, N, K) of "1x4096x4096".

    Raises:
        LibraryError: for anything else.
    """
    match = re.fullmatch(r"\s*(\d+)\s*[x,]\s*(\d+)\s*[x,]\s*(\d+)\s*", text)
    if match is None:
        raise _error(f"shape {text!r}", "M, N and K, such as 1x4096x4096", "Give three numbers.")
    return int(match[1]), int(match[2]), int(match[3])


def _plan(library: gs.libraries.Library, asked: Asked) -> gs.libraries.Plan:
    return library.plan(
        *asked.shape,
        asked.a,
        asked.b,
        asked.result,
        config=asked.config,
        fast_accumulation=asked.fast,
        assume=asked.assume,
    )


def _facts(plan: gs.libraries.Plan) -> dict[str, Any]:
    """A plan for JSON."""
    facts: dict[str, Any] = {"library": plan.library, "call": plan.call._asdict(), "spec": str(plan.spec)}
    facts |= {"family": plan.family, "evidence": plan.evidence, "source": plan.source, "lost": plan.lost}
    config = None if plan.config is None else plan.config._asdict()
    return facts | {"config": config, "order": list(plan.order), "sources": list(plan.sources)}


def print_known(as_json: bool) -> None:
    """Prints what is known of which GPU and version."""
    found = gs.libraries.known()
    if as_json:
        say_json(found.to_list())
    else:
        say(str(found))


def print_plan(
    name: tuple[str, str, str | None], asked: Asked, workspace: int, table: str | None, as_json: bool
) -> None:
    """Prints what the library of a GPU and version, which may stand for another version, computes for one call."""
    gpu, version, other = name
    plan = _plan(gs.libraries.cublaslt(gpu, version, workspace=workspace, table=table, assume_version=other), asked)
    if as_json:
        say_json(_facts(plan))
    else:
        say(plan.explain())


def record(shapes: Path, out: Path, asked: Asked, workspace: int, like: tuple[str | None, str | None]) -> None:
    """Asks the library of this machine for every shape and appends its answers to a table."""
    wanted = list(_shapes(shapes))
    library = gs.libraries.here(*like, workspace=workspace)
    new = library.record(wanted, out, asked.a, asked.b, asked.result, fast_accumulation=asked.fast)
    say(f"{new} new rows of {len(wanted)} shapes in {out}: {library}")


def _shapes(path: Path) -> Iterator[tuple[int, int, int]]:
    """The shapes in a file; a line of names may be first, empty lines are passed over."""
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError:
        raise _error(f"{path}: not UTF-8 text", "one M,N,K per line", "Write it as CSV.") from None
    for number, line in enumerate(lines, 1):
        words = [word.strip() for word in line.split(",")]
        if words == [""] or (number == 1 and [word.upper() for word in words] == ["M", "N", "K"]):
            continue
        try:
            yield read_shape(",".join(words))
        except gs.libraries.LibraryError:
            raise _error(f"{path}, line {number}: {line!r}", "one M,N,K per line", "Give three numbers.") from None


def verify(table: Path, per_family: int, seed: int, like: tuple[str | None, str | None], as_json: bool) -> bool:
    """Prints how many recorded products have the bits of their plans, by family; whether all have."""
    rows = gs.libraries.read_table(table)
    library = gs.libraries.here(*like, workspace=rows.header.workspace)
    rows.check_belongs(*library.names, library.workspace)
    found = gs.libraries.verify(library, rows, per_family, seed)
    if as_json:
        say_json([row._asdict() for row in found])
    else:
        say(str(library))
        for row in found:
            say(
                f"{row.family}: {row.equal} of {row.products} products equal, "
                f"{row.outputs_equal} of {row.outputs} outputs; {row.refused} refused"
            )
            for line in row.different:
                say(f"  {line}")
    return all(row.equal == row.products for row in found)


def diff(
    libraries: tuple[str, str],
    asked: tuple[Asked, Asked],
    tables: tuple[str | None, str | None],
    seed: int,
    as_json: bool,
) -> None:
    """Prints the plans of one product in two libraries and how their results differ on normal numbers."""
    import torch

    plans = []
    for name, table, call in zip(libraries, tables, asked, strict=True):
        gpu, _, version = name.partition(":")
        plans.append(_plan(gs.libraries.cublaslt(gpu, version or None, table=table), call))
    m, n, k = asked[0].shape
    g = torch.Generator().manual_seed(seed)
    a, b = torch.randn(min(m, _EDGE), k, generator=g), torch.randn(k, min(n, _EDGE), generator=g)
    found = gs.compare(plans[0].spec, plans[1].spec, a, b, seed=seed)
    if as_json:
        say_json({"plans": [_facts(plan) for plan in plans], "comparison": found.to_dict()})
        return
    for plan in plans:
        say(f"{plan.library}\n  {plan.spec}\n  family {plan.family}, {plan.evidence}")
    say(str(found))
