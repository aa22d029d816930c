"""Beam search: several hypotheses at once, a finished one keeping its place in the beam."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from seq2seq.search.hypothesis import Hypothesis, Limits, State, Step, length_penalty


class Position(NamedTuple):
    """What was chosen at one position, best first: K places in the beam of each sentence."""

    tokens: Tensor  # (B, K)
    parents: Tensor  # the place, one position before, that each one continues, (B, K)
    endings: Tensor  # log-probabilities of those that end here, -inf at the others, (B, K)
    rows: Tensor  # of ``weights`` for the places of the position before, (B, K)
    weights: Tensor  # where those looked to choose, (N, S)


def beam_search(
    step: Step,
    state: State,
    limits: Limits,
    beam_size: int,
    num_best: int = 1,
    device: torch.device | None = None,
) -> list[list[Hypothesis]]:
    """The best outputs of each sentence, best first (Graves 2012; Sutskever et al. 2014).

    ``beam_size`` hypotheses are followed. One that ends keeps its place, so fewer are followed
    after it, as in GroundHog (the paper's own program). A beam of 1 is greedy search; a beam as
    wide as the space is exhaustive search. A sentence leaves the batch once no live hypothesis
    can still enter its ``num_best``: log-probabilities only fall, and the longest output has the
    largest divisor, so ``log_prob / length_penalty(max_length)`` bounds what may become of it.

    Only the live hypotheses of all sentences, N of them, are rows of a step; what is said of
    their places is a table (B, K), for B sentences.

    Args:
        step: log-probabilities of the next token; see ``hypothesis``.
        state: the first state, one row a sentence.
        limits: where outputs end.
        beam_size: hypotheses followed for each sentence.
        num_best: outputs wanted for each sentence; fewer where there are not so many.
        device: where ``step`` wants its tokens.
    """
    penalties = [length_penalty(n, limits.length_penalty) for n in limits.max_lengths]
    largest = torch.tensor(penalties, dtype=torch.float64, device=device).unsqueeze(1)
    totals = largest.new_full((len(penalties), beam_size), float("-inf"))  # -inf: a place not live
    totals[:, 0] = 0.0
    best = largest.new_full((len(penalties), num_best), float("-inf"))  # scores of the finished
    num_places = torch.full_like(largest, beam_size, dtype=torch.long)
    tokens = torch.full_like(totals, limits.bos, dtype=torch.long)
    places = torch.arange(beam_size, device=device)
    live = (totals > float("-inf")).flatten().nonzero().squeeze(1)
    history: list[Position] = []
    while len(live):
        log_probs, state, weights = step(tokens.flatten()[live], state)
        length = len(history) + 1
        log_probs = limits.enforce(log_probs, live // beam_size, length)
        totals, tokens, parents = _continue(log_probs, totals, live)
        totals = totals.masked_fill(places >= num_places, float("-inf"))

        endings = totals.masked_fill(tokens != limits.eos, float("-inf"))
        scores = endings / length_penalty(length, limits.length_penalty)
        best = torch.cat([best, scores], dim=1).topk(num_best).values
        num_places = num_places - (endings > float("-inf")).sum(dim=1, keepdim=True)
        rows = torch.zeros_like(tokens).flatten()
        rows[live] = torch.arange(len(live), device=device)
        rows = rows.view_as(tokens)
        history.append(Position(tokens, parents, endings, rows, weights))

        totals = totals.masked_fill(tokens == limits.eos, float("-inf"))
        hopeful = (totals / largest > best[:, -1:]).any(dim=1, keepdim=True)
        totals = totals.masked_fill(~hopeful, float("-inf"))
        live = (totals > float("-inf")).flatten().nonzero().squeeze(1)
        state = state.select(rows.gather(1, parents).flatten()[live])
    return _follow_back(history, limits, num_best)


def _continue(log_probs: Tensor, totals: Tensor, live: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The best continuations of every sentence by one token, as many as it has places.

    Args:
        log_probs: of the next token of the live hypotheses, (N, V).
        totals: log-probabilities of the hypotheses so far, (B, K).
        live: which of the B * K places the rows of ``log_probs`` are, (N,).

    Returns:
        Their log-probabilities, falling, their tokens and the places that they continue, (B, K).
    """
    num_sentences, beam_size = totals.shape
    found, ids = log_probs.topk(min(beam_size, log_probs.shape[1]))
    sums = totals.new_full((totals.numel(), found.shape[1]), float("-inf"))
    sums[live] = totals.flatten()[live].unsqueeze(1) + found
    tokens = ids.new_zeros(sums.shape)
    tokens[live] = ids
    # Stable: among equals the earlier place wins, whatever else is in the batch.
    ordered = sums.view(num_sentences, -1).sort(dim=1, descending=True, stable=True)
    chosen = ordered.indices[:, :beam_size]
    return (
        ordered.values[:, :beam_size],
        tokens.view(num_sentences, -1).gather(1, chosen),
        chosen // found.shape[1],
    )


def _follow_back(history: list[Position], limits: Limits, num_best: int) -> list[list[Hypothesis]]:
    """The best finished hypotheses of each sentence, each read from its end to its beginning."""
    if not history:
        return []
    beam_size = history[0].tokens.shape[1]
    endings = torch.stack([position.endings for position in history], dim=1)  # (B, T, K)
    divisors = [length_penalty(n + 1, limits.length_penalty) for n in range(len(history))]
    scores = endings / endings.new_tensor(divisors).unsqueeze(1)
    # Stable: among equals the one that ended first is the better one.
    ordered = scores.flatten(1).sort(dim=1, descending=True, stable=True)
    best, chosen = ordered.values[:, :num_best], ordered.indices[:, :num_best]
    log_probs = endings.flatten(1).gather(1, chosen)
    last, places = chosen // beam_size, chosen % beam_size
    tokens, weights = [], []
    for number, position in reversed(list(enumerate(history))):
        tokens.append(position.tokens.gather(1, places))
        before = position.parents.gather(1, places)
        weights.append(position.weights[position.rows.gather(1, before)])
        places = torch.where(number <= last, before, places)  # it does not yet begin behind its end
    ids = torch.stack(tokens[::-1], dim=2).tolist()
    looked = torch.stack(weights[::-1], dim=2)
    lengths = (last + 1).tolist()
    found = [
        [
            Hypothesis(ids[b][n][:length], log_prob, score, looked[b, n, :length])
            for n, (length, log_prob, score) in enumerate(
                zip(lengths[b], row_log_probs, row_scores, strict=True)
            )
            if score > float("-inf")
        ]
        for b, (row_log_probs, row_scores) in enumerate(
            zip(log_probs.tolist(), best.tolist(), strict=True)
        )
    ]
    # A broken model has NaN, of which none is the best.
    broken = [Hypothesis([limits.eos], math.nan, math.nan, weights[:1]) for weights in looked[:, 0]]
    return [bests or [nothing] for bests, nothing in zip(found, broken, strict=True)]
