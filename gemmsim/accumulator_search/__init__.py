"""Finds the narrowest accumulators, layer by layer, for which the error of a model stays below a limit.

    found = gs.search(model, inputs, at_most=0.05, ladder="e5m1:e5m10", order="chunked(64, {})")
    print(found)                            # the choice, and the error on inputs that took no part
    with gs.emulate(found.config): ...      # or gs.convert(model, found.config)

``gemmsim.search`` is the function ``search`` of this package. See docs/howto/narrowest_accumulators.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._lazy import exports

if TYPE_CHECKING:
    from .command import SearchRequest as SearchRequest
    from .command import run_request as run_request
    from .errors import SearchError as SearchError
    from .errors import SearchWarning as SearchWarning
    from .findings import FrontPoint as FrontPoint
    from .findings import LayerRow as LayerRow
    from .least import search as search
    from .metrics import METRICS as METRICS
    from .options import SearchOptions as SearchOptions
    from .result import SearchResult as SearchResult
else:
    __getattr__, __dir__ = exports(__name__)
