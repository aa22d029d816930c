"""BLEU and chrF of a corpus, and BLEU of resampled corpora.

Strings in, numbers out. The scores are computed by sacreBLEU (Post 2018, arXiv:1804.08771), so
they are comparable with published ones, and each carries the signature that says how it was
computed.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sacrebleu.metrics import BLEU, CHRF

# Languages written without spaces between words, or whose words carry particles: sacreBLEU's
# default tokenizer finds hardly any matching n-gram in them.
TOKENIZERS_FOR_LANGUAGE = {"zh": "zh", "ja": "ja-mecab", "ko": "ko-mecab"}
OTHER_CODES = {"zho": "zh", "chi": "zh", "cmn": "zh", "yue": "zh", "jpn": "ja", "kor": "ko"}

SMOOTHING = "exp"  # sacreBLEU's default, for n-gram orders without a match


class Score(NamedTuple):
    """One score of one corpus.

    ``details`` of BLEU are its ``precisions`` (percent, n = 1 to 4), ``brevity_penalty`` in [0, 1],
    and ``hypothesis_length`` and ``reference_length`` in tokens of the metric; chrF has none.
    """

    name: str
    score: float
    signature: str
    details: Mapping[str, Any]

    def to_dict(self) -> dict[str, float | str]:
        """Return score and signature, for a report in JSON."""
        return {"score": self.score, "signature": self.signature}

    def __str__(self) -> str:
        return f"{self.name} {self.score:.2f} ({self.signature})"


def replace_newlines(text: str) -> str:
    """Replace each line feed and carriage return with a space, so that ``text`` is one line.

    A model with byte tokens can emit either, which would shift all later lines of the file against
    the references. Scoring applies this to hypotheses; code that writes them to a file must do the
    same, or the sacrebleu command scores something else. Other separators, such as U+2028, do not
    end a line, neither here nor in sacreBLEU.
    """
    return text.replace("\n", " ").replace("\r", " ")


def bleu(*, hypotheses: Sequence[str], references: Sequence[str], tokenize: str = "13a") -> Score:
    """Compute BLEU (Papineni et al. 2002) from n-gram counts of the whole corpus, cased.

    Args:
        hypotheses: detokenized translations, one per sentence.
        references: lines of the untouched reference file; line n belongs to hypothesis n.
        tokenize: a tokenizer of sacreBLEU, applied to hypotheses and references.

    Returns:
        A score in [0, 100], equal to what ``sacrebleu REFERENCES -i HYPOTHESES`` prints.

    Raises:
        ValueError: hypotheses and references differ in number, are empty, or are not strings of
            one line; ``tokenize`` is unknown or needs a package that is not installed.
    """
    metric = _bleu_metric(tokenize)
    result = metric.corpus_score(*_validated(hypotheses, references))
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
    """Count what BLEU needs in every sentence; the counts of a corpus are the sum of its rows.

    Arguments and errors are those of ``bleu``.

    Returns:
        (N, 10): n-grams that also occur in the reference, n = 1 to 4; n-grams, n = 1 to 4; tokens
        of the hypothesis; tokens of the reference.
    """
    metric = _bleu_metric(tokenize)
    hypotheses, (references,) = _validated(hypotheses, references)
    # A corpus of one sentence each: sentence_score counts the same, but logs a warning about its
    # score, which is not used here.
    results = (
        metric.corpus_score([hypothesis], [[reference]])
        for hypothesis, reference in zip(hypotheses, references, strict=True)
    )
    rows = [[*each.counts, *each.totals, each.sys_len, each.ref_len] for each in results]
    return np.array(rows, dtype=np.int64)


def bleu_of_statistics(statistics: ArrayLike) -> float:
    """Compute BLEU in [0, 100] from counts, (10,): a row of ``bleu_statistics`` or a sum of rows.

    The result equals ``bleu`` of the same sentences.
    """
    *counted, sys_len, ref_len = np.asarray(statistics, dtype=np.int64).tolist()
    counts, totals = counted[:4], counted[4:]
    return BLEU.compute_bleu(counts, totals, sys_len, ref_len, smooth_method=SMOOTHING).score


def resampled_bleu(
    statistics: NDArray[np.int64], num_resamples: int, seed: int
) -> NDArray[np.float64]:
    """Compute BLEU of resampled corpora: as many sentences, drawn with replacement (Koehn 2004).

    The same seed draws the same sentences from every corpus of that size, so the results of two
    systems on one test set are paired: each difference belongs to one drawn corpus.

    Args:
        statistics: from ``bleu_statistics``, (N, 10), N at least 1.
        num_resamples: R, number of corpora to draw, at least 1.
        seed: random seed of the draws.

    Returns:
        (R,), each in [0, 100].

    Raises:
        ValueError: there are 0 sentences, or 0 corpora to draw.
    """
    number = len(statistics)
    if num_resamples < 1 or not number:
        raise ValueError(
            f"num_resamples={num_resamples} of {number:,} sentences: both must be at least 1."
        )
    # Only how often each sentence is drawn matters, so one product serves all resamples.
    generator = np.random.default_rng(seed)
    draw_counts = generator.multinomial(number, np.full(number, 1 / number), size=num_resamples)
    return np.array([bleu_of_statistics(row) for row in draw_counts @ statistics])


def chrf(*, hypotheses: Sequence[str], references: Sequence[str]) -> Score:
    """Compute chrF2 (Popović 2015): the F-score of character n-grams, n = 1 to 6, in [0, 100].

    It needs no tokenizer, so it is the fairer score for languages written without spaces.
    Arguments and errors are those of ``bleu``.
    """
    metric = CHRF()
    result = metric.corpus_score(*_validated(hypotheses, references))
    return Score(result.name, float(result.score), str(metric.get_signature()), {})


def check_tokenizer(language: str, tokenize: str) -> str | None:
    """Check, before training, that ``tokenize`` is usable and suits the target language.

    Returns:
        A one-line warning if Chinese, Japanese or Korean uses the default tokenizer, else None.

    Raises:
        ValueError: ``tokenize`` is unknown or needs a package that is not installed.
    """
    _bleu_metric(tokenize)
    code = language.lower().replace("_", "-").split("-")[0]
    suited = TOKENIZERS_FOR_LANGUAGE.get(OTHER_CODES.get(code, code))
    if suited is None or tokenize != BLEU.TOKENIZER_DEFAULT:
        return None
    return (
        f"metric_tokenizer={tokenize} splits at spaces, so BLEU says little about "
        f"target language {language!r}: set metric_tokenizer={suited}, or read chrF instead."
    )


def _bleu_metric(tokenize: str) -> BLEU:
    if tokenize not in BLEU.TOKENIZERS:
        raise ValueError(
            f"metric_tokenizer={tokenize} is unknown to sacreBLEU; "
            f"choose one of {sorted(BLEU.TOKENIZERS)}."
        )
    try:
        return BLEU(tokenize=tokenize, smooth_method=SMOOTHING)
    except (RuntimeError, ImportError) as error:  # how sacreBLEU reports a missing package
        extra = tokenize.removesuffix("-mecab")
        raise ValueError(
            f"metric_tokenizer={tokenize} needs a package that is not installed: "
            f"pip install 'sacrebleu[{extra}]', or choose another tokenizer."
        ) from error
    except OSError as error:  # some are downloaded on first use
        raise ValueError(
            f"metric_tokenizer={tokenize} could not be loaded ({error}); choose another tokenizer."
        ) from error


def _validated(
    hypotheses: Sequence[str], references: Sequence[str]
) -> tuple[list[str], list[list[str]]]:
    """Return the arguments of sacreBLEU, after checks that it does not make itself."""
    for name, lines in (("hypotheses", hypotheses), ("references", references)):
        # A string is a sequence of strings too: each of its letters would count as a sentence.
        if isinstance(lines, str) or not all(isinstance(line, str) for line in lines):
            raise ValueError(f"{name} must be a list of strings, one per sentence.")
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
                f"reference {number:,} contains a line feed, so it is not one line of a file: "
                f"read references line by line."
            )
    # One list per reference stream, not one per sentence: with the wrong nesting sacreBLEU would
    # silently score the first sentence only.
    return [replace_newlines(text) for text in hypotheses], [list(references)]
