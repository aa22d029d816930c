"""The interface between a search and a model, and the score by which hypotheses are compared.

A search does not know the model. It gets a step function and an initial state.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor


class SearchState(Protocol):
    """State that a step passes on to the next one, with a row for each live hypothesis."""

    def select(self, rows: Tensor) -> "SearchState":
        """Select rows by index (N,); an index may occur more than once."""


# step(tokens (N,), state) -> log_probs (N, V) of the next token, next state, weights (N, S)
StepFunction = Callable[[Tensor, Any], tuple[Tensor, Any, Tensor]]


class Hypothesis(NamedTuple):
    """One output sequence."""

    tokens: list[int]  # ends with EOS
    log_prob: float  # sum over all tokens, including EOS, in nats
    score: float  # log_prob / length_penalty(number of tokens)
    weights: Tensor  # attention weights of each token, (T, S)


class Limits(NamedTuple):
    """Start and end of outputs."""

    bos: int
    eos: int
    max_lengths: list[int]  # maximum number of tokens of each sentence, including EOS
    length_penalty: float

    def enforce(self, log_probs: Tensor, sentences: Tensor, length: int) -> Tensor:
        """Forbid all tokens but EOS at the last allowed position.

        So every output ends with EOS, and its log-probability is that of the model.

        Args:
            log_probs: of the next token of each hypothesis, (N, V).
            sentences: index of the sentence of each hypothesis, (N,).
            length: number of tokens including the next one.
        """
        if length not in self.max_lengths:
            return log_probs
        is_last = log_probs.new_tensor(self.max_lengths, dtype=torch.long)[sentences] == length
        is_not_eos = torch.arange(log_probs.shape[1], device=log_probs.device) != self.eos
        return log_probs.masked_fill(is_last.unsqueeze(1) & is_not_eos, float("-inf"))


def length_penalty(length: int, alpha: float) -> float:
    """Return the divisor of a log-probability that lets long hypotheses compete.

        lp(n) = ((5 + n) / 6) ** alpha          Wu et al. 2016, arXiv:1609.08144, eq. 14

    Args:
        length: number of tokens in the hypothesis, including EOS.
        alpha: 0 compares plain log-probabilities, 1 is close to the mean per token.

    Raises:
        ValueError: ``alpha`` is negative, which would reward short hypotheses twice.
    """
    if alpha < 0:
        raise ValueError(f"decoding.length_penalty={alpha} must be at least 0.")
    return ((5 + length) / 6) ** alpha
