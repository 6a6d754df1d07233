"""``gemmsim formats``: the named formats, and one format in full."""

from __future__ import annotations

from rich.table import Table

from gemmsim.formats import NAMED, FixedFormat, FloatFormat, Format, FormatError, aliases, parse

from .console import say, show

#: The longest code listing that is still read by people.
MAX_LISTED_BITS = 8


def list_formats() -> None:
    """Prints every named format with its layout, range and other names, and how to write the ones without a name."""
    table = Table(title="Named formats", title_justify="left")
    for heading, justify in (
        ("name", "left"), ("bits", "right"), ("p", "right"), ("emin", "right"), ("emax", "right"), ("max", "right"),
        ("smallest > 0", "right"), ("inf", "left"), ("NaN", "left"), ("other names", "left"),
    ):  # fmt: skip
        table.add_column(heading, justify=justify)  # type: ignore[arg-type]
    for entry in NAMED:
        fmt = entry.format
        name = _short_name(fmt)
        table.add_row(name, *_cells(fmt), " ".join(alias for alias in aliases(fmt) if alias != name))
    show(table)
    say(
        "Every eXmY is a format too (e6m9, ieee_e4m3, e4m3b11, e5m2fnuz), so are binaryKpP{s|u}{e|f},\n"
        "fixed(bits,frac) and ufixed(bits,frac). One in full: gemmsim formats NAME; its codes as well: --codes"
    )


def show_format(name: str, *, codes: bool) -> None:
    """Prints everything about the format ``name``; with ``codes`` also each code's value. FormatError if unknown."""
    fmt = parse(name)
    say(fmt.describe())
    others = aliases(fmt)
    if others:
        say(f"  also called {', '.join(others)}")
    say(f"  {fmt!r}")
    if codes:
        if fmt.bits > MAX_LISTED_BITS:
            raise FormatError(
                f"--codes for {fmt} of {fmt.bits} bits; allowed: formats of {MAX_LISTED_BITS} bits or fewer.\n"
                f"  In Python: for code in gemmsim.formats.parse({str(fmt)!r}).codes(): ..."
            )
        show(_code_table(fmt))


def _code_table(fmt: Format) -> Table:
    """All codes side by side: 16 to a column, or four columns where that gives more of them."""
    width = (fmt.bits + 3) // 4
    entries = [(f"{code:#0{width + 2}x}", _number(fmt.decode(code))) for code in fmt.codes()]
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
        return [str(fmt.bits), "", "", "", _number(fmt.max), _number(2.0**-fmt.frac), "no", "no"]
    assert isinstance(fmt, FloatFormat)
    tiny = fmt.smallest_subnormal if fmt.subnormals else fmt.smallest_normal
    flags = ["yes" if fmt.has_inf else "no", "yes" if fmt.has_nan else "no"]
    return [str(fmt.bits), str(fmt.p), str(fmt.emin), str(fmt.emax), _number(fmt.max), _number(tiny), *flags]


def _number(value: float) -> str:
    return f"{value:.7g}"
