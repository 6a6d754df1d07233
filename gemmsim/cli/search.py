"""``gemmsim search``: the narrowest accumulators of a model, as a config, a table and a picture."""

from __future__ import annotations

import warnings
from pathlib import Path

from gemmsim.accumulator_search import SearchRequest, SearchWarning, run_request

from .console import say, say_json, warn

__all__ = ["search_command_line"]


def search_command_line(request: SearchRequest, folder: Path, *, as_json: bool) -> None:
    """Searches and says what was found; warnings of the search go to standard error in one line each.

    Raises:
        SearchError, StudyError: as ``run_request``.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", SearchWarning)
        found = run_request(request, folder)
    for one in caught:
        warn(f"warning: {one.message}")
    if as_json:
        say_json(found.to_dict())
        return
    say(str(found))
    say(f"\nIn '{folder}': config.json for gemmsim emulate --config, search.json, and the picture front.svg.")
