"""Clauses without an action: feelings, possessions, comparisons, amounts and the weather."""

from collections.abc import Callable

from grammar import clause as grammar
from grammar.clause import Clause, Constituent
from grammar.lexicon import ADJECTIVES, COMPARATIVES, FEELINGS, NOUNS, PAST
from grammar.nominal import (
    DETERMINERS,
    SPEAKERS,
    Nominal,
    noun_phrase,
    number,
    pronoun,
    spell_number,
)
from grammar.phrase import Phrase, gloss, pair
from grammar.scene import Scene
from grammar.speaker import Speaker
from grammar.verbs import COST, SHINE, TO_BE, TO_HAVE, TO_HAVE_A_STATE, Verb
from grammar.words import PERSON, adjectives_of, fits, nouns_of

MOODS = ("müde", "krank", "glücklich", "traurig")
INVENTORIES = {  # owner -> tag of things it has many of
    "Bauer": "farm",
    "Bibliothek": "long",
    "Museum": "picture",
    "Dorf": "house",
    "Garten": "plant",
    "Schule": "pupil",
}


def feeling(subject: Nominal, name: str, past: bool = False, denied: bool = False) -> Scene:
    """Somebody is hungry, tired, ...; ``name`` is a key of FEELINGS or an adjective."""
    tense = "past" if past else "present"
    if name in FEELINGS:
        verb, (notation, no) = TO_HAVE_A_STATE, FEELINGS[name]
        quality = gloss(notation)
    else:
        verb, no = TO_BE, "nicht"
        quality = next(pair(a.base, a.english) for a in ADJECTIVES if a.base == name)
    parts = [Constituent(quality, grammar.COMPLEMENT)]
    if denied:
        parts.append(grammar.negation(no))
    clause = Clause(subject, grammar.simple(verb, subject.person, tense), tuple(parts))
    return Scene(clause, verb, tense)


def state(speaker: Speaker) -> Scene:
    """Somebody or something is, or was, described by an adjective."""
    noun = speaker.noun("person", "animal", "vehicle", "clothing", "abstract", "text", "instrument")
    determiner, plural = speaker.determiner(noun, None, "definite")
    subject = noun_phrase(noun, determiner, plural=plural, tail=speaker.tail(noun, plural))
    if "person" in noun.tags and speaker.chance(0.35):
        subject = speaker.pronoun()
    names = [adjective.base for adjective in adjectives_of(subject.tags)]
    if fits(subject.tags, ("person", "animal")) and speaker.chance(0.5):
        names = list(FEELINGS)[: 4 if "person" in subject.tags else 3]
    past = "person" in subject.tags and speaker.chance(0.5)
    if past:
        names = [name for name in names if name in FEELINGS or name in MOODS]
    scene = feeling(subject, speaker.pick(names), past, speaker.chance(0.15))
    if not past:
        return scene
    time = Constituent(gloss(speaker.pick(PAST)), grammar.TIME)
    clause = scene.clause._replace(constituents=(*scene.clause.constituents, time))
    return scene._replace(clause=clause, fronts=(time,))


def asset(
    speaker: Speaker, subject: Nominal, tag: str, past: bool = False, denied: bool = False
) -> Scene:
    """Somebody has something, or does not have it."""
    tense = "past" if past else "present"
    noun = speaker.noun(tag)
    name = "kein" if denied else "ein" if noun.plural else ""
    thing = noun_phrase(noun, DETERMINERS[name], "accusative", False, speaker.adjectives(noun))
    parts = [Constituent(thing.phrase, grammar.OBJECT)]
    if thing.negator:
        parts.append(grammar.denial(thing.negator))
    clause = Clause(subject, grammar.simple(TO_HAVE, subject.person, tense), tuple(parts))
    return Scene(clause, TO_HAVE, tense)


def possession(speaker: Speaker) -> Scene:
    tag = speaker.pick(("vehicle", "pet", "instrument", "luggage"))
    return asset(speaker, speaker.subject(PERSON), tag, denied=speaker.chance(0.3))


def comparison(speaker: Speaker) -> Scene:
    """One thing is bigger than another."""
    adjective = speaker.pick([a for a in ADJECTIVES if a.base in COMPARATIVES])
    tag = speaker.pick([tag for tag in adjective.tags if len(nouns_of((tag,))) > 1])
    nouns = (speaker.noun(tag), speaker.noun(tag))
    one, other = (noun_phrase(n, speaker.determiner(n, None, "definite")[0]) for n in nouns)
    phrase = gloss(f"{COMPARATIVES[adjective.base]} als=than") + other.phrase
    return measured(one, TO_BE, phrase)


def measured(subject: Nominal, verb: Verb, phrase: Phrase) -> Scene:
    part = Constituent(phrase, grammar.COMPLEMENT)
    clause = Clause(subject, grammar.simple(verb, subject.person), (part,))
    return Scene(clause, verb, "present")


def age(speaker: Speaker) -> Scene:
    years = 13 + int(speaker.rng.random() * 87)
    phrase = pair(*spell_number(years)) + gloss("Jahre=years alt=old")
    if speaker.chance(0.3):
        return measured(speaker.pronoun(), TO_BE, phrase)
    return measured(speaker.nominal(speaker.noun("adult"), "nominative", "definite"), TO_BE, phrase)


def price(speaker: Speaker) -> Scene:
    ware = speaker.noun("clothing", "luggage", "toy", "gift", "instrument")
    phrase = pair(*spell_number(speaker.large())) + pair("Euro", "euros")
    return measured(speaker.nominal(ware, "nominative", "definite"), COST, phrase)


def inventory(speaker: Speaker) -> Scene:
    owner = speaker.pick([noun for noun in NOUNS if noun.singular in INVENTORIES])
    subject = speaker.nominal(owner, "nominative", "definite")
    noun = speaker.noun(INVENTORIES[owner.singular])
    count, adjectives = number(speaker.large()), speaker.adjectives(noun)
    stock = noun_phrase(noun, count, "accusative", plural=True, adjectives=adjectives)
    return measured(subject, TO_HAVE, stock.phrase)


def weather(verb: Verb) -> Scene:
    if verb is SHINE:
        subject = Nominal(gloss("die=the Sonne=sun"), SPEAKERS["sie"])
    else:
        subject = pronoun(SPEAKERS["es"])
    return Scene(Clause(subject, grammar.simple(verb, subject.person)), verb, "present")


SCENES: dict[Callable[[Speaker], Scene], float] = {
    Speaker.action: 15,
    state: 2,
    possession: 1,
    comparison: 0.7,
    age: 1,
    price: 1.5,
    inventory: 1.5,
}


def scene(speaker: Speaker) -> Scene:
    """A random clause of any kind."""
    return speaker.weigh(SCENES)(speaker)
