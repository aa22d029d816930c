"""Tokens and ids are mapped both ways; the vocabulary depends only on the counts."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seq2seq.data.vocabulary import (
    BOS,
    EOS,
    PAD,
    SPECIALS,
    UNK,
    Vocabulary,
    build_vocabulary,
    unknown_rate,
)

# The first example imports torchtext.
patient = settings(deadline=None)

WORDS = st.one_of(st.text(max_size=3), st.sampled_from(SPECIALS))
COUNTS = st.dictionaries(WORDS, st.integers(1, 5)).map(Counter)


def is_ordinary(token):
    return token not in SPECIALS


@given(st.lists(st.text(max_size=3).filter(is_ordinary), unique=True))
def test_tokens_and_ids_map_both_ways(words):
    vocabulary = Vocabulary([*SPECIALS, *words])
    ids = vocabulary.ids(words)
    assert ids == list(range(4, len(vocabulary)))
    assert vocabulary.tokens([PAD, UNK, BOS, EOS, *ids]) == [*SPECIALS, *words]
    assert vocabulary.token_list == [*SPECIALS, *words]
    assert Vocabulary(vocabulary.token_list).ids(words) == ids


@pytest.mark.guarantee(
    "Text never becomes a control token, and a vocabulary depends only on token counts."
)
@patient
@given(st.lists(WORDS))
def test_text_never_becomes_a_control_id(sentence):
    vocabulary = build_vocabulary(Counter(["word", *sentence, *SPECIALS]))
    ids = vocabulary.ids(sentence)
    assert not {PAD, BOS, EOS} & set(ids)
    assert [id == UNK for id in ids] == [token in SPECIALS for token in sentence]
    assert vocabulary.ids(SPECIALS) == [UNK] * 4


def test_unknown_tokens_are_unk_and_not_added():
    vocabulary = Vocabulary([*SPECIALS, "dog"])
    assert vocabulary.ids(["dog", "cat", "dog"]) == [4, UNK, 4]
    assert len(vocabulary) == 5
    assert "dog" in vocabulary
    assert "cat" not in vocabulary
    assert "<s>" not in vocabulary
    vocabulary.token_list.append("cat")  # a copy
    assert len(vocabulary) == 5


@pytest.mark.parametrize("id", [-1, 5])
def test_ids_outside_the_vocabulary_are_refused(id):
    with pytest.raises(IndexError):
        Vocabulary([*SPECIALS, "dog"]).tokens([4, id])


@pytest.mark.parametrize("tokens", [[], ["dog"], ["<unk>", "<pad>", "<s>", "</s>"], SPECIALS[:3]])
def test_list_must_begin_with_special_tokens(tokens):
    with pytest.raises(ValueError, match="begins with"):
        Vocabulary(tokens)


@pytest.mark.parametrize("twice", ["dog", "<s>"])
def test_duplicate_is_refused_by_name(twice):
    with pytest.raises(ValueError, match=f"'{twice}' occurs 2 times"):
        Vocabulary([*SPECIALS, "dog", "cat", twice])


# --- building


def test_tokens_are_sorted_by_frequency_then_alphabet():
    counts = Counter(["b", "c", "a", "Z", "é", "b", "é", "a", "c", "b"])
    assert build_vocabulary(counts).token_list[4:] == ["b", "a", "c", "é", "Z"]


@pytest.mark.guarantee(
    "Text never becomes a control token, and a vocabulary depends only on token counts."
)
@patient
@given(COUNTS, st.randoms())
def test_vocabulary_does_not_depend_on_the_order_of_counts(counts, random):
    counts["word"] += 1
    items = list(counts.items())
    random.shuffle(items)
    assert build_vocabulary(Counter(dict(items))).token_list == build_vocabulary(counts).token_list


@patient
@given(COUNTS, st.integers(1, 6), st.integers(1, 4))
def test_limits_keep_the_most_frequent_tokens(counts, max_size, min_frequency):
    counts["word"] = 4
    vocabulary = build_vocabulary(counts, max_size, min_frequency)
    enough = [t for t, n in counts.items() if n >= min_frequency and is_ordinary(t)]
    kept = vocabulary.token_list[4:]
    assert len(kept) == min(max_size, len(enough))  # special tokens are not counted
    assert set(kept) <= set(enough)
    rarest_kept = min(counts[token] for token in kept)
    assert all(counts[token] <= rarest_kept for token in set(enough) - set(kept))


@pytest.mark.parametrize(
    ("bounds", "message"),
    [
        ({"max_size": 0}, r"data\.vocabulary\.max_size=0 must be at least 1"),
        ({"max_size": -3}, r"data\.vocabulary\.max_size=-3 must be at least 1"),
        ({"min_frequency": 0}, r"data\.vocabulary\.min_frequency=0 must be at least 1"),
        ({"min_frequency": 3}, r"data\.vocabulary\.min_frequency=3 keeps none of the 2"),
    ],
)
def test_limits_that_keep_no_token_are_refused(bounds, message):
    with pytest.raises(ValueError, match=message):
        build_vocabulary(Counter(a=2, b=1), **bounds)


def test_text_without_words_is_refused():
    for counts in (Counter(), Counter(["<s>", "</s>"])):
        with pytest.raises(ValueError, match="check the training files"):
            build_vocabulary(counts)


# --- unknown tokens


def test_unknown_rate_counts_occurrences():
    vocabulary = Vocabulary([*SPECIALS, "dog"])
    assert unknown_rate(Counter({"dog": 6, "cat": 1, "<s>": 1}), vocabulary) == 0.25
    assert unknown_rate(Counter(), vocabulary) == 0.0


@patient
@given(st.lists(WORDS, min_size=1), st.integers(1, 3))
def test_unknown_rate_is_the_fraction_of_unk_ids(sentence, max_size):
    vocabulary = build_vocabulary(Counter(["word", *sentence]), max_size)
    share = vocabulary.ids(sentence).count(UNK) / len(sentence)
    assert unknown_rate(Counter(sentence), vocabulary) == pytest.approx(share)
