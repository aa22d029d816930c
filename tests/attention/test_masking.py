import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from seq2seq.attention.masking import (
    NORMALISERS,
    masked_entmax15,
    masked_softmax,
    masked_sparsemax,
)

FLOATS = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
INTEGERS = [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8]

few_examples = settings(max_examples=25)  # for each of the three
every_normaliser = pytest.mark.parametrize("normalise", NORMALISERS.values(), ids=NORMALISERS)
every_sparse_normaliser = pytest.mark.parametrize(
    ("normalise", "scale", "power"),
    [(masked_sparsemax, 1, 1), (masked_entmax15, 1 / 2, 2)],
    ids=["sparsemax", "entmax15"],
)


def mask_of(lengths, size):
    """True at the first ``lengths`` positions of each row."""
    return torch.arange(size) < torch.tensor(lengths)[..., None]


def everywhere(scores):
    """The mask of rows without padding."""
    return torch.ones_like(scores, dtype=torch.bool)


LARGEST = torch.finfo(torch.float32).max
ANY = st.floats(-LARGEST, LARGEST, width=32)
CLOSE = st.floats(-2, 2, width=32)  # near enough to each other to share the weight
SIXTEENTHS = st.integers(-32, 32).map(lambda n: n / 16)  # exact, also a thousand away


@st.composite
def rows(draw, *kinds):
    """Scores (S,) of one of these kinds, and any mask of them."""
    position = st.tuples(draw(st.sampled_from(kinds)), st.booleans())
    scores, mask = zip(*draw(st.lists(position, min_size=1, max_size=8)), strict=True)
    return torch.tensor(scores), torch.tensor(mask)


def close_scores():
    """Close scores (S,) in double precision."""
    values = st.lists(st.floats(-2, 2), min_size=1, max_size=8)
    return values.map(lambda scores: torch.tensor(scores, dtype=torch.float64))


def gradient(normalise, scores, mask):
    """Of a loss that prefers later positions."""
    leaf = scores.clone().requires_grad_()
    loss = normalise(leaf, mask) * torch.arange(1, leaf.shape[-1] + 1)
    return torch.autograd.grad(loss.sum(), leaf)[0]


# What all of them promise


@every_normaliser
@few_examples
@given(rows(CLOSE, ANY))
def test_a_row_sums_to_one_unless_it_is_all_padding(normalise, row):
    scores, mask = row
    weights = normalise(scores, mask)
    assert (weights >= 0).all()
    assert_close(weights.sum(), mask.any().float())


@every_normaliser
@few_examples
@given(rows(CLOSE, ANY))
def test_a_token_gets_what_it_gets_without_padding_and_padding_exactly_nothing(normalise, row):
    scores, mask = row
    weights = normalise(scores, mask)
    assert (weights[~mask] == 0).all()
    assert_close(weights[mask], normalise(scores[mask], everywhere(scores[mask])))


@every_normaliser
@few_examples
@given(rows(CLOSE, ANY), st.floats(width=32))
def test_what_stands_at_padding_does_not_matter_not_even_nan(normalise, row, junk):
    scores, mask = row
    other = scores.masked_fill(~mask, junk)
    assert torch.equal(normalise(other, mask), normalise(scores, mask))
    assert torch.equal(gradient(normalise, other, mask), gradient(normalise, scores, mask))


@every_normaliser
@few_examples
@given(rows(CLOSE, ANY))
def test_gradients_are_finite_for_scores_of_any_size(normalise, row):
    assert gradient(normalise, *row).isfinite().all()


@every_normaliser
@few_examples
@given(rows(SIXTEENTHS), st.integers(-1000, 1000))
def test_only_differences_of_scores_count(normalise, row, shift):
    scores, mask = row
    assert_close(normalise(scores + shift, mask), normalise(scores, mask))


@every_normaliser
@few_examples
@given(rows(CLOSE, ANY), st.randoms(use_true_random=False))
def test_the_order_of_positions_does_not_matter(normalise, row, random):
    scores, mask = row
    order = torch.tensor(random.sample(range(len(scores)), len(scores)))
    assert_close(normalise(scores[order], mask[order]), normalise(scores, mask)[order])


@every_normaliser
def test_equal_scores_share_the_weight_equally(normalise):
    weights = normalise(torch.full((3, 4), 7.0), mask_of([4, 2, 1], 4))
    quarters = [[1, 1, 1, 1], [2, 2, 0, 0], [4, 0, 0, 0]]
    assert_close(weights, torch.tensor(quarters) / 4)


@every_normaliser
def test_true_means_a_token_so_the_first_word_of_every_sentence_can_be_looked_at(normalise):
    weights = normalise(torch.zeros(3, 5), mask_of([5, 4, 1], 5))
    assert_close(weights[:, 0], torch.tensor([1 / 5, 1 / 4, 1.0]))


@every_normaliser
@pytest.mark.parametrize("kind", FLOATS)
def test_an_empty_row_is_all_zero_and_not_uniform_over_padding(normalise, kind):
    weights = normalise(torch.full((1, 4), 7.0, dtype=kind), mask_of([0], 4))
    assert weights.dtype == kind
    assert (weights == 0).all()


@every_normaliser
def test_a_row_may_have_no_positions_at_all(normalise):
    assert normalise(torch.zeros(2, 0), mask_of([0, 0], 0)).shape == (2, 0)


@every_normaliser
@pytest.mark.parametrize("kind", FLOATS)
def test_gradients_are_finite_and_zero_at_padding(normalise, kind):
    scores = torch.tensor([[0.5, 0.25, 0.375, 9.0], [1, 2, 3, 4], [5, 6, 7, 8]], dtype=kind)
    mask = mask_of([3, 0, 1], 4)
    with torch.autograd.set_detect_anomaly(True):  # no NaN on the way, either
        grad = gradient(normalise, scores, mask)
    assert grad.isfinite().all()
    assert (grad[~mask] == 0).all()
    assert (grad[0, :3] != 0).any()


@every_normaliser
def test_first_and_second_derivatives_are_those_of_finite_differences(normalise):
    scores = torch.tensor(
        [[0.9, 0.5, 0.1, -3.0, 7.0], [1.0, 2.0, 3.0, 4.0, 5.0], [0.3, -0.2, 0.0, 0.1, 0.25]],
        dtype=torch.float64,
        requires_grad=True,
    )
    mask = mask_of([4, 0, 5], 5)
    assert torch.autograd.gradcheck(normalise, (scores, mask))
    assert torch.autograd.gradgradcheck(normalise, (scores, mask))


@every_normaliser
@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
def test_half_precision_gives_the_weights_of_single_precision_rounded_once(normalise, kind):
    generator = torch.Generator().manual_seed(0)
    scores = (2 * torch.randn(6, 9, generator=generator)).to(kind)
    scores[:, 5:] = torch.finfo(kind).max  # at padding, of all rows but the last
    mask = mask_of([5, 3, 1, 0, 4, 9], 9)
    weights = normalise(scores, mask)
    assert weights.dtype == kind
    assert torch.equal(weights, normalise(scores.float(), mask).to(kind))


@every_normaliser
@pytest.mark.parametrize("length", [4, 2])
@pytest.mark.parametrize("kind", FLOATS)
def test_the_lowest_finite_scores_are_scores_like_any_other(normalise, kind, length):
    scores = torch.full((1, 4), torch.finfo(kind).min, dtype=kind)
    weights = normalise(scores, mask_of([length], 4))
    assert_close(weights, mask_of([length], 4).to(kind) / length)


@every_normaliser
def test_the_scores_of_the_caller_stay_as_they_were(normalise):
    scores = torch.randn(2, 4)
    before = scores.clone()
    first = normalise(scores, mask_of([2, 1], 4))
    normalise(scores.view(1, 2, 4), mask_of([[4, 4]], 4))
    normalise(scores.view(1, 2, 4), torch.tensor([[4, 0]]))
    assert torch.equal(scores, before)
    assert torch.equal(normalise(scores, mask_of([2, 1], 4)), first)


@every_normaliser
def test_compiled_it_gives_the_same_weights_and_gradients(normalise):
    torch._dynamo.reset()  # or its limit of recompilations counts those of other tests
    compiled = torch.compile(normalise, fullgraph=True, backend="aot_eager")
    scores = torch.randn(3, 2, 4, generator=torch.Generator().manual_seed(0), requires_grad=True)
    lengths = torch.tensor([3, 0, 4])
    weights, expected = compiled(scores, lengths), normalise(scores, lengths)
    assert_close(weights, expected)
    assert_close(*(torch.autograd.grad(w[..., 1].sum(), scores) for w in (weights, expected)))


def test_a_boolean_mask_is_compiled_as_well():
    compiled = torch.compile(masked_softmax, fullgraph=True, backend="aot_eager")
    scores, mask = torch.zeros(1, 4), mask_of([2], 4)
    assert_close(compiled(scores, mask), masked_softmax(scores, mask))


# What a mask may be


@every_normaliser
def test_one_mask_serves_all_queries_of_a_sentence(normalise):
    scores = torch.randn(2, 3, 4)
    mask = mask_of([4, 2], 4)
    together = normalise(scores, mask[:, None])
    for query in range(3):
        assert_close(together[:, query], normalise(scores[:, query], mask))


@every_normaliser
@pytest.mark.parametrize("kind", INTEGERS)
def test_a_length_for_each_sentence_means_the_same_mask_for_all_of_its_queries(normalise, kind):
    scores, lengths = torch.randn(3, 2, 4), torch.tensor([4, 0, 3], dtype=kind)
    mask = mask_of([[4, 4], [0, 0], [3, 3]], 4)
    assert torch.equal(normalise(scores, lengths), normalise(scores, mask))
    heads = scores[:, None]  # (B, heads, Q, S)
    assert torch.equal(normalise(heads, lengths), normalise(heads, mask[:, None]))


@every_normaliser
def test_a_length_for_each_query_means_a_mask_of_its_own(normalise):
    scores, lengths = torch.randn(3, 2, 4), [[4, 1], [0, 2], [3, 3]]
    assert torch.equal(
        normalise(scores, torch.tensor(lengths)), normalise(scores, mask_of(lengths, 4))
    )


@every_normaliser
def test_a_length_beyond_the_row_means_all_of_it(normalise):
    scores = torch.randn(2, 4)
    assert torch.equal(
        normalise(scores, torch.tensor([9, 4])), normalise(scores, everywhere(scores))
    )


@every_normaliser
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16, torch.complex64])
def test_a_mask_of_fractions_is_refused(normalise, kind):
    message = f"boolean with True at real tokens, or integer lengths, not {kind}"
    for shape in [(2,), (2, 3)]:
        with pytest.raises(TypeError, match=message):
            normalise(torch.zeros(2, 3), torch.ones(shape, dtype=kind))


@every_normaliser
@pytest.mark.parametrize("kind", INTEGERS)
def test_a_mask_of_0_and_1_is_refused_because_its_polarity_would_be_a_guess(normalise, kind):
    with pytest.raises(ValueError, match=r"\(2,\).* \(2, 3\); its shape is \(2, 3, 4\).*mask.bool"):
        normalise(torch.zeros(2, 3, 4), torch.ones(2, 3, 4, dtype=kind))
    with pytest.raises(ValueError, match=r"its shape is \(4,\)"):
        normalise(torch.zeros(4), torch.ones(4, dtype=kind))


@every_normaliser
@pytest.mark.parametrize("shape", [(3,), (2, 2), (2, 1), (), (1, 2, 3)])
def test_lengths_of_any_other_shape_are_refused(normalise, shape):
    with pytest.raises(ValueError, match="lengths"):
        normalise(torch.zeros(2, 3, 4), torch.ones(shape, dtype=torch.int64))


@every_normaliser
def test_a_length_for_each_head_is_refused_because_queries_would_be_missing(normalise):
    with pytest.raises(ValueError, match=r"\(2,\).* \(2, 3, 5\); its shape is \(2, 3\)"):
        normalise(torch.zeros(2, 3, 5, 4), torch.ones(2, 3, dtype=torch.int64))


@every_normaliser
@pytest.mark.parametrize("shape", [(3,), (5, 2, 4)])
def test_a_mask_must_fit_the_scores_and_never_repeats_them(normalise, shape):
    with pytest.raises(RuntimeError, match="expand"):
        normalise(torch.zeros(2, 4), torch.ones(shape, dtype=torch.bool))


# What each of them is


@given(rows(CLOSE, ANY))
def test_softmax_is_the_softmax_of_the_real_positions(row):
    scores, mask = row
    assert_close(masked_softmax(scores, mask)[mask], scores[mask].softmax(dim=0))


def test_the_ratio_of_two_softmax_weights_is_the_exponential_of_the_difference_of_scores():
    scores = torch.tensor([2.0, 3.0, 1.0]).log()
    assert_close(masked_softmax(scores, mask_of(2, 3)), torch.tensor([2 / 5, 3 / 5, 0.0]))


@pytest.mark.parametrize(
    ("normalise", "scores", "expected"),
    [
        # tau = (1 + 0.8 - 1) / 2 = 0.4
        (masked_sparsemax, [1.0, 0.8, -1.0], [0.6, 0.4, 0.0]),
        # tau = (3 - 1) / 1 = 2
        (masked_sparsemax, [3.0, 2.0, 0.0], [1.0, 0.0, 0.0]),
        # tau = 0: the halves 0.8 and 0.6 are the sides of a right triangle
        (masked_entmax15, [1.6, 1.2, 0.0], [0.64, 0.36, 0.0]),
        # tau = -2 / 3: (2 / 3)^2 + (1 / 3)^2 + (2 / 3)^2 = 1
        (masked_entmax15, [0.0, -2 / 3, 0.0, -1.4], [4 / 9, 1 / 9, 4 / 9, 0.0]),
        # tau = 0: a lead of 2 takes everything
        (masked_entmax15, [2.0, 0.0], [1.0, 0.0]),
    ],
)
def test_hand_calculations(normalise, scores, expected):
    padded = torch.tensor([*scores, 99.0])
    assert_close(normalise(padded, mask_of(len(scores), len(padded))), torch.tensor([*expected, 0]))


@given(st.floats(-3, 3))
def test_sparsemax_of_two_scores_is_linear_in_their_difference(difference):
    scores = torch.tensor([difference, 0.0], dtype=torch.float64)
    share = min(max((1 + difference) / 2, 0), 1)
    assert_close(
        masked_sparsemax(scores, everywhere(scores)),
        torch.tensor([share, 1 - share], dtype=torch.float64),
    )


@pytest.mark.parametrize("normalise", [masked_sparsemax, masked_entmax15])
def test_rows_do_not_see_each_other(normalise):
    scores = 3 * torch.randn(6, 5, generator=torch.Generator().manual_seed(0))
    for row, weights in zip(scores, normalise(scores, everywhere(scores)), strict=True):
        assert_close(weights, normalise(row, everywhere(row)))


@given(close_scores())
def test_sparsemax_leaves_a_distribution_as_it_is(scores):
    distribution = scores.softmax(dim=0)
    assert_close(masked_sparsemax(distribution, everywhere(scores)), distribution)


@every_sparse_normaliser
@few_examples
@given(close_scores())
def test_the_threshold_is_the_one_that_bisection_finds(normalise, scale, power, scores):
    low, high = scale * scores.max() - 1, scale * scores.max()
    for _ in range(60):
        middle = (low + high) / 2
        enough = (scale * scores - middle).clamp(min=0).pow(power).sum() >= 1
        low, high = (middle, high) if enough else (low, middle)
    expected = (scale * scores - low).clamp(min=0).pow(power)
    assert_close(normalise(scores, everywhere(scores)), expected)


# The problems of which the three are the solutions: the reward of distributions (..., S).
REWARDS = {
    "softmax": lambda p, scores: p @ scores + torch.special.entr(p).sum(dim=-1),
    "sparsemax": lambda p, scores: -(p - scores).square().sum(dim=-1),
    "entmax15": lambda p, scores: p @ scores + (p - p.pow(1.5)).sum(dim=-1) / (1.5 * 0.5),
}


@pytest.mark.parametrize("name", NORMALISERS)
@few_examples
@given(scores=close_scores())
def test_no_distribution_has_a_higher_reward(name, scores):
    best = NORMALISERS[name](scores, everywhere(scores))
    others = torch.distributions.Dirichlet(torch.full_like(scores, 0.5)).sample((200,))
    near = best + 1e-3 * (others - best)
    for points in (others, near):
        assert (REWARDS[name](points, scores) <= REWARDS[name](best, scores) + 1e-12).all()


@pytest.mark.parametrize("name", NORMALISERS)
@few_examples
@given(scores=close_scores())
def test_no_weight_could_be_moved_to_a_better_place(name, scores):
    """The conditions of Karush, Kuhn and Tucker, which a concave reward makes sufficient."""
    weights = NORMALISERS[name](scores, everywhere(scores)).requires_grad_()
    (marginal,) = torch.autograd.grad(REWARDS[name](weights, scores), weights)
    best = marginal.max().expand_as(marginal)
    used = weights > 0
    # The square root of a weight, in the marginal reward of entmax15, doubles its error's size.
    assert_close(marginal[used], best[used], rtol=0, atol=1e-6)


@given(close_scores())
def test_sparsemax_drops_what_entmax15_drops_and_softmax_drops_nothing(scores):
    few, some, all_ = (
        normalise(scores, everywhere(scores)) > 0
        for normalise in (masked_sparsemax, masked_entmax15, masked_softmax)
    )
    assert (few <= some).all()
    assert all_.all()


def test_entmax15_lies_between_softmax_and_sparsemax_in_sparsity():
    scores = torch.linspace(-2, 2, 9)
    used = {name: int((f(scores, everywhere(scores)) > 0).sum()) for name, f in NORMALISERS.items()}
    assert used["sparsemax"] < used["entmax15"] < used["softmax"]


@every_sparse_normaliser
def test_rounding_does_not_grow_with_the_length_of_a_row(normalise, scale, power):
    """One high score and a thousand that just reach the support: the hard case of long sums."""
    scores = -torch.rand(1000, generator=torch.Generator().manual_seed(0)) / 1e3 - 0.997 / scale
    scores[0] = 0
    double = scores.double()
    weights = normalise(scores, everywhere(scores))
    assert_close(weights.sum(), torch.tensor(1.0), rtol=0, atol=1e-6)
    assert_close(weights.double(), normalise(double, everywhere(double)), rtol=0, atol=1e-6)
