"""A library in the place of a spec: each product's arithmetic is what the library chooses for its shape and dtypes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any, NamedTuple

import torch

from gemmsim.arithmetic import GemmSpec, SpecError
from gemmsim.formats.errors import message, shown
from gemmsim.libraries import Library, LibraryError, UnknownPlan
from gemmsim.ops.product.affine_plan import AffinePlan, Product
from gemmsim.ops.product.refusals import refused_later

__all__ = ["SEPARATOR", "UNKNOWN", "LibraryFormats", "Planned", "ProductCall", "of_number", "planned", "unplanned"]

#: What to do where it is not known what the library computes: raise UnknownPlan, or go on with one chain.
UNKNOWN = ("raise", "chain")
_ROLES = ("fprop", "dgrad", "wgrad")
#: Between the name of a call site and what observers say about the plan of each role.
SEPARATOR = "\t"
#: Formats -> their number in this process; equal libraries have one number.
_NUMBERS: dict[LibraryFormats, int] = {}


class LibraryFormats:
    """Formats of products that ``library`` computes, and the plan of its call sites; frozen, with ``==`` and a hash.

    ``unknown``: "raise" or "chain". ``number``: its number in this process, by which texts and compiled code know it.
    """

    is_native = False

    def __init__(self, library: Library, unknown: str = "raise") -> None:
        self.library, self.unknown = library, unknown
        self.number = _NUMBERS.setdefault(self, len(_NUMBERS))
        self.plan = self  # there is no other before there is a product

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LibraryFormats) and (self.library, self.unknown) == (other.library, other.unknown)

    def __hash__(self) -> int:
        return hash((self.library, self.unknown))

    def __reduce__(self) -> tuple[Any, ...]:
        return LibraryFormats, (self.library, self.unknown)

    def __repr__(self) -> str:
        return f"LibraryFormats({self.library!r}, {self.unknown!r})"

    def with_unknown(self, unknown: str) -> LibraryFormats:
        """The same library with another way on."""
        return LibraryFormats(self.library, unknown)

    def to_dict(self) -> dict[str, Any]:
        """A dictionary that ``from_dict`` reads in this process; for others there are pickles of rules and configs."""
        return {"library": str(self.library), "unknown": self.unknown, "number": self.number}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> LibraryFormats:
        """Formats that ``to_dict`` wrote in this process.

        Raises:
            SpecError: for those of another process.
        """
        found = next((formats for formats in _NUMBERS if formats.to_dict() == dict(data)), None)
        if found is None:
            asked = f"the library {shown(data.get('library'))} of a rule, from a file"
            allowed = "libraries that this process has made, by the number in their text"
            raise SpecError(message(asked, allowed, "Pickle the config, or make the library again and write the rule."))
        return found

    def __str__(self) -> str:
        return str(self.library) + ("" if self.unknown == "raise" else f", unknown={self.unknown!r}")


def of_number(number: int) -> LibraryFormats:
    """The formats that have this number."""
    return next(formats for formats, known in _NUMBERS.items() if known == number)


class ProductCall(NamedTuple):
    """One product (M, K) by (K, N) of a batch of ``batch``, with its dtypes.

    ``linear``: whether the second operand is a weight (N, K), in whose layout its gradient is computed. ``register``:
    whether more is added before the result is rounded to ``out``. ``fast``: fast accumulation of float8 operands.
    """

    batch: int
    M: int
    N: int
    K: int
    a: torch.dtype
    b: torch.dtype
    out: torch.dtype
    linear: bool = False
    register: bool = False
    fast: bool = False

    def of_role(self, role: str) -> ProductCall:
        """The product that gives the gradient of an operand, as a product of its own."""
        if role == "fprop":
            return self
        plain = self._replace(register=False, fast=False, b=self.b, linear=False)
        if role == "dgrad":
            return plain._replace(N=self.K, K=self.N, a=self.out, b=self.b, out=self.a)
        if self.linear:
            return plain._replace(M=self.N, N=self.K, K=self.M, a=self.out, b=self.a, out=self.b)
        return plain._replace(M=self.K, K=self.M, a=self.a, b=self.out, out=self.b)


class Planned(NamedTuple):
    """The plan of a product; for each of its roles "family, evidence, source" for observers, and what is unknown."""

    plan: AffinePlan
    words: tuple[str, ...]
    unknown: tuple[UnknownPlan | None, ...]

    def refusing(self, where: str) -> AffinePlan:
        """The plan whose unknown gradients are refused when they are asked for: errors say ``where``."""
        if self.unknown == (None, None, None):
            return self.plan
        roles = {}
        for role, error in zip(_ROLES, self.unknown, strict=True):
            if error is not None:
                text = refused_later(partial(_in_role, error, role, where))
                roles[role] = replace(self.plan.fprop, refusal=text)
        return replace(self.plan, **roles)  # type: ignore[arg-type]


def _in_role(error: UnknownPlan, role: str, where: str) -> UnknownPlan:
    return UnknownPlan(f"in {role} of {where}: {error.asked}", error.known, error.do)


@lru_cache(maxsize=65536)
def planned(number: int, call: ProductCall) -> Planned:
    """The plan of a product by the library of this number.

    A gradient whose plan is not known is no error here: it may never be asked for.

    Raises:
        UnknownPlan: for a forward product whose plan is not known; LibraryError: for one that the library rejects.
    """
    formats = of_number(number)
    fprop, words = _of_role(formats, call)
    products, said, unknown = {"fprop": fprop}, [words], [None]
    for role in _ROLES[1:]:
        try:
            products[role], words = _of_role(formats, call.of_role(role))
            error = None
        except (UnknownPlan, LibraryError) as raised:
            known = isinstance(raised, UnknownPlan)
            error = raised if known else UnknownPlan(str(raised), "products that the library takes", _DO)
            products[role], words = fprop, "none, refused, none"
        said.append(words)
        unknown.append(error)  # type: ignore[arg-type]
    if not call.linear:  # the gradient of the second operand is a product of the first operand with the gradient
        wgrad = products["wgrad"].spec
        products["wgrad"] = Product.of(_parsed(wgrad or "").transposed())
    return Planned(AffinePlan(**products), tuple(said), tuple(unknown))  # type: ignore[arg-type]


@lru_cache(maxsize=4096)
def _parsed(text: str) -> GemmSpec:
    return GemmSpec.parse(text)


def _of_role(formats: LibraryFormats, call: ProductCall) -> tuple[Product, str]:
    """One product, and what observers say about it."""
    if 0 in call[:4]:
        return Product.of(GemmSpec.parse(": fp32")), "empty, silicon, rule"
    if call.batch != 1:
        return _unknown(formats, call, f"a batch of {call.batch} products")
    if torch.float64 in (call.a, call.b) or call.a == call.b == torch.float32:
        return _unknown(formats, call, f"operands in {str(call.a).removeprefix('torch.')}")
    asked = (call.M, call.N, call.K, call.a, call.b, call.out)
    try:
        plan = formats.library.plan(*asked, fast_accumulation=call.fast)
    except UnknownPlan as error:
        if formats.unknown == "chain":
            return _chain(formats, call)
        raise UnknownPlan(error.asked, error.known, _DO) from None
    return _product(plan.text, call), f"{plan.family}, {_evidence(plan.evidence, call)}, {plan.source}"


_DO = (
    "Record the library's choices and give table=..., name another spec for this module in a rule before the "
    "library's, or plan unknown products as one chain: emulate(..., unknown='chain')."
)


def _evidence(level: str, call: ProductCall) -> str:
    """Where something is added before the rounding, the whole was not compared with a GPU; scaled sums were."""
    added = call.register and call.a.itemsize > 1
    return "inferred" if added and level == "silicon" else level


def _product(text: str, call: ProductCall) -> Product:
    return _product_of(text, call.register)


@lru_cache(maxsize=4096)
def _product_of(text: str, register: bool) -> Product:
    spec = _parsed(text)
    return Product.of(replace(spec, out=None) if register else spec)


def _unknown(formats: LibraryFormats, call: ProductCall, what: str) -> tuple[Product, str]:
    """A product for which the library is not even asked.

    Raises:
        UnknownPlan: unless the formats go on with one chain.
    """
    if formats.unknown == "chain":
        return _chain(formats, call)
    asked = f"{call.M} x {call.N} x {call.K}: {what} by {formats.library}"
    raise UnknownPlan(asked, "products of two matrices in formats of 16 or 8 bits", _DO)


def _chain(formats: LibraryFormats, call: ProductCall) -> tuple[Product, str]:
    """One chain of the library's instruction, or where it has none for these operands one sum, k ascending."""
    words = "chain, unverified, assumed"
    try:
        plan = formats.library.chain(*call[1:7], fast_accumulation=call.fast)
    except UnknownPlan:
        wide = "fp64" if torch.float64 in (call.a, call.b) else "fp32"
        out = {torch.float16: " -> fp16", torch.bfloat16: " -> bf16"}.get(call.out, "")
        return _product(f": {wide}{out}", call), words
    return _product(plan.text, call), words


def unplanned(formats: LibraryFormats, kind: str, dtype: torch.dtype) -> AffinePlan:
    """The plan of products that are no single product of two matrices to a library: convolutions, distances.

    Raises:
        UnknownPlan: unless the formats go on with one chain.
    """
    return _unplanned(formats.number, kind, dtype)


@lru_cache(maxsize=1024)
def _unplanned(number: int, kind: str, dtype: torch.dtype) -> AffinePlan:
    formats = of_number(number)
    if formats.unknown != "chain":
        asked = f"{kind} by {formats.library}"
        raise UnknownPlan(asked, "products of two matrices in formats of 16 or 8 bits", _DO)
    product, _ = _chain(formats, ProductCall(1, 16, 16, 16, dtype, dtype, dtype))
    return AffinePlan(product, product, product)
