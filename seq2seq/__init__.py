"""RNN translators with attention: train, inspect and score them.

The names in ``__all__`` are all that a notebook needs; docs/python.md shows how to use them. Each
is imported on first use, so that ``import seq2seq`` alone does not import torch.

To read the code, follow a sentence through it:

    data/corpus.py         read sentence pairs from two files
    data/codec.py          turn sentences into tokens and ids, and back
    data/batching.py       turn ids into padded batches
    model/encoder.py       turn source ids into annotations
    attention/             turn annotations and a decoder state into a context
    model/decoder.py       turn contexts into logits
    search/                turn logits into translations
    evaluation/            turn translations into scores
    figures/               turn attention weights into pictures
    training/              update a model until its scores are good; knows no particular task
    tasks/translation.py   everything above as a task of the training loop
    runs/                  train, reproduce, compare and average whole runs

Shape letters; modules explain the others they use:

    B sentences in the batch    S source positions      T target positions
    V vocabulary entries        E embedding units       H decoder state units
    C annotation units          A attention units       O deep output units
    L layers                    G gates of a cell       Q queries per sentence
    N rows of a search: the live hypotheses of all sentences
    K hypotheses in the beam; in attention/, units of a projected key
"""

import importlib
from typing import Any

# Names of the public API, by the module that defines them.
_PUBLIC = {
    "seq2seq.api": ("load", "draw_alignment"),
    "seq2seq.search.translator": ("Translation", "Translator"),
    "seq2seq.evaluation.bleu": ("bleu", "chrf"),
    "seq2seq.evaluation.alignment": ("alignment_error_rate", "hard_alignment"),
    "seq2seq.attention.pooling": ("Attention", "MultiHeadAttention", "NoAttention"),
    "seq2seq.attention.sequences": ("SelfAttention", "BidirectionalAttention"),
    "seq2seq.attention.scoring": (
        *("AdditiveScore", "NormedAdditiveScore", "ConcatScore", "DotScore", "ScaledDotScore"),
        *("BilinearScore", "CosineScore", "GaussianScore", "LocationScore", "AverageScore"),
    ),
    "seq2seq.attention.distribution": (
        *("Soft", "LocalMonotonic", "LocalPredictive", "Hard", "Monotonic"),
    ),
    "seq2seq.attention.masking": ("masked_softmax", "masked_sparsemax", "masked_entmax15"),
}
_MODULES = {name: module for module, names in _PUBLIC.items() for name in names}

__all__ = sorted(_MODULES)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value = getattr(importlib.import_module(_MODULES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
