"""From a configuration to the order of a sum, one function a family of kernels.

Everything that a GPU or a version decides is in the profile that these functions read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from .call import FP8, Call
from .configuration import Config
from .errors import UnknownPlan
from .evidence import INFERRED, SILICON, UNVERIFIED, weakest
from .partition import floored_length, slice_count, slice_length
from .profile import ChainRow, FamilyRow, GemvRow, Profile, StageRow

__all__ = ["Order", "chain_order", "order_of", "pairwise_tree", "result_text"]


class Order(NamedTuple):
    """The accumulator as text of the spec language, its family, what happens in words, evidence, lost terms."""

    accumulator: str
    family: str
    words: tuple[str, ...]
    evidence: str
    lost: int = 0


def order_of(call: Call, config: Config, profile: Profile) -> Order:
    """The order in which the kernels of this configuration add the terms of ``call``.

    Raises:
        UnknownPlan: for a configuration of which the profile has no row, or that its family never has.
    """
    row = profile.families.get(config.ALGO_ID)
    if row is None or row.family == "refused":
        why = f"ALGO_ID {config.ALGO_ID}" + (f": {row.note}" if row is not None else "")
        known = ", ".join(str(algo) for algo, one in sorted(profile.families.items()) if one.family != "refused")
        raise _unknown(call, config, profile, why, f"ALGO_ID {known}")
    for operand in (call.a, call.b):
        if operand not in row.operands:
            raise _unknown(call, config, profile, f"{operand} in family {row.family}", ", ".join(row.operands))
    if row.fast != "any" and (row.fast == "yes") != call.fast:
        word = "with" if row.fast == "yes" else "without"
        why = f"ALGO_ID {row.algo} and fast_accumulation={call.fast}"
        raise _unknown(call, config, profile, why, f"this algorithm {word} fast accumulation")
    order = _FAMILIES[row.family](call, config, profile, row)
    level = row.one_product if call.K == 1 and row.one_product else row.evidence
    return order if level == SILICON else order._replace(evidence=weakest(order.evidence, level))


def result_text(call: Call) -> str:
    """How the sum is rounded to the output, as text of the spec language.

    Of FP8 operands through fp32, in which the library multiplies by scales; FP8 outputs saturate.
    """
    if call.out == "fp32" or call.a not in FP8:
        return f" -> {call.out}"
    return f" -> fp32 -> {call.out}" + ("/satfinite" if call.out in FP8 else "")


def chain_order(call: Call, family: str, profile: Profile) -> Order | None:
    """One chain of the family's largest instruction over all of K; None where the profile has none for the operands."""
    rows = [row for row in profile.chains.values() if (row.family, row.a, row.b) == (family, call.a, call.b)]
    if not rows:
        return None
    row = max(rows, key=lambda row: row.step)
    words = (f"one chain over K, k ascending: {_chain_words(call, row)}",)
    return Order(_chain_text(call, row), family, words, row.evidence)


def pairwise_tree(slices: int) -> str:
    """The tree in which a pairwise reduction adds the partial sums of ``slices`` slices, as text of the spec language.

    With h = ceil(slices / 2), position i < h holds p_i + p_(i + h) if i + h < slices - 1, else p_i; the last partial
    sum and the positions are added in order.

    Example:
        >>> from gemmsim.libraries.families import pairwise_tree
        >>> pairwise_tree(4)
        '((3+(0+2))+1)'
    """
    half = -(-slices // 2)
    text = str(slices - 1)
    for i in range(half):
        if i == slices - 1:  # one slice
            break
        text = f"({text}+({i}+{i + half}))" if i + half < slices - 1 else f"({text}+{i})"
    return text


def _nvjet(call: Call, config: Config, profile: Profile, row: FamilyRow) -> Order:
    stage = _stage(call, config, profile, "nvjet")
    chain = _chain(call, config, profile, "nvjet", stage.step)
    text, words = _chain_text(call, chain), _chain_words(call, chain)
    evidence = weakest(chain.evidence, stage.evidence, _seen(config, row))
    slices, K = config.slices, call.K
    if slices == 1:
        return Order(text, "nvjet", (f"one chain over K, k ascending: {words}",), evidence)
    length, floored = slice_length(K, slices, stage.block), floored_length(K, slices, stage.block)
    if not length < K:
        why = f"K = {K} in {slices} slices of whole blocks of {stage.block} terms, which are one slice"
        raise _unknown(call, config, profile, why, "SPLITK_NUM 1")
    lost = max(0, K - slices * floored)
    if lost:
        evidence = weakest(evidence, _evidence_of_loss(K, slices, stage.block, lost, chain))
    elif floored != length:
        evidence = weakest(evidence, UNVERIFIED)
    text = f"splitk({slices}, {text}, fp32, grain={stage.block}, share=floor)"
    cut = (
        f"K is divided into {slice_count(K, slices, floored)} contiguous slices of up to {floored} terms",
        f"each slice is one chain, k ascending: {words}",
        "partial sums in fp32, added in the order of the slices",
    )
    return Order(text, "nvjet", cut, weakest(evidence, stage.split), lost)


def _evidence_of_loss(K: int, slices: int, block: int, lost: int, chain: ChainRow) -> str:
    """Of a split that loses terms: silicon where the published condition (blocks of 64) says the same."""
    tail = K % block
    condition = tail > 0 and (K // block) % slices == 0 and slices > tail
    if lost != (tail if condition else 0):
        return UNVERIFIED
    return SILICON if block == 64 else INFERRED


def _cutlass(call: Call, config: Config, profile: Profile, row: FamilyRow) -> Order:
    slices, K = config.slices, call.K
    if row.one_product and K == 1:
        if slices > 1:
            raise _unknown(call, config, profile, f"{slices} slices of one product", "SPLITK_NUM 1")
        return Order("fp32", "cutlass", ("one product, exact in fp32",), SILICON)
    stage = _stage(call, config, profile, "cutlass")
    chain = _chain(call, config, profile, "cutlass", stage.step)
    text = chain.chain.replace("{first}", str(stage.block))
    words = f"{_chain_words(call, chain)}; the remainder modulo blocks of {stage.block} comes first"
    evidence = weakest(chain.evidence, stage.evidence)
    if slices == 1:
        return Order(text, "cutlass", (f"one chain over K: {words}",), evidence)
    grain = 64 if K % 64 == 0 else 8
    length = slice_length(K, slices, grain)
    if length > K:
        why = f"K = {K} in {slices} slices, the first of which has {length} terms"
        raise _unknown(call, config, profile, why, f"slices of at most {K} terms")
    if config.REDUCTION_SCHEME is None:
        raise _unknown(call, config, profile, "slices without REDUCTION_SCHEME", _values(profile, "cutlass"))
    merge = profile.merges.get(("cutlass", config.REDUCTION_SCHEME))
    if merge is None:
        raise _unknown(
            call, config, profile, f"REDUCTION_SCHEME {config.REDUCTION_SCHEME}", _values(profile, "cutlass")
        )
    reduce, how = _MERGES["compute" if call.out == "fp32" else merge.how]
    cut = (
        f"K is divided into {slice_count(K, slices, length)} contiguous slices of up to {length} terms",
        f"each slice is one chain: {words}",
        how.format(out=call.out),
    )
    text = f"splitk({slices}, {text}, {reduce.format(out=call.out, grain=grain)})"
    return Order(text, "cutlass", cut, weakest(evidence, stage.split, merge.evidence))


#: How partial sums meet: the arguments of splitk that say so, and words.
_MERGES = {
    "compute": ("fp32, grain={grain}", "partial sums in fp32, added in fp32 in the order of the slices"),
    "output": (
        "fp32, grain={grain}, partial={out}",
        "partial sums are rounded to {out}, then added in fp32 in the order of the slices",
    ),
    "serial": (
        "{out}/via(fp32), grain={grain}, partial=fp32",
        "a serial chain in {out}: each partial sum is added in fp32, and the sum rounded to {out} every time",
    ),
}


def _gemmsn(call: Call, config: Config, profile: Profile, row: FamilyRow) -> Order:
    if config.slices > 1:
        raise _unknown(call, config, profile, f"{config.slices} slices", "SPLITK_NUM 1")
    option = 0 if config.CUSTOM_OPTION is None and config.ALGO_ID == 16 else config.CUSTOM_OPTION
    found = profile.gemmsn.get((config.ALGO_ID, -1 if option is None else option))
    if found is None:
        known = ", ".join(str(one) for algo, one in profile.gemmsn if algo == config.ALGO_ID)
        raise _unknown(call, config, profile, f"CUSTOM_OPTION {option}", f"CUSTOM_OPTION {known}")
    text = f"chunked({found.run}, fp32)" if found.run else "fp32"
    words = [f"chunks of {found.run} terms from +0, added in order" if found.run else "one sum, k ascending"]
    if found.threads > 1:
        text = f"splitk({found.threads}, {text}, fp32)"
        words.insert(0, f"{found.threads} threads, each with a contiguous part of K")
        words.append("sums of the threads added in order")
    return Order(text, "gemmsn", ("fused multiply-adds in fp32 on CUDA cores", *words), found.evidence)


def _gemv(call: Call, config: Config, profile: Profile, row: FamilyRow) -> Order:
    _check_vector(call, config, profile)
    option = config.CUSTOM_OPTION
    found = None if option is None else profile.gemv.get(option)
    if found is None:
        known = ", ".join(str(one) for one in sorted(profile.gemv))
        raise _unknown(call, config, profile, f"CUSTOM_OPTION {option}", f"CUSTOM_OPTION {known}")
    if (found.only_one_slice and config.slices > 1) or (found.only_one_row and call.M > 1):
        known = "SPLITK_NUM 1" + (" and M = 1" if found.only_one_row else "")
        raise _unknown(call, config, profile, f"CUSTOM_OPTION {option}", known)
    cap = profile.caps.get(("gemv", option or 0))
    if cap is not None and call.M * call.N > cap.outputs:
        why = f"CUSTOM_OPTION {option} with {call.M * call.N} outputs: {cap.why}"
        raise _unknown(call, config, profile, why, f"at most {cap.outputs} outputs")
    length = -(-call.K // config.slices)
    text, words = _lanes(found, length)
    if config.slices > 1:
        text = f"splitk({config.slices}, {text}, fp32)"
        cut = f"{slice_count(call.K, config.slices, length)} contiguous slices of up to {length} terms"
        words = (cut, *words, "sums of the slices added in order")
    above = found.inferred_above and length > found.inferred_above
    order = ("fused multiply-adds in fp32 on CUDA cores", *words)
    return Order(text, "gemv", order, weakest(found.evidence, INFERRED) if above else found.evidence)


def _lanes(row: GemvRow, length: int) -> tuple[str, tuple[str, ...]]:
    """The accumulator of one slice of a matrix-vector kernel, and words; ``length``: terms of the longest slice."""
    width = row.width if row.width > 0 else min(-row.width, -(-length // row.lanes))
    tiles = row.chunk * width if row.layout == "interleaved" else row.chunk
    inner = f"chunked({tiles}, fp32)" if row.chunk else "fp32"
    chunks = (f"chunks of {tiles} terms from +0, added in order",) if row.chunk else ()
    if row.lanes == 1:
        return inner, chunks or ("one sum, k ascending",)
    if row.layout == "contiguous":
        return f"splitk({row.lanes}, {inner}, fp32)", (
            f"{row.lanes} lanes, each with a contiguous part of K",
            *chunks,
            "sums of the lanes added in order",
        )
    runs = f", width={width}" if width > 1 else ""
    halves = row.combine == "halves"
    text = f"interleaved({row.lanes}, {inner}{', halves' if halves else ''}{runs})"
    each = "every term in turn" if width == 1 else f"groups of {width} adjacent terms in turn"
    meet = "sums of the lanes added by halves" if halves else "sums of the lanes added in order"
    return text, (f"{row.lanes} lanes take {each}", *chunks, meet)


def _dot(call: Call, config: Config, profile: Profile, row: FamilyRow) -> Order:
    _check_vector(call, config, profile)
    width = 2 if call.N == 1 else 1
    inner, runs = ("interleaved(2, fp32)", ", width=2") if width == 2 else ("fp32", "")
    text = f"interleaved(128, {inner}, halves{runs})"
    words = [f"128 threads take {'pairs of terms' if width == 2 else 'every term'} in turn, sums added by halves"]
    if config.slices > 1:
        words.insert(0, f"{config.slices} blocks take tiles of {128 * width} terms in turn")
        words.append("a second kernel adds the blocks: 128 threads in order, twice by halves, 4 lanes in order")
        text = f"interleaved({config.slices}, {text}, {_SECOND_KERNEL}, width={128 * width})"
    return Order(text, "dot", ("fused multiply-adds in fp32 on CUDA cores", *words), SILICON)


#: How the second kernel of the dot family adds the sums of the blocks.
_SECOND_KERNEL = "interleaved(128, fp32, interleaved(64, fp32, interleaved(32, fp32, interleaved(4, fp32))))"


def _tiles(call: Call, config: Config, profile: Profile, row: FamilyRow) -> Order:
    stage = _stage(call, config, profile, "tiles")
    chain = _chain(call, config, profile, "tiles", stage.step)
    text, words = _chain_text(call, chain), _chain_words(call, chain)
    evidence = weakest(chain.evidence, stage.evidence, _seen(config, row))
    slices = config.slices
    if slices == 1:
        return Order(text, "tiles", (f"one chain over K, k ascending: {words}",), evidence)
    option = config.CUSTOM_OPTION
    merge = None if option is None else profile.merges.get(("tiles", option))
    if merge is None:
        raise _unknown(call, config, profile, f"CUSTOM_OPTION {option}", _values(profile, "tiles"))
    pairwise = merge.how == "pairwise"
    combine = f"tree({pairwise_tree(slices)})" if pairwise else "sequential"
    meet = f"partial sums added in fp32 as {pairwise_tree(slices)}" if pairwise else "partial sums in fp32, in order"
    cut = (
        f"tiles of {stage.block} terms go to {slices} splits in turn; a split without a tile is +0",
        f"each split is one chain over its own tiles: {words}",
        meet,
    )
    text = f"interleaved({slices}, {text}, {combine}, width={stage.block})"
    return Order(text, "tiles", cut, weakest(evidence, stage.split, merge.evidence))


_FAMILIES: dict[str, Callable[[Call, Config, Profile, FamilyRow], Order]] = {
    "nvjet": _nvjet,
    "cutlass": _cutlass,
    "gemmsn": _gemmsn,
    "gemv": _gemv,
    "dot": _dot,
    "tiles": _tiles,
}


def _check_vector(call: Call, config: Config, profile: Profile) -> None:
    """UnknownPlan for a product of two matrices, which the kernels of vectors do not compute."""
    if call.M > 1 and call.N > 1:
        raise _unknown(call, config, profile, "a product of two matrices by a matrix-vector kernel", "M = 1 or N = 1")


def _stage(call: Call, config: Config, profile: Profile, family: str) -> StageRow:
    found = profile.stages.get((family, -1 if config.STAGES_ID is None else config.STAGES_ID))
    algo = config.ALGO_ID
    if (
        found is None
        or call.a not in found.operands
        or call.b not in found.operands
        or (found.algos and algo not in found.algos)
    ):
        rows = [row for row in profile.stages.values() if row.family == family and call.a in row.operands]
        rows = [row for row in rows if not row.algos or algo in row.algos]
        known = f"STAGES_ID {', '.join(str(row.stage) for row in rows)} of {family} with {call.a}"
        raise _unknown(call, config, profile, f"STAGES_ID {config.STAGES_ID}", known)
    return found


def _chain(call: Call, config: Config, profile: Profile, family: str, step: int) -> ChainRow:
    found = profile.chains.get((family, call.a, call.b, step))
    if found is None:
        known = ", ".join(f"{row.a} * {row.b}" for row in profile.chains.values() if row.family == family)
        raise _unknown(call, config, profile, f"{call.a} * {call.b} in family {family}", known)
    return found


def _chain_text(call: Call, row: ChainRow) -> str:
    return row.promoted if row.promoted and not call.fast else row.chain


def _chain_words(call: Call, row: ChainRow) -> str:
    promoted = ", each 128 terms a separate chain, added in fp32" if row.promoted and not call.fast else ""
    return f"instructions of {row.step} products{promoted}"


def _seen(config: Config, row: FamilyRow) -> str:
    """Evidence of the number of slices and the option, where the profile says how far they were compared."""
    if row.slices_seen and config.slices > row.slices_seen:
        return INFERRED
    unseen = row.options_seen and config.CUSTOM_OPTION not in (None, *row.options_seen)
    return INFERRED if unseen else SILICON


def _values(profile: Profile, family: str) -> str:
    field = profile.merge_fields[family]
    return f"{field} {', '.join(str(value) for of, value in profile.merges if of == family)}"


def _unknown(call: Call, config: Config, profile: Profile, why: str, known: str) -> UnknownPlan:
    return UnknownPlan(
        f"{call} on {profile.key} with {config}: {why}",
        known,
        "Record what the library computes (docs/reference/libraries.md), or ask for assume='chain'.",
    )
