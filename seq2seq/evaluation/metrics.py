"""Corpus scores of translations, and which direction of each is the better one.

Strings in, numbers out: BLEU and chrF are sacreBLEU's (Post 2018, arXiv:1804.08771), so that they
compare with published ones, and every score travels with the signature that says how it was made.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sacrebleu.metrics import BLEU, CHRF

# Written without blanks between words, or with words that carry their particles: sacreBLEU's
# default finds hardly any n-gram of such a sentence.
TOKENIZERS_FOR_LANGUAGE = {"zh": "zh", "ja": "ja-mecab", "ko": "ko-mecab"}
OTHER_CODES = {"zho": "zh", "chi": "zh", "cmn": "zh", "yue": "zh", "jpn": "ja", "kor": "ko"}

SMOOTHING = "exp"  # sacreBLEU's default, for n-gram orders without a match


class Score(NamedTuple):
    """One score of one corpus.

    ``details`` holds what BLEU is made of: ``precisions`` (percent, n = 1 to 4),
    ``brevity_penalty`` in [0, 1], ``hypothesis_length`` and ``reference_length`` in the metric's
    own tokens; for chrF it is empty.
    """

    name: str
    score: float
    signature: str
    details: Mapping[str, Any]

    def to_dict(self) -> dict[str, float | str]:
        """What a report in JSON needs of it."""
        return {"score": self.score, "signature": self.signature}

    def __str__(self) -> str:
        return f"{self.name} {self.score:.2f} ({self.signature})"


def one_line(text: str) -> str:
    """``text`` as one line of a file: a line feed or carriage return in it becomes a blank.

    A model with byte tokens can emit either. Written as it is, it would shift all later lines of
    the file against the references. Scoring applies this to hypotheses; whoever writes them to a
    file does too, or sacreBLEU's command line scores something else. Other separators, U+2028
    among them, end no line for us, nor for sacreBLEU.
    """
    return text.replace("\n", " ").replace("\r", " ")


def bleu(*, hypotheses: Sequence[str], references: Sequence[str], tokenize: str = "13a") -> Score:
    """BLEU of a corpus (Papineni et al. 2002), cased, from n-gram counts of the whole set.

    Args:
        hypotheses: detokenised translations, one a sentence.
        references: lines of the untouched reference file; line n belongs to hypothesis n.
        tokenize: sacreBLEU's own tokeniser, applied to both sides.

    Returns:
        A score in [0, 100], equal to what ``sacrebleu REFERENCES -i HYPOTHESES`` prints.

    Raises:
        ValueError: the two differ in number, are none, or are not strings of one line;
            ``tokenize`` is unknown or needs a package that is missing.
    """
    metric = _bleu_metric(tokenize)
    result = metric.corpus_score(*_checked(hypotheses, references))
    details = {
        "precisions": list(result.precisions),
        "brevity_penalty": result.bp,
        "hypothesis_length": result.sys_len,
        "reference_length": result.ref_len,
    }
    return Score(result.name, float(result.score), str(metric.get_signature()), details)


def bleu_statistics(
    *, hypotheses: Sequence[str], references: Sequence[str], tokenize: str = "13a"
) -> NDArray[np.int64]:
    """All that BLEU counts, sentence by sentence: the sum of some rows is what it counts in these.

    Arguments and errors are those of ``bleu``.

    Returns:
        (N, 10): n-grams that the reference has too, n = 1 to 4; n-grams, n = 1 to 4; tokens of
        the hypothesis; tokens of the reference.
    """
    metric = _bleu_metric(tokenize)
    hypotheses, (references,) = _checked(hypotheses, references)
    # A corpus of one sentence each: sentence_score counts the same, but warns that its score, which
    # nobody asked for, had better be of another kind.
    results = (
        metric.corpus_score([hypothesis], [[reference]])
        for hypothesis, reference in zip(hypotheses, references, strict=True)
    )
    rows = [[*each.counts, *each.totals, each.sys_len, each.ref_len] for each in results]
    return np.array(rows, dtype=np.int64)


def bleu_of_statistics(statistics: ArrayLike) -> float:
    """BLEU in [0, 100] of what was counted, (10,): a row of ``bleu_statistics``, or a sum of some.

    Equal to ``bleu`` of the same sentences.
    """
    *counted, sys_len, ref_len = np.asarray(statistics, dtype=np.int64).tolist()
    counts, totals = counted[:4], counted[4:]
    return BLEU.compute_bleu(counts, totals, sys_len, ref_len, smooth_method=SMOOTHING).score


def resampled_bleu(
    statistics: NDArray[np.int64], num_resamples: int, seed: int
) -> NDArray[np.float64]:
    """BLEU of corpora as large as this one, drawn from its sentences with replacement (Koehn 2004).

    The same seed draws the same sentences of any corpus of that size, so the results of two
    systems on one test set are paired: their differences, too, are those of one drawn corpus.

    Args:
        statistics: from ``bleu_statistics``, (N, 10), N at least 1.
        num_resamples: R, how many corpora are drawn, at least 1.
        seed: of the draws.

    Returns:
        (R,), each in [0, 100].

    Raises:
        ValueError: nothing is to be drawn, or from nothing.
    """
    number = len(statistics)
    if num_resamples < 1 or not number:
        raise ValueError(
            f"num_resamples={num_resamples} of {number:,} sentences: both must be at least 1."
        )
    # How often each sentence is drawn is all that matters, in one product for all resamples.
    generator = np.random.default_rng(seed)
    times_drawn = generator.multinomial(number, np.full(number, 1 / number), size=num_resamples)
    return np.array([bleu_of_statistics(row) for row in times_drawn @ statistics])


def chrf(*, hypotheses: Sequence[str], references: Sequence[str]) -> Score:
    """chrF2 of a corpus (Popović 2015): F-score of character n-grams, n = 1 to 6, in [0, 100].

    Knows no words, hence no tokeniser: the fairer score for languages written without blanks.
    Arguments and errors are those of ``bleu``.
    """
    metric = CHRF()
    result = metric.corpus_score(*_checked(hypotheses, references))
    return Score(result.name, float(result.score), str(metric.get_signature()), {})


def check_tokenizer(language: str, tokenize: str) -> str | None:
    """Is ``tokenize`` usable, and does it suit the target language? To be asked before training.

    Returns:
        One line of warning if Chinese, Japanese or Korean is left on the default, else None.

    Raises:
        ValueError: ``tokenize`` is unknown or needs a package that is missing.
    """
    _bleu_metric(tokenize)
    code = language.lower().replace("_", "-").split("-")[0]
    suited = TOKENIZERS_FOR_LANGUAGE.get(OTHER_CODES.get(code, code))
    if suited is None or tokenize != BLEU.TOKENIZER_DEFAULT:
        return None
    return (
        f"metric_tokenizer={tokenize} splits at blanks, so BLEU says little about "
        f"target language {language!r}: set metric_tokenizer={suited}, or read chrF instead."
    )


def perplexity(nats_per_token: float) -> float:
    """``exp`` of the mean negative log-likelihood; inf where that exceeds a float."""
    try:
        return math.exp(nats_per_token)
    except OverflowError:
        return math.inf


class Criterion(NamedTuple):
    """A score to choose checkpoints by; which direction is better is part of what it is."""

    name: str
    higher_is_better: bool

    def is_better(self, new: float, best: float | None) -> bool:
        """Strictly better, so that the earlier of two equals stays; NaN never is.

        Any other number is better than None or NaN, which is no score yet.
        """
        if math.isnan(new):
            return False
        if best is None or math.isnan(best):
            return True
        return new > best if self.higher_is_better else new < best


CRITERIA = {
    criterion.name: criterion
    for criterion in (
        Criterion("bleu", higher_is_better=True),
        Criterion("chrf", higher_is_better=True),
        Criterion("loss", higher_is_better=False),
        Criterion("perplexity", higher_is_better=False),
        Criterion("aer", higher_is_better=False),
    )
}


def get_criterion(name: str) -> Criterion:
    """The criterion that ``trainer.select`` asks for.

    Raises:
        ValueError: there is no such score.
    """
    if name not in CRITERIA:
        raise ValueError(f"trainer.select={name} is unknown; choose one of {sorted(CRITERIA)}.")
    return CRITERIA[name]


def _bleu_metric(tokenize: str) -> BLEU:
    if tokenize not in BLEU.TOKENIZERS:
        raise ValueError(
            f"metric_tokenizer={tokenize} is unknown to sacreBLEU; "
            f"choose one of {sorted(BLEU.TOKENIZERS)}."
        )
    try:
        return BLEU(tokenize=tokenize, smooth_method=SMOOTHING)
    except (RuntimeError, ImportError) as error:  # sacreBLEU's word for a missing package
        extra = tokenize.removesuffix("-mecab")
        raise ValueError(
            f"metric_tokenizer={tokenize} needs a package that is not installed: "
            f"pip install 'sacrebleu[{extra}]', or choose another tokeniser."
        ) from error
    except OSError as error:  # some are downloaded when they are first used
        raise ValueError(
            f"metric_tokenizer={tokenize} could not be loaded ({error}); choose another tokeniser."
        ) from error


def _checked(
    hypotheses: Sequence[str], references: Sequence[str]
) -> tuple[list[str], list[list[str]]]:
    """What sacreBLEU is given, after the checks that it leaves out itself."""
    for side, lines in (("hypotheses", hypotheses), ("references", references)):
        # A string is a sequence of strings too, and each of its letters would be a sentence.
        if isinstance(lines, str) or not all(isinstance(line, str) for line in lines):
            raise ValueError(f"{side} must be a list of strings, one a sentence.")
    if len(hypotheses) != len(references):
        raise ValueError(
            f"{len(hypotheses):,} hypotheses cannot be scored against {len(references):,} "
            f"references: line n of one must translate line n of the other."
        )
    if not hypotheses:
        raise ValueError("0 hypotheses and 0 references: there is nothing to score.")
    for number, reference in enumerate(references, start=1):
        if "\n" in reference.removesuffix("\n"):
            raise ValueError(
                f"reference {number:,} contains a line feed, so it is no line of a file: "
                f"read references line by line."
            )
    # One list per reference stream, not one per sentence: the wrong nesting scores the first
    # sentence only, without a word.
    return [one_line(text) for text in hypotheses], [list(references)]
