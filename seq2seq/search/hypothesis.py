"""What a search finds, and how hypotheses of different length are compared.

A search knows no model. It is given

    step(tokens (N,), state) -> log_probs (N, V), state, weights (N, S)

and a first state whose ``select(rows)`` repeats, reorders or leaves out rows.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor


class State(Protocol):
    """What a step hands to the next one, a row for each live hypothesis."""

    def select(self, rows: Tensor) -> "State": ...


Step = Callable[[Tensor, Any], tuple[Tensor, Any, Tensor]]


class Hypothesis(NamedTuple):
    """One output sequence."""

    tokens: list[int]  # ends with EOS
    log_prob: float  # sum over all tokens, EOS included, in nats
    score: float  # log_prob / length_penalty(number of tokens)
    weights: Tensor  # where each token looked, (T, S)


class Limits(NamedTuple):
    """Where outputs end."""

    bos: int
    eos: int
    max_lengths: list[int]  # most tokens of each sentence, EOS included
    length_penalty: float

    def enforce(self, log_probs: Tensor, sentences: Tensor, length: int) -> Tensor:
        """Log-probabilities (N, V) of the token number ``length`` of ``sentences`` (N,), where a
        hypothesis at its last allowed position can only end.

        So every output ends with EOS, and its log-probability is the model's own.
        """
        if length not in self.max_lengths:
            return log_probs
        is_last = log_probs.new_tensor(self.max_lengths, dtype=torch.long)[sentences] == length
        goes_on = torch.arange(log_probs.shape[1], device=log_probs.device) != self.eos
        return log_probs.masked_fill(is_last.unsqueeze(1) & goes_on, float("-inf"))


def length_penalty(length: int, alpha: float) -> float:
    """Divisor of a hypothesis's log-probability, so that long ones can compete.

        lp(n) = ((5 + n) / 6) ** alpha          Wu et al. 2016, arXiv:1609.08144, eq. 14

    Args:
        length: tokens in the hypothesis, the end-of-sentence token included.
        alpha: 0 compares plain log-probabilities, 1 is close to the mean per token.

    Raises:
        ValueError: ``alpha`` is negative, which would reward short hypotheses twice.
    """
    if alpha < 0:
        raise ValueError(f"decoding.length_penalty={alpha} must be at least 0.")
    return ((5 + length) / 6) ** alpha
