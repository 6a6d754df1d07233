"""cuBLASLt on one GPU in one version: plans by configuration, table, or number of slices."""

from __future__ import annotations

from typing import Any, NamedTuple

from ..formats.errors import shown, suggestion
from .call import Call
from .configuration import Config
from .errors import UnknownPlan, library_error
from .evidence import INFERRED, SILICON, UNVERIFIED, weakest
from .families import Order, chain_order, order_of, result_text
from .library import Library
from .overview import source_words
from .plan import Plan
from .profile import Profile, UnsplitRow, load
from .table_choice import find_table
from .versions import check_version, is_prefix, matching, newest

__all__ = ["CublasLt", "cublaslt"]

_MIB = 1 << 20


class Target(NamedTuple):
    """Which library: the GPU and version that were measured, those that are assumed to be like them, the workspace."""

    gpu: str
    version: str
    workspace: int
    assume_gpu: str | None = None
    assume_version: str | None = None

    @property
    def names(self) -> tuple[str, str]:
        """GPU and version of the library itself."""
        return self.assume_gpu or self.gpu, self.assume_version or self.version


class CublasLt(Library):
    """cuBLASLt of one version on one GPU; ``cublaslt`` makes it.

    Attributes:
        gpu, version: of the profile. workspace: bytes. table: recorded configurations, or None.

    Example:
        >>> lib = gs.libraries.cublaslt("h100", version="13")
        >>> lib.version, lib.workspace, lib.is_assumed
        ('13.1.1', 33554432, False)
    """

    __slots__ = ("_profile", "_sources", "_target", "_text", "table")

    def __init__(self, target: Target, table: Any = None) -> None:
        super().__init__()
        self._target, self.table = target, table
        self._profile = load()[target.gpu, target.version]
        self._sources = {name: _source_words(self._profile, name) for name in ("", *_families(self._profile))}
        self._text = self._named()

    @property
    def gpu(self) -> str:
        """The GPU of the profile, such as "h100"."""
        return self._target.gpu

    @property
    def version(self) -> str:
        """The version of the profile, such as "13.1.1"."""
        return self._target.version

    @property
    def workspace(self) -> int:
        """Bytes of workspace that the caller allows."""
        return self._target.workspace

    @property
    def names(self) -> tuple[str, str]:
        """GPU and version of the library itself: those of the profile, or the assumed ones."""
        return self._target.names

    @property
    def profile(self) -> Profile:
        """What is known of this GPU and version."""
        return self._profile

    @property
    def is_assumed(self) -> bool:
        """Whether GPU or version differ from the measured ones."""
        return self._target.assume_gpu is not None or self._target.assume_version is not None

    def _identity(self) -> tuple[Any, ...]:
        return self._target, self.table

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._target, self.table)

    def _named(self) -> str:
        target = self._target
        gpu = f"'{target.gpu}'" + (f", assume_gpu='{target.assume_gpu}'" if target.assume_gpu else "")
        more = f", assume_version='{target.assume_version}'" if target.assume_version else ""
        table = f", table={self.table.name!r}" if self.table is not None else ""
        return f"cublaslt({gpu}, version='{target.version}'{more}, workspace={target.workspace}{table})"

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"gemmsim.libraries.{self._text}"

    # Plans

    def _find(self, call: Call, config: Config | None, split: Any) -> Plan:
        profile = self._profile
        row = profile.operands.get((call.a, call.b, call.out))
        if row is None:
            raise self._no_operands(call)
        if call.N % row.multiple or call.K % row.multiple:
            raise library_error(
                f"{call} on {profile.key}, which the library rejects",
                f"N and K that are multiples of {row.multiple} with {call.a}",
                "Pad the operands with zeros.",
            )
        if call.M % row.multiple_of_m:
            raise UnknownPlan(
                f"{call} on {profile.key}: no product with such an M was measured",
                f"M that is a multiple of {row.multiple_of_m} with {call.a}",
                "Pad with rows of zeros: they do not change the other rows, but may change the configuration.",
            )
        source, level = "config", SILICON
        if split is not None:
            config, source = self._of_split(call, split), "explicit"
        elif config is None:
            config, source, level = self._chosen(call)
        order = order_of(call, config, profile)
        return self._plan(call, config, order, source, weakest(row.evidence, level))

    def _plan(self, call: Call, config: Config | None, order: Order, source: str, evidence: str) -> Plan:
        level = weakest(order.evidence, evidence)
        if self.is_assumed:
            level = weakest(level, INFERRED)
        operands = call.a if call.a == call.b else f"{call.a} * {call.b}"
        text = f"{operands} : {order.accumulator}{result_text(call)}"
        sources = self._sources[order.family]
        if self.is_assumed:
            sources = (
                f"measured as {self._profile.key}; {' '.join(self._target.names)} is assumed to behave the same",
                *sources,
            )
        words = (*order.words, *(("then rounded: " + result_text(call)[4:],) if call.out != "fp32" else ()))
        return Plan(
            text, order.family, config, level, source, order.lost, call, self._text, words, sources, self._changes(call)
        )

    def _changes(self, call: Call) -> tuple[str, ...]:
        space = f"a workspace other than {self._target.workspace} bytes (0: never split)"
        return (
            f"may change with: another M, N or K, layout or alignment below 16 bytes; {space};",
            "another GPU, also one with another number of SMs; another version; cublasGemmEx, which chooses itself",
        )

    def _assumed(self, call: Call) -> Plan | None:
        if (call.a, call.b, call.out) not in self._profile.operands:
            return None
        orders = (chain_order(call, family, self._profile) for family in ("nvjet", "tiles"))
        order = next((one for one in orders if one is not None), None)
        return None if order is None else self._plan(call, None, order, "assumed", UNVERIFIED)

    def _chosen(self, call: Call) -> tuple[Config, str, str]:
        """What the library chooses for this call, from where that is known, and how sure the choice is.

        Raises:
            UnknownPlan: nobody has recorded it.
        """
        if self.table is not None:
            found = self.table.find(call)
            if found is not None:
                return found, self.table.source, SILICON
        unsplit = self._unsplit(call)
        if unsplit is not None and not self._target.workspace:
            return _config_of(unsplit), "bound", unsplit.no_workspace
        if unsplit is not None and self.table is not None and self.table.splits_nothing(call):
            return _config_of(unsplit), "bound", INFERRED
        raise self._no_configuration(call)

    def _unsplit(self, call: Call) -> UnsplitRow | None:
        flag = "yes" if call.fast else "no"
        for row in self._profile.unsplit:
            if call.a in row.operands and call.b in row.operands and row.fast in ("any", flag):
                return row
        return None

    def _of_split(self, call: Call, split: Any) -> Config:
        """The configuration of a number of slices that the caller gives, with their layout.

        Raises:
            LibraryError: for what is neither 1 nor (slices, layout), and for a layout that these kernels do not have.
            UnknownPlan: for operands that have other families, too.
        """
        slices, layout = _read_split(split)
        row = self._unsplit(call)
        if row is None:
            raise UnknownPlan(
                f"{call} on {self._profile.key} with split={shown(split)}: the family cannot be determined",
                "split for FP8 operands, which are always of one family",
                "Give the configuration: config=...",
            )
        config = _config_of(row)
        if layout is None:
            return config
        found = self._profile.splits.get(layout)
        if found is None:
            raise library_error(
                f"split={shown(split)} on {self._profile.key}",
                " or ".join(f"(slices, {one!r})" for one in self._profile.splits),
                "Give the layout that kernels of this GPU have.",
            )
        return config._replace(SPLITK_NUM=slices, CUSTOM_OPTION=found.option)

    def _no_operands(self, call: Call) -> UnknownPlan:
        known = sorted({f"{a} * {b} to {out}" for a, b, out in self._profile.operands})
        return UnknownPlan(
            f"{call} on {self._profile.key}",
            "; ".join(known),
            "Give one of these, or emulate the product with a spec of your own.",
        )

    def _no_configuration(self, call: Call) -> UnknownPlan:
        where = "no table" if self.table is None else f"no row in {self.table.name}"
        families = ", ".join(_families(self._profile))
        return UnknownPlan(
            f"{call} on {' '.join(self._target.names)}: {where}, so the configuration is not known",
            f"families {families} by configuration",
            "Give config=..., or table=... with recorded ones (gemmsim library record); or take assume='chain'.",
        )


def cublaslt(
    gpu: str,
    version: str | None = None,
    *,
    workspace: int = 32 * _MIB,
    table: Any = None,
    assume_gpu: str | None = None,
    assume_version: str | None = None,
) -> CublasLt:
    """cuBLASLt on a GPU: a function from a call to a plan.

    Args:
        gpu: "h100" (132 SMs), "h100-pcie" (114), "h200", "gb200", "gb300", "rtx4060".
        version: of cuBLASLt. A prefix means the newest version that was measured: "13", "13.1", "13.1.1". You can leave
            it out where only one version was measured.
        workspace: bytes that the caller of the library allows.
        table: recorded configurations: a path (JSON lines, also gzipped, or .npz), a ``Table``, or "mmaemu" for those
            of that package. None: configurations come from the caller.
        assume_gpu, assume_version: a GPU or version that was not measured and is assumed to be like this one; evidence
            is at most "inferred" then.

    Raises:
        LibraryError: for a GPU or version that was not measured, and a workspace that is not a size. TableError: for a
            table that cannot be read or belongs to another library.

    Source: docs/reference/libraries.md names who measured what.

    Example:
        >>> gs.libraries.cublaslt("h100", version="13.1")
        gemmsim.libraries.cublaslt('h100', version='13.1.1', workspace=33554432)
    """
    gpu = _known_gpu(gpu)
    found = _known_version(gpu, version)
    if type(workspace) is not int or workspace < 0:
        raise library_error(f"workspace={shown(workspace)}", "bytes, 0 or more", "32 MiB are 32 << 20.")
    if assume_gpu is not None and (not isinstance(assume_gpu, str) or not assume_gpu.strip()):
        raise library_error(f"assume_gpu={shown(assume_gpu)}", "the name of a GPU", "Leave it out.")
    measured = [version for name, version in load() if name == (assume_gpu or gpu)]
    if assume_version is not None:
        check_version("assume_version", assume_version)
    asked = assume_version or (found if assume_gpu else "")
    if asked and any(is_prefix(asked, one) for one in measured):
        raise library_error(
            f"{assume_gpu or gpu} {asked} assumed to be like {gpu} {found}",
            "GPUs and versions that were not measured",
            f"This one was: cublaslt({assume_gpu or gpu!r}, version={asked!r}).",
        )
    target = Target(gpu, found, workspace, assume_gpu, assume_version)
    sms = 0 if assume_gpu else load()[gpu, found].sms
    return CublasLt(target, None if table is None else find_table(table, *target.names, workspace, sms))


def _known_gpu(gpu: Any) -> str:
    """The name of a GPU that was measured.

    Raises:
        LibraryError: for another one.
    """
    names = sorted({name for name, _ in load()})
    word = gpu.strip().lower().replace("_", "-").replace(" ", "-") if isinstance(gpu, str) else ""
    if word in names:
        return word
    near = suggestion(word, names)
    raise library_error(
        f"GPU {shown(gpu)}",
        ", ".join(names),
        f"{near}gemmsim.libraries.known() lists what was measured. assume_gpu= applies the rules of one of these to "
        "another GPU.",
    )


def _known_version(gpu: str, version: Any) -> str:
    """The version of a profile that a prefix means.

    Raises:
        LibraryError: for one that was not measured, or none where there are several.
    """
    measured = sorted(version for name, version in load() if name == gpu)
    if version is None:
        if len(measured) == 1:
            return measured[0]
        raise library_error(f"cuBLASLt on {gpu} without a version", ", ".join(measured), "Give version=....")
    found = matching(check_version("version", version), measured)
    if found:
        return newest(found)
    raise library_error(
        f"cuBLASLt {version} on {gpu}, which was not measured",
        ", ".join(measured),
        f"To treat it as {newest(measured)}: version={newest(measured)!r}, assume_version={version!r}.",
    )


def _read_split(split: Any) -> tuple[int, str | None]:
    """Slices and their layout, None for one slice.

    Raises:
        LibraryError: for what is neither 1 nor (slices, layout).
    """
    if type(split) is int and split == 1:
        return 1, None
    if isinstance(split, (tuple, list)) and len(split) == 2 and type(split[0]) is int and isinstance(split[1], str):
        if 2 <= split[0] <= 65535:
            return split[0], split[1]
    raise library_error(
        f"split={shown(split)}",
        "1, or (slices, layout) with 2 slices or more: (4, 'contiguous'), (4, 'serial'), (4, 'pairwise')",
        "Leave it out if a table or a configuration gives it.",
    )


def _config_of(row: UnsplitRow) -> Config:
    return Config(row.algo, SPLITK_NUM=1, STAGES_ID=row.stage)


def _families(profile: Profile) -> list[str]:
    return list(dict.fromkeys(row.family for row in profile.families.values() if row.family != "refused"))


def _source_words(profile: Profile, family: str) -> tuple[str, ...]:
    return tuple(source_words(row) for row in profile.sources if not row.families or family in row.families)
