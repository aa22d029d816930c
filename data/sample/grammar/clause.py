"""Clauses of the sample corpus: verbs with their auxiliaries, and the word order of both languages.

In German, the finite verb and the rest of the verb form a bracket around the clause; where the
bracket opens depends on the kind of clause:

    second   Heute | ruft  | sie ihren Vater nicht | an.      statement, w-question
    first          | Ruft  | sie ihren Vater nicht | an?      yes/no question
    final    weil  |       | sie ihren Vater nicht | anruft   subordinate clause

English keeps the order subject, verb, object, and needs an operator (do, will, has, ...) in
questions and negations.
"""

from typing import NamedTuple

from grammar.nominal import Nominal
from grammar.phrase import Link, Phrase, Word, Words, gloss, merge, pair, spell
from grammar.verbs import AUXILIARIES, BE, HAVE, MODALS, English, Verb, inflect


class EnglishVerb(NamedTuple):
    operator: Words  # finite auxiliary, or the form of "do" that can replace it
    lexical: Words  # what follows the operator
    plain: Words = ()  # the verb without "do", if "do" is not needed

    def followed_by(self, rest: Words) -> "EnglishVerb":
        plain = self.plain + rest if self.plain else ()
        return EnglishVerb(self.operator, self.lexical + rest, plain)


class Predicate(NamedTuple):
    """A verb with its auxiliaries and particles, in both languages."""

    finite: Word
    closing: Words  # particle, participle or infinitive: the right bracket
    final: Words  # both together, at the end of a subordinate clause
    english: EnglishVerb
    gladly: Words = ()  # German "gern", which English expresses by a verb: likes to


class Role(NamedTuple):
    """Position of a constituent among the others, from left to right."""

    source: float
    target: float
    fronts: bool = False  # if German puts it before the verb, English does too


# English positions below 1 are before the verb.
NEGATION = Role(7, 0.1)
FREQUENCY = Role(3, 0.2)
TIME = Role(2, 8, fronts=True)
CAUSE = Role(1.5, 9, fronts=True)
PLACE = Role(4, 7, fronts=True)  # of the action, not required by the verb
INDIRECT_PRONOUN = Role(1, 2)
INDIRECT = Role(5, 2)
PREPOSED_PRONOUN = Role(1, 4)  # German dative, English "to" after the object
PREPOSED = Role(5, 4)
OBJECT_PRONOUN = Role(0, 3)
OBJECT = Role(6, 3)
ALREADY = Role(6.5, 0.2)  # after a definite object
MEANS = Role(8, 6)
COMPLEMENT = Role(9, 5)
ASKED = Role(0, 0, fronts=True)  # question word or relative pronoun: always first


OBJECTS = {  # kind of complement, and whether it is a pronoun
    ("object", False): OBJECT,
    ("object", True): OBJECT_PRONOUN,
    ("dative", False): INDIRECT,
    ("dative", True): INDIRECT_PRONOUN,
    ("dative_to", False): PREPOSED,
    ("dative_to", True): PREPOSED_PRONOUN,
}


class Constituent(NamedTuple):
    phrase: Phrase
    role: Role


class Clause(NamedTuple):
    subject: Nominal
    predicate: Predicate
    constituents: tuple[Constituent, ...] = ()


def negation(german: str = "nicht") -> Constituent:
    return Constituent(pair(german, "not"), NEGATION)


def denial(negator: Link) -> Constituent:
    """English "not" at the verb, for the German "kein" before the noun."""
    return Constituent(Phrase((), spell("not", negator)), NEGATION)


def inflected(verb: English, tense: str, person: int) -> str:
    if verb is BE:
        if tense == "past":
            return "was" if person in (0, 2) else "were"
        return "am" if person == 0 else "is" if person == 2 else "are"
    if tense == "past":
        return verb.past
    return verb.third if person == 2 else verb.base


def full_verb(
    verb: English, tense: str, person: int, links: tuple[Link, ...], finite: Link
) -> EnglishVerb:
    """A finite verb that needs "do" in questions and negations, unless it is "be".

    Args:
        tense: present or past.
        links: of the verb.
        finite: link of "do", which only expresses that the verb is finite.
    """
    rest = spell(verb.rest, *links)
    plain = spell(inflected(verb, tense, person), *links) + rest
    if verb is BE:
        return EnglishVerb(operator=plain, lexical=())
    do = "did" if tense == "past" else "does" if person == 2 else "do"
    return EnglishVerb(spell(do, finite), spell(verb.base, *links) + rest, plain)


def spell_form(verb: English, form: str, link: Link) -> Words:
    """A non-finite form of the verb, with the words that belong to it."""
    return spell(f"{getattr(verb, form)} {verb.rest}", link)


def simple(verb: Verb, person: int, tense: str = "present") -> Predicate:
    """One finite form: ruft ... an, calls.

    Args:
        tense: of the finite verb: present, or past for the German preterite; or how English
            expresses a present: progressive (is calling), or gladly (ruft gern an, likes to call).
    """
    finite_link, main, gern = Link(), Link(), Link()
    forms = verb.preterite if tense == "past" else verb.present
    finite = Word(forms[person], (finite_link, main))
    particle = spell(verb.particle, main)
    final = (merge(verb.particle + finite.text, *particle, finite),)
    if tense == "progressive":
        operator = spell(inflected(BE, "present", person), finite_link)
        english = EnglishVerb(operator, spell_form(verb.english, "gerund", main))
    elif tense == "gladly":
        like = full_verb(inflect("like"), "present", person, (gern,), finite_link)
        english = like.followed_by(spell("to", gern) + spell_form(verb.english, "base", main))
    else:
        english = full_verb(verb.english, tense, person, finite.links, finite_link)
    gladly = spell("gern", gern) if tense == "gladly" else ()
    return Predicate(finite, particle, final, english, gladly)


def perfect(verb: Verb, person: int, past: bool = False) -> Predicate:
    """hat ... angerufen: has called, or called if a ``past`` time is given."""
    finite_link, main = Link(), Link()
    finite = Word(AUXILIARIES[verb.auxiliary][person], (finite_link,))
    closing = spell(verb.participle, main)
    if past:
        english = full_verb(verb.english, "past", person, (finite_link, main), finite_link)
        english = english._replace(lexical=spell_form(verb.english, "base", main))
    else:
        operator = spell(inflected(HAVE, "present", person), finite_link)
        english = EnglishVerb(operator, spell_form(verb.english, "participle", main))
    return Predicate(finite, closing, (*closing, finite), english)


def modal(name: str, verb: Verb, person: int) -> Predicate:
    """kann ... anrufen: can call; ``name`` is the form of the third person."""
    helper = MODALS[name]
    finite_link, main = Link(), Link()
    finite = Word(helper.finite[person], (finite_link,))
    closing = spell(verb.infinitive, main)
    first, *rest = spell(helper.english, finite_link)
    if helper.tense:
        forms = HAVE if first.text == "have" else inflect(first.text)
        english = full_verb(forms, helper.tense, person, (finite_link,), finite_link)
    else:
        english = EnglishVerb(operator=(first,), lexical=())
    english = english.followed_by((*rest, *spell_form(verb.english, "base", main)))
    return Predicate(finite, closing, (*closing, finite), english)


def words_of(constituents: list[Constituent], language: str) -> Words:
    """Words of the constituents in one language, in the order of their roles there."""
    ordered = sorted(constituents, key=lambda constituent: getattr(constituent.role, language))
    return tuple(word for c in ordered for word in getattr(c.phrase, language))


def cannot(words: Words) -> Words:
    """Join "can not" to "cannot"."""
    for i in range(len(words) - 1):
        if (words[i].text, words[i + 1].text) == ("can", "not"):
            return (*words[:i], merge("cannot", *words[i : i + 2]), *words[i + 2 :])
    return words


def arrange(clause: Clause, order: str, front: Constituent | None = None) -> Phrase:
    """Put the words of a clause in order.

    Args:
        order: position of the German verb: second, first or final; or asking, for w-questions,
            which is like second but inverts the English verb.
        front: the constituent that takes the place of the subject before the verb.
    """
    subject, predicate = clause.subject.phrase, clause.predicate
    others = [c for c in clause.constituents if c is not front]
    gladly = Constituent(Phrase(predicate.gladly), FREQUENCY)

    middle = words_of([*others, gladly], "source")
    field = subject.source + middle
    if order == "final":
        source = (front.phrase.source if front else ()) + field + predicate.final
    elif order == "first":
        source = (predicate.finite, *field, *predicate.closing)
    elif front:
        source = (*front.phrase.source, predicate.finite, *field, *predicate.closing)
    else:
        source = (*subject.source, predicate.finite, *middle, *predicate.closing)

    lead: Words = ()
    if front and front.role.fronts:
        lead = front.phrase.target
    elif front:
        others.append(front)
    before = words_of([c for c in others if c.role.target < 1], "target")
    after = words_of([c for c in others if c.role.target >= 1], "target")
    inverted = order == "first" or (order == "asking" and front is not None)
    negated = any(c.role is NEGATION for c in others)
    english = predicate.english
    if inverted:
        verb = english.operator + subject.target + before + english.lexical
    elif negated or not english.plain:
        verb = subject.target + english.operator + before + english.lexical
    else:
        verb = subject.target + before + english.plain
    return Phrase(source, lead + cannot(verb) + after)


def infinitive(verb: Verb, constituents: tuple[Constituent, ...]) -> Phrase:
    """den Vater anzurufen: to call the father."""
    main, to = Link(), Link()
    if verb.particle:
        words = (Word(verb.particle, (main,)), Word("zu", (to,)), Word(verb.stem, (main,)))
        closing: Words = (merge("".join(word.text for word in words), *words),)
    else:
        closing = (Word("zu", (to,)), Word(verb.stem, (main,)))
    source = words_of(list(constituents), "source") + closing
    english = spell("to", to) + spell_form(verb.english, "base", main)
    return Phrase(source, english + words_of(list(constituents), "target"))


def subordinate(conjunction: str, clause: Clause) -> Phrase:
    """``conjunction`` as ``weil=because``; the sentence adds the commas around it."""
    return gloss(conjunction) + arrange(clause, "final")
