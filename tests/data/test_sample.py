"""The sample corpus is what its grammar generates, and its alignments are consistent."""

import re
from collections import Counter

import pytest
from generate import FOLDER, SIZES, generate, write_splits
from sacremoses import MosesTokenizer


def tokenize(text):
    return re.findall(r"[,.?]|[^\s,.?]+", text)


def read(split, suffix):
    text = (FOLDER / f"{split}.{suffix}").read_text(encoding="utf-8")
    assert text.endswith("\n")
    assert "\r" not in text
    return text[:-1].split("\n")


def parse_links(line):
    return [tuple(int(end) for end in link.split("-")) for link in line.split()]


@pytest.fixture(scope="module")
def corpus():
    """Source tokens, target tokens and links of every pair of each split."""
    return {
        split: list(
            zip(
                map(tokenize, read(split, "de")),
                map(tokenize, read(split, "en")),
                map(parse_links, read(split, "align")),
                strict=True,
            )
        )
        for split in SIZES
    }


@pytest.mark.guarantee(
    "The sample corpus is what its grammar generates, with consistent alignments."
)
def test_generator_writes_the_committed_files(tmp_path):
    write_splits(tmp_path)
    for split in SIZES:
        for suffix in ("de", "en", "align"):
            name = f"{split}.{suffix}"
            assert (tmp_path / name).read_bytes() == (FOLDER / name).read_bytes()


def test_generator_depends_on_its_seed():
    assert list(generate(50, seed=3)) == list(generate(50, seed=3))
    assert list(generate(50, seed=3)) != list(generate(50, seed=4))


def test_splits_have_their_sizes_and_no_sentence_occurs_twice(corpus):
    """Not within a split, and not across splits, in either language."""
    assert {split: len(rows) for split, rows in corpus.items()} == SIZES
    for column in (0, 1):
        sentences = {" ".join(row[column]) for rows in corpus.values() for row in rows}
        assert len(sentences) == sum(SIZES.values())


@pytest.mark.parametrize(
    ("source", "target", "links"),
    [
        (
            "Dieser Nachbar ruft euch an .",
            "This neighbour calls you .",
            "0-0 1-1 2-2 3-3 4-2 5-4",
        ),
        (
            "Wie viele Kinder hat er letzte Woche angerufen ?",
            "How many children did he call last week ?",
            "0-0 0-1 1-0 1-1 2-2 3-3 4-4 5-6 6-7 7-5 8-8",
        ),
        (
            "Er verkauft keine teuren Kleider , weil er müde ist .",
            "He does not sell any expensive dresses because he is tired .",
            "0-0 1-1 1-3 2-2 2-4 3-5 4-6 6-7 7-8 8-10 9-9 10-11",
        ),
    ],
)
def test_sentences_are_translated_and_aligned_as_by_hand(corpus, source, target, links):
    assert (source.split(), target.split(), parse_links(links)) in corpus["valid"]


@pytest.mark.guarantee(
    "The sample corpus is what its grammar generates, with consistent alignments."
)
@pytest.mark.parametrize("split", SIZES)
def test_alignments_are_sorted_links_of_every_english_token(corpus, split):
    counts = Counter()
    for source, target, links in corpus[split]:
        assert links == sorted(set(links))
        assert all(0 <= i < len(source) for i, _ in links)
        assert {j for _, j in links} == set(range(len(target)))
        assert (len(source) - 1, len(target) - 1) in links
        assert all((source[i] in ",.?") == (target[j] in ",.?") for i, j in links)
        counts.update(Counter(j for _, j in links).values())
    # Alignments derived from attention name one source token for each target token.
    assert max(counts) == 2  # "ruft ... an" and "kann nicht" are "calls" and "cannot"
    assert counts[1] / counts.total() > 0.95


@pytest.mark.parametrize(("column", "language"), [(0, "de"), (1, "en")])
def test_alignments_count_moses_tokens(corpus, column, language):
    moses = MosesTokenizer(lang=language)
    for split in SIZES:
        for text, row in zip(read(split, language), corpus[split], strict=True):
            assert moses.tokenize(text, escape=False) == row[column]


@pytest.mark.parametrize("column", [0, 1])
def test_vocabulary_is_small_and_covered_by_training(corpus, column):
    known = Counter(token for row in corpus["train"] for token in row[column])
    assert 700 < len(known) < 1300
    for split in ("valid", "test"):
        counts = [known[token] for row in corpus[split] for token in row[column]]
        assert sum(count == 0 for count in counts) / len(counts) < 0.002
        assert sum(count >= 5 for count in counts) / len(counts) > 0.99
