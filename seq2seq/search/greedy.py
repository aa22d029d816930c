"""Greedy search: the most probable token at each position."""

import torch
from torch import Tensor

from seq2seq.search.hypothesis import (
    Hypothesis,
    Limits,
    SearchState,
    StepFunction,
    length_penalty,
)


def greedy_search(
    step: StepFunction, state: SearchState, limits: Limits, device: torch.device | None = None
) -> list[Hypothesis]:
    """Find the greedy output of each sentence; finished sentences leave the batch.

    Args:
        step: log-probabilities of the next token.
        state: initial state, one row per sentence.
        limits: start and end of outputs.
        device: device of the tokens that ``step`` takes.
    """
    num_sentences = len(limits.max_lengths)
    totals = torch.zeros(num_sentences, dtype=torch.float64, device=device)
    live = torch.arange(num_sentences, device=device)
    chosen = torch.full((num_sentences,), limits.bos, device=device)
    tokens: list[Tensor] = []  # (B,) of each position; EOS after the end
    weights: list[Tensor] = []  # (B, S) of each position; 0 after the end
    while len(live):
        log_probs, state, step_weights = step(chosen, state)
        log_probs = limits.enforce(log_probs, live, len(tokens) + 1)
        chosen = _arg_max(log_probs)
        best = log_probs.gather(1, chosen.unsqueeze(1)).squeeze(1)
        chosen.masked_fill_(best.isnan(), limits.eos)  # a model that returns NaN ends at once
        totals[live] += best
        tokens.append(torch.full_like(totals, limits.eos, dtype=torch.long))
        tokens[-1][live] = chosen
        weights.append(step_weights.new_zeros(num_sentences, step_weights.shape[1]))
        weights[-1][live] = step_weights
        unfinished = (chosen != limits.eos).nonzero().squeeze(1)
        if len(unfinished) < len(live):
            live, chosen, state = live[unfinished], chosen[unfinished], state.select(unfinished)
    return _hypotheses(tokens, weights, totals, limits)


def _arg_max(rows: Tensor) -> Tensor:
    """Return the index of the first maximum, or of the first NaN, of each row: (N, V) -> (N,)."""
    if rows.device.type != "cpu":
        return rows.argmax(dim=1)
    # The arg-max of NumPy is vectorized and takes a seventh of the time of torch's.
    return torch.from_numpy(rows.detach().numpy().argmax(axis=1))


def _hypotheses(
    tokens: list[Tensor], weights: list[Tensor], totals: Tensor, limits: Limits
) -> list[Hypothesis]:
    """Turn the tokens and weights of each position into a hypothesis for each sentence."""
    if not tokens:
        return []
    ids, alignments = torch.stack(tokens, dim=1), torch.stack(weights, dim=1)
    lengths = (ids != limits.eos).sum(dim=1) + 1
    return [
        Hypothesis(
            row[:length],
            total,
            total / length_penalty(length, limits.length_penalty),
            alignments[sentence, :length],
        )
        for sentence, (row, length, total) in enumerate(
            zip(ids.tolist(), lengths.tolist(), totals.tolist(), strict=True)
        )
    ]
