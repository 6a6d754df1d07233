"""The error and the warning of a search, with the number that caused them."""

from __future__ import annotations

__all__ = ["SearchError", "SearchWarning", "refusal"]


class SearchError(ValueError):
    """A search that is not possible: the message says what was requested, what is allowed and what to do.

    Example:
        >>> gs.search(torch.nn.ReLU(), torch.ones(4, 8))
        Traceback (most recent call last):
            ...
        gemmsim.accumulator_search.errors.SearchError: search: a model without matched products (0 of 0); allowed: ...
          Nothing was multiplied at all; gemmsim.audit(model, x) lists what a model multiplies.
    """


class SearchWarning(UserWarning):
    """A search whose figures rest on too little data, such as one calibration sample.

    Example:
        >>> import warnings
        >>> with warnings.catch_warnings(record=True) as caught:
        ...     warnings.simplefilter("always")
        ...     model = torch.nn.utils.skip_init(torch.nn.Linear, 8, 2).requires_grad_(False)
        ...     model.weight[:], model.bias[:] = 0.3, 0.1
        ...     found = gs.search(model, torch.ones(1, 8))
        >>> caught[0].category.__name__
        'SearchWarning'
    """


def refusal(asked: str, allowed: str, do: str) -> SearchError:
    """The ``SearchError`` about what was asked, with what is allowed and what to do."""
    return SearchError(f"search: {asked}; allowed: {allowed}.\n  {do}")
