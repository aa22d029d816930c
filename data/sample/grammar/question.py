"""Questions for one constituent: who, what, where, why, how many."""

from grammar import clause as grammar
from grammar.clause import Constituent
from grammar.nominal import DETERMINERS, SPEAKERS, Nominal, case_shows, noun_phrase
from grammar.phrase import Phrase, pair
from grammar.scene import Gap, Scene
from grammar.speaker import Speaker
from grammar.verbs import VERBS
from grammar.words import PERSON, fits, nouns_of

KINDS = {
    **{"who": 1, "object": 2, "dative": 0.7, "where": 1.2, "whereto": 0.7},
    **{"when": 1, "why": 1, "which": 0.8, "how many": 0.8},
}
ROLES = {
    "dative": "dative",
    "whereto": "to",
    **dict.fromkeys(("object", "which", "how many"), "object"),
}
LOCATED = [verb for verb in VERBS if verb.places and verb.kind == "activity"]
HAPPENING = [verb for verb in VERBS if verb.kind != "state"]


def question(speaker: Speaker) -> tuple[Scene, Constituent | None]:
    """A scene and its constituent that is asked for, or None if that is the subject."""
    kind = speaker.weigh(KINDS)
    if kind == "who":
        who = Nominal(pair("wer", "who"), SPEAKERS["er"], PERSON)
        return speaker.action(who), None
    if kind in ROLES:
        return asked_complement(speaker, kind)
    tenses: tuple[str, ...]
    if kind == "where":
        word, verbs, tenses = pair("wo", "where"), LOCATED, ("present", "wird", "will", "kann")
    elif kind == "when":
        word, verbs, tenses = pair("wann", "when"), HAPPENING, ("past", "wird", "will", "muss")
    else:
        word, verbs, tenses = pair("warum", "why"), HAPPENING, ("present", "perfect", "muss")
    scene = speaker.action(
        verb=speaker.pick(verbs),
        tense=speaker.pick(tenses),
        timed=False,
        deniable=kind == "why",
    )
    asked = Constituent(word, grammar.ASKED)
    clause = scene.clause._replace(constituents=(*scene.clause.constituents, asked))
    return scene._replace(clause=clause), asked


def asked_complement(speaker: Speaker, kind: str) -> tuple[Scene, Constituent]:
    """A question for a complement of the verb."""
    verb, place = speaker.pick(
        [
            (verb, place)
            for verb in VERBS
            for place, spec in enumerate(verb.frame)
            if spec.startswith(f"{ROLES[kind]}:")
        ]
    )
    tags = verb.frame[place].partition(":")[2].split(",")
    subject = speaker.subject(verb.subjects)
    if kind in ("which", "how many"):
        # A case must show who does it to whom: wie viele Männer sieht er?
        while not case_shows(subject):
            subject = speaker.pronoun()
        phrase = asked_noun(speaker, tuple(tags), kind == "how many")
    elif kind == "dative":
        phrase = pair("wem", "to whom" if len(verb.frame) > 1 else "whom")
    elif kind == "whereto":
        phrase = pair("wohin", "where")
    else:
        phrase = pair("wen", "whom") if "person" in tags else pair("was", "what")
    asked = Constituent(phrase, grammar.ASKED)
    return speaker.action(subject, verb, gap=Gap(place, asked), deniable=kind == "which"), asked


def asked_noun(speaker: Speaker, tags: tuple[str, ...], counted: bool) -> Phrase:
    """Welchen Koffer, wie viele Koffer."""
    nouns = [noun for noun in nouns_of(tags) if not fits(noun.tags, ("name", "single"))]
    if counted:
        nouns = [noun for noun in nouns if noun.plural] or nouns
    noun = speaker.pick(nouns)
    counted = counted and bool(noun.plural)
    determiner = DETERMINERS["wie viele" if counted else "welcher"]
    return noun_phrase(noun, determiner, "accusative", plural=counted).phrase
