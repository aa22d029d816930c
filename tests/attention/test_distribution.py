"""Ways of weighing beside their papers: written out in loops, simulated, or counted."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from seq2seq.attention.distribution import (
    Hard,
    LocalMonotonic,
    LocalPredictive,
    Monotonic,
    Past,
    Soft,
)
from seq2seq.attention.masking import NORMALISERS

H, A = 4, 5
NO_QUERY = torch.empty(0)  # for those that ask for none

TRIALS = st.integers(0, 999)  # numbers for torch, whose randomness Hypothesis cannot repeat
every_normalisation = pytest.mark.parametrize("normalisation", NORMALISERS)


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(1)


def random(*shape):
    return torch.randn(*shape, dtype=torch.float64)


def mask_of(lengths, size):
    """True at the first ``lengths`` positions of each row."""
    return torch.arange(size) < torch.tensor(lengths)[:, None]


def walk(weighing, energies, mask):
    """Weights (B, T, S) of energies (B, T, S), one target position after another."""
    past, found = Past.none(energies.transpose(1, 2)), []
    for energies_i in energies.unbind(dim=1):
        weights = weighing(energies_i, mask, NO_QUERY, past)
        past = past.then(weights)
        found.append(weights)
    return torch.stack(found, dim=1)


# The past


def test_the_past_is_the_last_weights_their_sum_so_far_and_a_count():
    rows = random(3, 2, 5)
    past = Past.none(random(2, 5, 7))
    assert (past.previous == 0).all()
    assert (past.coverage == 0).all()
    assert past.position.tolist() == [0, 0]
    for i, weights in enumerate(rows):
        earlier = Past(*(part.clone() for part in past))
        new = past.then(weights)
        assert all(map(torch.equal, past, earlier))
        past = new
        assert torch.equal(past.previous, weights)
        assert_close(past.coverage, rows[: i + 1].sum(dim=0))
        assert past.position.tolist() == [i + 1, i + 1]


def test_selecting_from_the_past_repeats_and_leaves_out_whole_rows():
    past = Past(random(3, 5), random(3, 5), torch.tensor([4, 5, 6]))
    selected = past.select(torch.tensor([2, 0, 2, 2]))
    assert selected.position.tolist() == [6, 4, 6, 6]
    for part, whole in zip(selected, past, strict=True):
        assert torch.equal(part, whole[[2, 0, 2, 2]])


# Soft


@every_normalisation
def test_soft_attention_is_the_function_of_its_name(normalisation):
    energies, mask = random(3, 5), mask_of([5, 3, 0], 5)
    weights = Soft(normalisation)(energies, mask, NO_QUERY, None)
    assert torch.equal(weights, NORMALISERS[normalisation](energies, mask))


# Local


@every_normalisation
@settings(max_examples=20)
@given(st.integers(1, 4), st.integers(1, 7), st.integers(0, 2), TRIALS)
def test_local_m_sees_what_lies_within_the_window_and_nothing_else(
    normalisation, window, length, padding, trial
):
    """Also beyond the end of the source, where it stays at the last token."""
    torch.manual_seed(trial)
    energies = random(1, length + 4, length + padding)
    weighing = LocalMonotonic(window, normalisation)
    weights = walk(weighing, energies, mask_of([length], length + padding))[0]
    for i, row in enumerate(weights):
        center = min(i, length - 1)
        inside = slice(max(0, center - window), min(length, center + window + 1))
        expected = torch.zeros_like(row)
        size = inside.stop - inside.start
        expected[inside] = NORMALISERS[normalisation](
            energies[0, i, inside], torch.ones(size, dtype=torch.bool)
        )
        assert_close(row, expected)


@every_normalisation
def test_a_window_over_the_whole_source_is_soft_attention(normalisation):
    energies, mask = random(3, 5, 6), mask_of([6, 4, 1], 6)
    soft = walk(Soft(normalisation), energies, mask)
    assert_close(walk(LocalMonotonic(6, normalisation), energies, mask), soft)


def predictive(window, normalisation="softmax"):
    weighing = LocalPredictive(H, A, window, normalisation).double()
    for parameter in weighing.parameters():
        torch.nn.init.normal_(parameter)
    return weighing


def predicted(weighing, query, length):
    """p = (S - 1) sigmoid(v . tanh(W s)) by numpy."""
    w, v = (
        layer.weight.detach().numpy() for layer in (weighing.query_layer, weighing.position_layer)
    )
    return (length - 1) / (1 + math.exp(-(v @ np.tanh(w @ query.numpy())).item()))


@settings(max_examples=30)
@given(st.integers(1, 5), st.integers(1, 8), st.sampled_from([0.1, 1.0, 30.0]), TRIALS)
def test_local_p_is_the_softmax_times_a_gaussian_made_to_sum_to_one(window, length, scale, trial):
    """Equations 7, 9 and 10 of Luong et al. in their order; only the last division is ours."""
    torch.manual_seed(trial)
    weighing, query, energies = predictive(window), scale * random(1, H), random(1, length)
    weights = weighing(energies, torch.ones(1, length, dtype=torch.bool), query, None)[0]
    p, places = predicted(weighing, query[0], length), np.arange(length)
    assert 0 <= p <= length - 1
    inside = np.abs(places - p) <= window
    exponentials = np.exp(energies[0].numpy()) * inside
    align = exponentials / exponentials.sum()
    product = align * np.exp(-((places - p) ** 2) / (2 * (window / 2) ** 2))
    assert inside.any()
    assert_close(weights, torch.from_numpy(product / product.sum()))


@every_normalisation
def test_local_p_normalises_as_it_is_told(normalisation):
    """The Gaussian is part of the energies, whatever makes weights of them."""
    weighing, query, energies = predictive(2, normalisation), random(1, H), random(1, 9)
    weights = weighing(energies, mask_of([7], 9), query, None)[0]
    p = predicted(weighing, query[0], 7)
    inside = [j for j in range(7) if abs(j - p) <= 2]
    near = torch.stack([energies[0, j] - (j - p) ** 2 / 2 for j in inside])
    expected = torch.zeros(9, dtype=torch.float64)
    expected[inside] = NORMALISERS[normalisation](near, torch.ones(len(near), dtype=torch.bool))
    assert_close(weights, expected)


@pytest.mark.parametrize("size", [1e-4, 1.0, 1e4])
def test_the_window_of_local_p_never_leaves_the_sentence(size):
    weighing = predictive(1)
    lengths = torch.randint(1, 9, (200,))
    mask = torch.arange(9) < lengths[:, None]
    weights = weighing(random(200, 9), mask, size * random(200, H), None)
    assert_close(weights.sum(dim=1), torch.ones(200, dtype=torch.float64))
    assert (weights[~mask] == 0).all()


# Hard


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("temperature", [0.1, 1.0, 10.0])
def test_hard_attention_looks_at_exactly_one_token(training, temperature):
    lengths = torch.randint(0, 8, (300,))
    mask = torch.arange(7) < lengths[:, None]
    energies = 3 * torch.randn(300, 7)  # in single precision, where x + (y - y) could be inexact
    weights = Hard(temperature).train(training)(energies, mask, NO_QUERY, None)
    assert ((weights == 0) | (weights == 1)).all()
    assert (weights.sum(dim=1) == mask.any(dim=1)).all()
    assert (weights[~mask] == 0).all()


@pytest.mark.parametrize("temperature", [0.1, 10.0])
def test_evaluation_looks_at_the_token_of_the_largest_energy(temperature):
    energies = random(50, 6)
    weights = Hard(temperature).eval()(energies, mask_of([4] * 50, 6), NO_QUERY, None)
    assert torch.equal(weights.argmax(dim=1), energies[:, :4].argmax(dim=1))


@pytest.mark.parametrize("temperature", [0.3, 1.0, 3.0])
def test_training_draws_tokens_as_often_as_the_softmax_says(temperature):
    """Whatever the temperature, which shapes the gradient only. The sum of squared deviations is
    about chi-square with 4 degrees of freedom: above 28 once in 100,000 times."""
    draws, mask = 40_000, mask_of([5], 6)
    energies = torch.tensor([[0.5, -1.0, 2.0, 0.0, 1.0, 9.0]])
    weights = Hard(temperature)(energies.expand(draws, 6), mask.expand(draws, 6), NO_QUERY, None)
    expected = draws * energies[0, :5].softmax(dim=0)
    counts = weights.sum(dim=0)
    assert counts[5] == 0
    assert ((counts[:5] - expected).square() / expected).sum() < 28


@pytest.mark.parametrize("temperature", [0.5, 2.0])
def test_the_gradient_of_hard_attention_is_that_of_the_softmax_it_was_drawn_from(temperature):
    """Straight through: one forwards, softmax((e + g) / temperature) backwards."""
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


def test_hard_attention_in_evaluation_has_no_gradient_of_its_energies():
    energies = random(2, 3).requires_grad_()
    assert not Hard(1.0).eval()(energies, mask_of([3, 2], 3), NO_QUERY, None).requires_grad


# Monotonic


def monotonic(noise, training=True):
    weighing = Monotonic(noise).double().train(training)
    torch.nn.init.normal_(weighing.offset)
    return weighing


def chances(weighing, energies, length):
    """p_ij of one sentence, (T, length): the last token stops every search."""
    r = weighing.initial_offset + weighing.offset.item()
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
def test_training_has_the_expected_weights_of_raffel_et_al(
    length, padding, num_targets, scale, trial
):
    """q_ij = (1 - p_i,j-1) q_i,j-1 + a_i-1,j and a_ij = p_ij q_ij, a_0 being the first position:
    their recursion, which our matrix of products must solve, also where p is 0 or 1."""
    torch.manual_seed(trial)
    weighing, energies = monotonic(noise=0), scale * random(1, num_targets, length + padding)
    p = chances(weighing, energies[0], length)
    expected = np.zeros((num_targets, length + padding))
    before = np.eye(length)[0]
    for i in range(num_targets):
        q = np.zeros(length)
        for j in range(length):
            q[j] = before[j] + ((1 - p[i, j - 1]) * q[j - 1] if j else 0)
        before = p[i] * q
        expected[i, :length] = before
    found = walk(weighing, energies, mask_of([length], length + padding))[0]
    assert_close(found, torch.from_numpy(expected))


def simulate(p, generator):
    """Where one search from left to right stops at each target position."""
    at = 0
    for row in p:
        while generator.random() >= row[at]:
            at += 1
        yield at


def test_training_has_the_mean_of_many_searches_from_left_to_right():
    weighing, energies = monotonic(noise=0), 2 * random(1, 4, 6)
    p, generator, searches = chances(weighing, energies[0], 5), np.random.default_rng(1), 20_000
    counts = np.zeros((4, 6))
    for _ in range(searches):
        for i, j in enumerate(simulate(p, generator)):
            counts[i, j] += 1
    found = walk(weighing, energies, mask_of([5], 6))[0].detach().numpy()
    deviation = np.sqrt(found * (1 - found) / searches)
    assert (np.abs(counts / searches - found) <= 5 * deviation + 1e-12).all()


@settings(max_examples=30)
@given(st.integers(1, 7), st.integers(0, 2), st.integers(1, 6), TRIALS)
def test_evaluation_stops_at_the_first_token_more_likely_to_stop_than_not(
    length, padding, num_targets, trial
):
    """The search itself, and its place never moves to the left."""
    torch.manual_seed(trial)
    weighing = monotonic(noise=1, training=False)
    energies = random(1, num_targets, length + padding)
    p, at, places = chances(weighing, energies[0], length), 0, []
    for row in p:
        while row[at] < 0.5:
            at += 1
        places.append(at)
    weights = walk(weighing, energies, mask_of([length], length + padding))[0]
    assert torch.equal(weights, torch.eye(length + padding, dtype=torch.float64)[places])
    assert places == sorted(places)


def test_at_first_a_search_looks_further_than_the_next_token():
    """Raffel et al. begin with a negative offset: here p = sigmoid(-1) = 0.2689."""
    weighing, mask = Monotonic(noise=0.0), mask_of([4], 4)
    torch.nn.init.zeros_(weighing.offset)  # as any way of initialising has it, or nearly
    weights = weighing(torch.zeros(1, 4), mask, NO_QUERY, Past.none(torch.zeros(1, 4, 1)))[0]
    assert_close(weights[0].item(), 0.2689, atol=5e-5, rtol=0)


def test_the_expected_place_never_moves_to_the_left():
    """The share of the weight that lies before any position can only shrink."""
    weights = walk(monotonic(noise=1), random(20, 6, 7), mask_of([7] * 10 + [4] * 10, 7))
    before = weights.cumsum(dim=2)
    assert (before.diff(dim=1) <= 1e-12).all()


def test_training_adds_noise_to_the_energies():
    noisy, quiet = monotonic(noise=0.7), monotonic(noise=0)
    quiet.load_state_dict(noisy.state_dict())
    energies, mask = random(3, 1, 5), mask_of([5, 3, 1], 5)
    torch.manual_seed(7)
    found = walk(noisy, energies, mask)
    torch.manual_seed(7)
    disturbed = energies + 0.7 * torch.randn(3, 5, dtype=torch.float64).unsqueeze(1)
    assert_close(found, walk(quiet, disturbed, mask))


def test_a_certain_choice_passes_gradients_that_are_finite():
    """Where p is 0 or 1 to the last bit, dividing by running products would divide by 0."""
    energies = (1e4 * random(3, 4, 6)).requires_grad_()
    weights = walk(monotonic(noise=0), energies, mask_of([6, 2, 0], 6))
    assert_close(weights.sum(dim=2)[:2], torch.ones(2, 4, dtype=torch.float64))
    (weights * random(3, 4, 6)).sum().backward()
    assert energies.grad.isfinite().all()


@pytest.mark.parametrize(
    "weighing", [LocalMonotonic(1), Monotonic(0.0)], ids=["local_m", "monotonic"]
)
def test_every_row_has_a_past_of_its_own(weighing):
    """Sentences may be at different target positions, some at their first."""
    energies, mask = random(3, 6), mask_of([6, 6, 4], 6)
    previous = random(3, 6).softmax(dim=1) * torch.tensor([[0], [1], [1]])
    past = Past(previous, previous, torch.tensor([0, 1, 3]))
    together = weighing(energies, mask, NO_QUERY, past)
    for row in range(3):
        one = torch.tensor([row])
        alone = weighing(energies[one], mask[one], NO_QUERY, past.select(one))
        assert_close(together[one], alone)


# Rows without a token, and what stands at padding


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize(
    "weighing",
    [Soft(), LocalMonotonic(2), LocalPredictive(H, A, 2).double(), Hard(0.5), Monotonic(1.0)],
    ids=lambda weighing: type(weighing).__name__,
)
def test_a_row_without_a_token_has_no_weights_and_no_gradient(weighing, training):
    energies, query = random(2, 5).requires_grad_(), random(2, H)
    weights = weighing.train(training)(
        energies, mask_of([3, 0], 5), query, Past.none(random(2, 5, 6))
    )
    assert (weights[1] == 0).all()
    assert_close(weights[0].sum().item(), 1.0)
    if weights.requires_grad:
        (weights * random(2, 5)).sum().backward()
        assert energies.grad.isfinite().all()
        assert (energies.grad[1] == 0).all()
        assert (energies.grad[0, 3:] == 0).all()
