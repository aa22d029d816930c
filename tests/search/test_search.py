import itertools
import math
from typing import NamedTuple

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from seq2seq.search.beam import beam_search
from seq2seq.search.greedy import _arg_max, greedy_search
from seq2seq.search.hypothesis import Limits, length_penalty

BOS, EOS, WORDS = 0, 1, (2, 3, 4)
VOCAB = 2 + len(WORDS)
SEEDS = range(12)
ALPHAS = [0.0, 0.6, 1.0, 2.0]
MAX_LENGTHS = [4, 1, 3, 4, 2]  # of the sentences
NUM_SENTENCES = len(MAX_LENGTHS)
ALL = tuple(range(NUM_SENTENCES))
HISTORY = 8  # tokens that the state below has room for


class Toy(NamedTuple):
    """The state of a model that remembers every token it was given."""

    sentences: Tensor  # (N,)
    history: Tensor  # tokens read so far, -1 behind them, (N, HISTORY)
    length: int

    def select(self, rows):
        return Toy(self.sentences[rows], self.history[rows], self.length)


class ToyModel:
    """A random table of next tokens for each sentence, given the last two of the output.

    The last but one comes from the state, so that a state in the wrong row changes the numbers.
    As "weights" it shows what it has read: the sentence, then the history.
    """

    def __init__(self, seed, num_sentences=NUM_SENTENCES):
        generator = torch.Generator().manual_seed(seed)
        table = torch.randn(
            num_sentences, VOCAB, VOCAB, VOCAB, generator=generator, dtype=torch.float64
        )
        table[..., EOS] += 0.5  # an end at every length
        table[..., BOS] += 1.0  # tempting, and then forbidden
        self.table = (1.5 * table).log_softmax(dim=-1)
        self.table[..., BOS] = float("-inf")
        self.num_steps = 0

    def start(self, sentences):
        sentences = torch.tensor(sentences)
        return Toy(sentences, torch.full((len(sentences), HISTORY), -1), 0)

    def step(self, tokens, state):
        self.num_steps += 1
        last = state.history[:, state.length - 1] if state.length else torch.full_like(tokens, BOS)
        history = state.history.clone()
        history[:, state.length] = tokens
        weights = torch.cat([state.sentences[:, None], history], dim=1)
        log_probs = self.table[state.sentences, last, tokens]
        return log_probs, Toy(state.sentences, history, state.length + 1), weights

    def log_prob(self, sentence, tokens):
        """Of one output, token by token, without a search."""
        before = [BOS, BOS, *tokens]
        return sum(
            self.table[sentence, before[i], before[i + 1], token].item()
            for i, token in enumerate(tokens)
        )


@pytest.fixture(params=SEEDS)
def model(request):
    return ToyModel(request.param)


def limits(max_lengths=MAX_LENGTHS, alpha=1.0):
    return Limits(BOS, EOS, list(max_lengths), alpha)


def beam(model, beam_size, num_best=1, alpha=1.0, sentences=ALL):
    sentences = list(sentences)
    chosen = limits([MAX_LENGTHS[sentence] for sentence in sentences], alpha)
    return beam_search(model.step, model.start(sentences), chosen, beam_size, num_best)


def all_outputs(max_length):
    return [
        [*words, EOS]
        for length in range(max_length)
        for words in itertools.product(WORDS, repeat=length)
    ]


WIDE = len(all_outputs(max(MAX_LENGTHS)))


def shown(hypothesis):
    """A hypothesis as plain lists, which can be compared."""
    return (*hypothesis[:3], [weights.tolist() for weights in hypothesis.weights])


@pytest.mark.parametrize("alpha", ALPHAS)
def test_a_beam_as_wide_as_the_space_is_exhaustive_search(model, alpha):
    """Not only the best output: all of them, in their order."""
    found = beam(model, WIDE, num_best=WIDE, alpha=alpha)
    for sentence, max_length in enumerate(MAX_LENGTHS):

        def score(tokens, sentence=sentence):
            return model.log_prob(sentence, tokens) / ((5 + len(tokens)) / 6) ** alpha

        expected = sorted(all_outputs(max_length), key=score, reverse=True)
        assert [hypothesis.tokens for hypothesis in found[sentence]] == expected


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("beam_size", [1, 2, 3, 5, WIDE])
def test_to_stop_early_never_changes_the_result(model, beam_size, alpha):
    """With as many outputs wanted as the beam is wide, there is nothing to stop for."""
    full = beam(model, beam_size, num_best=beam_size, alpha=alpha)
    for num_best in {1, 2, 3} - set(range(beam_size + 1, 4)):
        found = beam(model, beam_size, num_best, alpha)
        for few, many in zip(found, full, strict=True):
            assert [shown(h) for h in few] == [shown(h) for h in many[:num_best]]


def test_to_stop_early_saves_steps():
    """Once the empty output has nearly all probability, nothing is left to look for."""
    model = ToyModel(0, num_sentences=1)
    model.table[..., :] = -10.0
    model.table[..., EOS] = -0.001
    beam_search(model.step, model.start([0]), limits([8], alpha=0.0), 3)
    assert model.num_steps == 1


def test_an_output_that_has_ended_keeps_its_place_in_the_beam():
    """So fewer are followed after it; of the others, none is hopeless here."""
    followed = []

    def step(tokens, state):
        followed.append(len(tokens))
        log_probs = torch.tensor([0.0, 0.3, 0.4, 0.2, 0.1]).log()
        return log_probs.expand(len(tokens), VOCAB), state, torch.zeros(len(tokens), 1)

    beam_search(step, Toy(torch.zeros(1), torch.zeros(1, HISTORY), 0), limits([6], alpha=2.0), 3, 3)
    # Beside the end there are two words, then one, which goes on alone to the limit.
    assert followed == [1, 2, 1, 1, 1, 1]


def test_the_first_output_to_end_is_not_the_best_where_a_longer_one_overtakes_it():
    """log 0.5 = -0.69 for the empty output, log 0.4 = -0.92 for three words; -0.61 by 9/6."""
    model = ToyModel(0, num_sentences=1)
    model.table[:] = float("-inf")
    a, b, c = WORDS
    model.table[0, BOS, BOS, [EOS, a]] = torch.tensor([0.5, 0.4], dtype=torch.float64).log()
    model.table[0, BOS, a, b] = model.table[0, a, b, c] = model.table[0, b, c, EOS] = 0.0
    for alpha, expected in ((0.0, [EOS]), (1.0, [a, b, c, EOS])):
        ((best,),) = beam_search(model.step, model.start([0]), limits([4], alpha), 2)
        assert best.tokens == expected


def greedy(model, sentences=ALL, alpha=1.0):
    sentences = list(sentences)
    chosen = limits([MAX_LENGTHS[sentence] for sentence in sentences], alpha)
    return greedy_search(model.step, model.start(sentences), chosen)


@pytest.mark.parametrize("alpha", ALPHAS)
def test_a_beam_of_one_is_greedy_search(model, alpha):
    found = beam(model, 1, alpha=alpha)
    assert [shown(h) for (h,) in found] == [shown(h) for h in greedy(model, alpha=alpha)]


def test_a_model_without_numbers_ends_its_sentences(model):
    def step(tokens, state):
        log_probs, state, weights = model.step(tokens, state)
        return log_probs * float("nan"), state, weights

    given = step, model.start(range(3)), limits([4, 5, 6])
    for found in (greedy_search(*given), [best for (best,) in beam_search(*given, beam_size=2)]):
        assert [h.tokens for h in found] == [[EOS]] * 3
        assert all(math.isnan(h.score) and h.weights.shape[0] == 1 for h in found)


def test_the_first_of_the_greatest_is_taken_or_what_is_no_number():
    inf, nan = float("inf"), float("nan")
    rows = [[1.0, 3.0, 3.0], [-inf, -inf, -inf], [-inf, -1.0, -inf], [5.0, 1.0, nan]]
    assert _arg_max(torch.tensor(rows)).tolist() == [1, 0, 1, 2]
    rows = torch.randn(9, 50)
    assert torch.equal(_arg_max(rows), rows.argmax(dim=1))
    assert _arg_max(rows.to("meta")).shape == (9,)  # where NumPy cannot read


def test_greedy_search_takes_the_most_probable_token_until_it_may_not(model):
    for sentence, found in enumerate(greedy(model)):
        before = [BOS, BOS, *found.tokens]
        for i, token in enumerate(found.tokens):
            if i + 1 == MAX_LENGTHS[sentence]:
                assert token == EOS
            else:
                assert token == model.table[sentence, before[i], before[i + 1]].argmax()


def searched(model, alpha=1.0):
    """(sentence, hypothesis) of every search that there is."""
    for sentence, hypothesis in enumerate(greedy(model, alpha=alpha)):
        yield sentence, hypothesis
    for beam_size in (1, 2, 3, 7, WIDE):
        for sentence, found in enumerate(beam(model, beam_size, beam_size, alpha)):
            for hypothesis in found:
                yield sentence, hypothesis


@pytest.mark.parametrize("alpha", ALPHAS)
def test_a_reported_score_is_the_models_own_score_of_that_output(model, alpha):
    for sentence, found in searched(model, alpha):
        log_prob = model.log_prob(sentence, found.tokens)
        assert found.log_prob == pytest.approx(log_prob, abs=1e-12)
        penalty = ((5 + len(found.tokens)) / 6) ** alpha
        assert found.score == pytest.approx(log_prob / penalty, abs=1e-12)


def test_every_output_ends_once_and_in_time(model):
    for sentence, found in searched(model):
        assert found.tokens.index(EOS) == len(found.tokens) - 1 < MAX_LENGTHS[sentence]
        assert BOS not in found.tokens


def test_weights_follow_their_hypothesis(model):
    """Where a token looked is what the model showed *before* it: all tokens in front of it."""
    for sentence, found in searched(model):
        assert len(found.weights) == len(found.tokens)
        for i, weights in enumerate(found.weights):
            read = [sentence, BOS, *found.tokens[:i]]
            assert weights.tolist() == read + [-1] * (1 + HISTORY - len(read))


@pytest.mark.parametrize("beam_size", [1, 2, 3, 6, WIDE, 10 * WIDE])
def test_the_best_outputs_are_distinct_and_sorted_and_as_many_as_there_are(model, beam_size):
    for max_length, found in zip(MAX_LENGTHS, beam(model, beam_size, beam_size), strict=True):
        outputs = [tuple(hypothesis.tokens) for hypothesis in found]
        assert len(set(outputs)) == len(outputs) == min(beam_size, len(all_outputs(max_length)))
        scores = [hypothesis.score for hypothesis in found]
        assert scores == sorted(scores, reverse=True)


@pytest.mark.parametrize("beam_size", [1, 2, 3, 7])
@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_sentences_of_a_batch_do_not_see_each_other(model, beam_size, alpha):
    for num_best in {1, beam_size}:
        together = beam(model, beam_size, num_best, alpha)
        for order in ([4, 3, 2, 1, 0], [2, 2, 0], *([s] for s in range(NUM_SENTENCES))):
            found = beam(model, beam_size, num_best, alpha, order)
            for sentence, hypotheses in zip(order, found, strict=True):
                expected = [shown(h) for h in together[sentence]]
                assert [shown(h) for h in hypotheses] == expected


def test_sentences_of_a_greedy_batch_do_not_see_each_other(model):
    together = greedy(model)
    for order in ([4, 3, 2, 1, 0], [2, 2, 0], *([s] for s in range(NUM_SENTENCES))):
        for sentence, found in zip(order, greedy(model, order), strict=True):
            assert shown(found) == shown(together[sentence])


def test_no_sentences_give_no_outputs():
    model = ToyModel(0)
    assert beam(model, 3, sentences=[]) == []
    assert greedy(model, sentences=[]) == []


lengths = st.integers(1, 500)
alphas = st.floats(0, 3)


@given(lengths, alphas, alphas)
def test_the_penalty_is_a_power(length, one, other):
    product = length_penalty(length, one) * length_penalty(length, other)
    assert length_penalty(length, one + other) == pytest.approx(product)


@given(lengths, alphas)
def test_the_penalty_never_falls_as_an_output_grows(length, alpha):
    assert length_penalty(length + 1, alpha) >= length_penalty(length, alpha) >= 1


@pytest.mark.parametrize(
    ("length", "alpha", "penalty"),
    [(1, 0.7, 1.0), (30, 0.0, 1.0), (7, 1.0, 2.0), (7, 2.0, 4.0), (49, 0.5, 3.0)],
)
def test_the_penalty_is_that_of_wu_et_al(length, alpha, penalty):
    """lp = ((5 + n) / 6)^alpha (arXiv:1609.08144, eq. 14), by hand."""
    assert length_penalty(length, alpha) == pytest.approx(penalty)


def test_a_reward_for_short_outputs_is_refused():
    with pytest.raises(ValueError, match=r"decoding\.length_penalty=-0\.5 must be at least 0"):
        length_penalty(3, -0.5)
