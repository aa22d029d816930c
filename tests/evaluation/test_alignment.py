import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seq2seq.evaluation.alignment import (
    Link,
    alignment_error_rate,
    attention_entropy,
    format_pharaoh,
    hard_alignment,
    merge_subwords,
    parse_pharaoh,
    words_of_tokens,
)

links = st.sets(st.builds(Link, st.integers(0, 50), st.integers(0, 50)))
COUNTS = pytest.mark.guarantee("Alignment error rate and scores by length count over the corpus.")

corpora = st.lists(st.tuples(links, links, links), min_size=1, max_size=5)


def random_weights(num_target, num_source, seed=0):
    rows = np.random.default_rng(seed).random((num_target, num_source))
    return rows / rows.sum(axis=1, keepdims=True)


class TestPharaoh:
    @given(links)
    def test_format_is_parsed_back(self, written):
        assert parse_pharaoh(format_pharaoh(written), "here") == written

    def test_links_name_the_source_position_first(self):
        assert parse_pharaoh("3-1\n", "here") == {Link(source=3, target=1)}

    @pytest.mark.parametrize("entry", ["1", "1-", "-1-2", "1-2-3", "a-b", "1:2", "١-٢", "1_0-2"])
    def test_invalid_link_is_refused_with_its_line(self, entry):
        with pytest.raises(
            ValueError, match=r"test\.align:7: .* is not an alignment link"
        ) as refused:
            parse_pharaoh(f"0-0 {entry}", "test.align:7")
        assert repr(entry) in str(refused.value)

    def test_link_beyond_the_sentence_is_refused(self):
        assert parse_pharaoh("0-0 1-2", "here", sizes=(2, 3))
        with pytest.raises(ValueError, match="here: link 2-3 points beyond 2 source and 3 target"):
            parse_pharaoh("1-1 2-3", "here", sizes=(2, 3))


class TestWordsOfTokens:
    @pytest.mark.parametrize(
        ("tokens", "expected"),
        [
            (["▁The", "▁lo", "w", "est", "."], [0, 1, 1, 1, 1]),  # SentencePiece
            (["The", "lowest", "."], [0, 1, 1]),  # Moses
            (list("The lowest."), [0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1]),  # characters
            (["▁", "The", "▁", "lowest", ".", "▁"], [0, 0, 1, 1, 1, 1]),
            (["▁The▁low", "est."], [0, 1]),  # a token of two words belongs to the first
        ],
    )
    def test_tokens_of_every_tokenizer(self, tokens, expected):
        assert words_of_tokens(tokens, ["The", "lowest."]) == expected

    @COUNTS
    @given(
        st.lists(st.text("abäß我", min_size=1, max_size=6), min_size=1, max_size=6),
        st.randoms(use_true_random=False),
    )
    def test_any_segmentation_is_mapped_to_its_words(self, words, random):
        tokens, expected = [], []
        for index, word in enumerate(words):
            cuts = sorted({0, len(word), *(random.randint(0, len(word)) for _ in range(2))})
            pieces = [word[a:b] for a, b in pairwise(cuts)]
            tokens += ["▁" + pieces[0], *pieces[1:]]
            expected += [index] * len(pieces)
        assert words_of_tokens(tokens, words) == expected

    @pytest.mark.parametrize("tokens", [["the", "</s>"], ["th"], [], ["▁"]])
    def test_different_text_is_refused(self, tokens):
        with pytest.raises(ValueError, match=f"{len(tokens)} tokens spell .* spell 3"):
            words_of_tokens(tokens, ["the"])

    def test_spaces_without_a_word_are_refused(self):
        with pytest.raises(ValueError, match="0 words"):
            words_of_tokens(["▁"], [])


class TestMergeSubwords:
    def test_hand_computed_example(self):
        """Sum over the columns of a word, mean over the rows of a word."""
        weights = [[0.1, 0.2, 0.7], [0.5, 0.1, 0.4], [0.0, 0.0, 1.0]]
        merged = merge_subwords(weights, [0, 0, 1], [0, 0, 1], (2, 2))
        np.testing.assert_allclose(merged, [[0.45, 0.55], [0.0, 1.0]])

    @given(st.integers(0, 1000))
    def test_rows_sum_to_one(self, seed):
        generator = np.random.default_rng(seed)
        num_source, num_target = generator.integers(1, 12, size=2)
        source = np.unique(generator.integers(0, 6, num_source), return_inverse=True)[1]
        target = np.unique(generator.integers(0, 6, num_target), return_inverse=True)[1]
        shape = int(target.max()) + 1, int(source.max()) + 1
        merged = merge_subwords(
            random_weights(num_target, num_source, seed), source.tolist(), target.tolist(), shape
        )
        assert merged.shape == shape
        np.testing.assert_allclose(merged.sum(axis=1), 1)

    def test_word_without_tokens_gets_zero(self):
        merged = merge_subwords(random_weights(2, 2), [0, 2], [0, 2], (3, 3))
        assert (merged[1] == 0).all()
        assert (merged[:, 1] == 0).all()

    def test_transposed_weights_are_refused(self):
        with pytest.raises(ValueError, match=r"\(5, 4\) .* 4 target and 5 source"):
            merge_subwords(random_weights(5, 4), range(5), range(4), (4, 5))

    def test_word_beyond_the_sentence_is_refused(self):
        with pytest.raises(ValueError, match=r"source tokens .* 0 to 2, .* has 2 words"):
            merge_subwords(random_weights(2, 3), [0, 1, 2], [0, 1], (2, 2))


class TestHardAlignment:
    def test_each_row_is_linked_to_its_largest_weight(self):
        weights = [[0.1, 0.6, 0.3], [0.8, 0.1, 0.1], [0.2, 0.3, 0.5]]
        assert hard_alignment(weights) == {(1, 0), (0, 1), (2, 2)}

    def test_first_of_equal_weights_is_linked(self):
        assert hard_alignment([[0.4, 0.4, 0.2]]) == {Link(source=0, target=0)}

    def test_zero_weights_give_no_link(self):
        assert hard_alignment(np.zeros((0, 3))) == hard_alignment(np.zeros((3, 0))) == set()
        assert hard_alignment([[0.0, 0.0], [0.0, 1.0]]) == {Link(source=1, target=1)}


class TestAlignmentErrorRate:
    @COUNTS
    def test_hand_computed_example(self):
        """A has 3 links, S has 2; 1 of A is sure and 2 are possible."""
        predicted, sure, possible = {(0, 0), (1, 1), (2, 2)}, {(0, 0), (1, 2)}, {(1, 1)}
        quality = alignment_error_rate([predicted], [sure], [possible])
        assert quality.aer == pytest.approx(1 - (1 + 2) / (3 + 2))
        assert quality.precision == pytest.approx(2 / 3)
        assert quality.recall == pytest.approx(1 / 2)

    @COUNTS
    def test_links_are_counted_over_the_corpus(self):
        """9 of 9 links right, then 0 of 1: 1 - 2 * 9 / (10 + 10), not the mean of 0 and 1."""
        diagonal = {(i, i) for i in range(9)}
        quality = alignment_error_rate([diagonal, {(0, 0)}], [diagonal, {(1, 1)}])
        assert quality.aer == pytest.approx(0.1)

    @given(corpora)
    def test_rates_are_in_range_and_perfect_alignment_has_no_error(self, corpus):
        predicted, sure, possible = zip(*corpus, strict=True)
        assert all(0 <= rate <= 1 for rate in alignment_error_rate(predicted, sure, possible))
        assert alignment_error_rate(sure, sure, possible) == (0, 1, 1)

    @given(corpora)
    def test_without_possible_links_aer_is_one_minus_f_score(self, corpus):
        predicted = [{*links, (0, 0)} for links, _, _ in corpus]
        sure = [{*links, (0, 0)} for _, links, _ in corpus]
        aer, precision, recall = alignment_error_rate(predicted, sure)
        assert aer == pytest.approx(1 - 2 * precision * recall / (precision + recall))

    def test_empty_alignment_is_right_only_if_none_is_expected(self):
        assert alignment_error_rate([set()], [{(0, 0)}]).aer == 1
        assert alignment_error_rate([set()], [set()]).aer == 0

    def test_corpora_of_different_size_are_refused(self):
        with pytest.raises(ValueError, match=r"2 sentence pairs .* 1 have sure and 1 possible"):
            alignment_error_rate([set(), set()], [set()])
        with pytest.raises(ValueError, match="not 0"):
            alignment_error_rate([], [])


class TestAttentionEntropy:
    @pytest.mark.parametrize("size", [1, 2, 7])
    def test_entropy_is_0_if_sharp_and_log_of_size_if_uniform(self, size):
        assert attention_entropy(np.eye(size)) == pytest.approx(0)
        assert attention_entropy(np.full((3, size), 1 / size)) == pytest.approx(math.log(size))

    def test_padding_does_not_change_entropy(self):
        weights = random_weights(4, 5)
        padded = np.zeros((6, 8))
        padded[:4, :5] = weights
        assert attention_entropy(padded) == pytest.approx(attention_entropy(weights))
        assert attention_entropy(padded[None]) == pytest.approx(attention_entropy(weights))

    def test_empty_weights_have_no_entropy(self):
        assert math.isnan(attention_entropy(np.zeros((2, 3))))
        assert math.isnan(attention_entropy(np.zeros((0, 3))))
