"""``gemmsim vectors``: a product of files, of a captured layer or of directed cases, as words for a test bench."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import gemmsim as gs
from gemmsim import study

from .console import say, say_json, warn

__all__ = ["Asked", "vectors"]

_SCALED = ("none", "tensor")


@dataclass(frozen=True)
class Asked:
    """What a person asked ``gemmsim vectors`` for: operands by files, or a captured product, or terms alone."""

    spec: str
    out: Path
    a: str | None = None
    b: str | None = None
    captured: str | None = None
    terms: int | None = None
    transpose: str = ""
    scaled: str = "none"
    most: int = 0
    batch: int = 0
    steps: bool = False
    directed: bool = False
    seed: int = 0


def vectors(asked: Asked, as_json: bool) -> None:
    """Writes the files and prints what they are.

    Raises:
        VectorsError: for operands that are not said once, another word for an option, and as ``export_vectors``.
    """
    spec = gs.GemmSpec.of(asked.spec)
    if asked.scaled not in _SCALED:
        raise _error(f"--scaled {asked.scaled}", " or ".join(_SCALED), "Leave it out for operands as they are.")
    if set(asked.transpose) - set("ab"):
        raise _error(f"--transpose {asked.transpose}", "a, b or ab", "Leave it out for (M, K) and (K, N).")
    if asked.most < 0:
        raise _error(f"--most {asked.most}", "a number from 1", "Leave it out for all.")
    if asked.terms is not None:
        folders = _alone(asked, spec)
    else:
        a, b = _operands(asked)
        factors = (1.0, 1.0)
        if asked.scaled == "tensor":
            (a, left), (b, right) = (gs.vectors.scaled_to(x, spec, side) for side, x in enumerate((a, b)))
            factors = left, right
            if not as_json:
                say(f"a is multiplied by {left:.6g}, b by {right:.6g}")
        if asked.most and a.dim() == 2 and b.dim() == 2:
            a, b = a[_evenly(a.shape[0], asked.most)], b[:, _evenly(b.shape[1], asked.most)]
        folders = gs.export_vectors(a, b, spec, asked.out, steps=asked.steps, directed=asked.directed, seed=asked.seed)
        _warn_of_casts(folders[0], factors)
    facts = [_facts(folder) for folder in folders]
    if as_json:
        say_json({"spec": str(spec), "folders": facts})
        return
    for one in facts:
        files = ", ".join(f"{name}.hex {words} x {bits} bits" for name, (words, bits) in one["files"].items())
        say(f"{one['folder']}: {one['M']} x {one['K']} x {one['N']}; {files}")


def _alone(asked: Asked, spec: gs.GemmSpec) -> list[Path]:
    """Directed cases without operands of a person's own."""
    if asked.a or asked.b or asked.captured or not asked.directed:
        raise _error(
            "--terms together with operands" if asked.directed else "--terms without --directed",
            "--directed --terms K: only directed cases",
            "Leave --terms out, or the operands.",
        )
    for case in gs.vectors.directed_cases(spec, asked.terms or 0):
        if case.a is None:
            warn(f"{case.name}: {case.about}")
    return gs.vectors.export_directed(spec, asked.terms or 0, asked.out, steps=asked.steps, seed=asked.seed)


def _operands(asked: Asked) -> tuple[Tensor, Tensor]:
    """The operands of the files or of the captured product."""
    if asked.captured is not None and (asked.a or asked.b or asked.transpose):
        raise _error("--captured together with --a, --b or --transpose", "one of them", "Leave one out.")
    if asked.captured is not None:
        head, colon, name = asked.captured.partition(".safetensors:")
        path = f"{head}.safetensors" if colon else asked.captured
        found = gs.vectors.captured_product(path, name, batch=asked.batch)
        a, b = found.a, found.b
    elif asked.a is None or asked.b is None:
        raise _error(
            "no operands", "--a FILE --b FILE, --captured FILE:PRODUCT, or --directed --terms K", "Give one of them."
        )
    else:
        a, b = (study.tensor_file(name).load(whole=True) for name in (asked.a, asked.b))
        a, b = (x.mT if side in asked.transpose and x.dim() > 1 else x for side, x in (("a", a), ("b", b)))
    return a, b


def _evenly(size: int, most: int) -> Tensor:
    """At most ``most`` indices, the first and the last among them."""
    return torch.linspace(0, size - 1, min(size, most), dtype=torch.float64).round().long()


def _facts(folder: Path) -> dict[str, Any]:
    about = json.loads((folder / "spec.json").read_text(encoding="utf-8"))
    files = {}
    for name, entry in about["files"].items():
        words = 1
        for size in entry["shape"]:
            words *= size
        files[name] = (words, entry["bits"])
    return {"folder": str(folder), **{key: about[key] for key in ("M", "K", "N", "case")}, "files": files}


def _warn_of_casts(folder: Path, factors: tuple[float, float]) -> None:
    """Says how many operands their formats changed, which is no surprise after scaling."""
    about = json.loads((folder / "spec.json").read_text(encoding="utf-8"))["files"]
    for name, factor in zip("ab", factors, strict=True):
        changed, words = about[name]["changed_by_cast"], json.loads((folder / "words.json").read_text())[name]
        if changed and factor == 1:
            zeros = "; all of them became 0" if not any(words) else ""
            warn(
                f"{changed:,} of {len(words):,} numbers of {name} are not in {about[name]['format']} and were rounded "
                f"to it{zeros}. --scaled tensor scales the largest magnitude to the format's largest value first."
            )


def _error(asked: str, allowed: str, do: str) -> gs.vectors.VectorsError:
    return gs.vectors.VectorsError(f"{asked}; allowed: {allowed}.\n  {do}")
