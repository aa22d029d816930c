"""Random words for one sentence of the sample corpus that fit together."""

import random
from collections.abc import Mapping, Sequence
from functools import cache
from typing import TypeVar

from grammar.lexicon import (
    ADJECTIVES,
    COLOURS,
    FUTURE,
    HABITS,
    NOUNS,
    NOW,
    PAST,
    Adjective,
    Noun,
)
from grammar.nominal import (
    DETERMINERS,
    SPEAKERS,
    Determiner,
    Nominal,
    Referent,
    ago,
    number,
    possessive,
    pronoun,
    spell_number,
)
from grammar.phrase import Phrase, gloss, pair
from grammar.verbs import VERBS, Verb

T = TypeVar("T")

PERSON = ("person", "adult", "child")
PRONOUNS = {"ich": 3, "du": 3, "er": 3, "sie": 3, "wir": 2, "ihr": 2, "they": 2}
ASKED_PRONOUNS = PRONOUNS | {"ich": 0, "wir": 0}  # one does not ask about oneself
# Weights of determiners, singular and plural, for each role.
DETERMINED = {
    "subject": {
        **{("der", False): 6.0, ("ein", False): 2.5, ("dieser", False): 0.5, ("jeder", False): 0.2},
        **{("der", True): 1.6, ("viele", True): 0.5, ("alle", True): 0.3, ("number", True): 0.4},
    },
    "object": {
        **{("der", False): 4.0, ("ein", False): 5.0, ("dieser", False): 0.5},
        **{("der", True): 1.0, ("viele", True): 0.4, ("alle", True): 0.3, ("number", True): 1.0},
        **{("", True): 1.2},
    },
    "one": {("der", False): 4.0, ("ein", False): 4.0, ("dieser", False): 0.5},
    "liked": {("der", False): 4.0, ("dieser", False): 0.7, ("der", True): 1.0, ("", True): 2.0},
    "definite": {("der", False): 6.0, ("dieser", False): 0.6, ("der", True): 1.0},
    "place": {("der", False): 9.0, ("ein", False): 0.8, ("dieser", False): 0.3},
}
# Tags of nouns that have no owner.
COMMON = ("common", "public", "work", "bird", "mass")

MODAL_TIMES = (NOW + FUTURE, 0.25)
MODAL_PAST = (PAST, 0.5)
# Times that go with a tense, and the probability that one is given.
TIMES = {
    "present": (HABITS + NOW, 0.3),
    "denied": (NOW, 0.3),
    "past": (PAST, 1.0),
    "wird": (FUTURE, 0.7),
    **dict.fromkeys(("kann", "muss", "will", "soll", "darf", "möchte"), MODAL_TIMES),
    **dict.fromkeys(("konnte", "musste", "wollte"), MODAL_PAST),
}
UNITS = ("Tagen=days", "Wochen=weeks", "Monaten=months")


def fits(tags: Sequence[str], wanted: Sequence[str]) -> bool:
    return not set(tags).isdisjoint(wanted)


@cache
def nouns_of(tags: tuple[str, ...]) -> list[Noun]:
    return [noun for noun in NOUNS if fits(noun.tags, tags)]


@cache
def adjectives_of(tags: tuple[str, ...]) -> list[Adjective]:
    return [adjective for adjective in ADJECTIVES if fits(adjective.tags, tags)]


@cache
def verbs_of(tags: tuple[str, ...]) -> list[Verb]:
    """Verbs whose subject can have these tags."""
    return [verb for verb in VERBS if fits(verb.subjects, tags)]


class Words:
    """Draws the words of one sentence, without repeating a noun.

    Args:
        richness: from 0 for bare sentences to 1 for those with as many modifiers as possible.
        asking: whether it is a question.
    """

    def __init__(self, rng: random.Random, richness: float, asking: bool):
        self.rng = rng
        self.richness = richness
        self.asking = asking
        self.said: set[str] = set()

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    def pick(self, options: Sequence[T]) -> T:
        return options[int(self.rng.random() * len(options))]

    def weigh(self, weights: Mapping[T, float]) -> T:
        return self.rng.choices(list(weights), list(weights.values()))[0]

    def noun(self, *tags: str) -> Noun:
        options = nouns_of(tags)
        fresh = [noun for noun in options if noun.english not in self.said]
        noun = self.pick(fresh or options)
        self.said.add(noun.english)
        return noun

    def adjectives(self, noun: Noun) -> tuple[Adjective, ...]:
        options = adjectives_of(noun.tags)
        if not options or not self.chance(0.15 + 0.3 * self.richness):
            return ()
        first = self.pick(options)
        colours = [a for a in options if a.base in COLOURS]
        if colours and first not in colours and self.chance(0.4):
            return first, self.pick(colours)
        return (first,)

    def owner(self, noun: Noun, subject: Nominal | None) -> Referent | None:
        """Owner of the noun: the subject, I, you, we or none."""
        stranger = "person" in noun.tags and not fits(noun.tags, ("kin", "mine"))
        if stranger or fits(noun.tags, COMMON):
            return None
        if not self.chance(0.8 if "kin" in noun.tags else 0.15):
            return None
        if subject and "person" in subject.tags and self.chance(0.75):
            return subject.referent
        return SPEAKERS[self.pick(("ich", "du", "wir"))]

    def determiner(self, noun: Noun, subject: Nominal | None, role: str) -> tuple[Determiner, bool]:
        """Determiner of the noun in a role of DETERMINED, and whether they are plural."""
        if "name" in noun.tags:
            return DETERMINERS[""]._replace(definite=True), False
        single = role in ("one", "place") or not noun.plural or fits(noun.tags, ("single", *COMMON))
        if owner := self.owner(noun, subject):
            return possessive(owner), not single and self.chance(0.15)
        if not noun.plural:
            return DETERMINERS["der" if role == "definite" or self.chance(0.3) else ""], False
        if "kin" in noun.tags:
            return DETERMINERS["der"], False
        weights = {
            (name, plural): weight
            for (name, plural), weight in DETERMINED[role].items()
            if not (plural and single) and (name or "person" not in noun.tags)
        }
        name, plural = self.weigh(weights)
        return number(self.small()) if name == "number" else DETERMINERS[name], plural

    def small(self) -> int:
        """A number from 2 to 12; small ones are more likely."""
        return 2 + int(self.rng.random() ** 2 * 11)

    def large(self) -> int:
        """A number from 13 to 99, or a round one up to 900."""
        if self.chance(0.7):
            return 13 + int(self.rng.random() * 87)
        return 100 + 50 * int(self.rng.random() * 17)

    def pronoun(self) -> Nominal:
        weights = ASKED_PRONOUNS if self.asking else PRONOUNS
        return pronoun(SPEAKERS[self.weigh(weights)], "nominative", PERSON)

    def object_pronoun(self, subject: Nominal, case: str) -> Nominal:
        """A pronoun for someone other than the subject; not "sie", which could be her or them."""
        options = ["ich", "du", "er", "wir", "ihr"] + ["sie", "they"] * (case == "dative")
        for group in (("ich", "wir"), ("du", "ihr")):
            if subject.referent.source in group:
                options = [option for option in options if option not in group]
        return pronoun(SPEAKERS[self.pick(options)], case, PERSON)

    def time(self, tense: str) -> Phrase | None:
        """A time that goes with the tense, or None."""
        times, share = TIMES.get(tense, ((), 0.0))
        if not self.chance(share):
            return None
        if tense == "past" and self.chance(0.25):
            return ago(self.small(), gloss(self.pick((*UNITS, "Jahren=years"))))
        if tense == "wird" and self.chance(0.25):
            count = pair(*spell_number(self.small()))
            return gloss("in=in") + count + gloss(self.pick(UNITS))
        return gloss(self.pick(times))
