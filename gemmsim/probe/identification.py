"""``identify``: the spec that a function computes."""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from .._html import html_table
from .._keywords import takes_spec
from ..arithmetic import GemmSpec, SpecError, SpecLike
from ..formats import FormatError
from ..formats.errors import shortened
from ..hardware.devices import architecture_of
from .black_box import BlackBox, Shape
from .candidates import same_rows
from .evaluating import TreeArithmetic, evaluate
from .identifying import Probing, dtype_format_of
from .library_plans import plans_of
from .naming import dtype_format
from .sum_tree import SumTree
from .tree_svg import tree_svg
from .tree_text import tree_text
from .trials import Difference, Trials

__all__ = ["Identification", "identify"]

#: Specs that are compared with a function, at most.
_MOST = 10000


@dataclass(frozen=True)
class Identification:
    """What a function computes, at one shape, with one number of threads, on one machine.

    Attributes:
        function: its name.
        shape: (M, N, K).
        dtype, out: of operands and of the result.
        found: "spec", a spec has the same bits; "tree", no spec was found, and the tree with the roundings in ``text``
            has the same bits; "order", only the tree is known; "stochastic", equal calls differ; "nothing".
        spec: the spec, or None.
        text: the spec in its most readable form; the roundings of the tree; or why nothing was found.
        equal, of: how many outputs have the same bits, of how many that were compared.
        kinds: of operands.
        tree: order of additions, or None.
        no_tree: why there is no tree.
        classes: positions of outputs that are computed alike, in words; the answer holds for the class with ``at``.
        at: position of an output.
        facts: what was measured, in words.
        rows: rows of the hardware tables with the same step.
        plans: plans of the known libraries for this call with the same bits.
        asked: the spec that you wanted to compare, and ``difference``: the first output in which the function and that
            spec differ; None where there is none.
        machine: device, threads and versions.

    Example:
        >>> found = gs.identify(lambda a, b: gs.qmatmul(a, b, ":fp16"), 4, 4, 32)
        >>> found.found, found.text, found.verified, found.equal == found.of
        ('spec', ':fp16', True, True)
    """

    function: str
    shape: tuple[int, int, int]
    dtype: str
    out: str
    found: str
    spec: GemmSpec | None
    text: str
    equal: int
    of: int
    kinds: tuple[str, ...]
    tree: SumTree | None = field(repr=False)
    no_tree: str
    classes: tuple[str, ...]
    at: tuple[int, int]
    facts: tuple[str, ...] = field(repr=False)
    rows: tuple[str, ...] = ()
    plans: tuple[str, ...] = ()
    asked: str | None = None
    difference: Difference | None = None
    machine: str = ""

    @property
    def verified(self) -> bool:
        """Whether the answer, a spec or a tree with its roundings, has the same bits in all outputs compared."""
        return self.found in ("spec", "tree") and self.equal == self.of > 0

    @property
    def order(self) -> str:
        """The tree in ranges of terms, as ``Revelation.text`` writes it; without a tree the reason."""
        return self.no_tree if self.tree is None else tree_text(self.tree, 10**9)

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> list[str]:
        M, N, K = self.shape
        lines = [f"{self.function}, {M}x{K} @ {K}x{N}, {self.dtype} to {self.out}"]
        lines.append(f"  {_TITLES[self.found]}: {shortened(self.text, 300)}")
        if self.of:
            lines.append(f"  equal in {self.equal} of {self.of} outputs: {', '.join(self.kinds)} operands")
        lines.append(f"  order: {tree_text(self.tree, 200) if self.tree is not None else self.no_tree}")
        lines += [f"  {one}" for one in self.facts]
        if len(self.classes) > 1:
            listed = "; ".join(self.classes[:4])
            lines.append(
                f"  {len(self.classes)} classes of outputs: {listed}; this answer is for the class of {list(self.at)}"
            )
        if len(self.rows) > 1:
            lines.append(f"  instructions with the same step: {', '.join(self.rows)}")
        lines += [f"  same bits as {one}" for one in self.plans[:4]]
        if self.asked is not None:
            same = "the same bits" if self.difference is None else f"differs: {self.difference}"
            lines.append(f"  compared with {self.asked}: {same}")
        return [*lines, f"  {self.machine}"]

    def _repr_html_(self) -> str:
        rows = [tuple(one.strip().partition(": ")[::2]) for one in self._lines()[1:]]
        return html_table(("about", "found"), rows, caption=self._lines()[0])

    def svg(self) -> str:
        """The tree as a picture; an empty one without a tree."""
        M, N, K = self.shape
        return tree_svg(self.tree or SumTree(1, ()), f"{self.function}, {M}x{K} @ {K}x{N}: {self.text}")

    def to_dict(self) -> dict[str, object]:
        """The answer as a plain dictionary, for JSON.

        Example:
            >>> gs.identify(lambda a, b: gs.qmatmul(a, b, ":fp16"), 4, 4, 32).to_dict()["shape"]
            [4, 4, 32]
        """
        return {
            "function": self.function,
            "shape": list(self.shape),
            "dtype": self.dtype,
            "out": self.out,
            "found": self.found,
            "verified": self.verified,
            "spec": None if self.spec is None else str(self.spec),
            "text": self.text,
            "equal": self.equal,
            "of": self.of,
            "kinds": list(self.kinds),
            "order": None if self.tree is None else self.order,
            "no_tree": self.no_tree,
            "classes": list(self.classes),
            "at": list(self.at),
            "facts": list(self.facts),
            "rows": list(self.rows),
            "plans": list(self.plans),
            "asked": self.asked,
            "difference": None if self.difference is None else str(self.difference),
            "machine": self.machine,
        }


_TITLES = {
    "spec": "spec",
    "tree": "no spec describes this order; a sum along the tree",
    "order": "the order only; the roundings were not found",
    "stochastic": "results change from call to call",
    "nothing": "nothing found",
}


@takes_spec()
def identify(
    f: Callable[..., Any],
    M: int = 64,
    N: int = 64,
    K: int = 256,
    dtype: torch.dtype = torch.float32,
    *,
    spec: SpecLike | None = None,
    at: tuple[int, int] = (0, 0),
    device: str = "cpu",
    seed: int = 0,
) -> Identification:
    """The spec that has the bits of ``f``, a function that multiplies (M, K) and (K, N).

    ``identify`` only looks at results, so that ``f`` may compute them anywhere. It measures the order of additions,
    formats and roundings. It then compares the specs that these allow, bit for bit, on normal, wide, positive and
    cancelling operands; the first one with all bits equal is the answer. Other shapes, numbers of threads, machines and
    versions may have other answers.

    Args:
        f: takes two tensors, of ``dtype`` on ``device``, and returns a tensor or an array (M, N). ``torch.bmm``,
            ``torch.nn.functional.linear`` and functions of numpy are called in their own way.
        M, N, K: the shape.
        dtype: of the operands.
        spec: a spec to compare with, tried first; the answer has the first difference.
        at: the output whose class is meant, where not all are computed alike.
        device: of the operands.
        seed: of operands and of choices.

    Operands have no NaN and no infinities; results that overflow are compared as they are.

    Raises:
        ProbeError: for a function that raises, returns another shape or dtype, changes with time or is not a sum of
            products, and for arguments that mean nothing. SpecError: for a spec that means nothing.

    Example:
        >>> gs.identify(lambda a, b: gs.qmatmul(a, b, ":chunked(8, bf16, fp32)"), 8, 8, 64).text
        ':chunked(8, bf16, fp32)'
    """
    asked = None if spec is None else GemmSpec.of(spec)
    box = BlackBox(f, Shape(M, N, K), dtype, device)
    probing = Probing(box, at, seed)
    probing.grow()
    if probing.changing:
        return _result(probing, "stochastic", None, probing.changing, None)
    trials = probing.trials()
    difference = None if asked is None else trials.difference(trials.by_spec(asked))
    if asked is not None and difference is None and trials.agrees(trials.by_spec(asked)):
        found = _result(probing, "spec", asked, str(asked), trials)
    else:
        found = _search(probing, trials)
    probing.check_repeats()
    if asked is None:
        return found
    return replace(found, asked=str(asked), difference=difference)


def _search(probing: Probing, trials: Trials) -> Identification:
    tried: set[GemmSpec] = set()
    shape, dtype = probing.box.shape, dtype_format(probing.box.dtype)
    plans = plans_of(shape, dtype or "", dtype_format_of(probing.box.out_dtype) or "")
    on_gpu = list(plans) if probing.box.device.type == "cuda" else []
    for texts in (on_gpu, probing.candidates(), plans):
        for text in texts:
            try:
                spec = GemmSpec.parse(text)
            except (SpecError, FormatError):
                continue
            if spec in tried:
                continue
            tried.add(spec)
            if trials.agrees(trials.by_spec(spec)):
                return _named(probing, trials, spec, text, plans)
            if len(tried) >= _MOST:
                break
    if probing.tree is None:
        return _result(probing, "nothing", None, f"none of the {len(tried)} specs tried gives the same bits", trials)
    for arithmetic in probing.arithmetics():
        if trials.agrees(_along(probing.tree, arithmetic)):
            return _result(probing, "tree", None, str(arithmetic), trials)
    return _result(probing, "order", None, f"none of the {len(tried)} specs tried gives the same bits", trials)


def _named(probing: Probing, trials: Trials, spec: GemmSpec, text: str, plans: dict[str, list[str]]) -> Identification:
    """The answer with the names of rows and plans that compute it."""
    known = [name for plan, names in plans.items() if trials.agrees(trials.by_spec(plan)) for name in names]
    spec, text = _of_this_chip(probing.box, spec, text)
    return _result(probing, "spec", spec, _tidy(text), trials, tuple(known))


def _along(tree: SumTree, arithmetic: TreeArithmetic) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor | None]:
    return lambda a, b: evaluate(tree, arithmetic, a, b)


def _tidy(text: str) -> str:
    return ":" + text[2:] if text.startswith(": ") else text


def _of_this_chip(box: BlackBox, spec: GemmSpec, text: str) -> tuple[GemmSpec, str]:
    """The spec with the row of the GPU's own architecture, if that has the same bits."""
    if box.device.type != "cuda":
        return spec, text
    arch = architecture_of(torch.cuda.get_device_capability(box.device))
    rows = same_rows(spec)
    own = next((row for row in rows if row.startswith(f"hw({arch},")), None)
    used = next((row for row in rows if row in str(spec)), None)
    if own is None or used is None or own == used:
        return spec, text
    text = str(spec).replace(used, own)
    return GemmSpec.parse(text), text


def _result(
    probing: Probing,
    found: str,
    spec: GemmSpec | None,
    text: str,
    trials: Trials | None,
    plans: Sequence[str] = (),
) -> Identification:
    box = probing.box
    verified = found in ("spec", "tree")
    outputs = trials.outputs if trials is not None and verified else 0
    return Identification(
        box.name,
        (box.shape.M, box.shape.N, box.shape.K),
        str(box.dtype).removeprefix("torch."),
        str(box.out_dtype).removeprefix("torch."),
        found,
        spec,
        text,
        outputs,
        outputs,
        trials.kinds if trials is not None else (),
        probing.tree,
        probing.no_tree,
        tuple(f"{one.count} outputs, {one}" for one in probing.classes),
        probing.place.at,
        tuple(probing.facts()),
        tuple(same_rows(spec)) if spec is not None else (),
        tuple(plans),
        machine=_machine(box),
    )


def _machine(box: BlackBox) -> str:
    where = torch.cuda.get_device_name(box.device) if box.device.type == "cuda" else platform.machine()
    return f"{where}, {torch.get_num_threads()} threads, PyTorch {torch.__version__}; {box.calls} calls"
