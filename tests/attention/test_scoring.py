"""Scoring functions beside their formulas, computed for one query and one key at a time."""

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from seq2seq.attention.distribution import Soft
from seq2seq.attention.masking import NORMALISERS
from seq2seq.attention.pooling import Attention
from seq2seq.attention.scoring import (
    SCORES,
    AdditiveScore,
    BilinearScore,
    ConcatScore,
    CosineScore,
    DotScore,
    GaussianScore,
    LocationScore,
    NormedAdditiveScore,
    ScaledDotScore,
)

B, Q, S, H, C, A = 2, 3, 7, 4, 6, 5
UNIT_BY_UNIT = ("dot", "scaled_dot", "cosine", "gaussian")  # need annotations as wide as queries

# Of parameters p, a query s, an annotation h and its position j.
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

every_score = pytest.mark.parametrize("name", SCORES)


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(1)


def lively(module):
    """With parameters of about 1: tanh and softmax are then far from linear."""
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter)
    return module.double()


def some_score(name):
    """A scoring function and annotations that it can read."""
    units = H if name in UNIT_BY_UNIT else C
    score = lively(SCORES[name](H, units, A))
    return score, torch.randn(B, S, units, dtype=torch.float64)


def random(*shape):
    return torch.randn(*shape, dtype=torch.float64)


def attend(score, query, keys, values, mask):
    return Attention(score)(query, score.project(keys), values, mask)


def test_every_scoring_function_has_a_formula_here():
    assert set(FORMULAS) == set(SCORES)


@every_score
def test_energies_are_those_of_the_formula(name):
    score, annotations = some_score(name)
    query = random(B, H)
    parameters = {key: value.detach().numpy() for key, value in score.named_parameters()}
    expected = [
        [FORMULAS[name](parameters, query[b].numpy(), annotations[b, j].numpy(), j)
         for j in range(S)]
        for b in range(B)
    ]  # fmt: skip
    keys = score.project(annotations)
    assert keys.shape == (B, S, score.key_size)
    assert_close(score(query, keys), torch.tensor(expected, dtype=torch.float64))


@every_score
def test_many_queries_at_once_are_many_queries_one_by_one(name):
    score, annotations = some_score(name)
    queries, keys = random(B, Q, H), score.project(annotations)
    one_by_one = [score(query, keys) for query in queries.unbind(dim=1)]
    assert_close(score(queries, keys), torch.stack(one_by_one, dim=1))


# Worked examples of two tutorials


@pytest.mark.parametrize("name", [name for name, kind in SCORES.items() if kind.sees_keys])
@pytest.mark.parametrize("normalisation", NORMALISERS)
def test_equal_keys_are_looked_at_alike_whatever_the_query_and_the_parameters(name, normalisation):
    """A tutorial's example: the mean of the first 2 and of the first 6 values."""
    values = torch.arange(40.0, dtype=torch.float64).reshape(1, 10, 4).repeat(2, 1, 1)
    mask = torch.arange(10) < torch.tensor([[2], [6]])
    query_size = 2 if name in UNIT_BY_UNIT else 20
    for _ in range(5):
        score = lively(SCORES[name](query_size, 2, 8))
        keys = score.project(torch.ones(2, 10, 2, dtype=torch.float64))
        context, _ = Attention(score, Soft(normalisation))(
            random(2, query_size), keys, values, mask
        )
        assert_close(context, torch.tensor([[2.0, 3, 4, 5], [10, 11, 12, 13]]).double())


EXAMPLES = {  # query, keys, the right weights, the weights that the tutorial prints
    "three keys": (
        [1.0, 0.8],
        [[0.9, 0.1], [0.8, 0.2], [0.7, 0.9]],
        [0.2984, 0.2942, 0.4073],
        [0.2561, 0.2525, 0.4914],
    ),
    "two keys": ([2.0, 3, 1], [[1.0, 2, 1], [1, 1, 2]], [0.7604, 0.2396], [0.5837, 0.4163]),
}


@pytest.mark.parametrize("example", EXAMPLES)
def test_scaled_dot_products_of_worked_examples(example):
    """The tutorials' own code gives the right weights; what they print beside it, 0.2561 0.2525
    0.4914 and 0.5837 0.4163, is given by neither dot product."""
    query, keys, right, printed = (torch.tensor(part) for part in EXAMPLES[example])
    mask = torch.ones(1, len(keys), dtype=torch.bool)
    for kind in (ScaledDotScore, DotScore):
        score = kind(len(query), len(query), 0)
        _, weights = attend(score, query[None], keys[None], keys[None], mask)
        assert (weights[0] - printed).abs().max() > 0.02
        if kind is ScaledDotScore:
            assert_close(weights[0], right, atol=5e-5, rtol=0)


def test_the_output_of_a_worked_example():
    """0.8891 0.2109, where the tutorial prints 0.8766 0.2235."""
    query, keys, *_ = (torch.tensor(part) for part in EXAMPLES["three keys"])
    values = torch.tensor([[1.0, 0.1], [0.9, 0.2], [0.8, 0.3]])
    mask = torch.ones(1, 3, dtype=torch.bool)
    context, _ = attend(ScaledDotScore(2, 2, 0), query[None], keys[None], values[None], mask)
    assert_close(context, torch.tensor([[0.8891, 0.2109]]), atol=5e-5, rtol=0)


# What relates one scoring function to another, or to itself


def test_concatenation_is_additive_scoring_with_both_matrices_side_by_side():
    concat, additive = lively(ConcatScore(H, C, A)), lively(AdditiveScore(H, C, A))
    halves = [additive.query_layer.weight, additive.key_layer.weight]
    concat.load_state_dict(
        {
            "pair_layer.weight": torch.cat(halves, dim=1),
            "energy_layer.weight": additive.energy_layer.weight,
        }
    )
    query, annotations = random(B, H), random(B, S, C)
    assert_close(
        concat(query, concat.project(annotations)), additive(query, additive.project(annotations))
    )


def test_normed_additive_scoring_is_additive_scoring_with_a_v_of_that_length():
    normed, additive = lively(NormedAdditiveScore(H, C, A)), lively(AdditiveScore(H, C, A))
    with torch.no_grad():
        normed.query_layer.bias.zero_()
        normed.query_layer.weight.copy_(additive.query_layer.weight)
        normed.key_layer.weight.copy_(additive.key_layer.weight)
        normed.direction.copy_(7 * additive.energy_layer.weight)
        normed.log_gain.copy_((additive.energy_layer.weight.norm() * A**0.5).log())
    query, annotations = random(B, H), random(B, S, C)
    assert_close(
        normed(query, normed.project(annotations)), additive(query, additive.project(annotations))
    )


def test_bilinear_scoring_with_the_identity_is_a_dot_product():
    bilinear, dot = BilinearScore(H, H, A).double(), DotScore(H, H, A)
    torch.nn.init.eye_(bilinear.key_layer.weight)
    query, annotations = random(B, H), random(B, S, H)
    assert_close(
        bilinear(query, bilinear.project(annotations)), dot(query, dot.project(annotations))
    )


def test_a_cosine_reads_directions_and_a_gaussian_kernel_differences():
    query, annotations, shift = random(B, H), random(B, S, H), random(H)
    cosine, gaussian = lively(CosineScore(H, H, A)), lively(GaussianScore(H, H, A))

    def energies(score, query, annotations):
        return score(query, score.project(annotations))

    expected = energies(cosine, query, annotations)
    assert_close(energies(cosine, 3 * query, annotations * random(B, S, 1).exp()), expected)
    expected = energies(gaussian, query, annotations)
    assert_close(energies(gaussian, query + shift, annotations + shift), expected)


@pytest.mark.parametrize("kind", [ScaledDotScore, CosineScore])
@pytest.mark.parametrize("units", [8, 512])
def test_energies_of_random_vectors_have_variance_one_whatever_their_size(kind, units):
    score = kind(units, units, 0)
    energies = score(torch.randn(50, units), score.project(torch.randn(50, 400, units)))
    assert_close(energies.square().mean().item(), 1.0, atol=0.1, rtol=0)


def test_location_scoring_looks_at_no_position_that_it_has_no_row_for():
    """And its gradient is finite, also where it has no choice."""
    score = lively(LocationScore(H, C, A))
    query = random(2, H).requires_grad_()
    annotations = random(2, A + 4, C)
    mask = torch.arange(A + 4) < torch.tensor([[A + 4], [2]])
    context, weights = attend(score, query, annotations, annotations, mask)
    assert (weights[:, A:] == 0).all()
    assert (weights[0, :A] > 0).all()
    context.square().sum().backward()
    assert query.grad.isfinite().all()
    assert score.query_layer.weight.grad.isfinite().all()


@pytest.mark.parametrize("name", [name for name, kind in SCORES.items() if not kind.sees_keys])
def test_some_scoring_functions_see_no_keys(name):
    score, annotations = some_score(name)
    query = random(B, H)
    other = score(query, score.project(random(B, S, C)))
    assert torch.equal(score(query, score.project(annotations)), other)


def test_a_kernel_tells_near_keys_apart_far_from_the_origin():
    """By the products |s|^2 + |h|^2 - 2 s . h all three would be alike."""
    keys = torch.tensor([[[10_000.0], [10_001.0], [10_002.0]]])
    energies = GaussianScore(1, 1, 0)(torch.tensor([[10_000.5]]), keys)
    assert_close(energies, -torch.tensor([[0.25, 0.25, 2.25]]) / 2)


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
def test_a_vector_of_zeros_has_no_direction_but_a_gradient_in_half_precision(kind):
    score = CosineScore(4, 4, 0).to(kind)
    query, keys = (
        torch.zeros(1, *shape, dtype=kind, requires_grad=True) for shape in ((4,), (3, 4))
    )
    energies = score(query, score.project(keys))
    assert (energies == 0).all()
    energies.sum().backward()
    assert query.grad.isfinite().all()
    assert keys.grad.isfinite().all()


@pytest.mark.parametrize("kind", [DotScore, ScaledDotScore, CosineScore, GaussianScore])
def test_vectors_of_unequal_size_are_refused_where_units_are_compared(kind):
    with pytest.raises(ValueError, match="queries of 3 and annotations of 4 units"):
        kind(3, 4, 0)
