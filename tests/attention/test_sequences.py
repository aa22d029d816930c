"""Attention between whole sequences, beside loops over single positions."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from seq2seq.attention.distribution import Hard, Soft
from seq2seq.attention.pooling import Attention, MultiHeadAttention
from seq2seq.attention.scoring import (
    AdditiveScore,
    BilinearScore,
    CosineScore,
    DotScore,
    GaussianScore,
    ScaledDotScore,
)
from seq2seq.attention.sequences import BidirectionalAttention, SelfAttention

B, S, C = 3, 5, 6
MASK = torch.arange(S) < torch.tensor([[5], [2], [0]])

ATTENTIONS = {
    "additive": lambda: Attention(AdditiveScore(C, C, 7)),
    "bilinear, sparsemax": lambda: Attention(BilinearScore(C, C, 0), Soft("sparsemax")),
    "additive, hard": lambda: Attention(AdditiveScore(C, C, 7), Hard(1.0)),
    "three heads": lambda: MultiHeadAttention([ScaledDotScore(2, 2, 0)] * 3, C, C),
}
every_attention = pytest.mark.parametrize("name", ATTENTIONS)
either_way = pytest.mark.parametrize("causal", [False, True], ids=["whole", "causal"])


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(1)


def random(*shape):
    return torch.randn(*shape, dtype=torch.float64)


def lively(module):
    """With parameters of about 1, in evaluation: nothing is drawn."""
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter)
    return module.double().eval()


# A sequence and itself


@every_attention
@either_way
def test_every_position_asks_those_it_may_see_as_one_query_alone(name, causal):
    attention, sequence = lively(ATTENTIONS[name]()), random(B, S, C)
    contexts, weights = SelfAttention(attention, causal)(sequence, MASK)
    keys = attention.project(sequence)
    for i in range(S):
        seen = MASK & (torch.arange(S) <= i) if causal else MASK
        context, row = attention(sequence[:, i], keys, sequence, seen & MASK[:, i : i + 1])
        assert_close(contexts[:, i], context)
        assert_close(weights[:, i], row)


@every_attention
@either_way
def test_rows_and_columns_of_padding_are_zero_and_the_other_rows_sum_to_one(name, causal):
    contexts, weights = SelfAttention(lively(ATTENTIONS[name]()), causal)(random(B, S, C), MASK)
    assert (contexts[~MASK] == 0).all()
    assert (weights[~MASK] == 0).all()
    assert (weights.transpose(1, 2)[~MASK] == 0).all()
    assert_close(weights.sum(dim=2), MASK.double())


@every_attention
def test_a_causal_position_does_not_see_the_future(name):
    attention = SelfAttention(lively(ATTENTIONS[name]()), causal=True)
    sequence, mask = random(B, S, C), torch.ones(B, S, dtype=torch.bool)
    contexts, weights = attention(sequence, mask)
    assert (weights.triu(1) == 0).all()
    for i in range(1, S):
        changed = torch.cat([sequence[:, :i], random(B, S - i, C)], dim=1)
        new_contexts, new_weights = attention(changed, mask)
        assert_close(new_contexts[:, :i], contexts[:, :i])
        assert_close(new_weights[:, :i], weights[:, :i])


@every_attention
@either_way
def test_padding_changes_nothing(name, causal):
    attention, sequence = SelfAttention(lively(ATTENTIONS[name]()), causal), random(1, 3, C)
    contexts, weights = attention(sequence, torch.ones(1, 3, dtype=torch.bool))
    junk = torch.cat([sequence, 1e3 * random(1, 2, C)], dim=1)
    padded_contexts, padded_weights = attention(junk, torch.arange(5)[None] < 3)
    assert_close(padded_contexts[:, :3], contexts)
    assert_close(padded_weights[:, :3, :3], weights)


@every_attention
def test_without_a_direction_the_order_of_the_sequence_does_not_matter(name):
    attention, sequence = SelfAttention(lively(ATTENTIONS[name]())), random(B, S, C)
    order = torch.randperm(S)
    contexts, weights = attention(sequence, MASK)
    moved_contexts, moved_weights = attention(sequence[:, order], MASK[:, order])
    assert_close(moved_contexts, contexts[:, order])
    assert_close(moved_weights, weights[:, order][:, :, order])


@either_way
def test_gradients_are_zero_at_padding(causal):
    attention = SelfAttention(lively(ATTENTIONS["additive"]()), causal)
    sequence = random(B, S, C).requires_grad_()
    contexts, weights = attention(sequence, MASK)
    (contexts.square().sum() + weights.square().sum()).backward()
    assert sequence.grad.isfinite().all()
    assert (sequence.grad[~MASK] == 0).all()
    assert (sequence.grad[MASK] != 0).any(dim=1).all()


# Two sequences both ways


@pytest.mark.parametrize(
    "score", [BilinearScore(4, C, 0), AdditiveScore(4, C, 7)], ids=["bilinear", "additive"]
)
@settings(max_examples=20)
@given(
    lengths=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=3),
    padding=st.tuples(st.integers(0, 2), st.integers(0, 2)),
    trial=st.integers(0, 999),
)
def test_both_sequences_read_one_matrix_of_energies(score, lengths, padding, trial):
    """Each pair of positions scored alone, each sentence without its padding."""
    torch.manual_seed(trial)
    score = lively(score)
    ends = torch.tensor(lengths)
    m, n = (ends.amax(dim=0) + torch.tensor(padding)).clamp(min=1).tolist()
    first, second = random(len(lengths), m, 4), random(len(lengths), n, C)
    first_mask, second_mask = torch.arange(m) < ends[:, :1], torch.arange(n) < ends[:, 1:]
    (for_first, ahead), (for_second, back) = BidirectionalAttention(score)(
        first, second, first_mask, second_mask
    )
    expected = [torch.zeros_like(found) for found in (for_first, ahead, for_second, back)]
    for b, (i_end, j_end) in enumerate(lengths):
        energies = torch.zeros(i_end, j_end, dtype=torch.float64)
        for i in range(i_end):
            for j in range(j_end):
                pair = score(first[b, i][None], score.project(second[b, j][None, None]))
                energies[i, j] = pair.item()
        if energies.numel():
            expected[1][b, :i_end, :j_end] = energies.softmax(dim=1)
            expected[3][b, :j_end, :i_end] = energies.softmax(dim=0).T
        expected[0][b] = expected[1][b] @ second[b]
        expected[2][b] = expected[3][b] @ first[b]
    for found, right in zip((for_first, ahead, for_second, back), expected, strict=True):
        assert_close(found, right)
    assert (ahead[~first_mask] == 0).all()
    assert (back[~second_mask] == 0).all()
    assert (for_first[~first_mask] == 0).all()
    assert (for_second[~second_mask] == 0).all()


@pytest.mark.parametrize("kind", [DotScore, ScaledDotScore, CosineScore, GaussianScore])
def test_with_a_symmetric_score_the_two_sequences_may_change_places(kind):
    attention = BidirectionalAttention(lively(kind(C, C, 0)))
    first, second, other_mask = random(B, S, C), random(B, 4, C), torch.rand(B, 4) > 0.3
    for_first, for_second = attention(first, second, MASK, other_mask)
    swapped_second, swapped_first = attention(second, first, other_mask, MASK)
    for found, expected in ((swapped_first, for_first), (swapped_second, for_second)):
        assert_close(found[0], expected[0])
        assert_close(found[1], expected[1])


def test_a_sequence_paired_with_itself_is_self_attention():
    score = lively(AdditiveScore(C, C, 7))
    sequence = random(B, S, C)
    (contexts, weights), _ = BidirectionalAttention(score)(sequence, sequence, MASK, MASK)
    expected = SelfAttention(Attention(score))(sequence, MASK)
    assert_close(contexts, expected[0])
    assert_close(weights, expected[1])
