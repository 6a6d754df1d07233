"""A search as a command asks for it: model, inputs and functions by their names, results as files in a folder."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from torch import nn

from gemmsim._files import write_text
from gemmsim.study.errors import StudyError
from gemmsim.study.files import make_folder, writing
from gemmsim.study.model_source import load_function
from gemmsim.study.tensor_files import tensor_file, tensor_shapes

from .errors import SearchWarning, refusal
from .least import search
from .metrics import METRICS
from .options import SearchOptions
from .result import SearchResult

__all__ = ["CONFIG", "PICTURE", "RESULT", "SearchRequest", "inputs_of", "run_request"]

#: Files of a search: what ``gemmsim emulate --config`` takes, all figures, the picture of the front.
CONFIG, RESULT, PICTURE = "config.json", "search.json", "front.svg"


@dataclass(frozen=True)
class SearchRequest:
    """The arguments of ``gemmsim search``.

    ``model``: "module:function" or "file.py:function", which returns the model, or the model and its inputs. ``inputs``
    and ``held_back``: files of tensors, one per batch. ``metric``: a name, or a function, named as the model is.

    Example:
        >>> gs.accumulator_search.SearchRequest("model.py:make", inputs=("batch.pt",)).order
        '{}'
    """

    model: str
    inputs: tuple[str, ...] = ()
    held_back: tuple[str, ...] = ()
    metric: str = "logit_err"
    at_most: float = 0.05
    ladder: str = "e5m1:e5m10"
    order: str = "{}"
    cost: str = "bits*macs"
    modules: tuple[str, ...] = ("*",)
    kinds: tuple[str, ...] = ("*",)
    reference: str = "native"
    method: str = "auto"
    seed: int = 0


def run_request(request: SearchRequest, folder: Path) -> SearchResult:
    """Searches, writes ``CONFIG``, ``RESULT`` and ``PICTURE`` into the folder, and returns what was found.

    It runs the user's own code. Without matplotlib there is no picture, and a ``SearchWarning``.

    Raises:
        StudyError: for missing functions and files, and a folder that cannot be written.
        SearchError: as ``search``, and for a function that gives no model or no inputs.

    Example:
        >>> import pathlib, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     made = pathlib.Path(folder, "made.py")
        ...     make = "torch.manual_seed(0) and torch.nn.Linear(8, 2), torch.ones(16, 8)"
        ...     _ = made.write_text(f"import torch; make = lambda: ({make})")
        ...     request = gs.accumulator_search.SearchRequest(f"{made}:make", at_most=0.9)
        ...     found = gs.accumulator_search.run_request(request, pathlib.Path(folder, "found"))
        ...     print([path.name for path in sorted(pathlib.Path(folder, "found").glob("*.json"))])
        ['config.json', 'search.json']
    """
    model, inputs = _model(request)
    held = inputs_of(request.held_back) if request.held_back else None
    options = SearchOptions(held_back=held, modules=request.modules, kinds=request.kinds, reference=request.reference,
                            method=request.method, seed=request.seed)  # fmt: skip
    named: Any = request.metric
    if named not in METRICS and ":" in named:
        named = load_function(named, "--metric")
    make_folder(folder)
    found = search(model, inputs, metric=named, at_most=request.at_most, ladder=request.ladder, order=request.order,
                   cost=request.cost, options=options)  # fmt: skip
    for name, text in ((CONFIG, found.config.to_json()), (RESULT, found.to_json())):
        with writing(folder / name):
            write_text(folder / name, text + "\n")
    if find_spec("matplotlib") is None:
        what = f"search: no {PICTURE}, which needs matplotlib. Install it with: pip install 'gemmsim[study]'."
        warnings.warn(what, SearchWarning, stacklevel=2)
    else:
        found.plot(folder / PICTURE)
    return found


def _model(request: SearchRequest) -> tuple[nn.Module, Any]:
    """The model, and the inputs of the files, or those that the function gave.

    Raises:
        SearchError: for a function that gives something else, and for inputs from both or from neither.
    """
    given = load_function(request.model, "the model")()
    model, inputs = given if isinstance(given, tuple) and len(given) == 2 else (given, None)
    if not isinstance(model, nn.Module):
        raise refusal(f"{request.model} returned a {type(model).__name__}", "a module, or (module, inputs)",
                      "Return the model that is searched.")  # fmt: skip
    if (inputs is None) != bool(request.inputs):
        both, neither = f"both {request.model} and --inputs", f"neither {request.model} nor --inputs"
        pair = both if request.inputs else neither
        raise refusal(f"inputs from {pair}",
                      "one of them", "Give --inputs FILE, or return (model, inputs).")  # fmt: skip
    return model, inputs_of(request.inputs) if inputs is None else inputs


def inputs_of(files: Sequence[str]) -> list[Any]:
    """A batch of each file: its tensor, or where a .safetensors file holds several, all by their names.

    Raises:
        StudyError: for files that cannot be read.
    """
    return [_batch(text) for text in files]


def _batch(text: str) -> Any:
    file = tensor_file(text)
    if file.path.suffix.lower() == ".safetensors" and not file.key and len(names := list(tensor_shapes(file.path))) > 1:
        return {name: tensor_file(f"{file.path}:{name}").load(whole=True) for name in names}
    try:
        return file.load(whole=True)
    except StudyError as error:
        raise StudyError(f"--inputs {text}: {error}") from None
