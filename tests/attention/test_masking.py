"""Masked normalization compared with torch, hand calculations, and optimality conditions."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from inputs import mask_of
from torch.testing import assert_close

from seq2seq.attention.masking import (
    NORMALIZERS,
    masked_entmax15,
    masked_softmax,
    masked_sparsemax,
)

FLOATS = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
INTEGERS = [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8]

few_examples = settings(max_examples=25)
every_normalizer = pytest.mark.parametrize("normalize", NORMALIZERS.values(), ids=NORMALIZERS)
every_sparse_normalizer = pytest.mark.parametrize(
    ("normalize", "scale", "power"),
    [(masked_sparsemax, 1, 1), (masked_entmax15, 1 / 2, 2)],
    ids=["sparsemax", "entmax15"],
)


def everywhere(scores):
    return torch.ones_like(scores, dtype=torch.bool)


LARGEST = torch.finfo(torch.float32).max
ANY = st.floats(-LARGEST, LARGEST, width=32)
CLOSE = st.floats(-2, 2, width=32)  # close enough to each other to share the weight
SIXTEENTHS = st.integers(-32, 32).map(lambda n: n / 16)  # exact even after a shift by 1000


@st.composite
def rows(draw, *kinds):
    """Scores (S,) of one of these kinds, and any mask."""
    position = st.tuples(draw(st.sampled_from(kinds)), st.booleans())
    scores, mask = zip(*draw(st.lists(position, min_size=1, max_size=8)), strict=True)
    return torch.tensor(scores), torch.tensor(mask)


def close_scores():
    values = st.lists(st.floats(-2, 2), min_size=1, max_size=8)
    return values.map(lambda scores: torch.tensor(scores, dtype=torch.float64))


def gradient(normalize, scores, mask):
    leaf = scores.clone().requires_grad_()
    loss = normalize(leaf, mask) * torch.arange(1, leaf.shape[-1] + 1)
    return torch.autograd.grad(loss.sum(), leaf)[0]


# Shared contract


@pytest.mark.guarantee(
    "Padding has a weight of exactly zero, and its content, even NaN, changes nothing."
)
@every_normalizer
@few_examples
@given(rows(CLOSE, ANY), st.floats(width=32))
def test_masked_row_equals_unpadded_row_whatever_the_padding_holds(normalize, row, junk):
    scores, mask = row
    scores = scores.masked_fill(~mask, junk)
    weights, grad = normalize(scores, mask), gradient(normalize, scores, mask)
    assert (weights >= 0).all()
    assert_close(weights.sum(), mask.any().float())
    assert_close(weights[mask], normalize(scores[mask], everywhere(scores[mask])))
    assert grad.isfinite().all()
    assert (weights[~mask] == 0).all()
    assert (grad[~mask] == 0).all()


@every_normalizer
@few_examples
@given(rows(SIXTEENTHS), st.integers(-1000, 1000), st.randoms(use_true_random=False))
def test_weights_ignore_a_shift_and_follow_a_permutation_of_the_scores(
    normalize, row, shift, random
):
    scores, mask = row
    order = torch.tensor(random.sample(range(len(scores)), len(scores)))
    moved = normalize((scores + shift)[order], mask[order])
    assert_close(moved, normalize(scores, mask)[order])


@pytest.mark.guarantee(
    "A sentence without tokens gets zero weights and finite gradients, not NaN or uniform weights."
)
@every_normalizer
@pytest.mark.parametrize("kind", FLOATS)
def test_equal_scores_share_the_weight_and_an_empty_row_is_zero(normalize, kind):
    """Even the lowest finite scores, which a filled mask would confuse with padding."""
    quarters = torch.tensor([[1, 1, 1, 1], [2, 2, 0, 0], [4, 0, 0, 0], [0, 0, 0, 0]])
    for score in (7.0, torch.finfo(kind).min):
        weights = normalize(torch.full((4, 4), score, dtype=kind), mask_of([4, 2, 1, 0], 4))
        assert_close(weights, (quarters / 4).to(kind))
    assert normalize(torch.zeros(2, 0, dtype=kind), mask_of([0, 0], 0)).shape == (2, 0)


@every_normalizer
def test_first_and_second_derivatives_equal_finite_differences(normalize):
    scores = torch.tensor(
        [[0.9, 0.5, 0.1, -3.0, 7.0], [1.0, 2.0, 3.0, 4.0, 5.0], [0.3, -0.2, 0.0, 0.1, 0.25]],
        dtype=torch.float64,
        requires_grad=True,
    )
    mask = mask_of([4, 0, 5], 5)
    with torch.autograd.set_detect_anomaly(True):  # no intermediate NaN either
        gradient(normalize, scores, mask)
    assert torch.autograd.gradcheck(normalize, (scores, mask))
    assert torch.autograd.gradgradcheck(normalize, (scores, mask))


@pytest.mark.guarantee("Half-precision weights equal single-precision weights rounded once.")
@every_normalizer
@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
def test_half_precision_weights_equal_rounded_single_precision_weights(normalize, kind):
    generator = torch.Generator().manual_seed(0)
    scores = (2 * torch.randn(6, 9, generator=generator)).to(kind)
    scores[:, 5:] = torch.finfo(kind).max  # padding in all rows except the last
    mask = mask_of([5, 3, 1, 0, 4, 9], 9)
    weights, grad = normalize(scores, mask), gradient(normalize, scores, mask)
    assert torch.equal(weights, normalize(scores.float(), mask).to(kind))
    assert grad.isfinite().all()


@pytest.mark.guarantee("Attention keeps no state between calls and modifies no argument.")
@every_normalizer
def test_scores_of_the_caller_are_not_modified(normalize):
    scores = torch.randn(2, 4)
    before = scores.clone()
    normalize(scores, mask_of([2, 1], 4))
    normalize(scores.view(1, 2, 4), torch.tensor([[4, 0]]))
    assert torch.equal(scores, before)


@every_normalizer
def test_compiled_function_gives_the_same_weights_and_gradients(normalize):
    torch._dynamo.reset()  # its limit of recompilations is shared with other tests
    compiled = torch.compile(normalize, fullgraph=True, backend="aot_eager")
    scores = torch.randn(3, 2, 4, generator=torch.Generator().manual_seed(0), requires_grad=True)
    masks = [torch.tensor([3, 0, 4]), mask_of([3, 0, 4], 4)[:, None]]
    for mask in masks if normalize is masked_softmax else masks[:1]:
        weights, expected = compiled(scores, mask), normalize(scores, mask)
        assert_close(weights, expected)
        assert_close(*(torch.autograd.grad(w[..., 1].sum(), scores) for w in (weights, expected)))


# Kinds of masks


@every_normalizer
@pytest.mark.parametrize("kind", INTEGERS)
def test_lengths_mean_the_mask_of_their_leading_positions(normalize, kind):
    scores, lengths = torch.randn(3, 2, 4), torch.tensor([4, 0, 3], dtype=kind)
    per_sentence, per_query = mask_of([4, 0, 3], 4)[:, None], [[4, 1], [0, 2], [3, 9]]
    assert torch.equal(normalize(scores, lengths), normalize(scores, per_sentence))
    by_query = normalize(scores, torch.tensor(per_query, dtype=kind))
    assert torch.equal(by_query, normalize(scores, mask_of(per_query, 4)))
    heads = scores[:, None]  # (B, heads, Q, S)
    assert torch.equal(normalize(heads, lengths), normalize(heads, per_sentence[:, None]))


@pytest.mark.guarantee(
    "Attention requires a boolean mask, True at tokens; masks of zeros and ones are refused."
)
@every_normalizer
@pytest.mark.parametrize(
    ("scores_shape", "mask", "error", "message"),
    [
        *(
            ((2, 3), torch.ones(2, dtype=kind), TypeError, f"or integer lengths, not {kind}")
            for kind in (torch.float32, torch.bfloat16, torch.complex64)
        ),
        *(  # zeros and ones: the polarity would be a guess
            ((2, 3, 4), torch.ones(2, 3, 4, dtype=kind), ValueError, r"\(2, 3, 4\).*mask.bool")
            for kind in INTEGERS
        ),
        ((4,), torch.ones(4, dtype=torch.int64), ValueError, r"its shape is \(4,\)"),
        *(
            ((2, 3, 4), torch.ones(shape, dtype=torch.int64), ValueError, "lengths")
            for shape in [(3,), (2, 2), (2, 1), (), (1, 2, 3)]
        ),
        # a length for each head, none for each query
        ((2, 3, 5, 4), torch.ones(2, 3, dtype=torch.int64), ValueError, r"\(2, 3, 5\)"),
        *(
            ((2, 4), torch.ones(shape, dtype=torch.bool), RuntimeError, "expand")
            for shape in [(3,), (5, 2, 4)]
        ),
    ],
)
def test_masks_of_zeros_and_ones_are_refused(normalize, scores_shape, mask, error, message):
    with pytest.raises(error, match=message):
        normalize(torch.zeros(scores_shape), mask)


# Values


@given(rows(CLOSE, ANY))
def test_masked_softmax_equals_softmax_of_unpadded_row(row):
    scores, mask = row
    assert_close(masked_softmax(scores, mask)[mask], scores[mask].softmax(dim=0))


@pytest.mark.parametrize(
    ("normalize", "scores", "expected"),
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
def test_sparse_weights_equal_hand_calculations(normalize, scores, expected):
    padded = torch.tensor([*scores, 99.0])
    assert_close(normalize(padded, mask_of(len(scores), len(padded))), torch.tensor([*expected, 0]))


# Each normalizer maximizes one of these over distributions.
OBJECTIVES = {
    "softmax": lambda p, scores: p @ scores + torch.special.entr(p).sum(dim=-1),
    "sparsemax": lambda p, scores: -(p - scores).square().sum(dim=-1),
    "entmax15": lambda p, scores: p @ scores + (p - p.pow(1.5)).sum(dim=-1) / (1.5 * 0.5),
}


@pytest.mark.parametrize("name", NORMALIZERS)
@few_examples
@given(scores=close_scores())
def test_weights_satisfy_the_optimality_conditions_of_their_objective(name, scores):
    """The Karush-Kuhn-Tucker conditions, which are sufficient because each objective is concave."""
    weights = NORMALIZERS[name](scores, everywhere(scores)).requires_grad_()
    (marginal,) = torch.autograd.grad(OBJECTIVES[name](weights, scores), weights)
    best = marginal.max().expand_as(marginal)
    used = weights > 0
    # entmax15's marginal contains the square root of a weight, which magnifies its error.
    assert_close(marginal[used], best[used], rtol=0, atol=1e-6)


@every_sparse_normalizer
def test_rounding_errors_do_not_grow_with_the_length_of_a_row(normalize, scale, power):
    """One high score and a thousand that barely reach the support: the hard case of long sums."""
    scores = -torch.rand(1000, generator=torch.Generator().manual_seed(0)) / 1e3 - 0.997 / scale
    scores[0] = 0
    double = scores.double()
    weights = normalize(scores, everywhere(scores))
    assert_close(weights.sum(), torch.tensor(1.0), rtol=0, atol=1e-6)
    assert_close(weights.double(), normalize(double, everywhere(double)), rtol=0, atol=1e-6)
