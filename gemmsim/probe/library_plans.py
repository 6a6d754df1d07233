"""Plans of the known libraries for one product: candidates, and names of what was found."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from ..libraries import Config, LibraryError, UnknownPlan, cublaslt
from ..libraries.profile import Profile, load
from .black_box import Shape

__all__ = ["plans_of"]

#: Numbers of slices that are looked at.
_SLICES = (1, *range(2, 17), 18, 20, 24, 32)


def plans_of(shape: Shape, a: str, out: str) -> dict[str, list[str]]:
    """Texts of specs, and which libraries, families and numbers of slices compute them; none where no profile has the
    formats."""
    found: dict[str, list[str]] = {}
    for profile in load().values():
        if (a, a, out) not in profile.operands:
            continue
        library = cublaslt(profile.gpu, version=profile.version)
        for config in _configurations(profile):
            try:
                plan = library.plan(shape.M, shape.N, shape.K, a, out=out, config=config)
            except (UnknownPlan, LibraryError):
                continue
            split = f" in {config.slices} slices" if config.slices > 1 else ""
            name = f"cuBLASLt {profile.version} on {profile.gpu}: family {plan.family}{split} ({plan.evidence})"
            names = found.setdefault(plan.text, [])
            if name not in names:
                names.append(name)
    return found


def _configurations(profile: Profile) -> Iterator[Config]:
    for algo, row in profile.families.items():
        stages: list[int | None] = [stage for family, stage in profile.stages if family == row.family] or [None]
        options: list[int | None] = [None]
        if row.family == "gemv":
            options = list(profile.gemv)
        elif row.family == "gemmsn":
            options = [option for of, option in profile.gemmsn if of == algo]
        schemes: list[int | None] = [scheme for family, scheme in profile.merges if family == row.family] or [None]
        for slices, stage, option, scheme in product(_SLICES, stages, options, schemes):
            yield Config(algo, SPLITK_NUM=slices, STAGES_ID=stage, CUSTOM_OPTION=option, REDUCTION_SCHEME=scheme)
