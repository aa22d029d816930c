import math
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seq2seq.evaluation.metrics import bleu
from seq2seq.evaluation.significance import bleu_by_length, bleu_gap

VOCABULARY = [f"w{index}" for index in range(50)]


def sentences(number, seed=0):
    generator = random.Random(seed)
    return [
        " ".join(generator.choices(VOCABULARY, k=generator.randint(4, 30))) for _ in range(number)
    ]


def damaged(lines, share, seed):
    """Replace about this share of the words by a word that occurs nowhere else."""
    generator = random.Random(seed)
    return [
        " ".join("x" if generator.random() < share else word for word in line.split())
        for line in lines
    ]


def lengths_of(lines):
    return [len(line.split()) for line in lines]


REFERENCES = sentences(200)
GOOD, BAD = damaged(REFERENCES, 0.1, seed=1), damaged(REFERENCES, 0.3, seed=2)
LENGTHS = lengths_of(REFERENCES)


def by_length(edges=(10, 20), hypotheses=GOOD, **options):
    options = {"source_lengths": LENGTHS, "references": REFERENCES, "num_resamples": 50} | options
    return bleu_by_length(hypotheses=hypotheses, edges=edges, **options)


def gap(hypotheses=GOOD, baseline=BAD, **options):
    options = {"references": REFERENCES, "num_resamples": 50} | options
    return bleu_gap(hypotheses=hypotheses, baseline=baseline, **options)


def width(estimate):
    return estimate.high - estimate.low


class TestBins:
    @pytest.mark.guarantee("Alignment error rate and scores by length count over the corpus.")
    @given(
        st.sets(st.integers(0, 40), max_size=6),
        st.lists(st.integers(0, 50), min_size=1, max_size=20),
    )
    def test_every_sentence_is_in_exactly_one_bin(self, edges, lengths):
        number = len(lengths)
        bins = by_length(
            sorted(edges),
            GOOD[:number],
            references=REFERENCES[:number],
            source_lengths=lengths,
            num_resamples=1,
        )
        assert bins[0].first == 0
        assert bins[-1].last is None
        assert [each.first for each in bins[1:]] == [each.last + 1 for each in bins[:-1]]
        for each in bins:
            last = math.inf if each.last is None else each.last
            inside = [length for length in lengths if each.first <= length <= last]
            assert each.num_sentences == len(inside)
            assert each.mean_length == (pytest.approx(np.mean(inside)) if inside else None)
        assert sum(each.num_sentences for each in bins) == number

    def test_edge_is_the_last_length_of_its_bin(self):
        shorter, longer = by_length(
            (10,), ["a"] * 4, source_lengths=[9, 10, 11, 12], references=["a"] * 4
        )
        assert (shorter.last, longer.first) == (10, 11)
        assert shorter.num_sentences == longer.num_sentences == 2

    def test_labels_give_the_lengths_of_each_bin(self):
        assert [each.label for each in by_length((10, 20, 21))] == ["≤ 10", "11–20", "21", "> 21"]
        assert [each.label for each in by_length(())] == ["all"]

    @pytest.mark.parametrize("edges", [(10, 10), (20, 10), (-1, 10)])
    def test_edges_must_increase(self, edges):
        with pytest.raises(ValueError, match=r"edges=\[.*10.*\] must increase"):
            by_length(edges)

    def test_lengths_must_match_the_sentences(self):
        with pytest.raises(ValueError, match=r"shape \(199,\) do not belong to 200 hypotheses"):
            by_length(source_lengths=LENGTHS[1:])
        with pytest.raises(ValueError, match=r"199 hypotheses .* 200 references"):
            by_length(hypotheses=GOOD[1:])


class TestBleuByLength:
    @pytest.mark.guarantee("Alignment error rate and scores by length count over the corpus.")
    def test_bin_has_the_bleu_of_its_sentences(self):
        for each in by_length((8, 15, 22)):
            inside = [
                n for n, length in enumerate(LENGTHS) if each.first <= length <= (each.last or 99)
            ]
            chosen = {
                "hypotheses": [GOOD[index] for index in inside],
                "references": [REFERENCES[index] for index in inside],
            }
            assert each.bleu.score == bleu(**chosen).score

    def test_a_bin_does_not_depend_on_other_bins(self):
        middle = by_length((10, 20))[1]
        inside = [index for index, length in enumerate(LENGTHS) if 11 <= length <= 20]
        (alone,) = by_length(
            (),
            [GOOD[index] for index in inside],
            references=[REFERENCES[index] for index in inside],
            source_lengths=[LENGTHS[index] for index in inside],
        )
        assert middle.bleu == alone.bleu
        mixed = [GOOD[n] if n in set(inside) else "x" for n in range(len(GOOD))]
        assert by_length((10, 20), mixed)[1] == middle

    @pytest.mark.parametrize(("number", "found"), [(0, False), (1, False), (2, True)])
    def test_bin_of_fewer_than_two_sentences_has_no_score(self, number, found):
        lengths = [5] * (10 - number) + [15] * number
        last = by_length((10,), GOOD[:10], references=REFERENCES[:10], source_lengths=lengths)[-1]
        assert last.num_sentences == number
        assert (last.bleu is not None) == found
        assert (last.mean_length is not None) == (number > 0)


class TestIntervals:
    def test_interval_contains_the_score(self):
        for each in by_length((8, 15, 22)):
            assert 0 <= each.bleu.low < each.bleu.score < each.bleu.high <= 100

    def test_four_times_the_sentences_halve_the_interval(self):
        (few,) = by_length((), num_resamples=1000)
        (many,) = by_length(
            (),
            GOOD * 4,
            references=REFERENCES * 4,
            source_lengths=LENGTHS * 4,
            num_resamples=1000,
        )
        assert width(many.bleu) == pytest.approx(width(few.bleu) / 2, rel=0.15)
        assert many.bleu.score == pytest.approx(few.bleu.score)

    def test_about_95_percent_contain_the_score_of_the_population(self):
        """100 test sets of 30 sentences each, from one population."""
        many = sentences(3000, seed=5)
        hypotheses = damaged(many, 0.2, seed=6)
        truth = bleu(hypotheses=hypotheses, references=many).score
        held = 0
        for first in range(0, 3000, 30):
            chunk = slice(first, first + 30)
            (found,) = bleu_by_length(
                source_lengths=lengths_of(many[chunk]),
                hypotheses=hypotheses[chunk],
                references=many[chunk],
                edges=(),
                num_resamples=100,
            )
            held += found.bleu.low <= truth <= found.bleu.high
        assert 85 <= held <= 99

    def test_same_seed_gives_same_interval(self):
        assert by_length(seed=1) == by_length(seed=1)
        other = by_length(seed=2)
        for one, two in zip(by_length(seed=1), other, strict=True):
            assert one.bleu != two.bleu
            assert one.bleu.score == two.bleu.score

    def test_identical_sentences_give_interval_of_width_0(self):
        (found,) = by_length(
            (), ["a b c d e x"] * 9, references=["a b c d e f"] * 9, source_lengths=[6] * 9
        )
        assert width(found.bleu) == 0


class TestGap:
    def test_scores_are_those_of_each_system(self):
        found = gap()
        assert found.bleu.score == bleu(hypotheses=GOOD, references=REFERENCES).score
        assert found.baseline.score == bleu(hypotheses=BAD, references=REFERENCES).score
        assert found.difference.score == found.bleu.score - found.baseline.score
        assert found.num_sentences == len(REFERENCES)

    def test_system_equals_itself(self):
        assert gap(GOOD, GOOD).difference == (0, 0, 0)

    def test_swapping_the_systems_changes_the_sign(self):
        there, back = gap(GOOD, BAD).difference, gap(BAD, GOOD).difference
        assert back == pytest.approx((-there.score, -there.high, -there.low))

    def test_interval_equals_that_of_bleu_by_length(self):
        (alone,) = by_length(())
        assert gap().bleu == alone.bleu

    def test_pairing_narrows_the_interval_of_similar_systems(self):
        """Without pairing, the variances would add up."""
        similar = [*GOOD[:-20], *BAD[-20:]]
        found = gap(GOOD, similar, num_resamples=1000)
        unpaired = np.hypot(width(found.bleu), width(found.baseline))
        assert width(found.difference) < unpaired / 2

    def test_only_chosen_sentences_count(self):
        longer = np.array(LENGTHS) > 20
        mixed = [good if far else "x" for good, far in zip(GOOD, longer, strict=True)]
        found = gap(mixed, BAD, chosen=longer)
        assert found == gap(GOOD, BAD, chosen=longer)
        assert found.num_sentences == longer.sum()
        assert found.bleu == by_length((20,))[1].bleu

    def test_indices_are_refused_as_a_choice(self):
        with pytest.raises(ValueError, match="True or False for each of the 200 sentences"):
            gap(chosen=[0, 1, 2])
        with pytest.raises(ValueError, match="True or False for each of the 200 sentences"):
            gap(chosen=[1] * 200)

    @pytest.mark.parametrize("number", [0, 1])
    def test_fewer_than_two_sentences_are_refused(self, number):
        with pytest.raises(ValueError, match=f"{number} of 200 sentences are chosen"):
            gap(chosen=np.arange(200) < number)
