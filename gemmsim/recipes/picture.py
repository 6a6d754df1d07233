"""The data flow of a recipe as a picture: how each operand of the three products becomes what is multiplied."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

from .._keywords import takes_spec
from ..arithmetic import GemmSpec, SpecLike
from ..formats import BlockFormat, Cast, ScaledCast, ScaledCastRule
from ..ops.product.affine_formats import QAffineFormats

__all__ = ["svg"]

_LETTER, _PAD, _HEIGHT, _GAP, _STEP = 7.2, 16, 28, 22, 40
#: Fill colours of boxes: tensors, transforms, scales, casts, sums (light ones of Okabe and Ito's set).
_FILL = {"tensor": "#f4f4f4", "before": "#e6d3ea", "scale": "#fde6b8", "cast": "#cfe8f5", "sum": "#cdebdf"}
_ROLES = (
    ("fprop", ("input", "weight"), "output"),
    ("dgrad", ("gradient", "weight"), "gradient of the input"),
    ("wgrad", ("gradient", "input"), "gradient of the weight"),
)


@dataclass(frozen=True)
class _Box:
    kind: str
    text: str

    @property
    def width(self) -> float:
        return len(self.text) * _LETTER + _PAD


@takes_spec()
def svg(spec: QAffineFormats | SpecLike, title: str = "") -> str:
    """Return the three products of ``spec`` as an SVG picture: each operand from left to right, then the sum and its
    result.

    Args:
        spec: a recipe or its name, ``QAffineFormats``, or the spec of one product with the gradient rule of layers.
        title: the heading; "" for the text of the spec.

    Raises:
        SpecError, FormatError: for an unknown recipe, spec or format.

    Example:
        >>> gs.recipes.svg("deepseek_v3").startswith("<svg")
        True
    """
    formats = QAffineFormats.of(spec)
    title = title or (spec if isinstance(spec, str) else str(formats.fprop))
    parts, width, y = [], 10 + 8.4 * len(title), 44.0
    for role, operands, result in _ROLES:
        product: GemmSpec | None = getattr(formats, role)
        drawn, right = _row(product, formats, role, operands, result, y)
        parts += drawn
        width, y = max(width, right), y + 2 * _STEP + 24
    described = "; ".join(f"{role}: {getattr(formats, role) or 'native'}" for role, _, _ in _ROLES)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width + 10:.0f}" height="{y:.0f}" '
        f'viewBox="0 0 {width + 10:.0f} {y:.0f}" role="img" font-family="sans-serif" font-size="12">\n'
        f"<title>{escape(title)}</title>\n<desc>{escape(described)}</desc>\n"
        f'<rect width="100%" height="100%" fill="white"/>\n'
        f'<text x="10" y="24" font-size="15" fill="#111">{escape(title)}</text>\n' + "\n".join(parts) + "\n</svg>\n"
    )


def _row(
    spec: GemmSpec | None, formats: QAffineFormats, role: str, names: tuple[str, str], result: str, y: float
) -> tuple[list[str], float]:
    """The drawing of one product from height ``y`` on, and its right end."""
    found = [f'<text x="10" y="{y + 12:.0f}" font-weight="bold" fill="#111">{role}</text>']
    ends = []
    for line, name in enumerate(names):
        fmt = None if spec is None else (spec.a, spec.b)[line]
        x, top = 70.0, y + line * _STEP
        boxes = [_Box("tensor", name), *_steps(fmt, formats)]
        for index, box in enumerate(boxes):
            if index:
                found.append(_line(x - _GAP, top + _HEIGHT / 2, x, top + _HEIGHT / 2))
            found.append(_drawn(box, x, top))
            x += box.width + _GAP
        ends.append((x - _GAP, top + _HEIGHT / 2))
    middle, start = y + (_STEP + _HEIGHT) / 2, max(x for x, _ in ends) + 2 * _GAP
    found += [_line(x, at, start, middle) for x, at in ends]
    out = "" if spec is None or spec.out is None else f", to {spec.out}"
    total = _Box("sum", "PyTorch's own product" if spec is None else f"{spec.accumulator}{out}")
    last = _Box("tensor", result)
    found += [_drawn(total, start, middle - _HEIGHT / 2)]
    end = start + total.width
    found += [_line(end, middle, end + _GAP, middle), _drawn(last, end + _GAP, middle - _HEIGHT / 2)]
    return found, end + _GAP + last.width


def _steps(fmt: object, formats: QAffineFormats) -> list[_Box]:
    """What happens to an operand, one after the other."""
    if isinstance(fmt, ScaledCast):
        found = (
            [] if fmt.stored is None else [_Box("before", f"as {fmt.stored.cast.format} of {fmt.stored.granularity}")]
        )
        if fmt.hadamard:
            signs = "" if fmt.signs is None else ", random signs"
            found.append(_Box("before", f"Hadamard of {fmt.hadamard}{signs}"))
        scale = {ScaledCastRule.FLOOR: "power of two", ScaledCastRule.NVFP4: "e4m3 and fp32"}.get(fmt.rule, "fp32")
        kept = f", of {fmt.delayed} calls before" if fmt.delayed else ""
        found.append(_Box("scale", f"scale: {fmt.granularity}, {'power of two' if fmt.power else scale}{kept}"))
        found += [_Box("before", f"times {fmt.gain:g}")] if fmt.gain != 1.0 else []
        return [*found, _Box("cast", str(fmt.cast))]
    if isinstance(fmt, BlockFormat):
        second = " and fp32" if fmt.tensor_scale else ""
        return [_Box("scale", f"scale: 1x{fmt.block_size}, {fmt.scale}{second}"), _Box("cast", str(fmt.element))]
    if isinstance(fmt, Cast):
        scaled = [_Box("scale", "scale: tensor, power of two")] if formats.use_scaling else []
        return [*scaled, _Box("cast", str(fmt))]
    return [] if fmt is None else [_Box("cast", str(fmt))]


def _drawn(box: _Box, x: float, y: float) -> str:
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{box.width:.1f}" height="{_HEIGHT}" rx="4" fill="{_FILL[box.kind]}" '
        f'stroke="#444"/><text x="{x + box.width / 2:.1f}" y="{y + 18:.1f}" text-anchor="middle" fill="#111">'
        f"{escape(box.text)}</text>"
    )


def _line(x: float, y: float, x2: float, y2: float) -> str:
    return f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="#444"/>'
