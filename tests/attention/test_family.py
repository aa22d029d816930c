"""Properties of every attention in conf/model/attention.

The tests read these files, so a new attention is tested without changes here.
"""

from dataclasses import replace
from typing import NamedTuple

import pytest
import torch
import yaml
from conftest import ROOT
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from seq2seq.attention.build import build_attention
from seq2seq.attention.distribution import MODES
from seq2seq.attention.masking import NORMALIZERS
from seq2seq.attention.scoring import SCORES
from seq2seq.config.model import AttentionConfig

H = C = 8  # equal, because some scoring functions compare unit by unit; heads divide it


class Case(NamedTuple):
    """An attention in training or in evaluation."""

    config: AttentionConfig
    training: bool

    @property
    def sees_positions(self):
        """Whether the result depends on the order of the values."""
        return (
            self.config.name in ("location", "none")  # a row per position; both ends
            or self.config.mode in ("local_m", "local_p")  # windows of neighbors
            or self.config.mode == "monotonic"  # scans from left to right
        )


def load(path):
    """With sizes so small that sources are longer than windows."""
    config = AttentionConfig(**yaml.safe_load(path.read_text(encoding="utf-8")))
    return replace(config, size=5, window=2, max_positions=4, temperature=0.5)


CONFIGS = {path.stem: load(path) for path in sorted((ROOT / "conf/model/attention").glob("*.yaml"))}
EVALUATION = {name: Case(config, training=False) for name, config in CONFIGS.items()}
# Training differs from evaluation only for these, as a test below confirms.
RANDOM = {
    f"{name}, training": Case(config, training=True)
    for name, config in CONFIGS.items()
    if config.mode in ("hard", "monotonic")
}
EXPECTED = {
    f"{name}, training without noise": Case(replace(config, noise=0.0), training=True)
    for name, config in CONFIGS.items()
    if config.mode == "monotonic"
}


def each(cases):
    return pytest.mark.parametrize("case", cases.values(), ids=cases)


every_case = each(EVALUATION | EXPECTED | RANDOM)
# Padding and other sentences also consume random numbers, which shifts those of the tokens.
every_deterministic_case = each(EVALUATION | EXPECTED)
few = settings(max_examples=6)


class Problem(NamedTuple):
    """Sentences, padded at the end as batches are, and one query per target position."""

    queries: Tensor  # (B, T, H)
    values: Tensor  # (B, S, C)
    mask: Tensor  # (B, S)

    def rows(self, rows):
        return Problem(*(tensor[rows] for tensor in self))


@st.composite
def problems(draw):
    """With padding after all sentences, with none, and with sentences without tokens."""
    lengths = draw(st.lists(st.integers(0, 7), min_size=1, max_size=3))
    width = max(1, *lengths) + draw(st.integers(0, 2))
    num_targets, scale = draw(st.integers(1, 3)), draw(st.sampled_from([0.1, 1.0, 3.0]))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))

    def random(*shape):
        return scale * torch.randn(len(lengths), *shape, generator=generator, dtype=torch.float64)

    mask = torch.arange(width) < torch.tensor(lengths)[:, None]
    return Problem(random(num_targets, H), random(width, C), mask)


def full_problem(batch=3, num_targets=3, size=6):
    seed(3)
    mask = torch.ones(batch, size, dtype=torch.bool)
    values = torch.randn(batch, size, C).double()
    return Problem(torch.randn(batch, num_targets, H).double(), values, mask)


def seed(number):
    """Seed the CPU only; torch.manual_seed takes half the time of these tests."""
    torch.default_generator.manual_seed(number)


def build(case):
    """With parameters of about 1, so that a wrong connection shows in the weights."""
    seed(1)
    attention = build_attention(case.config, H, C)
    for parameter in attention.parameters():
        torch.nn.init.normal_(parameter)
    return attention.double().train(case.training)


def walk(attention, problem, history=None):
    """Contexts (B, T, C), weights (B, T, S) and the history after them, position by position."""
    queries, values, mask = problem
    keys = attention.project(values)
    history = history or attention.initial_history(values)
    contexts, alignment = [], []
    for query in queries.unbind(dim=1):
        context, weights = attention(query, keys, values, mask, history)
        history = history and history.append(weights)
        contexts.append(context)
        alignment.append(weights)
    return torch.stack(contexts, dim=1), torch.stack(alignment, dim=1), history


def attend(attention, problem):
    """``walk`` with the same random numbers each time; contexts and weights."""
    seed(2)
    return walk(attention, problem)[:2]


def assert_same(found, expected):
    for one, other in zip(found, expected, strict=True):
        assert_close(one, other)


@pytest.mark.parametrize(
    ("registry", "key"), [(SCORES, "name"), (MODES, "mode"), (NORMALIZERS, "normalization")]
)
def test_every_registered_name_has_a_file(registry, key):
    """So that these tests cover each of them."""
    assert {getattr(config, key) for config in CONFIGS.values()} == set(registry)
    assert any(config.coverage for config in CONFIGS.values())
    assert any(config.heads > 1 for config in CONFIGS.values())


@pytest.mark.guarantee(
    "Padding has a weight of exactly zero, and its content, even NaN, changes nothing."
)
@pytest.mark.guarantee(
    "A sentence without tokens gets zero weights and finite gradients, not NaN or uniform weights."
)
@every_case
@few
@given(problems())
def test_weights_sum_to_one_and_are_zero_at_padding_and_in_rows_without_tokens(case, problem):
    """Without attention, all weights are 0."""
    contexts, weights = attend(build(case), problem)
    has_tokens = problem.mask.any(dim=1) & (case.config.name != "none")
    assert contexts.shape == (*problem.queries.shape[:2], C)
    assert weights.shape == (*problem.queries.shape[:2], problem.mask.shape[1])
    assert (weights >= 0).all()
    assert_close(weights.sum(dim=2), has_tokens.double()[:, None].expand(weights.shape[:2]))
    assert (weights.transpose(1, 2)[~problem.mask] == 0).all()
    assert (contexts[~problem.mask.any(dim=1)] == 0).all()
    assert contexts.isfinite().all()


@pytest.mark.guarantee(
    "Padding has a weight of exactly zero, and its content, even NaN, changes nothing."
)
@pytest.mark.guarantee("Sentences of a batch do not affect each other.")
@every_deterministic_case
@few
@given(problems(), st.integers(1, 3))
def test_padding_and_other_sentences_change_nothing(case, problem, more):
    attention, (queries, values, mask) = build(case), problem
    contexts, weights = attend(attention, problem)
    junk = torch.cat([values, torch.full((len(mask), more, C), 1e3).double()], dim=1)
    longer = torch.cat([mask, torch.zeros(len(mask), more, dtype=torch.bool)], dim=1)
    padded_contexts, padded_weights = attend(attention, Problem(queries, junk, longer))
    assert_close(padded_contexts, contexts)
    assert_close(padded_weights[..., :-more], weights)
    assert (padded_weights[..., -more:] == 0).all()
    for row in range(len(mask)):
        alone = attend(attention, problem.rows([row]))
        assert_same(alone, (contexts[row : row + 1], weights[row : row + 1]))


@each({name: case for name, case in EVALUATION.items() if not case.sees_positions})
@few
@given(problems(), st.randoms(use_true_random=False))
def test_order_of_source_positions_does_not_matter(case, problem, random):
    """Weights move with their values, and the context stays; padding may then be anywhere."""
    attention, (queries, values, mask) = build(case), problem
    order = random.sample(range(mask.shape[1]), mask.shape[1])
    contexts, weights = attend(attention, problem)
    moved = attend(attention, Problem(queries, values[:, order], mask[:, order]))
    assert_same(moved, (contexts, weights[..., order]))


WITH_HISTORY = {
    name: case
    for name, case in (EVALUATION | EXPECTED).items()
    if build(case).initial_history(torch.zeros(1, 1, C)) is not None
}


def test_history_is_kept_exactly_where_it_is_needed():
    needed = {"coverage", "local_m", "monotonic", "monotonic, training without noise"}
    assert set(WITH_HISTORY) == needed


@each(WITH_HISTORY)
@few
@given(problems(), problems(), st.data())
def test_reordered_history_continues_as_its_rows_would_have(case, problem, later, data):
    """As in a search, where hypotheses move between rows and some continue twice."""
    attention = build(case)
    _, _, history = walk(attention, problem)
    rows = data.draw(st.lists(st.integers(0, len(problem.mask) - 1), min_size=1, max_size=5))
    queries = later.queries[:1].expand(len(problem.mask), -1, -1)
    contexts, weights, _ = walk(attention, problem._replace(queries=queries), history)
    chosen = problem._replace(queries=queries).rows(rows)
    reordered = walk(attention, chosen, history.select(torch.tensor(rows)))[:2]
    assert_same(reordered, (contexts[rows], weights[rows]))


@pytest.mark.guarantee(
    "A sentence without tokens gets zero weights and finite gradients, not NaN or uniform weights."
)
@every_case
@few
@given(problems())
def test_gradients_are_finite_and_zero_at_padding_and_in_rows_without_tokens(case, problem):
    """Values at padding are 0, as the encoder makes them: a norm has no finite slope there."""
    attention, (queries, values, mask) = build(case), problem
    queries.requires_grad_()
    values = values.masked_fill(~mask[..., None], 0.0).requires_grad_()
    contexts, weights = attend(attention, Problem(queries, values, mask))
    (contexts.square().sum() + weights.square().sum()).backward()
    assert (values.grad[~mask] == 0).all()
    for tensor in (queries, values, *attention.parameters()):
        assert tensor.grad is None or tensor.grad.isfinite().all()
    assert queries.grad is None or (queries.grad[~mask.any(dim=1)] == 0).all()


class Walk(torch.nn.Module):
    """``attend`` as a module, so that torch.func can replace the parameters."""

    def __init__(self, attention):
        super().__init__()
        self.attention = attention

    def forward(self, problem):
        return attend(self.attention, problem)


@every_deterministic_case
def test_gradients_equal_finite_differences(case):
    """For queries, values, and parameters, through three target positions."""
    attention, mask = build(case), torch.arange(6) < torch.tensor([[6], [3]])
    queries, values = torch.randn(2, 3, H).double(), torch.randn(2, 6, C).double()
    names = [f"attention.{name}" for name, _ in attention.named_parameters()]

    def outputs(queries, values, *parameters):
        named = dict(zip(names, parameters, strict=True))
        return torch.func.functional_call(Walk(attention), named, (Problem(queries, values, mask),))

    inputs = [queries, values, *attention.parameters()]
    inputs = [tensor.detach().requires_grad_() for tensor in inputs]
    assert torch.autograd.gradcheck(outputs, inputs, fast_mode=True)


@pytest.mark.guarantee("Attention keeps no state between calls and modifies no argument.")
@every_case
@few
@given(problems(), problems())
def test_a_call_keeps_no_state_and_modifies_no_argument(case, problem, other):
    attention = build(case)
    before = [dict(vars(module)) for module in attention.modules()]
    parameters = {name: value.clone() for name, value in attention.state_dict().items()}
    arguments = [tensor.clone() for tensor in problem]
    first = attend(attention, problem)
    attend(attention, other)
    assert all(map(torch.equal, first, attend(attention, problem)))
    assert all(map(torch.equal, problem, arguments))
    assert [dict(vars(module)) for module in attention.modules()] == before
    assert not list(attention.buffers())
    for name, value in attention.state_dict().items():
        assert torch.equal(value, parameters[name])


@each({name: case for name, case in EVALUATION.items() if f"{name}, training" not in RANDOM})
def test_training_equals_evaluation_and_draws_nothing(case):
    problem = full_problem()
    expected = walk(build(case), problem)[:2]
    state = torch.get_rng_state()
    found = walk(build(case).train(), problem)[:2]
    assert all(map(torch.equal, found, expected))
    assert torch.equal(torch.get_rng_state(), state)


@each(RANDOM)
def test_training_draws_at_each_call_and_evaluation_does_not(case):
    attention, problem = build(case), full_problem(batch=20)
    assert not torch.equal(walk(attention, problem)[1], walk(attention, problem)[1])
    attention.eval()
    assert torch.equal(walk(attention, problem)[1], walk(attention, problem)[1])
