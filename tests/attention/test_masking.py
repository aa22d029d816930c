import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from seq2seq.attention.masking import masked_softmax

FLOATS = [torch.float64, torch.float32, torch.float16, torch.bfloat16]


def mask_of(lengths, size):
    """True at the first ``lengths`` positions of each row."""
    return torch.arange(size) < torch.tensor(lengths)[..., None]


@st.composite
def rows(draw):
    """Scores (S,) of any reasonable size, and any mask of them."""
    size = draw(st.integers(1, 8))
    scores = draw(st.lists(st.floats(-(2.0**99), 2.0**99, width=32), min_size=size, max_size=size))
    mask = draw(st.lists(st.booleans(), min_size=size, max_size=size))
    return torch.tensor(scores), torch.tensor(mask)


@given(rows())
def test_it_is_the_softmax_of_the_real_positions_and_zero_elsewhere(row):
    scores, mask = row
    weights = masked_softmax(scores, mask)
    assert (weights[~mask] == 0).all()
    assert_close(weights[mask], scores[mask].softmax(dim=0))


@given(rows())
def test_a_row_sums_to_one_unless_it_is_all_padding(row):
    scores, mask = row
    assert_close(masked_softmax(scores, mask).sum(), mask.any().float())


@given(rows(), st.floats(allow_nan=False, width=32))
def test_what_stands_at_padding_does_not_matter(row, junk):
    scores, mask = row
    assert torch.equal(
        masked_softmax(scores.masked_fill(~mask, junk), mask), masked_softmax(scores, mask)
    )


def test_two_equal_scores_share_the_weight():
    weights = masked_softmax(torch.zeros(1, 4), mask_of([2], 4))
    assert weights.tolist() == [[0.5, 0.5, 0.0, 0.0]]


def test_the_ratio_of_two_weights_is_the_exponential_of_the_difference_of_scores():
    scores = torch.tensor([2.0, 3.0, 1.0]).log()
    assert_close(masked_softmax(scores, mask_of(2, 3)), torch.tensor([2 / 5, 3 / 5, 0.0]))


def test_true_means_a_token_so_the_first_word_of_every_sentence_can_be_looked_at():
    weights = masked_softmax(torch.zeros(3, 5), mask_of([5, 4, 1], 5))
    assert_close(weights[:, 0], torch.tensor([1 / 5, 1 / 4, 1.0]))


@pytest.mark.parametrize("kind", FLOATS)
def test_an_empty_row_is_all_zero_and_not_uniform_over_padding(kind):
    weights = masked_softmax(torch.full((1, 4), 7.0, dtype=kind), mask_of([0], 4))
    assert (weights == 0).all()


@pytest.mark.parametrize("kind", FLOATS)
def test_gradients_are_finite_and_zero_at_padding(kind):
    scores = torch.randn(3, 4, dtype=torch.float64).to(kind).requires_grad_()
    mask = mask_of([3, 0, 1], 4)
    (masked_softmax(scores, mask) * torch.arange(4)).sum().backward()
    assert scores.grad.isfinite().all()
    assert (scores.grad[~mask] == 0).all()
    assert (scores.grad[0, :3] != 0).any()


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
def test_half_precision_gives_the_weights_of_single_precision_rounded_once(kind):
    scores = (8 * torch.randn(6, 9)).to(kind)
    scores[:, 5:] = torch.finfo(kind).max  # at padding, of all rows but the last
    mask = mask_of([5, 3, 1, 0, 4, 9], 9)
    weights = masked_softmax(scores, mask)
    assert weights.dtype == kind
    assert torch.equal(weights, masked_softmax(scores.float(), mask).to(kind))


@pytest.mark.parametrize("kind", FLOATS)
def test_the_lowest_finite_scores_are_scores_like_any_other(kind):
    scores = torch.full((1, 4), torch.finfo(kind).min, dtype=kind)
    assert_close(masked_softmax(scores, mask_of([4], 4)), torch.full((1, 4), 0.25, dtype=kind))


def test_the_scores_of_the_caller_stay_as_they_were():
    scores = torch.randn(2, 4)
    before = scores.clone()
    first = masked_softmax(scores, mask_of([2, 1], 4))
    masked_softmax(scores.view(1, 2, 4), mask_of([[4, 4]], 4))
    assert torch.equal(scores, before)
    assert torch.equal(masked_softmax(scores, mask_of([2, 1], 4)), first)


def test_one_mask_serves_all_queries_of_a_sentence():
    scores = torch.randn(2, 3, 4)
    mask = mask_of([4, 2], 4)
    together = masked_softmax(scores, mask[:, None])
    for query in range(3):
        assert_close(together[:, query], masked_softmax(scores[:, query], mask))


@pytest.mark.parametrize("kind", [torch.float32, torch.int64, torch.uint8])
def test_a_mask_of_numbers_is_refused_because_its_meaning_would_be_a_guess(kind):
    with pytest.raises(TypeError, match=f"boolean with True at real tokens, not {kind}"):
        masked_softmax(torch.zeros(1, 2), torch.ones(1, 2, dtype=kind))
