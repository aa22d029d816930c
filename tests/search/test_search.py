import itertools
import math
from typing import NamedTuple

import pytest
import torch
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
HISTORY = 8  # capacity of the state below, in tokens

OPTIMAL = pytest.mark.guarantee(
    "A beam stops when no better output is possible; as wide as the space, it finds the best one."
)
HONEST = pytest.mark.guarantee(
    "The score and alignment of a translation equal those of forced decoding."
)


class ToyState(NamedTuple):
    """State of a model that remembers every token it was given."""

    sentences: Tensor  # (N,)
    history: Tensor  # tokens read so far, followed by -1, (N, HISTORY)
    length: int

    def select(self, rows):
        return ToyState(self.sentences[rows], self.history[rows], self.length)


class ToyModel:
    """Random probabilities of the next token, given the sentence and the last two tokens.

    The last token but one comes from the state, so that a state in the wrong row changes the
    numbers. The "weights" are the sentence and the history.
    """

    def __init__(self, seed, num_sentences=NUM_SENTENCES):
        generator = torch.Generator().manual_seed(seed)
        table = torch.randn(
            num_sentences, VOCAB, VOCAB, VOCAB, generator=generator, dtype=torch.float64
        )
        table[..., EOS] += 0.5  # ends at every length
        table[..., BOS] += 1.0  # tempting, but forbidden below
        self.table = (1.5 * table).log_softmax(dim=-1)
        self.table[..., BOS] = float("-inf")
        self.num_steps = 0

    def start(self, sentences):
        sentences = torch.tensor(sentences)
        return ToyState(sentences, torch.full((len(sentences), HISTORY), -1), 0)

    def step(self, tokens, state):
        self.num_steps += 1
        last = state.history[:, state.length - 1] if state.length else torch.full_like(tokens, BOS)
        history = state.history.clone()
        history[:, state.length] = tokens
        weights = torch.cat([state.sentences[:, None], history], dim=1)
        log_probs = self.table[state.sentences, last, tokens]
        return log_probs, ToyState(state.sentences, history, state.length + 1), weights

    def log_prob(self, sentence, tokens):
        """Return the log-probability of one output, token by token, without a search."""
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


def comparable(hypothesis):
    """Return a hypothesis as plain lists, which ``==`` compares."""
    return (*hypothesis[:3], [weights.tolist() for weights in hypothesis.weights])


@OPTIMAL
@pytest.mark.parametrize("alpha", ALPHAS)
def test_beam_as_wide_as_the_space_is_exhaustive_search(model, alpha):
    """The beam finds all outputs in the right order, not only the best one."""
    found = beam(model, WIDE, num_best=WIDE, alpha=alpha)
    for sentence, max_length in enumerate(MAX_LENGTHS):

        def score(tokens, sentence=sentence):
            return model.log_prob(sentence, tokens) / ((5 + len(tokens)) / 6) ** alpha

        expected = sorted(all_outputs(max_length), key=score, reverse=True)
        assert [hypothesis.tokens for hypothesis in found[sentence]] == expected


@OPTIMAL
@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("beam_size", [1, 2, 3, 5, WIDE])
def test_early_stopping_never_changes_the_result(model, beam_size, alpha):
    """With ``num_best`` equal to the beam size, a search never stops early."""
    full = beam(model, beam_size, num_best=beam_size, alpha=alpha)
    for num_best in {1, 2, 3} - set(range(beam_size + 1, 4)):
        found = beam(model, beam_size, num_best, alpha)
        for few, many in zip(found, full, strict=True):
            assert [comparable(h) for h in few] == [comparable(h) for h in many[:num_best]]


def test_early_stopping_saves_steps():
    """The empty output has nearly all probability, so one step is enough."""
    model = ToyModel(0, num_sentences=1)
    model.table[..., :] = -10.0
    model.table[..., EOS] = -0.001
    beam_search(model.step, model.start([0]), limits([8], alpha=0.0), 3)
    assert model.num_steps == 1


def test_finished_hypothesis_keeps_its_slot_of_the_beam():
    """It leaves fewer slots for hypotheses that can still win."""
    num_extended = []

    def step(tokens, state):
        num_extended.append(len(tokens))
        log_probs = torch.tensor([0.0, 0.3, 0.4, 0.2, 0.1]).log()
        return log_probs.expand(len(tokens), VOCAB), state, torch.zeros(len(tokens), 1)

    beam_search(
        step, ToyState(torch.zeros(1), torch.zeros(1, HISTORY), 0), limits([6], alpha=2.0), 3, 3
    )
    # Two hypotheses besides the finished one, then one, which continues to the limit.
    assert num_extended == [1, 2, 1, 1, 1, 1]


@OPTIMAL
def test_longer_output_can_win_after_a_shorter_one_has_finished():
    """log 0.5 = -0.69 of the empty output; log 0.4 = -0.92 of three words, -0.61 after / (9/6)."""
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


@OPTIMAL
@pytest.mark.parametrize("alpha", ALPHAS)
def test_beam_of_one_is_greedy_search(model, alpha):
    found = beam(model, 1, alpha=alpha)
    assert [comparable(h) for (h,) in found] == [comparable(h) for h in greedy(model, alpha=alpha)]


@pytest.mark.guarantee("A model that returns NaN ends its sentences at once.")
def test_outputs_of_a_model_that_returns_nan_are_empty(model):
    def step(tokens, state):
        log_probs, state, weights = model.step(tokens, state)
        return log_probs * float("nan"), state, weights

    arguments = step, model.start(range(3)), limits([4, 5, 6])
    for found in (
        greedy_search(*arguments),
        [best for (best,) in beam_search(*arguments, beam_size=2)],
    ):
        assert [h.tokens for h in found] == [[EOS]] * 3
        assert all(math.isnan(h.score) and h.weights.shape[0] == 1 for h in found)


def test_arg_max_is_the_first_maximum_or_nan():
    inf, nan = float("inf"), float("nan")
    rows = [[1.0, 3.0, 3.0], [-inf, -inf, -inf], [-inf, -1.0, -inf], [5.0, 1.0, nan]]
    assert _arg_max(torch.tensor(rows)).tolist() == [1, 0, 1, 2]
    rows = torch.randn(9, 50)
    assert torch.equal(_arg_max(rows), rows.argmax(dim=1))
    assert _arg_max(rows.to("meta")).shape == (9,)  # where NumPy cannot read


def test_greedy_search_takes_the_most_probable_token_until_the_limit(model):
    for sentence, found in enumerate(greedy(model)):
        before = [BOS, BOS, *found.tokens]
        for i, token in enumerate(found.tokens):
            if i + 1 == MAX_LENGTHS[sentence]:
                assert token == EOS
            else:
                assert token == model.table[sentence, before[i], before[i + 1]].argmax()


def searched(model, alpha=1.0):
    """Yield (sentence, hypothesis) of greedy search and beams of many sizes."""
    for sentence, hypothesis in enumerate(greedy(model, alpha=alpha)):
        yield sentence, hypothesis
    for beam_size in (1, 2, 3, 7, WIDE):
        for sentence, found in enumerate(beam(model, beam_size, beam_size, alpha)):
            for hypothesis in found:
                yield sentence, hypothesis


@HONEST
@pytest.mark.parametrize("alpha", ALPHAS)
def test_reported_score_is_the_score_of_that_output(model, alpha):
    for sentence, found in searched(model, alpha):
        log_prob = model.log_prob(sentence, found.tokens)
        assert found.log_prob == pytest.approx(log_prob, abs=1e-12)
        penalty = ((5 + len(found.tokens)) / 6) ** alpha
        assert found.score == pytest.approx(log_prob / penalty, abs=1e-12)


@pytest.mark.guarantee("Every output ends within its limit and contains no padding.")
def test_every_output_ends_once_and_within_its_limit(model):
    for sentence, found in searched(model):
        assert found.tokens.index(EOS) == len(found.tokens) - 1 < MAX_LENGTHS[sentence]
        assert BOS not in found.tokens


@pytest.mark.guarantee("An alignment belongs to the translation it is shown with.")
def test_weights_follow_their_hypothesis(model):
    """The weights of a token are those of the step that predicted it, from the tokens before."""
    for sentence, found in searched(model):
        assert len(found.weights) == len(found.tokens)
        for i, weights in enumerate(found.weights):
            read = [sentence, BOS, *found.tokens[:i]]
            assert weights.tolist() == read + [-1] * (1 + HISTORY - len(read))


@HONEST
@pytest.mark.parametrize("beam_size", [1, 2, 3, 6, WIDE, 10 * WIDE])
def test_best_outputs_are_distinct_sorted_and_complete(model, beam_size):
    for max_length, found in zip(MAX_LENGTHS, beam(model, beam_size, beam_size), strict=True):
        outputs = [tuple(hypothesis.tokens) for hypothesis in found]
        assert len(set(outputs)) == len(outputs) == min(beam_size, len(all_outputs(max_length)))
        scores = [hypothesis.score for hypothesis in found]
        assert scores == sorted(scores, reverse=True)


@pytest.mark.guarantee("Batch size and order do not change translations.")
@pytest.mark.parametrize("beam_size", [None, 1, 2, 3, 7])
@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_sentences_of_a_batch_are_independent(model, beam_size, alpha):
    def search(sentences, num_best):
        if beam_size is None:
            return [[hypothesis] for hypothesis in greedy(model, sentences, alpha)]
        return beam(model, beam_size, num_best, alpha, sentences)

    for num_best in {1, beam_size or 1}:
        together = search(ALL, num_best)
        for order in ([4, 3, 2, 1, 0], [2, 2, 0], *([s] for s in range(NUM_SENTENCES))):
            for sentence, hypotheses in zip(order, search(order, num_best), strict=True):
                expected = [comparable(h) for h in together[sentence]]
                assert [comparable(h) for h in hypotheses] == expected


def test_no_sentences_give_no_outputs():
    model = ToyModel(0)
    assert beam(model, 3, sentences=[]) == []
    assert greedy(model, sentences=[]) == []


@pytest.mark.parametrize(
    ("length", "alpha", "penalty"),
    [(1, 0.7, 1.0), (30, 0.0, 1.0), (7, 1.0, 2.0), (7, 2.0, 4.0), (49, 0.5, 3.0)],
)
def test_length_penalty_equals_that_of_wu_et_al(length, alpha, penalty):
    """lp = ((5 + n) / 6)^alpha (arXiv:1609.08144, eq. 14), by hand."""
    assert length_penalty(length, alpha) == pytest.approx(penalty)


def test_negative_length_penalty_is_refused():
    with pytest.raises(ValueError, match=r"decoding\.length_penalty=-0\.5 must be at least 0"):
        length_penalty(3, -0.5)
