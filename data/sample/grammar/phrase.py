"""Bilingual phrases whose words are linked to the words that translate them.

A grammar that builds German and English together from such phrases gets the word alignment for
free: words that translate each other share a link wherever they end up in the sentence.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple


class Link:
    """Shared by words that translate each other; only its identity matters."""

    __slots__ = ()


class Word(NamedTuple):
    text: str
    links: tuple[Link, ...] = ()


Words = tuple[Word, ...]
COMMA = Word(",")


@dataclass(frozen=True, slots=True)
class Phrase:
    """A phrase in German (source) and English (target); ``a + b`` concatenates both languages."""

    source: Words = ()
    target: Words = ()

    def __add__(self, other: "Phrase") -> "Phrase":
        return Phrase(self.source + other.source, self.target + other.target)


class AlignedPair(NamedTuple):
    """A sentence, its translation, and their word alignment.

    ``alignment`` holds sorted (source index, target index) pairs, counted from 0 in Moses tokens:
    commas, full stops and question marks are tokens.
    """

    source: str
    target: str
    alignment: tuple[tuple[int, int], ...]


def spell(text: str, *links: Link) -> Words:
    """Words of ``text``, all with the same links; an underscore stands for a blank."""
    return tuple(Word(part, links) for part in text.replace("_", " ").split())


def pair(source: str, target: str) -> Phrase:
    """Translation unit in which every German word is linked to every English word."""
    link = Link()
    return Phrase(spell(source, link), spell(target, link))


def gloss(notation: str) -> Phrase:
    """Phrase whose units have the same order in both languages: ``"im=in_the Sommer=summer"``."""
    units = (pair(*unit.split("=")) for unit in notation.split())
    return sum(units, Phrase())


def merge(text: str, *words: Word) -> Word:
    """Replace several words by one with all their links, such as ``zu dem`` by ``zum``."""
    return Word(text, tuple(link for word in words for link in word.links))


def enclosed(clause: Phrase) -> Phrase:
    """Put commas around a clause in German; English has none."""
    return Phrase((COMMA, *clause.source, COMMA), clause.target)


def settle_commas(words: Iterable[Word]) -> Words:
    """Merge adjacent commas.

    Every clause is enclosed in commas, so two of them meet where one clause ends and the next
    begins. The remaining comma has the links of both.
    """
    settled: list[Word] = []
    for word in words:
        if word.text == "," and settled and settled[-1].text == ",":
            settled[-1] = merge(",", settled[-1], word)
        else:
            settled.append(word)
    return tuple(settled)


def punctuate(words: Words, mark: Word) -> Words:
    """Capitalize the first word, and end the sentence with ``mark`` instead of a comma."""
    words = settle_commas(words)
    if words[-1].text == ",":
        words = words[:-1]
    first = words[0]._replace(text=words[0].text[0].upper() + words[0].text[1:])
    return (first, *words[1:], mark)


def detokenize(words: Words) -> str:
    return "".join(word.text if word.text in ",.?" else f" {word.text}" for word in words).lstrip()


def align(source: Words, target: Words) -> tuple[tuple[int, int], ...]:
    """Sorted pairs of positions whose words share a link."""
    positions: dict[Link, list[int]] = {}
    for j, word in enumerate(target):
        for link in word.links:
            positions.setdefault(link, []).append(j)
    pairs = {
        (i, j) for i, word in enumerate(source) for k in word.links for j in positions.get(k, ())
    }
    return tuple(sorted(pairs))


def finish(phrase: Phrase, mark: str) -> AlignedPair:
    """Turn a phrase into a sentence that ends with ``mark``."""
    end = pair(mark, mark)
    source, target = punctuate(phrase.source, *end.source), punctuate(phrase.target, *end.target)
    return AlignedPair(detokenize(source), detokenize(target), align(source, target))
