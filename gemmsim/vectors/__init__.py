"""Vectors for hardware test benches: operands, result and the accumulator after every step, as files.

    gs.export_vectors(a, b, "int8 : int(18)", "vectors", steps=True)

You can read the files with ``$readmemh`` or as JSON (docs/howto/test_bench.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._lazy import exports

if TYPE_CHECKING:
    from .captured import CapturedProduct as CapturedProduct
    from .captured import captured_product as captured_product
    from .directed import Directed as Directed
    from .directed import directed_cases as directed_cases
    from .errors import VectorsError as VectorsError
    from .exporting import export_directed as export_directed
    from .exporting import export_vectors as export_vectors
    from .operands import scaled_to as scaled_to
    from .registers import Register as Register
    from .registers import registers_of as registers_of
    from .words import MOST_WORDS as MOST_WORDS
    from .words import Words as Words
    from .words import operand_words as operand_words
    from .words import result_words as result_words
else:
    __getattr__, __dir__ = exports(__name__)
