"""Beam search: several hypotheses at once, a finished one keeping its place in the beam."""

from typing import NamedTuple

import torch
from torch import Tensor

from seq2seq.decoding.hypothesis import Hypothesis, Limits, State, Step, length_penalty


class Position(NamedTuple):
    """What was chosen at one position, a row for each hypothesis that lived on."""

    tokens: list[int]
    parents: list[int]  # the row of the position before that each one continues
    weights: Tensor  # where the rows of the position *before* looked to choose, (N, S)


class Candidate(NamedTuple):
    """A hypothesis continued by one token."""

    sentence: int
    log_prob: float
    token: int
    parent: int  # the row that it continues


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

    At its last allowed position a hypothesis can only end, so that every output ends with EOS
    and its log-probability is the model's own.

    Args:
        step: log-probabilities of the next token; see ``hypothesis``.
        state: the first state, one row a sentence.
        limits: where outputs end.
        beam_size: hypotheses followed for each sentence.
        num_best: outputs wanted for each sentence; fewer where there are not so many.
        device: where ``step`` wants its tokens.
    """
    num_sentences = len(limits.max_lengths)
    finished: list[list[Hypothesis]] = [[] for _ in range(num_sentences)]
    rows = [Candidate(sentence, 0.0, limits.bos, sentence) for sentence in range(num_sentences)]
    history: list[Position] = []
    while rows:
        tokens = torch.tensor([row.token for row in rows], device=device)
        log_probs, state, weights = step(tokens, state)
        candidates = _candidates(log_probs, rows, limits, beam_size, len(history) + 1)
        places = [beam_size - len(done) for done in finished]
        going_on: list[Candidate] = []
        for candidate in candidates:
            sentence = candidate.sentence
            if places[sentence] == 0:
                continue
            places[sentence] -= 1
            if candidate.token == limits.eos:
                finished[sentence].append(_finish(candidate, history, weights, limits))
            else:
                going_on.append(candidate)
        rows = _still_promising(going_on, finished, limits, num_best)
        parents = [row.parent for row in rows]
        history.append(Position([row.token for row in rows], parents, weights))
        state = state.select(torch.tensor(parents, dtype=torch.long, device=device))
    return [sorted(done, key=lambda h: h.score, reverse=True)[:num_best] for done in finished]


def _candidates(
    log_probs: Tensor, rows: list[Candidate], limits: Limits, beam_size: int, length: int
) -> list[Candidate]:
    """The best continuations of every row, most probable first."""
    totals = log_probs.new_tensor([row.log_prob for row in rows], dtype=torch.float64)
    best, tokens = log_probs.topk(min(beam_size, log_probs.shape[1]), dim=-1)
    sums = (totals.unsqueeze(1) + best).tolist()
    endings = (totals + log_probs[:, limits.eos]).tolist()
    found = []
    for index, (row, row_sums, row_tokens) in enumerate(
        zip(rows, sums, tokens.tolist(), strict=True)
    ):
        if length == limits.max_lengths[row.sentence]:
            row_sums, row_tokens = [endings[index]], [limits.eos]
        found += [
            Candidate(row.sentence, total, token, index)
            for total, token in zip(row_sums, row_tokens, strict=True)
            if total != float("-inf")
        ]
    # Stable: among equals the earlier row wins, whatever else is in the batch.
    return sorted(found, key=lambda candidate: candidate.log_prob, reverse=True)


def _finish(
    ending: Candidate, history: list[Position], weights: Tensor, limits: Limits
) -> Hypothesis:
    """Follow a hypothesis back to its beginning."""
    tokens, looked, row = [ending.token], [weights[ending.parent]], ending.parent
    for position in reversed(history):
        tokens.append(position.tokens[row])
        row = position.parents[row]
        looked.append(position.weights[row])
    tokens.reverse()
    looked.reverse()
    score = ending.log_prob / length_penalty(len(tokens), limits.length_penalty)
    return Hypothesis(tokens, ending.log_prob, score, looked)


def _still_promising(
    rows: list[Candidate], finished: list[list[Hypothesis]], limits: Limits, num_best: int
) -> list[Candidate]:
    """The rows of sentences in which some row may still enter the best ``num_best``."""
    bars = [
        sorted((h.score for h in done), reverse=True)[num_best - 1]
        if len(done) >= num_best
        else float("-inf")
        for done in finished
    ]
    hopeful = {
        row.sentence
        for row in rows
        if row.log_prob / length_penalty(limits.max_lengths[row.sentence], limits.length_penalty)
        > bars[row.sentence]
    }
    return [row for row in rows if row.sentence in hopeful]
