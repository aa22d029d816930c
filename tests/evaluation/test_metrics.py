import json
import math
import random
import subprocess
import sys
from itertools import combinations

import numpy as np
import pytest

from seq2seq.evaluation.metrics import (
    CRITERIA,
    bleu,
    bleu_of_statistics,
    bleu_statistics,
    check_tokenizer,
    chrf,
    get_criterion,
    one_line,
    perplexity,
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


@pytest.fixture
def files(tmp_path):
    """Reference and hypothesis file as a script leaves them."""
    reference, hypothesis = tmp_path / "reference.txt", tmp_path / "hypothesis.txt"
    reference.write_bytes("".join(f"{line}\n" for line in REFERENCES).encode())
    hypothesis.write_bytes("".join(f"{one_line(line)}\n" for line in HYPOTHESES).encode())
    return reference, hypothesis


@pytest.mark.parametrize("through_stdin", [False, True])
def test_sacrebleu_on_the_written_files_prints_the_same_score_and_signature(files, through_stdin):
    reference, hypothesis = files
    command = [sys.executable, "-m", "sacrebleu", reference, "-m", "bleu", "chrf", "-w", "9"]
    if not through_stdin:
        command += ["-i", hypothesis]
    with hypothesis.open("rb") as file:
        done = subprocess.run(command, stdin=file, capture_output=True, check=True)
    printed = {entry["name"]: entry for entry in json.loads(done.stdout)}
    for metric in (bleu, chrf):
        score = metric(hypotheses=HYPOTHESES, references=REFERENCES)
        assert round(score.score, 9) == printed[score.name]["score"]
        assert score.signature == printed[score.name]["signature"]


def test_one_line_is_one_line():
    assert one_line("a\nb\r\nc") == "a b  c"
    assert one_line("a\u2028b\u0085c\td") == "a\u2028b\u0085c\td"


def test_only_the_first_of_three_being_right_is_far_from_perfect():
    references = ["the first one is right here", "nothing of this agrees", "nor does any of that"]
    hypotheses = ["the first one is right here", "we say another thing", "again other words only"]
    assert bleu(hypotheses=hypotheses, references=references).score < 60


@pytest.mark.parametrize("metric", [bleu, chrf])
def test_the_references_themselves_score_100(metric):
    assert metric(hypotheses=REFERENCES, references=REFERENCES).score == pytest.approx(100)


def test_hypotheses_half_as_long_pay_the_brevity_penalty():
    """Papineni et al. 2002: exp(1 - r/c); all n-grams are right, so that is the whole score."""
    short, long = ["a b c d"] * 3, ["a b c d e f g h"] * 3
    score = bleu(hypotheses=short, references=long)
    assert score.details["brevity_penalty"] == pytest.approx(math.exp(1 - 2))
    assert score.score == pytest.approx(100 * math.exp(1 - 2))
    assert score.details["hypothesis_length"] * 2 == score.details["reference_length"]
    assert bleu(hypotheses=long, references=short).details["brevity_penalty"] == 1


def test_sides_cannot_be_swapped_by_position():
    with pytest.raises(TypeError):
        bleu(HYPOTHESES, REFERENCES)


def test_counts_are_of_the_corpus_in_any_order():
    pairs = list(zip(HYPOTHESES, REFERENCES, strict=True))
    random.Random(1).shuffle(pairs)
    for metric in (bleu, chrf):
        shuffled = metric(hypotheses=[h for h, _ in pairs], references=[r for _, r in pairs])
        assert shuffled == metric(hypotheses=HYPOTHESES, references=REFERENCES)


def test_bleu_of_a_corpus_is_no_mean_of_sentences():
    """8 of 8 words right beside 1 of 2: unigram precision is 9/10, not 3/4."""
    references = ["a b c d e f g h", "x y"]
    score = bleu(hypotheses=["a b c d e f g h", "x z"], references=references)
    assert score.details["precisions"][0] == pytest.approx(90)


class TestStatistics:
    @pytest.mark.parametrize("size", range(1, len(REFERENCES) + 1))
    def test_bleu_of_any_subset_is_that_of_the_sum_of_its_rows(self, size):
        statistics = bleu_statistics(hypotheses=HYPOTHESES, references=REFERENCES)
        for subset in combinations(range(len(REFERENCES)), size):
            chosen = {
                "hypotheses": [HYPOTHESES[index] for index in subset],
                "references": [REFERENCES[index] for index in subset],
            }
            counted = statistics[list(subset)].sum(axis=0)
            assert bleu_of_statistics(counted) == bleu(**chosen).score

    def test_by_hand(self):
        """Right are 4 of 5 words, 2 of 4 pairs, 1 of 3 triples, 0 of 2 fours; 6 words are due."""
        (row,) = bleu_statistics(hypotheses=["a b c x e"], references=["a b c d e f"])
        assert row.tolist() == [4, 2, 1, 0, 5, 4, 3, 2, 5, 6]

    def test_the_tokenizer_is_the_one_asked_for(self):
        text = {"hypotheses": ["我们的猫"], "references": ["我们的狗"]}
        assert bleu_statistics(**text)[0, 8] == 1
        statistics = bleu_statistics(**text, tokenize="zh")
        assert statistics[0, 8] == 4
        assert bleu_of_statistics(statistics[0]) == bleu(**text, tokenize="zh").score

    def test_nothing_is_logged(self, caplog):
        """sacreBLEU warns of scores of sentences."""
        bleu_statistics(hypotheses=HYPOTHESES, references=REFERENCES)
        assert not caplog.records


class TestResampling:
    STATISTICS = bleu_statistics(hypotheses=HYPOTHESES, references=REFERENCES)

    def test_the_same_seed_draws_the_same(self):
        first, again, other = (resampled_bleu(self.STATISTICS, 20, seed) for seed in (1, 1, 2))
        assert (first == again).all()
        assert (first != other).any()

    def test_equal_sentences_make_equal_corpora(self):
        statistics = np.repeat(self.STATISTICS[:1], 7, axis=0)
        (score,) = set(resampled_bleu(statistics, 20, seed=0))
        assert score == bleu_of_statistics(statistics[0] * 7)

    def test_one_corpus_may_be_drawn(self):
        assert resampled_bleu(self.STATISTICS, 1, seed=0).shape == (1,)

    def test_the_draws_are_those_of_a_die(self):
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
    def test_nothing_is_refused(self, num_resamples, number):
        with pytest.raises(ValueError, match=f"num_resamples={num_resamples} of {number} sentenc"):
            resampled_bleu(self.STATISTICS[:number], num_resamples, seed=0)


def test_case_counts():
    assert bleu(hypotheses=["A B C D"], references=["a b c d"]).score == 0


def test_a_single_blank_is_a_hypothesis():
    score = bleu(hypotheses=[" ", "a b c d"], references=["a b c d", "a b c d"])
    assert 0 < score.score < 100


def test_chinese_with_one_of_twenty_characters_wrong():
    reference = "我们昨天在公园里看见了一只很大的黑色狗。"
    hypothesis = reference.replace("黑", "白")
    assert len(reference) == 20
    # The default sees one long word, and it is wrong.
    assert bleu(hypotheses=[hypothesis], references=[reference]).score == 0
    suited = bleu(hypotheses=[hypothesis], references=[reference], tokenize="zh")
    assert suited.score > 70
    assert "tok:zh" in suited.signature


@pytest.mark.parametrize("language", ["zh", "zh-CN", "zh_Hant", "ZH", "cmn"])
def test_chinese_left_on_the_default_is_warned_of(language):
    warning = check_tokenizer(language, "13a")
    assert "metric_tokenizer=zh" in warning
    assert "\n" not in warning
    assert check_tokenizer(language, "zh") is None


@pytest.mark.parametrize(("language", "suited"), [("ja", "ja-mecab"), ("ko-KR", "ko-mecab")])
def test_japanese_and_korean_left_on_the_default_are_warned_of(language, suited):
    assert f"metric_tokenizer={suited}" in check_tokenizer(language, "13a")


@pytest.mark.parametrize("language", ["en", "de", "zu", "kok"])
def test_other_languages_are_not_warned_of(language):
    assert check_tokenizer(language, "13a") is None


def test_an_unknown_tokenizer_is_refused_with_the_list():
    with pytest.raises(ValueError, match=r"metric_tokenizer=13b.*'13a'.*'zh'"):
        check_tokenizer("en", "13b")


def test_a_tokenizer_without_its_package_says_what_to_install(monkeypatch):
    module = pytest.importorskip("sacrebleu.tokenizers.tokenizer_ja_mecab")
    monkeypatch.setattr(module, "MeCab", None)
    with pytest.raises(ValueError, match=r"ja-mecab.*pip install 'sacrebleu\[ja\]'") as refused:
        bleu(hypotheses=["猫"], references=["猫"], tokenize="ja-mecab")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("metric", [bleu, bleu_statistics, chrf])
class TestRefusals:
    def test_different_counts_are_both_named(self, metric):
        with pytest.raises(ValueError, match=r"2 hypotheses .* 3 references"):
            metric(hypotheses=["a", "b"], references=["a", "b", "c"])

    def test_nothing_has_no_score(self, metric):
        with pytest.raises(ValueError, match="nothing to score"):
            metric(hypotheses=[], references=[])

    def test_a_string_is_no_corpus(self, metric):
        with pytest.raises(ValueError, match="references must be a list of strings"):
            metric(hypotheses=["a", "b"], references="ab")

    def test_token_lists_are_no_sentences(self, metric):
        with pytest.raises(ValueError, match="hypotheses must be a list of strings"):
            metric(hypotheses=[["a", "b"]], references=["a b"])
        with pytest.raises(ValueError, match="references must be a list of strings"):
            metric(hypotheses=["a", "b"], references=["a", None])

    def test_a_reference_of_two_lines_is_none(self, metric):
        with pytest.raises(ValueError, match="reference 2 contains a line feed"):
            metric(hypotheses=["a", "b"], references=["a", "b\nc"])


def test_a_report_holds_score_and_signature():
    score = bleu(hypotheses=["a b c d"], references=["a b c d"])
    report = json.loads(json.dumps(score.to_dict()))
    assert report == {"score": score.score, "signature": score.signature}
    assert score.signature in str(score)


@pytest.mark.parametrize(("nats", "expected"), [(0, 1), (math.log(7), 7), (1e6, math.inf)])
def test_perplexity_of_as_many_equal_choices(nats, expected):
    assert perplexity(nats) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("name", "best"),
    [("bleu", 5), ("chrf", 5), ("loss", 1), ("perplexity", 1), ("aer", 1)],
)
def test_each_criterion_knows_its_direction(name, best):
    found = None
    for score in (1.0, 5.0, 3.0):
        if get_criterion(name).is_better(score, found):
            found = score
    assert found == best


@pytest.mark.parametrize("name", sorted(CRITERIA))
def test_nan_is_never_better_and_never_stays(name):
    criterion = get_criterion(name)
    assert not criterion.is_better(math.nan, None)
    assert not criterion.is_better(math.nan, 1.0)
    assert criterion.is_better(1.0, math.nan)
    assert not criterion.is_better(1.0, 1.0)


def test_an_unknown_criterion_is_refused_with_the_list():
    with pytest.raises(ValueError, match=r"trainer\.select=blue.*'bleu'.*'loss'"):
        get_criterion("blue")
