"""What every attention of conf/model/attention promises, whatever it is made of.

The files are read as they are, so that a new one is tested without a line here.
"""

from dataclasses import fields, replace
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
from seq2seq.config.model import AttentionConfig

H = C = 8  # equal, because some scoring functions compare unit by unit; heads divide it


class Kind(NamedTuple):
    """An attention as it is asked: in training or in evaluation."""

    config: AttentionConfig
    training: bool

    @property
    def sees_positions(self):
        """All others see a set of annotations, whatever their order."""
        return (
            self.config.name in ("location", "none")  # a row for each position; both ends
            or self.config.weighing in ("local_m", "local_p")  # windows of neighbours
            or self.config.weighing == "monotonic"  # searches from left to right
        )


def load(path):
    """With sizes so small that sources of these tests are longer than windows."""
    config = AttentionConfig(**yaml.safe_load(path.read_text(encoding="utf-8")))
    return replace(config, size=5, window=2, max_positions=4, temperature=0.5)


CONFIGS = {path.stem: load(path) for path in sorted((ROOT / "conf/model/attention").glob("*.yaml"))}
EVALUATED = {name: Kind(config, training=False) for name, config in CONFIGS.items()}
# Training differs from evaluation for these alone; a test says so.
DRAWN = {
    f"{name}, training": Kind(config, training=True)
    for name, config in CONFIGS.items()
    if config.weighing in ("hard", "monotonic")
}
EXPECTED = {
    f"{name}, training without noise": Kind(replace(config, noise=0.0), training=True)
    for name, config in CONFIGS.items()
    if config.weighing == "monotonic"
}


def each(kinds):
    return pytest.mark.parametrize("kind", kinds.values(), ids=kinds)


every_kind = each(EVALUATED | EXPECTED | DRAWN)
# Padding and other sentences get draws too, and so they move those of the tokens: what does not
# depend on them is the distribution, which the tests of ``weighing`` look at.
every_sure_kind = each(EVALUATED | EXPECTED)
few = settings(max_examples=6)


class Problem(NamedTuple):
    """Some sentences, padded at the end as batches are, and what is asked of them."""

    queries: Tensor  # (B, T, H)
    annotations: Tensor  # (B, S, C)
    mask: Tensor  # (B, S)

    def rows(self, rows):
        return Problem(*(part[rows] for part in self))


@st.composite
def problems(draw, shortest=0):
    """With padding behind all sentences, with none, and with sentences without a token."""
    lengths = draw(st.lists(st.integers(shortest, 7), min_size=1, max_size=3))
    width = max(1, *lengths) + draw(st.integers(0, 2))
    num_targets, scale = draw(st.integers(1, 3)), draw(st.sampled_from([0.1, 1.0, 3.0]))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))

    def random(*shape):
        return scale * torch.randn(len(lengths), *shape, generator=generator, dtype=torch.float64)

    mask = torch.arange(width) < torch.tensor(lengths)[:, None]
    return Problem(random(num_targets, H), random(width, C), mask)


def seed(number):
    """Draw the same from here on. torch.manual_seed would write down the whole call stack for each
    kind of device that is not there: half of the time of these tests."""
    torch.default_generator.manual_seed(number)


def build(kind):
    """With parameters of about 1: whatever is wrongly connected then shows in the weights."""
    seed(1)
    attention = build_attention(kind.config, H, C)
    for parameter in attention.parameters():
        torch.nn.init.normal_(parameter)
    return attention.double().train(kind.training)


def walk(attention, problem, past=None):
    """Contexts (B, T, C), weights (B, T, S) and the past after them, position by position."""
    queries, annotations, mask = problem
    keys = attention.project(annotations)
    past = past or attention.start(annotations)
    contexts, alignment = [], []
    for query in queries.unbind(dim=1):
        context, weights = attention(query, keys, annotations, mask, past)
        past = past and past.then(weights)
        contexts.append(context)
        alignment.append(weights)
    return torch.stack(contexts, dim=1), torch.stack(alignment, dim=1), past


def attend(attention, problem):
    """As ``walk``, with the same draws each time."""
    seed(2)
    contexts, weights, _ = walk(attention, problem)
    return contexts, weights


def assert_same(found, expected):
    for one, other in zip(found, expected, strict=True):
        assert_close(one, other)


def test_there_is_a_file_for_every_part_of_an_attention():
    """So that none of them escapes the tests of this module."""
    for item in fields(AttentionConfig):
        if item.metadata["choices"]:
            used = {getattr(config, item.name) for config in CONFIGS.values()}
            assert used == set(item.metadata["choices"]), item.name
    assert any(config.coverage for config in CONFIGS.values())
    assert any(config.heads > 1 for config in CONFIGS.values())
    assert all(H % config.heads == 0 for config in CONFIGS.values())


@every_kind
@few
@given(problems())
def test_a_row_sums_to_one_and_is_zero_at_padding_and_where_there_is_no_token(kind, problem):
    """Only without attention are all rows 0."""
    attention = build(kind)
    contexts, weights = attend(attention, problem)
    sums = problem.mask.any(dim=1).double().unsqueeze(1).expand(weights.shape[:2])
    assert contexts.shape == (*problem.queries.shape[:2], C)
    assert weights.shape == (*problem.queries.shape[:2], problem.mask.shape[1])
    assert (weights >= 0).all()
    assert_close(weights.sum(dim=2), 0 * sums if kind.config.name == "none" else sums)
    assert (weights.transpose(1, 2)[~problem.mask] == 0).all()
    assert (contexts[~problem.mask.any(dim=1)] == 0).all()
    assert contexts.isfinite().all()


@every_sure_kind
@few
@given(problems(), st.integers(1, 3))
def test_padding_changes_nothing(kind, problem, more):
    """A sentence reads the same alone and beside a longer one."""
    attention, (queries, annotations, mask) = build(kind), problem
    contexts, weights = attend(attention, problem)
    junk = torch.cat([annotations, torch.full((len(mask), more, C), 1e3).double()], dim=1)
    longer = torch.cat([mask, torch.zeros(len(mask), more, dtype=torch.bool)], dim=1)
    padded_contexts, padded_weights = attend(attention, Problem(queries, junk, longer))
    assert_close(padded_contexts, contexts)
    assert_close(padded_weights[..., :-more], weights)
    assert (padded_weights[..., -more:] == 0).all()


@every_sure_kind
@few
@given(problems())
def test_sentences_of_a_batch_do_not_see_each_other(kind, problem):
    attention = build(kind)
    contexts, weights = attend(attention, problem)
    for row in range(len(problem.mask)):
        alone = attend(attention, problem.rows([row]))
        assert_same(alone, (contexts[row : row + 1], weights[row : row + 1]))


@each({name: kind for name, kind in EVALUATED.items() if not kind.sees_positions})
@few
@given(problems(), st.randoms(use_true_random=False))
def test_the_order_of_the_source_positions_does_not_matter(kind, problem, random):
    """Attention sees a set: weights move with their annotations, the context stays. Padding may
    then lie anywhere."""
    attention, (queries, annotations, mask) = build(kind), problem
    order = random.sample(range(mask.shape[1]), mask.shape[1])
    contexts, weights = attend(attention, problem)
    moved = attend(attention, Problem(queries, annotations[:, order], mask[:, order]))
    assert_same(moved, (contexts, weights[..., order]))


@each({name: kind for name, kind in EVALUATED.items() if kind.sees_positions})
def test_those_that_see_positions_have_an_order(kind):
    attention, mask = build(kind), torch.ones(3, 7, dtype=torch.bool)
    problem = Problem(torch.randn(3, 3, H).double(), torch.randn(3, 7, C).double(), mask)
    contexts, _ = attend(attention, problem)
    moved, _ = attend(attention, problem._replace(annotations=problem.annotations.flip(1)))
    assert (moved - contexts).abs().max() > 0.1


@every_kind
@few
@given(problems())
def test_the_future_is_not_read(kind, problem):
    """What is asked later changes nothing of where the decoder has looked by then."""
    attention = build(kind)
    contexts, weights = attend(attention, problem)
    for i in range(1, problem.queries.shape[1]):
        queries = torch.cat([problem.queries[:, :i], -3 * problem.queries[:, i:]], dim=1)
        new_contexts, new_weights = attend(attention, problem._replace(queries=queries))
        assert torch.equal(new_contexts[:, :i], contexts[:, :i])
        assert torch.equal(new_weights[:, :i], weights[:, :i])


LOOKING_BACK = {
    name: kind
    for name, kind in (EVALUATED | EXPECTED).items()
    if build(kind).start(torch.zeros(1, 1, C)) is not None
}


def test_these_look_back():
    assert {"coverage", "local_m", "monotonic"} <= set(LOOKING_BACK)


@each(LOOKING_BACK)
@few
@given(problems(), problems(), st.data())
def test_a_past_that_was_reordered_goes_on_as_its_rows_would_have(kind, problem, later, data):
    """As a search does: hypotheses change places, and some go on twice."""
    attention = build(kind)
    _, _, past = walk(attention, problem)
    rows = data.draw(st.lists(st.integers(0, len(problem.mask) - 1), min_size=1, max_size=5))
    queries = later.queries[:1].expand(len(problem.mask), -1, -1)
    contexts, weights, _ = walk(attention, problem._replace(queries=queries), past)
    chosen = problem._replace(queries=queries).rows(rows)
    reordered = walk(attention, chosen, past.select(torch.tensor(rows)))[:2]
    assert_same(reordered, (contexts[rows], weights[rows]))


@every_kind
@few
@given(problems())
def test_gradients_are_zero_at_padding_and_finite_also_without_a_token(kind, problem):
    """Annotations are 0 at padding, as the encoder makes them: a square root there, as that of a
    cosine, has no finite slope of its own."""
    attention, (queries, annotations, mask) = build(kind), problem
    queries.requires_grad_()
    annotations = annotations.masked_fill(~mask[..., None], 0.0).requires_grad_()
    contexts, weights = attend(attention, Problem(queries, annotations, mask))
    (contexts.square().sum() + weights.square().sum()).backward()
    assert (annotations.grad[~mask] == 0).all()
    for tensor in (queries, annotations, *attention.parameters()):
        assert tensor.grad is None or tensor.grad.isfinite().all()
    assert queries.grad is None or (queries.grad[~mask.any(dim=1)] == 0).all()


@every_sure_kind
def test_gradients_are_those_of_finite_differences(kind):
    """Of queries, annotations and parameters, through three target positions."""
    attention, mask = build(kind), torch.arange(6) < torch.tensor([[6], [3]])
    queries, annotations = torch.randn(2, 3, H).double(), torch.randn(2, 6, C).double()
    names = [name for name, _ in attention.named_parameters()]

    def outputs(queries, annotations, *parameters):
        return torch.func.functional_call(
            Walk(attention),
            {f"attention.{name}": value for name, value in zip(names, parameters, strict=True)},
            (Problem(queries, annotations, mask),),
        )

    inputs = [queries, annotations, *attention.parameters()]
    inputs = [tensor.detach().requires_grad_() for tensor in inputs]
    assert torch.autograd.gradcheck(outputs, inputs, fast_mode=True)


class Walk(torch.nn.Module):
    """``attend`` as a module, whose parameters can be given."""

    def __init__(self, attention):
        super().__init__()
        self.attention = attention

    def forward(self, problem):
        return attend(self.attention, problem)


@every_kind
@few
@given(problems(), problems())
def test_nothing_is_remembered_between_calls_and_nothing_given_is_changed(kind, problem, other):
    attention = build(kind)
    before = [dict(vars(module)) for module in attention.modules()]
    values = {name: value.clone() for name, value in attention.state_dict().items()}
    given_parts = [part.clone() for part in problem]
    first = attend(attention, problem)
    attend(attention, other)
    again = attend(attention, problem)
    assert all(map(torch.equal, first, again))
    assert all(map(torch.equal, problem, given_parts))
    assert [dict(vars(module)) for module in attention.modules()] == before
    assert not list(attention.buffers())
    assert set(values) == {name for name, _ in attention.named_parameters()}
    assert all(torch.equal(value, values[name]) for name, value in attention.state_dict().items())


@each({name: kind for name, kind in EVALUATED.items() if f"{name}, training" not in DRAWN})
def test_training_changes_nothing(kind):
    problem = Problem(
        torch.randn(3, 3, H).double(),
        torch.randn(3, 6, C).double(),
        torch.arange(6) < torch.tensor([[6], [3], [1]]),
    )
    seed(3)
    expected = walk(build(kind), problem)[:2]
    state = torch.get_rng_state()
    found = walk(build(kind).train(), problem)[:2]
    assert all(map(torch.equal, found, expected))
    assert torch.equal(torch.get_rng_state(), state)


@each(DRAWN)
def test_training_draws_at_each_call(kind):
    attention, mask = build(kind), torch.ones(20, 6, dtype=torch.bool)
    problem = Problem(torch.randn(20, 2, H).double(), torch.randn(20, 6, C).double(), mask)
    first, second = walk(attention, problem)[1], walk(attention, problem)[1]
    assert not torch.equal(first, second)
    attention.eval()
    assert torch.equal(walk(attention, problem)[1], walk(attention, problem)[1])
