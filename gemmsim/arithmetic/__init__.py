"""What a matrix product means: accumulators and ``GemmSpec``, as values.

They are frozen, hashable and validated when built; ``parse(str(x)) == x`` and ``from_json(x.to_json()) == x``. This
package only needs the standard library.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._lazy import exports
from .accumulator import Accumulator as Accumulator
from .accumulator import constructors as constructors
from .accumulator import register as register
from .chunked import Chunked as Chunked
from .chunked import Promote as Promote
from .compensated import Compensated as Compensated
from .compensated import FastTwoSum as FastTwoSum
from .compensated import Kahan as Kahan
from .compensated import Neumaier as Neumaier
from .compensated import TwoSum as TwoSum
from .custom import Custom as Custom
from .custom import Swapped as Swapped
from .custom import define as define
from .errors import SelectError as SelectError
from .errors import SpecError as SpecError
from .errors import SpecFormatError as SpecFormatError
from .errors import UnsupportedSpec as UnsupportedSpec
from .exact_sum import Binned as Binned
from .exact_sum import Exact as Exact
from .fused import Fused as Fused
from .grammar import parse_accumulator as parse_accumulator
from .hardware import Hardware as Hardware
from .integer import Fixed as Fixed
from .integer import Integer as Integer
from .integer_width_bounds import min_accumulator_bits as min_accumulator_bits
from .integer_width_bounds import overflow_certificate as overflow_certificate
from .interleaved import Interleaved as Interleaved
from .lookup import Lookup as Lookup
from .lookup import ProductTable as ProductTable
from .lookup import table as table
from .pairwise import Pairwise as Pairwise
from .palette import Palette as Palette
from .scaled import Scaled as Scaled
from .sequential import Sequential as Sequential
from .shuffled import Shuffled as Shuffled
from .spec import GemmSpec as GemmSpec
from .spec import SpecLike as SpecLike
from .splitk import SplitK as SplitK
from .tree import Tree as Tree

if not TYPE_CHECKING:
    __getattr__, __dir__ = exports(__name__)
