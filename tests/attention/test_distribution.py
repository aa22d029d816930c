"""Attention distributions compared with their papers: written out in loops, simulated, counted."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from inputs import lively, mask_of, random
from torch.testing import assert_close

from seq2seq.attention.distribution import (
    AttentionHistory,
    Hard,
    LocalMonotonic,
    LocalPredictive,
    Monotonic,
)
from seq2seq.attention.masking import NORMALIZERS

H, A = 4, 5
NO_QUERY = torch.empty(0)

TRIALS = st.integers(0, 999)  # seeds for torch, whose random numbers Hypothesis cannot replay
every_normalization = pytest.mark.parametrize("normalization", NORMALIZERS)


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(1)


def walk(distribution, energies, mask):
    """Weights (B, T, S) of energies (B, T, S), one target position after another."""
    history, found = AttentionHistory.empty(energies.transpose(1, 2)), []
    for energies_i in energies.unbind(dim=1):
        weights = distribution(energies_i, mask, NO_QUERY, history)
        history = history.append(weights)
        found.append(weights)
    return torch.stack(found, dim=1)


# History


def test_history_holds_the_last_weights_their_sum_and_a_count():
    rows = random(3, 2, 5)
    history = AttentionHistory.empty(random(2, 5, 7))
    assert (history.previous == 0).all()
    assert (history.coverage == 0).all()
    assert history.position.tolist() == [0, 0]
    for i, weights in enumerate(rows):
        before = AttentionHistory(*(tensor.clone() for tensor in history))
        new = history.append(weights)
        assert all(map(torch.equal, history, before))
        history = new
        assert torch.equal(history.previous, weights)
        assert_close(history.coverage, rows[: i + 1].sum(dim=0))
        assert history.position.tolist() == [i + 1, i + 1]
    selected = history.select(torch.tensor([1, 0, 1]))
    for tensor, whole in zip(selected, history, strict=True):
        assert torch.equal(tensor, whole[[1, 0, 1]])


# Local


@every_normalization
@settings(max_examples=20)
@given(st.integers(1, 4), st.integers(1, 7), st.integers(0, 2), TRIALS)
def test_local_m_normalizes_exactly_the_window_around_the_diagonal(
    normalization, window, length, padding, trial
):
    """Past the end of the source, the window stays at the last token."""
    torch.manual_seed(trial)
    energies = random(1, length + 4, length + padding)
    distribution = LocalMonotonic(window, normalization)
    weights = walk(distribution, energies, mask_of([length], length + padding))[0]
    for i, row in enumerate(weights):
        center = min(i, length - 1)
        inside = slice(max(0, center - window), min(length, center + window + 1))
        near = energies[0, i, inside]
        expected = torch.zeros_like(row)
        expected[inside] = NORMALIZERS[normalization](near, torch.ones_like(near).bool())
        assert_close(row, expected)


def predictive(window, normalization="softmax"):
    return lively(LocalPredictive(H, A, window, normalization))


def predicted(distribution, query, length):
    """p = (S - 1) sigmoid(v . tanh(W s)) in numpy."""
    layers = distribution.query_layer, distribution.position_layer
    w, v = (layer.weight.detach().numpy() for layer in layers)
    return (length - 1) / (1 + math.exp(-(v @ np.tanh(w @ query.numpy())).item()))


@settings(max_examples=30)
@given(st.integers(1, 5), st.integers(1, 8), st.sampled_from([0.1, 1.0, 30.0]), TRIALS)
def test_local_p_equals_softmax_times_gaussian_divided_by_its_sum(window, length, scale, trial):
    """Equations 7, 9 and 10 of Luong et al.; only the division is ours."""
    torch.manual_seed(trial)
    distribution, query, energies = predictive(window), scale * random(1, H), random(1, length)
    weights = distribution(energies, torch.ones(1, length, dtype=torch.bool), query, None)[0]
    p, indices = predicted(distribution, query[0], length), np.arange(length)
    assert 0 <= p <= length - 1
    inside = np.abs(indices - p) <= window
    exponentials = np.exp(energies[0].numpy()) * inside
    align = exponentials / exponentials.sum()
    product = align * np.exp(-((indices - p) ** 2) / (2 * (window / 2) ** 2))
    assert_close(weights, torch.from_numpy(product / product.sum()))


@every_normalization
def test_local_p_adds_its_gaussian_to_the_energies_before_any_normalization(normalization):
    distribution, query, energies = predictive(2, normalization), random(1, H), random(1, 9)
    weights = distribution(energies, mask_of([7], 9), query, None)[0]
    p = predicted(distribution, query[0], 7)
    inside = [j for j in range(7) if abs(j - p) <= 2]
    near = torch.stack([energies[0, j] - (j - p) ** 2 / 2 for j in inside])
    expected = torch.zeros(9, dtype=torch.float64)
    expected[inside] = NORMALIZERS[normalization](near, torch.ones_like(near).bool())
    assert_close(weights, expected)


# Hard


@pytest.mark.parametrize("temperature", [0.1, 1.0, 10.0])
def test_hard_attention_selects_exactly_one_token(temperature):
    lengths = torch.randint(0, 8, (300,))
    mask = torch.arange(7) < lengths[:, None]
    energies = 3 * torch.randn(300, 7)  # single precision, where x + (y - y) could be inexact
    for training in (False, True):
        weights = Hard(temperature).train(training)(energies, mask, NO_QUERY, None)
        assert ((weights == 0) | (weights == 1)).all()
        assert (weights.sum(dim=1) == mask.any(dim=1)).all()
        assert (weights[~mask] == 0).all()
        if not training:
            best = energies.masked_fill(~mask, -torch.inf).argmax(dim=1)
            assert (weights.argmax(dim=1) == best)[lengths > 0].all()


@pytest.mark.parametrize("temperature", [0.3, 1.0, 3.0])
def test_hard_attention_samples_from_the_softmax_at_every_temperature(temperature):
    """The sum of squared deviations is about chi-square with 4 degrees of freedom: above 28 once in
    100,000 times."""
    draws, mask = 40_000, mask_of([5], 6)
    energies = torch.tensor([[0.5, -1.0, 2.0, 0.0, 1.0, 9.0]])
    weights = Hard(temperature)(energies.expand(draws, 6), mask.expand(draws, 6), NO_QUERY, None)
    expected = draws * energies[0, :5].softmax(dim=0)
    counts = weights.sum(dim=0)
    assert counts[5] == 0
    assert ((counts[:5] - expected).square() / expected).sum() < 28


@pytest.mark.parametrize("temperature", [0.5, 2.0])
def test_hard_attention_has_the_gradient_of_the_gumbel_softmax(temperature):
    energies, mask, loss = random(4, 6).requires_grad_(), mask_of([6, 4, 1, 0], 6), random(4, 6)
    torch.manual_seed(7)
    weights = Hard(temperature)(energies, mask, NO_QUERY, None)
    (found,) = torch.autograd.grad((weights * loss).sum(), energies)

    torch.manual_seed(7)
    gumbel = -torch.empty_like(energies).exponential_().log()
    disturbed = ((energies + gumbel) / temperature).masked_fill(~mask, -torch.inf)
    soft = disturbed[:3].softmax(dim=1)  # the last row has no token
    assert torch.equal(weights[:3].argmax(dim=1), disturbed[:3].argmax(dim=1))
    (expected,) = torch.autograd.grad((soft * loss[:3]).sum(), energies)
    assert_close(found, expected)
    assert (found[0] != 0).all()


# Monotonic


def monotonic(noise, training=True):
    return lively(Monotonic(noise)).train(training)


def stop_probabilities(distribution, energies, length):
    """p_ij of one sentence, (T, length); the last token stops every scan."""
    r = distribution.initial_offset + distribution.offset.item()
    p = torch.sigmoid(energies[:, :length] + r).numpy()
    p[:, -1] = 1
    return p


@settings(max_examples=30)
@given(
    st.integers(1, 6),
    st.integers(0, 2),
    st.integers(1, 5),
    st.sampled_from([0.1, 1.0, 10.0, 1000.0]),
    TRIALS,
)
def test_monotonic_training_weights_solve_the_recursion_of_raffel_et_al(
    length, padding, num_targets, scale, trial
):
    """q_ij = (1 - p_i,j-1) q_i,j-1 + a_i-1,j and a_ij = p_ij q_ij, where a_0 is the first position;
    also where p is 0 or 1."""
    torch.manual_seed(trial)
    distribution, energies = monotonic(noise=0), scale * random(1, num_targets, length + padding)
    p = stop_probabilities(distribution, energies[0], length)
    expected = np.zeros((num_targets, length + padding))
    before = np.eye(length)[0]
    for i in range(num_targets):
        q = np.zeros(length)
        for j in range(length):
            q[j] = before[j] + ((1 - p[i, j - 1]) * q[j - 1] if j else 0)
        before = p[i] * q
        expected[i, :length] = before
    found = walk(distribution, energies, mask_of([length], length + padding))[0]
    assert_close(found, torch.from_numpy(expected))


@settings(max_examples=30)
@given(st.integers(1, 7), st.integers(0, 2), st.integers(1, 6), TRIALS)
def test_monotonic_evaluation_stops_at_the_first_token_with_p_of_at_least_one_half(
    length, padding, num_targets, trial
):
    torch.manual_seed(trial)
    distribution = monotonic(noise=1, training=False)
    energies = random(1, num_targets, length + padding)
    p, at, stops = stop_probabilities(distribution, energies[0], length), 0, []
    for row in p:
        while row[at] < 0.5:
            at += 1
        stops.append(at)
    weights = walk(distribution, energies, mask_of([length], length + padding))[0]
    assert torch.equal(weights, torch.eye(length + padding, dtype=torch.float64)[stops])


def test_monotonic_stop_probability_starts_at_sigmoid_of_minus_one():
    """Raffel et al. start with a negative offset: p = sigmoid(-1) = 0.2689."""
    distribution, mask = Monotonic(noise=0.0), mask_of([4], 4)
    history = AttentionHistory.empty(torch.zeros(1, 4, 1))
    weights = distribution(torch.zeros(1, 4), mask, NO_QUERY, history)[0]
    assert_close(weights[0].item(), 0.2689, atol=5e-5, rtol=0)


def test_monotonic_training_adds_noise_to_the_energies():
    noisy, quiet = monotonic(noise=0.7), monotonic(noise=0)
    quiet.load_state_dict(noisy.state_dict())
    energies, mask = random(3, 1, 5), mask_of([5, 3, 1], 5)
    torch.manual_seed(7)
    found = walk(noisy, energies, mask)
    torch.manual_seed(7)
    disturbed = energies + 0.7 * torch.randn(3, 5, dtype=torch.float64).unsqueeze(1)
    assert_close(found, walk(quiet, disturbed, mask))


def test_monotonic_gradients_are_finite_where_stopping_is_certain():
    """Where p is exactly 0 or 1, dividing by running products would divide by 0."""
    energies = (1e4 * random(3, 4, 6)).requires_grad_()
    weights = walk(monotonic(noise=0), energies, mask_of([6, 2, 0], 6))
    assert_close(weights.sum(dim=2)[:2], torch.ones(2, 4, dtype=torch.float64))
    (weights * random(3, 4, 6)).sum().backward()
    assert energies.grad.isfinite().all()
