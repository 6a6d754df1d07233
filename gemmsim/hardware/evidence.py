"""What confirms the rule of an instruction: comparisons with a chip, recorded outputs, replays of chips, vectors.

The recorded outputs are other people's; the comparisons are this project's (benchmarks/results/gpu). Facts:
docs/reference/hardware.md#evidence.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Evidence", "Source", "source_of"]


class Evidence:
    """The five degrees of evidence, strongest first; ``Source.evidence`` is one of them.

    Example:
        >>> gs.hardware.largest("hopper", "wgmma", "e4m3").source.evidence == gs.hardware.Evidence.RECORDED
        True
    """

    COMPARED = "compared on a chip"
    RECORDED = "silicon recorded"
    REPLAYED = "equal to a model that replays silicon"
    MODEL = "model only"
    RULE = "no vectors"


@dataclass(frozen=True)
class Source:
    """The source of a row's facts.

    rule: the publication of the rule. evidence: one of the five of ``Evidence``. chips: those on which the rule was
    compared or recorded, or which a model replays. outputs: the number of chip outputs that were compared, all of them
    equal; files that hold the same numbers count once. by: who compared, recorded or replays, with what inputs. note:
    further facts.

    Example:
        >>> source = gs.hardware.largest("hopper", "wgmma", "e4m3").source
        >>> source.chips, source.outputs, source.silicon
        (('H100', 'H200'), 5000, True)
    """

    rule: str
    evidence: str
    chips: tuple[str, ...] = ()
    outputs: int = 0
    by: str = ""
    note: str = ""

    @property
    def silicon(self) -> bool:
        """Whether outputs of the chip itself were compared with this row."""
        return self.evidence in (Evidence.COMPARED, Evidence.RECORDED)

    @property
    def short(self) -> str:
        """A few words, for a table."""
        if self.silicon:
            return f"{self.evidence}: {', '.join(self.chips)}, {self.outputs:,} outputs"
        more = self.chips or ((self.note,) if self.note == ONE_SOURCE else ())
        return f"{self.evidence}: {', '.join(more)}" if more else self.evidence

    def __str__(self) -> str:
        notes = f"; {self.note}" if self.note else ""
        if self.silicon:
            equal = f"{self.outputs:,} of {self.outputs:,} outputs equal"
            return f"{self.evidence} ({self.by}): {equal}{notes}; rule: {self.rule}"
        if self.evidence == Evidence.REPLAYED:
            return f"equal to a model that replays silicon ({self.by}){notes}; rule: {self.rule}"
        if self.evidence == Evidence.RULE:
            return f"no test vectors, not compared with silicon; assumed from related instructions: {self.rule}{notes}"
        return f"model only, not compared with silicon: {self.rule}{notes}"


MMASIM = "MMA-Sim (arXiv:2511.10909)"
#: Where the independent model of that chip has no such instruction, or says otherwise.
ONE_SOURCE = "one source"
_KHATTAK = "Khattak and Mikaitis, arXiv:2512.07004"
_NORMAL = "single steps of normal numbers of moderate exponents"
_EACH = 5000

#: Chips whose outputs were recorded, by (architecture, unit, operands, result); 5,000 outputs a chip.
_RECORDED: dict[tuple[str, str, str, str], tuple[str, ...]] = {
    ("volta", "mma", "f16", "f32"): ("V100",),
    ("volta", "mma", "f16", "f16"): ("V100",),
}
for _arch, _chips in (
    ("ampere", ("A2", "A100")),
    ("ada", ("RTX 1000 Ada", "L40S")),
    ("hopper", ("H100", "H200")),
    ("blackwell", ("B200",)),
):
    for _operands, _result in (("f16", "f32"), ("f16", "f16"), ("bf16", "f32"), ("tf32", "f32")):
        _RECORDED[_arch, "mma", _operands, _result] = _chips
for _operands in ("e4m3", "e5m2"):
    _RECORDED["ada", "mma", _operands, "f32"] = ("RTX 1000 Ada", "L40S")
    _RECORDED["ada", "mma", _operands, "f16"] = ("RTX 1000 Ada",)
    _RECORDED["hopper", "wgmma", _operands, "f32"] = ("H100", "H200")
    for _result in ("f32", "f16"):
        _RECORDED["hopper", "mma", _operands, _result] = ("H100", "H200")
        _RECORDED["blackwell", "mma", _operands, _result] = ("B200",)

#: Outputs of an H200 that this project compared, all equal, by the pair of operands.
_COMPARED = {("f16", "f16"): 24976, ("bf16", "bf16"): 25060, ("tf32", "tf32"): 25152, ("e4m3", "e4m3"): 24640}
_COMPARED |= {("e4m3", "e5m2"): 24640, ("e5m2", "e4m3"): 24640, ("e5m2", "e5m2"): 24900}
_BY_US = (
    "this project, on an H200 in November 2026: chains of one to nine instructions, with subnormals, NaN, infinities, "
    "zeros, cancellation and overflow"
)
#: Shapes of mma whose chains were compared: those of 32 bytes of a line. wgmma has one for each pair of operands.
_COMPARED_SHAPES = {"f16": "m16n8k16", "bf16": "m16n8k16", "tf32": "m16n8k8", "e4m3": "m16n8k32", "e5m2": "m16n8k32"}

#: What a package replays, by (architecture, unit): FP8 with binary32 results.
_REPLAYED = {
    ("hopper", "wgmma"): ("H100 PCIe", "mmaemu 0.1.0, which replays 4,167 recorded cuBLAS calls"),
    ("ada", "mma"): ("RTX 4060", "mmaemu 0.1.0, which replays 2.5 billion recorded values"),
}
_FP8 = ("e4m3", "e5m2")

_FASI = "Fasi et al. 2021"
#: Published feature tests (subnormals, cut, carries, order, rounding) whose outcomes are those of the model.
_FEATURES = {
    ("volta", "f16"): ("V100", 17),
    ("turing", "f16"): ("T4", 17),
    ("ampere", "f16"): ("A100", 17),
    ("ampere", "bf16"): ("A100", 13),
    ("ampere", "tf32"): ("A100", 13),
    ("ampere", "f64"): ("A100", 11),
}
#: FP8 by mma.sync on chips without a unit for it: no publication has the rule.
_OWN_RULE = (
    "the code that NVIDIA's compiler generates (NVRTC 13.0), and recorded outputs of m16n8k32 with e4m3 and e5m2"
)
_WITHOUT_UNIT = (("hopper", "mma"), ("blackwell", "mma"))


def source_of(arch: str, unit: str, shape: str, a: str, b: str, c: str, d: str, vectors: bool = True) -> Source:
    """The source of one instruction."""
    fp8 = a in _FP8 and b in _FP8
    rule = _OWN_RULE if fp8 and (arch, unit) in _WITHOUT_UNIT else MMASIM
    notes = [_note(arch, unit, shape, a)]
    replay = None
    if fp8 and d == "f32" and (arch, unit) in _REPLAYED:
        chip, package = _REPLAYED[arch, unit]
        replay = f"{package} of an {chip}"
    compared = _compared(arch, unit, shape, a, b) if c == d else 0
    chips = _RECORDED.get((arch, unit, a, d), ()) if a == b and c == d else ()
    if rule == _OWN_RULE and shape != "m16n8k32":
        chips = ()
    if chips:
        names, copies = " and ".join(chips), len(chips) > 1 and (arch == "ada" or unit == "wgmma")
        inputs = f"{_NORMAL}, c = 0" if unit == "wgmma" else _NORMAL
        notes.append(f"the files of {names} hold the same numbers" if copies else "")
        notes.append(f"equal to {replay}" if replay else "")
        notes.append(f"and {compared:,} of {compared:,} by {_BY_US}" if compared else "")
        by, outputs = f"{_KHATTAK}, on {names}; {inputs}", _EACH if copies else _EACH * len(chips)
        return Source(rule, Evidence.RECORDED, chips, outputs, by, _joined(notes))
    if compared:
        notes.append(f"equal to {replay}" if replay else "")
        return Source(rule, Evidence.COMPARED, ("H200",), compared, _BY_US, _joined(notes))
    if replay:
        return Source(rule, Evidence.REPLAYED, (chip,), 0, replay, _joined(notes))
    degree = Evidence.MODEL if vectors and rule == MMASIM else Evidence.RULE
    return Source(rule, degree, note=_joined(notes))


def _compared(arch: str, unit: str, shape: str, a: str, b: str) -> int:
    """How many outputs of an instruction this project compared with a chip."""
    if arch != "hopper" or (unit != "wgmma" and (unit != "mma" or shape != _COMPARED_SHAPES.get(a))):
        return 0
    return _COMPARED.get((a, b), 0)


def _joined(notes: list[str]) -> str:
    return "; ".join(filter(None, notes))


def _note(arch: str, unit: str, shape: str, a: str) -> str:
    if arch == "turing" and shape == "m8n8k4":
        return ONE_SOURCE
    if unit in ("mma", "mfma") and (arch, a) in _FEATURES:
        chip, count = _FEATURES[arch, a]
        return f"{count} of {count} feature tests on {chip} agree ({_FASI})"
    if (arch, a) in (("cdna1", "f16"), ("cdna1", "bf16")):
        return f"the same outputs as the model of an MI100 by {_KHATTAK}"
    if unit in ("wgmma", "tcgen05mma") and a in ("f16", "bf16", "tf32"):
        return f"the step is that of {arch}'s mma, which was recorded"
    return ""
