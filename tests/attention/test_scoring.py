"""Scoring functions compared with their formulas, computed for one query and one key at a time."""

import numpy as np
import pytest
import torch
from inputs import lively, random
from torch.testing import assert_close

from seq2seq.attention.distribution import Soft
from seq2seq.attention.masking import NORMALIZERS
from seq2seq.attention.pooling import Attention
from seq2seq.attention.scoring import (
    SCORES,
    CosineScore,
    DotScore,
    GaussianScore,
    LocationScore,
    ScaledDotScore,
)
from seq2seq.config.model import AttentionConfig

B, Q, S, H, C, A = 2, 3, 7, 4, 6, 5
KINDS = {name: kind for name, kind in SCORES.items() if kind is not None}

# Energy of a query s and a key h at position j, given the parameters p.
FORMULAS = {
    "additive": lambda p, s, h, j: (
        p["energy_layer.weight"][0]
        @ np.tanh(p["query_layer.weight"] @ s + p["key_layer.weight"] @ h)
    ),
    "normed_additive": lambda p, s, h, j: (
        np.exp(p["log_gain"])
        / np.sqrt(A)
        * (p["direction"][0] / np.linalg.norm(p["direction"]))
        @ np.tanh(p["query_layer.weight"] @ s + p["key_layer.weight"] @ h + p["query_layer.bias"])
    ),
    "concat": lambda p, s, h, j: (
        p["energy_layer.weight"][0] @ np.tanh(p["pair_layer.weight"] @ np.concatenate([s, h]))
    ),
    "dot": lambda p, s, h, j: s @ h,
    "scaled_dot": lambda p, s, h, j: s @ h / np.sqrt(H),
    "bilinear": lambda p, s, h, j: s @ p["key_layer.weight"] @ h,
    "cosine": lambda p, s, h, j: (
        np.sqrt(H)
        * np.exp(p["log_sharpness"])
        * (s @ h / np.linalg.norm(s) / np.linalg.norm(h))
    ),
    "gaussian": lambda p, s, h, j: -(np.linalg.norm((s - h) * np.exp(p["log_width"])) ** 2) / 2,
    "location": lambda p, s, h, j: (
        p["query_layer.weight"][j] @ s if j < A else np.finfo(np.float64).min
    ),
    "average": lambda p, s, h, j: 0.0,
}  # fmt: skip

every_score = pytest.mark.parametrize("name", KINDS)


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(1)


def build(name, query_size=H, key_size=C):
    if KINDS[name].compares_units:
        key_size = query_size
    config = AttentionConfig(size=A, max_positions=A)
    return lively(KINDS[name].from_config(config, query_size, key_size)), key_size


def energies(score, query, keys):
    return score(query, score.project(keys))


@pytest.mark.guarantee("Scoring functions, cells and initial values are those of the cited papers.")
@every_score
def test_energies_equal_the_formula_for_one_query_and_for_several(name):
    score, key_size = build(name)
    queries, keys = random(B, Q, H), random(B, S, key_size)
    parameters = {key: value.detach().numpy() for key, value in score.named_parameters()}
    expected = torch.zeros(B, Q, S, dtype=torch.float64)
    for b, q, j in np.ndindex(B, Q, S):
        s, h = queries[b, q].numpy(), keys[b, j].numpy()
        expected[b, q, j] = float(FORMULAS[name](parameters, s, h, j))
    projected = score.project(keys)
    assert projected.shape == (B, S, score.projected_size(key_size))
    assert_close(score(queries, projected), expected)
    assert_close(score(queries[:, 0], projected), expected[:, 0])


@every_score
def test_scores_declare_whether_they_see_keys(name):
    score, key_size = build(name)
    query, keys = random(B, H), random(B, S, key_size)
    same = torch.equal(energies(score, query, keys), energies(score, query, 2 * keys + 1))
    assert same != score.sees_keys


# Worked examples of two tutorials


@pytest.mark.guarantee("The worked examples of the tutorials are computed correctly.")
@pytest.mark.parametrize("name", [name for name, kind in KINDS.items() if kind.sees_keys])
@pytest.mark.parametrize("normalization", NORMALIZERS)
def test_equal_keys_give_the_mean_of_the_values(name, normalization):
    """A tutorial's example: the mean of the first 2 and of the first 6 values, for any query."""
    values = torch.arange(40.0, dtype=torch.float64).reshape(1, 10, 4).repeat(2, 1, 1)
    mask = torch.arange(10) < torch.tensor([[2], [6]])
    query_size = 2 if KINDS[name].compares_units else 20
    score, _ = build(name, query_size, key_size=2)
    keys = score.project(torch.ones(2, 10, 2, dtype=torch.float64))
    context, _ = Attention(score, Soft(normalization))(random(2, query_size), keys, values, mask)
    assert_close(context, torch.tensor([[2.0, 3, 4, 5], [10, 11, 12, 13]]).double())


THREE_KEYS = [1.0, 0.8], [[0.9, 0.1], [0.8, 0.2], [0.7, 0.9]]
TWO_KEYS = [2.0, 3, 1], [[1.0, 2, 1], [1, 1, 2]]


@pytest.mark.guarantee("The worked examples of the tutorials are computed correctly.")
@pytest.mark.parametrize(
    ("example", "correct", "printed"),
    [
        (THREE_KEYS, [0.2984, 0.2942, 0.4073], [0.2561, 0.2525, 0.4914]),
        (TWO_KEYS, [0.7604, 0.2396], [0.5837, 0.4163]),
    ],
    ids=["three keys", "two keys"],
)
def test_scaled_dot_product_equals_worked_examples(example, correct, printed):
    """The weights that the tutorials print come from neither dot product."""
    query, keys = (torch.tensor([part]) for part in example)
    values = torch.tensor([[[1.0, 0.1], [0.9, 0.2], [0.8, 0.3]]])[:, : keys.shape[1]]
    mask = torch.ones(keys.shape[:2], dtype=torch.bool)
    context, weights = Attention(ScaledDotScore())(query, keys, values, mask)
    assert_close(weights, torch.tensor([correct]), atol=5e-5, rtol=0)
    if example is THREE_KEYS:  # the tutorial prints 0.8766 0.2235
        assert_close(context, torch.tensor([[0.8891, 0.2109]]), atol=5e-5, rtol=0)
    _, unscaled = Attention(DotScore())(query, keys, values, mask)
    assert (unscaled - torch.tensor([printed])).abs().max() > 0.02


# Relations between scoring functions


@pytest.mark.parametrize("kind", [ScaledDotScore, CosineScore])
@pytest.mark.parametrize("units", [8, 512])
def test_energies_of_random_vectors_have_variance_one_at_every_size(kind, units):
    found = energies(kind(), torch.randn(50, units), torch.randn(50, 400, units))
    assert_close(found.square().mean().item(), 1.0, atol=0.1, rtol=0)


# Numerical edge cases


def test_location_score_gives_no_weight_to_positions_without_a_row():
    score = lively(LocationScore(H, A))
    query = random(2, H).requires_grad_()
    values = random(2, A + 4, C)
    mask = torch.arange(A + 4) < torch.tensor([[A + 4], [2]])
    context, weights = Attention(score)(query, values, values, mask)
    assert (weights[:, A:] == 0).all()
    assert (weights[0, :A] > 0).all()
    context.square().sum().backward()
    assert query.grad.isfinite().all()
    assert score.query_layer.weight.grad.isfinite().all()


def test_gaussian_score_distinguishes_close_keys_far_from_the_origin():
    """The expansion |s|^2 + |h|^2 - 2 s . h would give all three the same energy."""
    keys = torch.tensor([[[10_000.0], [10_001.0], [10_002.0]]])
    found = GaussianScore()(torch.tensor([[10_000.5]]), keys)
    assert_close(found, -torch.tensor([[0.25, 0.25, 2.25]]) / 2)


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
def test_cosine_score_of_zero_vectors_is_zero_with_finite_gradients_in_half_precision(kind):
    query = torch.zeros(1, 4, dtype=kind, requires_grad=True)
    keys = torch.zeros(1, 3, 4, dtype=kind, requires_grad=True)
    found = energies(CosineScore().to(kind), query, keys)
    assert (found == 0).all()
    found.sum().backward()
    assert query.grad.isfinite().all()
    assert keys.grad.isfinite().all()


@pytest.mark.parametrize("name", [name for name, kind in KINDS.items() if kind.compares_units])
def test_scores_that_compare_units_refuse_vectors_of_unequal_size(name):
    """Even if broadcasting would hide the mistake."""
    with pytest.raises(ValueError, match="queries of 1 and keys of 4 units"):
        KINDS[name]()(torch.zeros(B, 1), torch.zeros(B, S, 4))
