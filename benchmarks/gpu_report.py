"""What GPUs have shown, as a page and a plot: ``python benchmarks/gpu_report.py DIR...``.

Each DIR is a folder (or a ``.jsonl`` file) of ``gpu_run.sh`` or ``make gpu-check``; of each the last run is taken.
Without one, the page says what has not been measured. Files of older and newer revisions are read (gpu_results.py).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from gpu_results import FILE, Finding, Run, read_runs, write_whole
from gpu_timings import expected
from probes import named

__all__ = ["main", "page", "plot"]

ROOT = Path(__file__).resolve().parent.parent
PAGE, PLOT = ROOT / "docs" / "reference" / "gpu_results.md", ROOT / "docs" / "reference" / "gpu_results.png"
#: Results that are committed.
KEPT = ROOT / "benchmarks" / "results" / "gpu"
NOT_YET = "not measured yet"
_HEAD = """# What GPUs have shown

This page lists the results of the [GPU check](../howto/gpu.md#checking-a-machine) on each GPU. It is for everyone who
wants to know what has been verified and measured on a chip. `python benchmarks/gpu_report.py` writes it from the
results files in `benchmarks/results/gpu`.

Each section first compares bits: gemmsim's kernels with the CPU, and the chip's own instructions with their published
models. Then it reports speed, as a fraction of two kinds of references. One is a limit computed from the number of
instructions and the clock that was sampled during the run. The other is the speed of PyTorch, cuBLAS or a device copy
in the same run.

A run tests the revision that it lists. [The first run on a chip](../design/cuda_tests.md#the-first-run-on-a-chip)
explains each failure on the H200 and says what has been corrected since.
"""


def load(paths: Sequence[Path]) -> list[Run]:
    """The last run of each folder or file that has one."""
    found = []
    for path in paths:
        runs = read_runs(path if path.suffix == ".jsonl" else path / FILE)
        if not runs:
            raise FileNotFoundError(
                f"no run of the GPU check in {path}; allowed: a folder that it wrote, or its {FILE}."
            )
        found.append(runs[-1])
    return found


def _cell(text: object) -> str:
    return str(text).replace("|", "\\|").replace("\n", " ")


def _table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> Iterator[str]:
    yield "| " + " | ".join(head) + " |"
    yield "|" + "---|" * len(head)
    for row in rows:
        yield "| " + " | ".join(map(_cell, row)) + " |"


def _figure(value: object, digits: int = 2) -> str:
    return f"{value:.{digits}f}" if isinstance(value, (int, float)) else ""


def _value(found: Finding | None) -> Mapping[str, Any]:
    return found.value if found is not None and found.ok and isinstance(found.value, dict) else {}


def _machine(run: Run) -> Iterator[str]:
    names = ("gpu", "capability", "multiprocessors", "memory_gib", "driver", "max_sm_mhz", "cores", "python", "torch")
    names += ("cuda", "packages", "revision")
    for name in names:
        if run.machine.get(name) is not None:
            yield f"* {name.replace('_', ' ')}: {run.machine[name]}"


def _bits(run: Run) -> Iterator[str]:
    rows = []
    smoke, tests, random = (run.part(name) for name in ("smoke", "tests", "random"))
    sanitizer = run.states.get("sanitizer", ("", ""))
    rows.append(("smoke: one kernel of each family", *_counts(smoke)))
    rows.append(("smoke under compute-sanitizer", sanitizer[1] or NOT_YET, "", ""))
    skipped = sum(_value(one).get("outcome") == "skipped" for one in tests.values())
    rows.append(("tests", *_counts(tests, skipped)))
    refused = sum(one.value == "refused" for one in random.values())
    rows.append(("random products, CPU and GPU", *_counts(random, refused)))
    yield from _table(("what was compared", "equal", "different or failed", "skipped, or refused by both"), rows)
    bad = [(name, one) for part in (smoke, tests, random) for name, one in part.items() if not one.ok]
    if bad:
        yield ""
        yield from (f"<details><summary>{len(bad)} different or failed</summary>", "")
        yield from (f"* `{name}`: {_cell(one.error)[:400]}" for name, one in bad[:50])
        yield from ("", "</details>")


def _counts(part: Mapping[str, Finding], neither: int = 0) -> tuple[object, object, object]:
    if not part:
        return NOT_YET, "", ""
    good = sum(one.ok for one in part.values()) - neither
    return good, len(part) - good - neither, neither or ""


def _verdicts(run: Run) -> Iterator[str]:
    rows = []
    mainloops = {key: one for key, one in run.part("tensor cores").items() if key.startswith("mainloop/")}
    for spec, one in {**run.part("verdicts"), **mainloops}.items():
        value = _value(one)
        verdict = "failed" if not one.ok else "equal" if value.get("equal") else "DIFFERENT"
        rows.append((f"`{spec}`", verdict, one.error or value.get("words", "")))
    yield from _table(("instruction", "compared with its model", "in words"), rows or [(NOT_YET, "", "")])


def _probes(run: Run) -> Iterator[str]:
    rows = []
    found = {**run.part("probes"), **run.part("undecided")}
    for name, probe in named().items():
        one = found.get(name)
        value = _value(one)
        answer = NOT_YET if one is None else one.error or value.get("answer", "")
        rows.append((name, f"`{probe.instruction}`", probe.question, answer, value.get("value", "")))
    yield from _table(("probe", "instruction", "question", "answer", "value"), rows)


def _libraries(run: Run) -> Iterator[str]:
    rows: list[Sequence[object]] = []
    found = run.part("libraries")
    for family, counts in _value(found.get("verdict")).items():
        figures = [counts.get(name, "") for name in ("products", "equal", "outputs", "outputs_equal")]
        rows.append((family, *figures))
    head = ("family of kernels", "products", "with all bits of the plan", "outputs", "equal to the plan's")
    yield from _table(head, rows or [(NOT_YET, "", "", "", "")])
    name = _value(found.get("the library")).get("library")
    if name:
        yield from ("", f"Library: `{name}`.")
    lost = [one.value for key, one in found.items() if key.startswith("lost/") and "lost" in (_value(one))]
    if lost:
        right = sum(one["lost"] == [one["planned"]] * 2 for one in lost)
        some = sum(one["planned"] > 0 for one in lost)
        words = f"{right} of {len(lost)} lose as many terms as planned ({some} any)"
        yield from ("", f"Sums of ones by split kernels: {words}.")
    yield from _guesses(found)


def _guesses(found: Mapping[str, Finding]) -> Iterator[str]:
    """Arithmetic without a publication: the guess with the most equal outputs."""
    rows = []
    for key, one in found.items():
        value = _value(one)
        if key.startswith("unmeasured/") and value.get("equal"):
            best = max(value["equal"], key=lambda guess: value["equal"][guess])
            rows.append((key.partition("/")[2], f"`{best}`", f"{value['equal'][best]} of {value['outputs']}"))
    if rows:
        yield ""
        yield from _table(("unpublished arithmetic", "closest guess", "equal outputs"), rows)


def _timed(run: Run, part: str, table: str, names: Sequence[str]) -> Iterator[tuple[str, Mapping[str, Any], str]]:
    """(name, figures, what is wrong) of each name; names that this revision does not know follow."""
    found = {key.partition("/")[2]: one for key, one in run.part(part).items() if key.partition("/")[0] == table}
    for name in [*names, *(name for name in found if name not in names)]:
        one = found.get(name)
        yield name, _value(one), NOT_YET if one is None else one.error


def _products(run: Run) -> Iterator[str]:
    rows = []
    for name, value, wrong in _timed(run, "timings", "products", expected()["products"]):
        keys = ("tmacs", "limit_tmacs", "share", "asked", "of_torch_fp32", "of_torch_bf16")
        figures = [_figure(value.get(key)) for key in keys]
        rows.append((f"`{name}`", *(figures if value else (wrong, *figures[1:])), _figure(value.get("clock_mhz"), 0)))
    head = ("spec, 4096^3", "TMAC/s", "limit at that clock", "fraction of limit", "target")
    head += ("fraction of torch fp32", "fraction of torch bf16", "MHz")
    yield from _table(head, rows)


def _others(run: Run) -> Iterator[str]:
    tables = (
        ("timings", "cublas", "under cublas_acceleration, 4096^3", "tmacs", "TMAC/s"),
        ("timings", "casts", "cast of 2^28 elements", "of_copy", "fraction of a device copy"),
        ("timings", "block formats", "block format", "of_copy", "fraction of a device copy"),
        ("timings", "rows", "rows of 1024, e5m10 steps", "of_torch", "fraction of PyTorch's speed in float32"),
        ("tensor cores", "block formats", "tensor cores, 8192^3", "of_cublas_bf16", "fraction of cuBLAS in bfloat16"),
        ("tensor cores", "collective", "under cutlass_acceleration, 4096^3", "of_cublas", "fraction of cuBLAS"),
    )
    for part, table, title, key, words in tables:
        names = expected()["tensor cores" if (part, table) == ("tensor cores", "block formats") else table]
        rows = [
            (f"`{name}`", _figure(value.get(key)) if value else wrong, _figure(value.get("asked")), _time(value))
            for name, value, wrong in _timed(run, part, table, names)
        ]
        yield ""
        yield from _table((title, words, "target", "milliseconds"), rows)
    native = [(name, _time(value), wrong) for name, value, wrong in _timed(run, "timings", "native", ())]
    if native:
        yield ""
        yield from _table(("reference operations of the chip", "milliseconds", "error"), native)


def _time(value: Mapping[str, Any]) -> str:
    return _figure(1e3 * value["seconds"], 3) if "seconds" in value else ""


def _sections(run: Run) -> Iterator[str]:
    yield f"## {run.machine.get('gpu', 'No GPU so far')}"
    yield ""
    yield from _machine(run) if run.machine else iter([f"Everything: {NOT_YET}."])
    for title, part in (
        ("Bits", _bits(run)), ("Instructions compared with their models", _verdicts(run)), ("Probes", _probes(run)),
        ("cuBLASLt compared with its plans", _libraries(run)),
        ("Products", _products(run)), ("Other timings", _others(run)),
    ):  # fmt: skip
        yield from ("", f"### {title}", "")
        lines = list(part)
        yield from lines[1:] if lines and not lines[0] else lines
    yield ""


def page(runs: Sequence[Run], picture: str | None = None) -> str:
    """The page of these runs, of none if there are none; ``picture``: the plot's file name."""
    lines = [_HEAD]
    lines += [f"![Shares of limits]({picture})", ""] if picture else []
    for run in runs or [Run({})]:
        lines += _sections(run)
    return "\n".join(lines).rstrip() + "\n"


def plot(runs: Sequence[Run], path: Path) -> bool:
    """Fractions of limits and of a device copy as bars, with marks at the targets. False if there is nothing."""
    rows = [list(_bars(run)) for run in runs]
    if not any(rows):
        return False
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    names = list(dict.fromkeys(name for bars in rows for name, _, _ in bars))
    figure, axes = pyplot.subplots(figsize=(8, 1.2 + 0.26 * len(names) * max(1, len(runs))), layout="constrained")
    height = 0.8 / len(runs)
    for index, (run, bars) in enumerate(zip(runs, rows, strict=True)):
        places = [names.index(name) + (index - (len(runs) - 1) / 2) * height for name, _, _ in bars]
        axes.barh(places, [share for _, share, _ in bars], height * 0.9, label=run.machine.get("gpu", ""))
        marks = [(place, asked) for place, (_, _, asked) in zip(places, bars, strict=True) if asked is not None]
        label = "target" if index == 0 else None
        axes.scatter(
            [x for _, x in marks], [y for y, _ in marks], marker="|", s=90, color="black", label=label, zorder=3
        )
    axes.set_yticks(range(len(names)), names, fontsize=8)
    axes.set_ylim(len(names) - 0.4, -0.6)  # the first on top
    axes.set_xlim(0, max(1.0, 1.05 * max(share for bars in rows for _, share, _ in bars)))
    axes.set_xlabel(
        "products: fraction of the instruction limit at the sampled clock; casts: of a device copy", fontsize=8
    )
    axes.grid(axis="x", alpha=0.3)
    axes.set_axisbelow(True)
    figure.legend(loc="outside upper right", fontsize=8, ncols=4)
    partial = path.with_suffix(".partial.png")
    figure.savefig(partial, dpi=130)
    partial.replace(path)
    pyplot.close(figure)
    return True


def _bars(run: Run) -> Iterator[tuple[str, float, float | None]]:
    names = expected()
    for table, key in (("products", "share"), ("casts", "of_copy"), ("block formats", "of_copy")):
        for name, value, _ in _timed(run, "timings", table, names[table]):
            if isinstance(value.get(key), (int, float)):
                yield (name if table == "products" else f"{name} ({table[:-1]})"), value[key], value.get("asked")


def kept() -> list[Path]:
    """The results files of the repository."""
    return sorted(KEPT.glob("*.jsonl"))


def main(argv: list[str] | None = None) -> int:
    """0 if the page was written."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "dirs", nargs="*", type=Path, help="folders or files of results (those in benchmarks/results/gpu)"
    )
    parser.add_argument("--page", type=Path, default=PAGE)
    parser.add_argument("--plot", type=Path, default=PLOT)
    options = parser.parse_args(argv)
    try:
        runs = load(options.dirs or kept())
    except FileNotFoundError as error:
        parser.error(str(error))
    drawn = plot(runs, options.plot)
    write_whole(options.page, page(runs, options.plot.name if drawn else None))
    print(f"{options.page}: {len(runs)} run{'s' * (len(runs) != 1)}" + (f", {options.plot}" if drawn else ""))
    return 0


if __name__ == "__main__":
    sys.exit(main())
