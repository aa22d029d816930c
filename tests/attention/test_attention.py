import inspect

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from seq2seq.attention.build import build_attention
from seq2seq.attention.pooling import Attention
from seq2seq.attention.scoring import SCORES, AdditiveScore
from seq2seq.config import AttentionConfig

B, S, H, C, A = 3, 5, 4, 6, 7
MASK = torch.arange(S) < torch.tensor([[5], [2], [1]])


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(1)


@pytest.fixture
def attention():
    """With parameters of about 1: tanh and softmax are then far from linear."""
    attention = build_attention(AttentionConfig(size=A), query_size=H, annotation_size=C)
    for parameter in attention.parameters():
        torch.nn.init.normal_(parameter)
    return attention


def attend(attention, query, annotations, mask):
    return attention(query, attention.project(annotations), annotations, mask)


def test_energies_are_those_of_the_paper(attention):
    """e_ij = v . tanh(W s_{i-1} + U h_j), one pair at a time (appendix A.1.2)."""
    score = attention.score
    query, annotations = torch.randn(B, H), torch.randn(B, S, C)
    w, u, v = (
        layer.weight.detach().numpy()
        for layer in (score.query_layer, score.key_layer, score.energy_layer)
    )
    expected = [
        [(v @ np.tanh(w @ query[b].numpy() + u @ annotations[b, j].numpy())).item()
         for j in range(S)]
        for b in range(B)
    ]  # fmt: skip
    assert_close(score(query, score.project(annotations)), torch.tensor(expected))


def test_the_context_is_the_weighted_sum_of_the_annotations(attention):
    query, annotations = torch.randn(B, H), torch.randn(B, S, C)
    context, weights = attend(attention, query, annotations, MASK)
    assert context.shape == (B, C)
    assert weights.shape == (B, S)
    for b in range(B):
        assert_close(context[b], sum(weights[b, j] * annotations[b, j] for j in range(S)))


def test_weights_sum_to_one_and_are_zero_at_padding(attention):
    _, weights = attend(attention, torch.randn(B, H), torch.randn(B, S, C), MASK)
    assert_close(weights.sum(dim=1), torch.ones(B))
    assert (weights[~MASK] == 0).all()
    assert (weights[MASK] > 0).all()


@pytest.mark.parametrize("trial", range(5))
def test_equal_keys_are_looked_at_alike_whatever_the_query_and_the_parameters(trial):
    """A tutorial's worked example: the mean of the first 2 and of the first 6 values."""
    torch.manual_seed(trial)
    score = AdditiveScore(query_size=20, annotation_size=2, size=8)
    values = torch.arange(40.0).reshape(1, 10, 4).repeat(2, 1, 1)
    context, _ = Attention(score)(
        torch.randn(2, 20),
        score.project(torch.ones(2, 10, 2)),
        values,
        torch.arange(10) < torch.tensor([[2], [6]]),
    )
    assert_close(context, torch.tensor([[2.0, 3, 4, 5], [10, 11, 12, 13]]))


def test_padding_changes_nothing(attention):
    """A sentence reads the same alone and beside a longer one."""
    query, annotations = torch.randn(1, H), torch.randn(1, 3, C)
    mask = torch.ones(1, 3, dtype=torch.bool)
    context, weights = attend(attention, query, annotations, mask)

    junk = torch.cat([annotations, 1e3 * torch.randn(1, 4, C)], dim=1)
    longer = torch.cat([mask, torch.zeros(1, 4, dtype=torch.bool)], dim=1)
    padded_context, padded_weights = attend(attention, query, junk, longer)

    assert_close(padded_context, context)
    assert_close(padded_weights[:, :3], weights)
    assert (padded_weights[:, 3:] == 0).all()


def test_sentences_of_a_batch_do_not_see_each_other(attention):
    query, annotations = torch.randn(B, H), torch.randn(B, S, C)
    context, weights = attend(attention, query, annotations, MASK)
    for b in range(B):
        row = slice(b, b + 1)
        alone = attend(attention, query[row], annotations[row], MASK[row])
        assert_close(context[row], alone[0])
        assert_close(weights[row], alone[1])


def test_the_order_of_the_source_positions_does_not_matter(attention):
    """Attention sees a set: weights move with their annotations, the context stays."""
    query, annotations = torch.randn(B, H), torch.randn(B, S, C)
    order = torch.randperm(S)
    context, weights = attend(attention, query, annotations, MASK)
    moved = attend(attention, query, annotations[:, order], MASK[:, order])
    assert_close(moved[0], context)
    assert_close(moved[1], weights[:, order])


def test_gradients_are_zero_at_padding(attention):
    annotations = torch.randn(B, S, C, requires_grad=True)
    context, weights = attend(attention, torch.randn(B, H), annotations, MASK)
    (context.square().sum() + weights.square().sum()).backward()
    assert (annotations.grad[~MASK] == 0).all()
    assert (annotations.grad[MASK] != 0).any(dim=-1).all()


def test_a_row_without_a_token_gives_a_zero_context_and_finite_gradients(attention):
    mask = torch.arange(S) < torch.tensor([[3], [0]])
    query = torch.randn(2, H, requires_grad=True)
    annotations = torch.randn(2, S, C, requires_grad=True)
    context, weights = attend(attention, query, annotations, mask)
    assert (context[1] == 0).all()
    assert (weights[1] == 0).all()
    context.square().sum().backward()
    for tensor in (query, annotations, *attention.parameters()):
        assert tensor.grad.isfinite().all()
        assert (tensor.grad != 0).any()
    assert (query.grad[1] == 0).all()
    assert (annotations.grad[1] == 0).all()


def test_gradients_are_those_of_finite_differences(attention):
    attention.double()
    query = torch.randn(B, H, dtype=torch.float64, requires_grad=True)
    annotations = torch.randn(B, S, C, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(
        lambda query, annotations: attend(attention, query, annotations, MASK),
        (query, annotations),
    )


def test_nothing_is_remembered_between_calls(attention):
    before = dict(vars(attention)), dict(vars(attention.score))
    inputs = torch.randn(B, H), torch.randn(B, S, C), MASK
    first = attend(attention, *inputs)
    attend(attention, torch.randn(1, H), torch.randn(1, 9, C), torch.ones(1, 9, dtype=torch.bool))
    again = attend(attention, *inputs)
    assert torch.equal(first[0], again[0])
    assert torch.equal(first[1], again[1])
    assert (dict(vars(attention)), dict(vars(attention.score))) == before
    assert not list(attention.buffers())


def test_there_is_no_way_to_attend_without_a_mask():
    mask = inspect.signature(Attention.forward).parameters["source_mask"]
    assert mask.default is inspect.Parameter.empty


def test_an_unknown_scoring_function_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match=r"model\.attention\.name='aditive'") as error:
        build_attention(AttentionConfig(name="aditive"), query_size=H, annotation_size=C)
    assert all(name in str(error.value) for name in SCORES)
