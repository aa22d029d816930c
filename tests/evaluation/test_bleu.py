import json
import random
import subprocess
import sys
from itertools import combinations

import numpy as np
import pytest

from seq2seq.evaluation.bleu import (
    bleu,
    bleu_of_statistics,
    bleu_statistics,
    check_tokenizer,
    chrf,
    replace_newlines,
    resampled_bleu,
)

REFERENCES = [
    "The cat sat on the mat, and it stayed there.",
    "A second sentence\u2028with a separator inside it.",
    "Zwei Männer\x85 laden Baumwolle auf einen Lastwagen.",
    "tea & cake cost $4.50 - or so they say",
    "this one was never translated",
    "  blanks at both ends  ",
]
HYPOTHESES = [
    "The cat sat on a mat and it stayed\u2028there.",
    "A second sentence-\nwith a line feed inside it.",
    "Zwei Männer laden\rBaumwolle auf den Lastwagen.",
    "tea &amp; cake cost $4.50 -\x0b or so they say \x1c",
    "",
    " blanks at both ends",
]


def select(indices):
    """Some of the sentences, as arguments of a metric."""
    return {
        "hypotheses": [HYPOTHESES[index] for index in indices],
        "references": [REFERENCES[index] for index in indices],
    }


@pytest.mark.guarantee(
    "The sacrebleu command prints the same scores and signatures for the written files."
)
def test_sacrebleu_command_prints_same_score_and_signature(tmp_path):
    reference, hypothesis = tmp_path / "reference.txt", tmp_path / "hypothesis.txt"
    reference.write_bytes("".join(f"{line}\n" for line in REFERENCES).encode())
    hypothesis.write_bytes("".join(f"{replace_newlines(line)}\n" for line in HYPOTHESES).encode())
    command = [sys.executable, "-m", "sacrebleu", reference, "-i", hypothesis]
    command += ["-m", "bleu", "chrf", "-w", "9"]
    done = subprocess.run(command, capture_output=True, check=True)
    printed = {entry["name"]: entry for entry in json.loads(done.stdout)}
    for metric in (bleu, chrf):
        score = metric(hypotheses=HYPOTHESES, references=REFERENCES)
        assert round(score.score, 9) == printed[score.name]["score"]
        assert score.signature == printed[score.name]["signature"]


def test_replace_newlines_keeps_other_separators():
    assert replace_newlines("a\nb\r\nc") == "a b  c"
    assert replace_newlines("a\u2028b\u0085c\td") == "a\u2028b\u0085c\td"


@pytest.mark.parametrize("metric", [bleu, chrf])
def test_references_score_100_against_themselves(metric):
    assert metric(hypotheses=REFERENCES, references=REFERENCES).score == pytest.approx(100)


@pytest.mark.guarantee("Hypotheses and references cannot be swapped, and must match in number.")
def test_hypotheses_half_as_long_get_brevity_penalty():
    """Papineni et al. 2002: exp(1 - r/c); all n-grams are right, so that is the whole score."""
    short, long = ["a b c d"] * 3, ["a b c d e f g h"] * 3
    score = bleu(hypotheses=short, references=long)
    assert score.score == pytest.approx(100 * np.exp(-1))
    assert score.details["brevity_penalty"] == pytest.approx(np.exp(-1))
    assert bleu(hypotheses=long, references=short).details["brevity_penalty"] == 1
    with pytest.raises(TypeError):
        bleu(HYPOTHESES, REFERENCES)


CORPUS_SCORE = pytest.mark.guarantee(
    "A score counts over the corpus, cased; it is not a mean over sentences or batches."
)


@CORPUS_SCORE
def test_score_does_not_depend_on_sentence_order():
    order = random.Random(1).sample(range(len(REFERENCES)), len(REFERENCES))
    for metric in (bleu, chrf):
        assert metric(**select(order)) == metric(hypotheses=HYPOTHESES, references=REFERENCES)


@CORPUS_SCORE
def test_bleu_is_not_a_mean_over_sentences():
    """8 of 8 words right, then 1 of 2: unigram precision is 9/10, not 3/4."""
    references = ["a b c d e f g h", "x y"]
    score = bleu(hypotheses=["a b c d e f g h", "x z"], references=references)
    assert score.details["precisions"][0] == pytest.approx(90)


@CORPUS_SCORE
def test_bleu_is_cased():
    assert bleu(hypotheses=["A B C D"], references=["a b c d"]).score == 0


def test_blank_hypothesis_is_scored():
    score = bleu(hypotheses=[" ", "a b c d"], references=["a b c d", "a b c d"])
    assert 0 < score.score < 100


class TestStatistics:
    @pytest.mark.parametrize("size", range(1, len(REFERENCES) + 1))
    def test_bleu_of_a_subset_equals_bleu_of_its_summed_rows(self, size):
        statistics = bleu_statistics(hypotheses=HYPOTHESES, references=REFERENCES)
        for subset in combinations(range(len(REFERENCES)), size):
            counted = statistics[list(subset)].sum(axis=0)
            assert bleu_of_statistics(counted) == bleu(**select(subset)).score

    def test_hand_counted_example(self):
        """Right are 4 of 5 words, 2 of 4 pairs, 1 of 3 triples, 0 of 2 fours; 6 words are due."""
        (row,) = bleu_statistics(hypotheses=["a b c x e"], references=["a b c d e f"])
        assert row.tolist() == [4, 2, 1, 0, 5, 4, 3, 2, 5, 6]

    def test_statistics_use_the_chosen_tokenizer(self):
        text = {"hypotheses": ["我们的猫"], "references": ["我们的狗"]}
        assert bleu_statistics(**text)[0, 8] == 1
        statistics = bleu_statistics(**text, tokenize="zh")
        assert statistics[0, 8] == 4
        assert bleu_of_statistics(statistics[0]) == bleu(**text, tokenize="zh").score

    def test_sacrebleu_warnings_about_sentence_scores_are_not_logged(self, caplog):
        bleu_statistics(hypotheses=HYPOTHESES, references=REFERENCES)
        assert not caplog.records


class TestResampling:
    STATISTICS = bleu_statistics(hypotheses=HYPOTHESES, references=REFERENCES)

    def test_same_seed_draws_the_same_sentences(self):
        first, again, other = (resampled_bleu(self.STATISTICS, 20, seed) for seed in (1, 1, 2))
        assert (first == again).all()
        assert (first != other).any()

    def test_identical_sentences_give_identical_scores(self):
        statistics = np.repeat(self.STATISTICS[:1], 7, axis=0)
        (score,) = set(resampled_bleu(statistics, 20, seed=0))
        assert score == bleu_of_statistics(statistics[0] * 7)

    def test_sentences_are_drawn_uniformly_with_replacement(self):
        """Sentence k has k words, one of them right, and no other order is ever wrong.

        So BLEU is the fourth root of 1 / (mean length): that of six throws of a die.
        """
        statistics = np.ones((6, 10), dtype=int)
        for words in (4, 8, 9):
            statistics[:, words] = range(1, 7)
        mean_length = (resampled_bleu(statistics, 4000, seed=0) / 100) ** -4
        assert mean_length.mean() == pytest.approx(3.5, abs=0.05)
        assert mean_length.var() == pytest.approx(35 / 12 / 6, rel=0.1)

    @pytest.mark.parametrize(("num_resamples", "number"), [(0, 3), (10, 0)])
    def test_zero_resamples_or_sentences_are_refused(self, num_resamples, number):
        with pytest.raises(ValueError, match=f"num_resamples={num_resamples} of {number} sentenc"):
            resampled_bleu(self.STATISTICS[:number], num_resamples, seed=0)


WARNED = pytest.mark.guarantee(
    "Every score carries its signature; Chinese, Japanese and Korean text scored with the default "
    "tokenizer is warned about."
)


@WARNED
def test_chinese_is_scored_by_character_with_its_own_tokenizer():
    reference = "我们昨天在公园里看见了一只很大的黑色狗。"
    hypothesis = reference.replace("黑", "白")  # one of twenty characters is wrong
    # The default tokenizer sees one long word, and it is wrong.
    assert bleu(hypotheses=[hypothesis], references=[reference]).score == 0
    suited = bleu(hypotheses=[hypothesis], references=[reference], tokenize="zh")
    assert suited.score > 70
    assert "tok:zh" in suited.signature


@WARNED
@pytest.mark.parametrize(
    ("language", "suited"),
    [
        *((code, "zh") for code in ("zh", "zh-CN", "zh_Hant", "ZH", "cmn")),
        ("ja", "ja-mecab"),
        ("ko-KR", "ko-mecab"),
    ],
)
def test_default_tokenizer_is_warned_about(language, suited):
    warning = check_tokenizer(language, "13a")
    assert f"metric_tokenizer={suited}" in warning
    assert "\n" not in warning


@pytest.mark.parametrize("language", ["en", "de", "zu", "kok"])
def test_other_languages_get_no_warning(language):
    assert check_tokenizer(language, "13a") is None
    assert check_tokenizer("zh", "zh") is None


def test_unknown_tokenizer_is_refused_with_the_choices():
    with pytest.raises(ValueError, match=r"metric_tokenizer=13b.*'13a'.*'zh'"):
        check_tokenizer("en", "13b")


@pytest.mark.guarantee("A missing optional package is named, with the command that installs it.")
def test_tokenizer_without_its_package_names_the_package(monkeypatch):
    module = pytest.importorskip("sacrebleu.tokenizers.tokenizer_ja_mecab")
    monkeypatch.setattr(module, "MeCab", None)
    with pytest.raises(ValueError, match=r"ja-mecab.*pip install 'sacrebleu\[ja\]'") as refused:
        bleu(hypotheses=["猫"], references=["猫"], tokenize="ja-mecab")
    assert "\n" not in str(refused.value)


@pytest.mark.guarantee("Hypotheses and references cannot be swapped, and must match in number.")
@pytest.mark.parametrize("metric", [bleu, bleu_statistics, chrf])
@pytest.mark.parametrize(
    ("hypotheses", "references", "message"),
    [
        (["a", "b"], ["a", "b", "c"], "2 hypotheses .* 3 references"),
        ([], [], "nothing to score"),
        (["a", "b"], "ab", "references must be a list of strings"),
        ([["a", "b"]], ["a b"], "hypotheses must be a list of strings"),
        (["a", "b"], ["a", None], "references must be a list of strings"),
        (["a", "b"], ["a", "b\nc"], "reference 2 contains a line feed"),
    ],
)
def test_invalid_corpora_are_refused(metric, hypotheses, references, message):
    with pytest.raises(ValueError, match=message):
        metric(hypotheses=hypotheses, references=references)
