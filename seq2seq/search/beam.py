"""Beam search in which a finished hypothesis keeps its slot of the beam."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from seq2seq.search.hypothesis import (
    Hypothesis,
    Limits,
    SearchState,
    StepFunction,
    length_penalty,
)


class Position(NamedTuple):
    """The K hypotheses of each beam after one position, best first."""

    tokens: Tensor  # last token, (B, K)
    parents: Tensor  # slot of the previous position that each one continues, (B, K)
    finished: Tensor  # log-probabilities of those that end here, -inf for the others, (B, K)
    rows: Tensor  # row of ``weights`` of each slot of the previous position, (B, K)
    weights: Tensor  # attention weights with which the tokens were chosen, (N, S)


def beam_search(
    step: StepFunction,
    state: SearchState,
    limits: Limits,
    beam_size: int,
    num_best: int = 1,
    device: torch.device | None = None,
) -> list[list[Hypothesis]]:
    """Find the best outputs of each sentence, best first (Graves 2012; Sutskever et al. 2014).

    The beam has ``beam_size`` slots. A finished hypothesis keeps its slot, so fewer are extended
    from then on, as in GroundHog (the paper's own program). A beam of 1 is greedy search; a beam as
    wide as the space is exhaustive search. A sentence leaves the batch once none of its live
    hypotheses can enter its ``num_best``: log-probabilities only decrease, and the longest output
    has the largest divisor, so ``log_prob / length_penalty(max_length)`` bounds the final score.

    A step has a row for each live hypothesis only, N in total; B sentences have tables (B, K) of
    their slots.

    Args:
        step: log-probabilities of the next token.
        state: initial state, one row per sentence.
        limits: start and end of outputs.
        beam_size: number of slots per sentence, K.
        num_best: number of outputs per sentence; fewer where there are fewer.
        device: device of the tokens that ``step`` takes.
    """
    penalties = [length_penalty(n, limits.length_penalty) for n in limits.max_lengths]
    largest = torch.tensor(penalties, dtype=torch.float64, device=device).unsqueeze(1)
    totals = largest.new_full((len(penalties), beam_size), float("-inf"))  # -inf: slot not live
    totals[:, 0] = 0.0
    best = largest.new_full((len(penalties), num_best), float("-inf"))  # scores of finished ones
    num_slots = torch.full_like(largest, beam_size, dtype=torch.long)
    tokens = torch.full_like(totals, limits.bos, dtype=torch.long)
    slots = torch.arange(beam_size, device=device)
    live = (totals > float("-inf")).flatten().nonzero().squeeze(1)
    history: list[Position] = []
    while len(live):
        log_probs, state, weights = step(tokens.flatten()[live], state)
        length = len(history) + 1
        log_probs = limits.enforce(log_probs, live // beam_size, length)
        totals, tokens, parents = _extend(log_probs, totals, live)
        totals = totals.masked_fill(slots >= num_slots, float("-inf"))

        finished = totals.masked_fill(tokens != limits.eos, float("-inf"))
        scores = finished / length_penalty(length, limits.length_penalty)
        best = torch.cat([best, scores], dim=1).topk(num_best).values
        num_slots = num_slots - (finished > float("-inf")).sum(dim=1, keepdim=True)
        rows = torch.zeros_like(tokens).flatten()
        rows[live] = torch.arange(len(live), device=device)
        rows = rows.view_as(tokens)
        history.append(Position(tokens, parents, finished, rows, weights))

        totals = totals.masked_fill(tokens == limits.eos, float("-inf"))
        can_win = (totals / largest > best[:, -1:]).any(dim=1, keepdim=True)
        totals = totals.masked_fill(~can_win, float("-inf"))
        live = (totals > float("-inf")).flatten().nonzero().squeeze(1)
        state = state.select(rows.gather(1, parents).flatten()[live])
    return _trace_back(history, limits, num_best)


def _extend(log_probs: Tensor, totals: Tensor, live: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Extend the hypotheses of every sentence by one token, and keep the best K of the results.

    Args:
        log_probs: log-probabilities of the next token of the live hypotheses, (N, V).
        totals: log-probabilities of the hypotheses so far, (B, K).
        live: index in B * K of each row of ``log_probs``, (N,).

    Returns:
        Log-probabilities in decreasing order, last tokens and parent slots, each (B, K).
    """
    num_sentences, beam_size = totals.shape
    found, ids = log_probs.topk(min(beam_size, log_probs.shape[1]))
    sums = totals.new_full((totals.numel(), found.shape[1]), float("-inf"))
    sums[live] = totals.flatten()[live].unsqueeze(1) + found
    tokens = ids.new_zeros(sums.shape)
    tokens[live] = ids
    # Stable: among equals the earlier slot wins, whatever else is in the batch.
    ordered = sums.view(num_sentences, -1).sort(dim=1, descending=True, stable=True)
    chosen = ordered.indices[:, :beam_size]
    return (
        ordered.values[:, :beam_size],
        tokens.view(num_sentences, -1).gather(1, chosen),
        chosen // found.shape[1],
    )


def _trace_back(history: list[Position], limits: Limits, num_best: int) -> list[list[Hypothesis]]:
    """Read the best finished hypotheses of each sentence from their last token to their first."""
    if not history:
        return []
    beam_size = history[0].tokens.shape[1]
    finished = torch.stack([position.finished for position in history], dim=1)  # (B, T, K)
    divisors = [length_penalty(n + 1, limits.length_penalty) for n in range(len(history))]
    scores = finished / finished.new_tensor(divisors).unsqueeze(1)
    # Stable: among equals the hypothesis that ended first is better.
    ordered = scores.flatten(1).sort(dim=1, descending=True, stable=True)
    best, chosen = ordered.values[:, :num_best], ordered.indices[:, :num_best]
    log_probs = finished.flatten(1).gather(1, chosen)
    last, slots = chosen // beam_size, chosen % beam_size
    tokens, weights = [], []
    for number, position in reversed(list(enumerate(history))):
        tokens.append(position.tokens.gather(1, slots))
        parents = position.parents.gather(1, slots)
        weights.append(position.weights[position.rows.gather(1, parents)])
        slots = torch.where(number <= last, parents, slots)  # unchanged after the hypothesis's end
    ids = torch.stack(tokens[::-1], dim=2).tolist()
    alignments = torch.stack(weights[::-1], dim=2)
    lengths = (last + 1).tolist()
    found = [
        [
            Hypothesis(ids[b][n][:length], log_prob, score, alignments[b, n, :length])
            for n, (length, log_prob, score) in enumerate(
                zip(lengths[b], row_log_probs, row_scores, strict=True)
            )
            if score > float("-inf")
        ]
        for b, (row_log_probs, row_scores) in enumerate(
            zip(log_probs.tolist(), best.tolist(), strict=True)
        )
    ]
    # If the model returns NaN, no hypothesis has a score; return an empty one.
    empty = [
        Hypothesis([limits.eos], math.nan, math.nan, weights[:1]) for weights in alignments[:, 0]
    ]
    return [hypotheses or [empty_one] for hypotheses, empty_one in zip(found, empty, strict=True)]
