"""The loss is a sum over real target tokens, however they are batched."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F

from seq2seq.data.vocabulary import PAD
from seq2seq.training import loss
from seq2seq.training.loss import chunked_cross_entropy, count_tokens, token_cross_entropy

V = 7
SMOOTHING = [0.0, 0.1, 0.5]


@pytest.fixture
def batch():
    """Logits (4, 5, V) in double precision, and targets of which some are padding."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(4, 5, V, generator=generator)
    target = torch.randint(1, V, (4, 5), generator=generator)
    for row, length in enumerate((5, 3, 1, 4)):
        target[row, length:] = PAD
    return logits, target


@pytest.mark.parametrize("smoothing", SMOOTHING)
def test_the_objective_equals_that_of_torch(batch, smoothing):
    logits, target = batch
    expected = F.cross_entropy(
        logits.flatten(0, 1), target.flatten(),
        ignore_index=PAD, label_smoothing=smoothing, reduction="sum",
    )  # fmt: skip
    torch.testing.assert_close(token_cross_entropy(logits, target, smoothing).objective, expected)


@pytest.mark.parametrize("smoothing", SMOOTHING)
def test_smoothing_does_not_change_the_log_likelihood(batch, smoothing):
    assert token_cross_entropy(*batch, smoothing).reported == token_cross_entropy(*batch).objective


@given(st.integers(0, 6), st.integers(0, 3), st.sampled_from(SMOOTHING), st.integers(0, 99))
def test_padding_changes_nothing(columns, rows, smoothing, seed):
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(2, 3, V, generator=generator)
    target = torch.randint(1, V, (2, 3), generator=generator)
    # Padding after every sentence, and sentences of padding alone, with NaN logits.
    padded_target = F.pad(target, (0, columns, 0, rows), value=PAD)
    padded_logits = F.pad(logits, (0, 0, 0, columns, 0, rows), value=float("nan"))
    whole = token_cross_entropy(padded_logits, padded_target, smoothing)
    torch.testing.assert_close(whole, token_cross_entropy(logits, target, smoothing))
    assert count_tokens(padded_target) == count_tokens(target) == 6


def test_gradients_at_padding_are_zero(batch):
    logits, target = batch
    logits.requires_grad_()
    token_cross_entropy(logits, target, 0.1).objective.backward()
    assert (logits.grad[target == PAD] == 0).all()
    assert (logits.grad[target != PAD] != 0).any(dim=-1).all()


@pytest.mark.guarantee(
    "Loss and perplexity are means over all target tokens, regardless of batching."
)
@pytest.mark.parametrize("smoothing", SMOOTHING)
@pytest.mark.parametrize("size", [1, 3])
def test_splitting_a_batch_changes_nothing(batch, smoothing, size):
    whole = token_cross_entropy(*batch, smoothing)
    parts = [
        token_cross_entropy(logits, target, smoothing)
        for logits, target in zip(*(side.split(size) for side in batch), strict=True)
    ]
    torch.testing.assert_close(sum(part.objective for part in parts), whole.objective)
    torch.testing.assert_close(sum(part.reported for part in parts), whole.reported)
    assert sum(count_tokens(target) for target in batch[1].split(size)) == count_tokens(batch[1])


def test_equal_logits_cost_the_logarithm_of_the_vocabulary():
    loss = token_cross_entropy(torch.zeros(1, 3, V), torch.tensor([[1, 2, PAD]]), 0.3)
    assert loss.reported.item() == pytest.approx(2 * math.log(V))
    assert loss.objective.item() == pytest.approx(2 * math.log(V))


def test_loss_of_padding_alone_is_zero():
    logits = torch.randn(2, 3, V, requires_grad=True)
    loss = token_cross_entropy(logits, torch.full((2, 3), PAD), 0.1)
    loss.objective.backward()
    assert loss.objective == loss.reported == 0
    assert (logits.grad == 0).all()


@pytest.mark.parametrize("smoothing", SMOOTHING)
def test_the_gradient_is_softmax_minus_target(batch, smoothing):
    """d objective / d logits = p - ((1 - eps) one_hot + eps / V), by hand."""
    logits, target = batch
    logits.requires_grad_()
    token_cross_entropy(logits, target, smoothing).objective.backward()
    wanted = (1 - smoothing) * F.one_hot(target, V) + smoothing / V
    expected = (logits.softmax(dim=-1) - wanted) * (target != PAD).unsqueeze(-1)
    torch.testing.assert_close(logits.grad, expected.detach())


def test_half_precision_logits_are_summed_in_single_precision(batch):
    logits, target = batch[0].bfloat16(), batch[1]
    loss = token_cross_entropy(logits, target)
    assert loss.reported.dtype == torch.float32
    torch.testing.assert_close(loss.reported, token_cross_entropy(logits.float(), target).reported)


@pytest.mark.guarantee(
    "The loss computed in chunks equals the loss of all logits, gradients included."
)
@pytest.mark.parametrize("smoothing", SMOOTHING)
@pytest.mark.parametrize("rows", [1, 4, 99], ids=lambda rows: f"{rows}_rows_a_chunk")
def test_chunks_give_the_loss_and_the_gradients_of_all_logits(batch, smoothing, rows, monkeypatch):
    monkeypatch.setattr(loss, "CHUNK_LOGITS", rows * V)
    _, target = batch
    layer = torch.nn.Linear(3, V, dtype=torch.float64)
    features = torch.randn(4, 5, 3, dtype=torch.float64, requires_grad=True)
    plain = token_cross_entropy(layer(features), target, smoothing)
    chunked = chunked_cross_entropy(features, layer, target, smoothing)
    torch.testing.assert_close(chunked, plain, rtol=1e-6, atol=1e-6, check_dtype=False)
    inputs = (features, layer.weight, layer.bias)
    torch.testing.assert_close(
        torch.autograd.grad(3 * chunked.objective, inputs),
        torch.autograd.grad(3 * plain.objective, inputs),
        rtol=1e-6,
        atol=1e-6,
    )


def test_no_logits_are_kept():
    """For 1,000 positions and 1,000 words, no tensor of a million numbers is kept."""
    layer, features = torch.nn.Linear(2, 1000), torch.randn(1, 1000, 2, requires_grad=True)
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(
        lambda x: kept.append(x.numel()) or x, lambda x: x
    ):
        chunked_cross_entropy(features, layer, torch.ones(1, 1000, dtype=torch.long))
    assert max(kept) < 10_000


def test_without_a_gradient_none_is_made():
    layer, target = torch.nn.Linear(2, V), torch.ones(1, 3, dtype=torch.long)
    with torch.no_grad():
        assert not chunked_cross_entropy(
            torch.randn(1, 3, 2), layer, target
        ).objective.requires_grad
