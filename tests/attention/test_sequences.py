"""Attention between whole sequences, compared with loops over single positions."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from inputs import lively, random
from torch.testing import assert_close

from seq2seq.attention.distribution import Hard, Soft
from seq2seq.attention.pooling import Attention, MultiHeadAttention
from seq2seq.attention.scoring import (
    AdditiveScore,
    BilinearScore,
    ScaledDotScore,
)
from seq2seq.attention.sequences import BidirectionalAttention, SelfAttention

B, S, C = 3, 5, 6
MASK = torch.arange(S) < torch.tensor([[5], [2], [0]])

ATTENTIONS = {
    "additive": lambda: Attention(AdditiveScore(C, C, 7)),
    "bilinear, sparsemax": lambda: Attention(BilinearScore(C, C), Soft("sparsemax")),
    "additive, hard": lambda: Attention(AdditiveScore(C, C, 7), Hard(1.0)),
    "three heads": lambda: MultiHeadAttention([ScaledDotScore() for _ in range(3)], C, C),
}
every_attention = pytest.mark.parametrize("name", ATTENTIONS)
either_way = pytest.mark.parametrize("causal", [False, True], ids=["whole", "causal"])


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(1)


# Self-attention


@pytest.mark.guarantee(
    "No position reads later target tokens, and single steps equal the unrolled decoder."
)
@every_attention
@either_way
def test_self_attention_equals_single_queries_to_the_visible_positions(name, causal):
    """Padding neither attends nor is attended to; a causal position sees no later one."""
    attention, sequence = lively(ATTENTIONS[name]()).eval(), random(B, S, C)
    contexts, weights = SelfAttention(attention, causal)(sequence, MASK)
    keys = attention.project(sequence)
    for i in range(S):
        visible = MASK & (torch.arange(S) <= i) if causal else MASK
        context, row = attention(sequence[:, i], keys, sequence, visible & MASK[:, i : i + 1])
        assert_close(contexts[:, i], context)
        assert_close(weights[:, i], row)
    assert (contexts[~MASK] == 0).all()
    assert (weights[~MASK] == 0).all()
    assert (weights.transpose(1, 2)[~MASK] == 0).all()
    assert_close(weights.sum(dim=2), MASK.double())
    assert not causal or (weights.triu(1) == 0).all()


@either_way
def test_self_attention_gradients_are_zero_at_padding(causal):
    attention = SelfAttention(lively(ATTENTIONS["additive"]()), causal)
    sequence = random(B, S, C).requires_grad_()
    contexts, weights = attention(sequence, MASK)
    (contexts.square().sum() + weights.square().sum()).backward()
    assert sequence.grad.isfinite().all()
    assert (sequence.grad[~MASK] == 0).all()
    assert (sequence.grad[MASK] != 0).any(dim=1).all()


# Attention between two sequences


@pytest.mark.parametrize(
    "score", [BilinearScore(4, C), AdditiveScore(4, C, 7)], ids=["bilinear", "additive"]
)
@settings(max_examples=20)
@given(
    lengths=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=3),
    padding=st.tuples(st.integers(0, 2), st.integers(0, 2)),
    trial=st.integers(0, 999),
)
def test_both_directions_normalize_one_matrix_of_energies(score, lengths, padding, trial):
    """Each pair of positions is scored alone, each sentence without its padding."""
    torch.manual_seed(trial)
    score = lively(score)
    ends = torch.tensor(lengths)
    m, n = (ends.amax(dim=0) + torch.tensor(padding)).clamp(min=1).tolist()
    first, second = random(len(lengths), m, 4), random(len(lengths), n, C)
    first_mask, second_mask = torch.arange(m) < ends[:, :1], torch.arange(n) < ends[:, 1:]
    (for_first, forward), (for_second, backward) = BidirectionalAttention(score)(
        first, second, first_mask, second_mask
    )
    expected = [torch.zeros_like(found) for found in (forward, backward)]
    for b, (i_end, j_end) in enumerate(lengths):
        energies = torch.zeros(i_end, j_end, dtype=torch.float64)
        for i in range(i_end):
            for j in range(j_end):
                pair = score(first[b, i][None], score.project(second[b, j][None, None]))
                energies[i, j] = pair.item()
        if energies.numel():
            expected[0][b, :i_end, :j_end] = energies.softmax(dim=1)
            expected[1][b, :j_end, :i_end] = energies.softmax(dim=0).T
    assert_close(forward, expected[0])
    assert_close(backward, expected[1])
    assert_close(for_first, expected[0] @ second)
    assert_close(for_second, expected[1] @ first)
    assert (forward[~first_mask] == 0).all()
    assert (backward[~second_mask] == 0).all()
