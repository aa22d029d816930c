"""Greedy search: at each position the most probable token."""

import torch
from torch import Tensor

from seq2seq.decoding.hypothesis import Hypothesis, Limits, State, Step, length_penalty


def greedy_search(
    step: Step, state: State, limits: Limits, device: torch.device | None = None
) -> list[Hypothesis]:
    """The greedy output of each sentence; a sentence that is finished leaves the batch.

    Args:
        step: log-probabilities of the next token; see ``hypothesis``.
        state: the first state, one row a sentence.
        limits: where outputs end.
        device: where ``step`` wants its tokens.
    """
    num_sentences = len(limits.max_lengths)
    totals = torch.zeros(num_sentences, dtype=torch.float64, device=device)
    live = torch.arange(num_sentences, device=device)
    chosen = torch.full((num_sentences,), limits.bos, device=device)
    tokens: list[Tensor] = []  # of each position; EOS again behind the end
    weights: list[Tensor] = []  # 0 behind the end
    while len(live):
        log_probs, state, looked = step(chosen, state)
        log_probs = limits.enforce(log_probs, live, len(tokens) + 1)
        # As ``log_probs.max(dim=1)``, in a third of its time.
        best = log_probs.amax(dim=1)
        ids = torch.arange(log_probs.shape[1], device=device, dtype=torch.int32)
        chosen = torch.where(log_probs == best.unsqueeze(1), ids, len(ids)).amin(dim=1).long()
        chosen.masked_fill_(chosen == len(ids), limits.eos)  # where a broken model has NaN
        totals[live] += best
        tokens.append(torch.full_like(totals, limits.eos, dtype=torch.long))
        tokens[-1][live] = chosen
        weights.append(looked.new_zeros(num_sentences, looked.shape[1]))
        weights[-1][live] = looked
        going_on = (chosen != limits.eos).nonzero().squeeze(1)
        if len(going_on) < len(live):
            live, chosen, state = live[going_on], chosen[going_on], state.select(going_on)
    return _hypotheses(tokens, weights, totals, limits)


def _hypotheses(
    tokens: list[Tensor], weights: list[Tensor], totals: Tensor, limits: Limits
) -> list[Hypothesis]:
    """From what each position had for all sentences to what each sentence had."""
    if not tokens:
        return []
    ids, looked = torch.stack(tokens, dim=1), torch.stack(weights, dim=1)
    lengths = (ids != limits.eos).sum(dim=1) + 1
    return [
        Hypothesis(
            row[:length],
            total,
            total / length_penalty(length, limits.length_penalty),
            looked[sentence, :length],
        )
        for sentence, (row, length, total) in enumerate(
            zip(ids.tolist(), lengths.tolist(), totals.tolist(), strict=True)
        )
    ]
