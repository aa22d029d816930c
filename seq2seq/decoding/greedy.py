"""Greedy search: at each position the most probable token."""

import torch
from torch import Tensor

from seq2seq.decoding.hypothesis import Hypothesis, Limits, State, Step, length_penalty


def greedy_search(
    step: Step, state: State, limits: Limits, device: torch.device | None = None
) -> list[Hypothesis]:
    """The greedy output of each sentence; a sentence that is finished leaves the batch.

    At its last allowed position a sentence can only end, so that every output ends with EOS
    and its log-probability is the model's own.

    Args:
        step: log-probabilities of the next token; see ``hypothesis``.
        state: the first state, one row a sentence.
        limits: where outputs end.
        device: where ``step`` wants its tokens.
    """
    num_sentences = len(limits.max_lengths)
    tokens: list[list[int]] = [[] for _ in range(num_sentences)]
    weights: list[list[Tensor]] = [[] for _ in range(num_sentences)]
    totals = [0.0] * num_sentences
    live = list(range(num_sentences))
    previous = torch.full((num_sentences,), limits.bos, device=device)
    while live:
        log_probs, state, looked = step(previous, state)
        best, chosen = log_probs.max(dim=-1)
        ending = log_probs[:, limits.eos].tolist()
        going_on = []
        for row, (sentence, log_prob, token) in enumerate(
            zip(live, best.tolist(), chosen.tolist(), strict=True)
        ):
            if len(tokens[sentence]) + 1 == limits.max_lengths[sentence]:
                log_prob, token = ending[row], limits.eos
            tokens[sentence].append(token)
            weights[sentence].append(looked[row])
            totals[sentence] += log_prob
            if token != limits.eos:
                going_on.append(row)
        if len(going_on) < len(live):
            live = [live[row] for row in going_on]
            rows = torch.tensor(going_on, dtype=torch.long, device=device)
            state, chosen = state.select(rows), chosen[rows]
        previous = chosen
    return [
        Hypothesis(ids, total, total / length_penalty(len(ids), limits.length_penalty), looked)
        for ids, total, looked in zip(tokens, totals, weights, strict=True)
    ]
