"""``gemmsim formats``: the named formats, and one format in full."""

from __future__ import annotations

from typing import Any

from rich.table import Table

from gemmsim.formats import (
    BLOCK_NAMES,
    NAMED,
    TENSOR_FORMATS,
    BlockFloatFormat,
    BlockFormat,
    FixedFormat,
    FloatFormat,
    Format,
    FormatError,
    aliases,
    parse,
)

from .console import say, say_json, show

#: The longest code listing that is still read by people.
MAX_LISTED_BITS = 8


def list_formats(*, as_json: bool = False) -> None:
    """Prints every named format with its layout, range and other names, and how to write the ones without a name."""
    if as_json:
        say_json([_facts(entry.format) for entry in NAMED])
        return
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    for heading in ("name", "also", "bits", "p", "exponents", "max", "min > 0", "inf/NaN"):
        table.add_column(heading, justify="left" if heading in ("name", "also", "inf/NaN") else "right", no_wrap=True)
    for entry in NAMED:
        also = min(aliases(entry.format), key=len, default="")
        table.add_row(_short_name(entry.format), also, *_cells(entry.format))
    show(table, natural=True)
    names = list(BLOCK_NAMES)
    say(
        "Every eXmY is a format too (e6m9, ieee_e4m3, e4m3b11, e5m2fnuz), so are binaryKpP{s|u}{e|f},\n"
        "fixed(bits,frac) and ufixed(bits,frac), supernormal(X,Y), the old binary8(P), posit(n,es),\n"
        "codebook(values) and float(p=..,emin=..,emax=..,specials=..), which gives every field.\n"
        f"Blocks with a shared scale: {', '.join(names[:5])},\n"
        f"{', '.join(names[5:])}, mx(element,scale);\n"
        "with a shared exponent: bfp(8,16), bfp(8,tensor).\n"
        "To see one in full, with all its names: gemmsim formats NAME"
    )


def show_format(name: str, *, codes: bool, as_json: bool = False) -> None:
    """Prints everything about the format ``name``; with ``codes`` also each code's value. FormatError if unknown."""
    fmt = parse(name)
    listed = _listed(fmt) if codes else None
    if as_json:
        say_json(_facts(fmt) | ({} if listed is None else {"codes": [listed.decode(code) for code in listed.codes()]}))
        return
    say(fmt.describe())
    if isinstance(fmt, BlockFormat):
        for part in (fmt.element, fmt.scale):
            say(part.describe())
    elif not isinstance(fmt, TENSOR_FORMATS) and (others := aliases(fmt)):
        say(f"  also called {', '.join(others)}")
    say(f"  {fmt!r}")
    if listed is not None:
        show(_code_table(listed), natural=True)


def _listed(fmt: Any) -> Format:
    """The format of single numbers whose codes are listed for ``fmt``: itself, or the elements of blocks.

    Raises:
        FormatError: there is none, or it has too many codes.
    """
    if isinstance(fmt, BlockFormat):
        fmt = fmt.element
    if isinstance(fmt, TENSOR_FORMATS):
        what = "Its elements follow from its shorthand."
        if isinstance(fmt, BlockFloatFormat):
            what = f"Its elements are integers from {fmt.min_code} to {fmt.max_code}, times the step of their block."
        raise FormatError(f"--codes for {fmt}; allowed: formats of single numbers.\n  {what}")
    if fmt.bits > MAX_LISTED_BITS:
        raise FormatError(
            f"--codes for {fmt} of {fmt.bits} bits; allowed: formats of {MAX_LISTED_BITS} bits or fewer.\n"
            f"  In Python: for code in gemmsim.formats.parse({str(fmt)!r}).codes(): ..."
        )
    return fmt


def _facts(fmt: Any) -> dict[str, Any]:
    """What a format is, for JSON: the names of its fields are those of the class."""
    found: dict[str, Any] = {"name": str(fmt), "text": fmt.describe(), "definition": fmt.to_json()}
    if isinstance(fmt, BlockFormat):
        return found | {"element": _facts(fmt.element), "scale": _facts(fmt.scale), "block_size": fmt.block_size}
    if isinstance(fmt, TENSOR_FORMATS):
        return found
    found |= {"aliases": list(aliases(fmt)), "bits": fmt.bits, "max": fmt.max, "has_inf": fmt.has_inf}
    found["has_nan"] = fmt.has_nan
    if isinstance(fmt, FixedFormat):
        return found | {"frac": fmt.frac, "smallest": 2.0**-fmt.frac}
    tiny = fmt.smallest_normal if isinstance(fmt, FloatFormat) and not fmt.subnormals else fmt.smallest_subnormal
    return found | {"p": fmt.p, "emin": fmt.emin, "emax": fmt.emax, "smallest": tiny}


def _code_table(fmt: Format) -> Table:
    """All codes side by side: 16 to a column, or four columns where that gives more of them."""
    width = (fmt.bits + 3) // 4
    entries = [(f"{code:#0{width + 2}x}", _number(fmt.decode(code), 14)) for code in fmt.codes()]
    height = max(16, -(-len(entries) // 4))
    stacks = [entries[start : start + height] for start in range(0, len(entries), height)]
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for _ in stacks:
        table.add_column("code")
        table.add_column("value", justify="right")
    for line in range(min(height, len(entries))):
        table.add_row(*(text for stack in stacks for text in (stack[line] if line < len(stack) else ("", ""))))
    return table


def _short_name(fmt: Format) -> str:
    """The canonical name, or an alias where only the full list of fields is canonical."""
    return str(fmt) if "=" not in str(fmt) else next(iter(aliases(fmt)), str(fmt))


def _cells(fmt: Format) -> list[str]:
    if isinstance(fmt, FixedFormat):
        return [str(fmt.bits), "", "", _number(fmt.max), _number(2.0**-fmt.frac), ""]
    flushes = isinstance(fmt, FloatFormat) and not fmt.subnormals
    tiny = fmt.smallest_normal if flushes else fmt.smallest_subnormal
    specials = " ".join(name for name, has in (("inf", fmt.has_inf), ("NaN", fmt.has_nan)) if has)
    return [str(fmt.bits), str(fmt.p), f"{fmt.emin}..{fmt.emax}", _number(fmt.max), _number(tiny), specials]


def _number(value: float, width: int = 10) -> str:
    """``value`` exactly where that takes no more than ``width`` characters, else to four digits."""
    exact = f"{value:.17g}"
    return exact if len(exact) <= width else f"{value:.4g}"
