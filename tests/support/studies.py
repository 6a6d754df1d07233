"""What tests of studies share."""

from __future__ import annotations


def seen(kind, rows, folder):
    """Table, finding and pictures of any part of the rows."""
    for part in (rows, rows[:1], rows[1:2]):
        kind.table(part)
        assert isinstance(kind.finding(part), str)
        for name in ("part.png", "part.svg"):
            kind.plot(part, folder / name)
        assert (folder / "part.png").read_bytes().startswith(b"\x89PNG")
        assert "<svg" in (folder / "part.svg").read_text()
