"""Phrases of two languages at once, whose words know which words of the other side they translate.

A grammar that builds German and English together from such phrases gets the word alignment for
nothing: wherever the words of a link end up, they still share it.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple


class Link:
    """Ties the words that translate each other. It has no content: only its identity counts."""

    __slots__ = ()


class Word(NamedTuple):
    text: str
    links: tuple[Link, ...] = ()


Words = tuple[Word, ...]
COMMA = Word(",")


@dataclass(frozen=True, slots=True)
class Phrase:
    """The same in German (source) and English (target); ``a + b`` says one after the other."""

    source: Words = ()
    target: Words = ()

    def __add__(self, other: "Phrase") -> "Phrase":
        return Phrase(self.source + other.source, self.target + other.target)


class AlignedPair(NamedTuple):
    """A sentence, its translation, and which words translate each other.

    ``alignment`` holds sorted (source index, target index) pairs, counted from 0 in Moses tokens:
    a comma, a full stop and a question mark are tokens of their own.
    """

    source: str
    target: str
    alignment: tuple[tuple[int, int], ...]


def spell(text: str, *links: Link) -> Words:
    """The words of ``text``, all with the same links; an underscore is a blank within a cell."""
    return tuple(Word(part, links) for part in text.replace("_", " ").split())


def pair(source: str, target: str) -> Phrase:
    """A unit of translation: each of its German words is linked to each of its English ones."""
    link = Link()
    return Phrase(spell(source, link), spell(target, link))


def gloss(notation: str) -> Phrase:
    """A fixed phrase whose units come in the same order: ``"im=in_the Sommer=summer"``."""
    units = (pair(*unit.split("=")) for unit in notation.split())
    return sum(units, Phrase())


def merge(text: str, *words: Word) -> Word:
    """One word in the place of several: ``zum`` of ``zu dem`` translates whatever they did."""
    return Word(text, tuple(link for word in words for link in word.links))


def enclosed(clause: Phrase) -> Phrase:
    """German puts a clause between commas, where English has none."""
    return Phrase((COMMA, *clause.source, COMMA), clause.target)


def settle_commas(words: Iterable[Word]) -> Words:
    """Fuse neighbouring commas.

    Every clause brings the commas around itself, so two meet where one clause ends and the next
    begins. The one that stays keeps the links of both.
    """
    settled: list[Word] = []
    for word in words:
        if word.text == "," and settled and settled[-1].text == ",":
            settled[-1] = merge(",", settled[-1], word)
        else:
            settled.append(word)
    return tuple(settled)


def punctuate(words: Words, mark: Word) -> Words:
    """A whole sentence: a capital in front, and behind, in place of any comma, the mark."""
    words = settle_commas(words)
    if words[-1].text == ",":
        words = words[:-1]
    first = words[0]._replace(text=words[0].text[0].upper() + words[0].text[1:])
    return (first, *words[1:], mark)


def detokenize(words: Words) -> str:
    return "".join(word.text if word.text in ",.?" else f" {word.text}" for word in words).lstrip()


def align(source: Words, target: Words) -> tuple[tuple[int, int], ...]:
    """The pairs of positions whose words share a link, sorted."""
    places: dict[Link, list[int]] = {}
    for j, word in enumerate(target):
        for link in word.links:
            places.setdefault(link, []).append(j)
    pairs = {(i, j) for i, word in enumerate(source) for k in word.links for j in places.get(k, ())}
    return tuple(sorted(pairs))


def finish(phrase: Phrase, mark: str) -> AlignedPair:
    """Write a phrase out as a sentence that ends in ``mark``."""
    end = pair(mark, mark)
    source, target = punctuate(phrase.source, *end.source), punctuate(phrase.target, *end.target)
    return AlignedPair(detokenize(source), detokenize(target), align(source, target))
