"""A library as a function from a call to a plan."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .call import Call, read_call
from .configuration import read_config
from .errors import UnknownPlan, library_error
from .plan import Plan

if TYPE_CHECKING:
    from torch import Tensor

    from ..arithmetic import GemmSpec

__all__ = ["ASSUMPTIONS", "Library", "check_assume"]

#: Plans that a library keeps; emptied when full.
_KEPT = 65536
ASSUMPTIONS = (None, "chain")
_EXACT = frozenset({int, str, type(None)})


class Library:
    """What a library of matrix products computes, call by call.

    A library is a value: comparable, hashable and picklable.

    ``cublaslt``, ``batch_invariant``, ``cutlass_splitk`` and ``transformer_engine`` make one.

    Example:
        >>> lib = gs.libraries.cutlass_splitk(4, "parallel")
        >>> isinstance(lib, gs.libraries.Library), lib.plan(64, 64, 4096, "fp16").family
        (True, 'cutlass')
    """

    __slots__ = ("_plans",)

    def __init__(self) -> None:
        self._plans: dict[Any, Plan] = {}

    # What a kind of library says

    def _identity(self) -> tuple[Any, ...]:
        """What makes two libraries of this kind equal."""
        raise NotImplementedError

    def _find(self, call: Call, config: Any, split: Any) -> Plan:
        """The plan of a call, or UnknownPlan."""
        raise NotImplementedError

    def _assumed(self, call: Call) -> Plan | None:
        """One chain for a call of which nothing is known; None where the library has no chain for its operands."""
        raise NotImplementedError

    # What is asked of it

    def plan(
        self,
        M: int,
        N: int,
        K: int,
        a: Any,
        b: Any = None,
        out: Any = None,
        *,
        config: Any = None,
        fast_accumulation: bool = False,
        split: Any = None,
        assume: str | None = None,
    ) -> Plan:
        """What the library computes for a product of M x K by K x N. Plans are cached.

        Args:
            M, N, K: positive integers.
            a, b: operand formats, by name or as torch dtypes; b is a by default.
            out: output format; by default a, for FP8 operands fp16.
            config: the configuration of the library's heuristic: nine fields as tuple, list, mapping by their public
                names or text ("66,,4,,,,35"). None: what the library's table or the machine says.
            fast_accumulation: the flag of FP8 products.
            split: instead of a configuration 1, or (slices, "contiguous" | "serial" | "pairwise"), for FP8 operands.
            assume: "chain" plans what is not known as one chain; evidence is "unverified" then.

        Raises:
            UnknownPlan: for what was never measured: formats, shapes without a configuration, configurations without a
                rule. LibraryError: for arguments that mean nothing, and sizes that the library rejects.

        Example:
            >>> gs.libraries.cublaslt("h100", version="13.1").plan(64, 64, 8192, "fp16", config="66,,4,,,,35").text
            'fp16 : splitk(4, hw(hopper, wgmma, fp16), fp32, grain=64, share=floor) -> fp16'
        """
        key = (M, N, K, a, b, out, config, fast_accumulation, split, assume)
        try:
            found = self._plans.get(key)
        except TypeError:  # a list or a mapping
            return self._make(read_call(M, N, K, a, b, out, fast_accumulation), config, split, assume)
        if found is not None and type(M) is int and type(N) is int and type(K) is int:
            # Numbers that are equal to these may be of other types, which are refused: True, 1.0.
            exact = (config is None or _is_exact(config)) and (split is None or _is_exact(split))
            if exact and type(fast_accumulation) is bool:
                return found
        made = self._make(read_call(M, N, K, a, b, out, fast_accumulation), config, split, assume)
        if len(self._plans) >= _KEPT:
            self._plans.clear()
        self._plans[key] = made
        return made

    def _make(self, call: Call, config: Any, split: Any, assume: str | None) -> Plan:
        check_assume(assume)
        if config is not None and split is not None:
            raise library_error("config and split", "one of them", "Leave split out: SPLITK_NUM gives it.")
        try:
            return self._find(call, None if config is None else read_config(config), split)
        except UnknownPlan:
            found = self._assumed(call) if assume == "chain" else None
            if found is None:
                raise
            return found

    def chain(
        self, M: int, N: int, K: int, a: Any, b: Any = None, out: Any = None, *, fast_accumulation: bool = False
    ) -> Plan:
        """The plan of one chain over all of K, independent of the library's choice.

        Its source is "assumed", its evidence "unverified".

        Raises:
            UnknownPlan: where the library has no chain for these operands. LibraryError: as ``plan``.

        Example:
            >>> gs.libraries.cublaslt("h100", version="13.1").chain(64, 64, 8192, "fp16").text
            'fp16 : hw(hopper, wgmma, fp16) -> fp16'
        """
        call = read_call(M, N, K, a, b, out, fast_accumulation)
        found = self._assumed(call)
        if found is None:
            do = "Give the product its own spec."
            raise UnknownPlan(f"{self}: {call} as one chain", "operands that the library was seen to multiply", do)
        return found

    def spec(self, *args: Any, **keywords: Any) -> GemmSpec:
        """``plan(...).spec``.

        Raises:
            UnknownPlan, LibraryError: as ``plan``.

        Example:
            >>> gs.libraries.cutlass_splitk(4, "parallel").spec(64, 64, 4096, "fp16").out
            parse_cast('e5m10')
        """
        return self.plan(*args, **keywords).spec

    def matmul(
        self,
        a: Tensor,
        b: Tensor,
        out_dtype: Any = None,
        config: Any = None,
        *,
        fast_accumulation: bool = False,
        split: Any = None,
        assume: str | None = None,
    ) -> Tensor:
        """``a @ b`` as the library computes it, without scales: M x K by K x N, on the operands' device.

        Formats are those of the dtypes; ``out_dtype`` is by default the dtype of ``a``, for FP8 operands float16.
        The spec decides infinities, NaN and -0 (``qmatmul``). Other arguments as for ``plan``.

        Raises:
            UnknownPlan: as ``plan``, and for batched operands. LibraryError: for operands that are not matrices with a
                common K, or are on different devices.

        Example:
            >>> lib = gs.libraries.cublaslt("gb200", version="13.1")
            >>> ones = torch.ones(1, 8648, dtype=torch.float16), torch.ones(8648, 8, dtype=torch.float16)
            >>> lib.matmul(*ones, config="66,,,,,,35")[0, 0].item()
            8648.0
        """
        from .product import matmul

        asked = {"config": config, "fast_accumulation": fast_accumulation, "split": split, "assume": assume}
        return matmul(str(self), self.plan, a, b, out_dtype, **asked)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash((type(self).__name__, self._identity()))


def check_assume(assume: Any) -> None:
    """LibraryError for what is no assumption."""
    if assume not in ASSUMPTIONS:
        raise library_error(f"assume={assume!r}", "'chain', or None", "Leave it out: unknown products are then errors.")


def _is_exact(value: Any) -> bool:
    """Whether what equals an argument of a kept plan has its types, too."""
    return {*map(type, value)} <= _EXACT if isinstance(value, tuple) else type(value) in _EXACT
