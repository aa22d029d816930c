"""Clauses of the sample corpus whose order is still open, and the complements of verbs."""

from collections.abc import Iterable
from functools import cache
from typing import NamedTuple

from grammar import clause as grammar
from grammar.clause import Clause, Constituent, Predicate
from grammar.lexicon import Noun
from grammar.nominal import Nominal, pronoun
from grammar.verbs import VERBS, Verb
from grammar.words import fits


class Scene(NamedTuple):
    """A clause whose order is still open."""

    clause: Clause
    verb: Verb
    tense: str
    fronts: tuple[Constituent, ...] = ()  # what may stand before the German verb

    @property
    def subject(self) -> Nominal:
        return self.clause.subject

    @property
    def denied(self) -> bool:
        adverbs = [
            word.text
            for part in self.clause.constituents
            if part.role in (grammar.NEGATION, grammar.FREQUENCY)
            for word in part.phrase.target
        ]
        return not {"not", "never", "rarely"}.isdisjoint(adverbs)


class Gap(NamedTuple):
    """A complement that is given: a question word or a relative pronoun."""

    place: int  # index in the frame of the verb
    filler: Constituent


def governed(spec: str, noun: Noun) -> tuple[str, str]:
    """Case of the noun in a complement, and its preposition (``auf=for``), if any."""
    role = spec.partition(":")[0]
    if role == "at":
        return "dative", noun.location
    if role == "to":
        role = noun.direction
    if "+" in role:
        preposition, _, rest = role.partition("+")
        case, _, english = rest.partition("=")
        return case, f"{preposition}={english}"
    return "accusative" if role == "object" else "dative", ""


def predicate(verb: Verb, person: int, tense: str) -> Predicate:
    if tense in ("present", "progressive", "gladly"):
        return grammar.simple(verb, person, tense)
    if tense in ("perfect", "already", "past"):
        return grammar.perfect(verb, person, past=tense == "past")
    return grammar.modal(tense, verb, person)


def again(nominal: Nominal) -> Nominal:
    """Pronoun for a subject mentioned before."""
    return pronoun(nominal.referent, "nominative", nominal.tags)


@cache
def fittings(tags: tuple[str, ...]) -> list[tuple[Verb, int]]:
    """Verbs that can take a noun of these tags as a complement, and its index in their frames."""
    return [
        (verb, place)
        for verb in VERBS
        for place, spec in enumerate(verb.frame)
        if fits(spec.partition(":")[2].split(","), tags) and not spec.startswith("bare")
    ]


def able(subject: Nominal, verbs: Iterable[Verb]) -> list[Verb]:
    """Select the verbs that fit the subject."""
    return [verb for verb in verbs if fits(verb.subjects, subject.tags)]


@cache
def named(names: str) -> list[Verb]:
    """All uses of the verbs with these infinitives."""
    return [verb for name in names.split() for verb in VERBS if verb.infinitive == name]
