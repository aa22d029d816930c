"""Sentences of the sample corpus: statements and questions, with subordinate clauses."""

import random
from collections.abc import Callable
from typing import NamedTuple

from grammar import clause as grammar
from grammar.clause import Clause, Constituent
from grammar.lexicon import BECAUSE_OF_RAIN, CAUSES
from grammar.nominal import Nominal, coordinate
from grammar.phrase import AlignedPair, Phrase, enclosed, finish, pair
from grammar.question import question
from grammar.scene import Gap, Scene, able, again, named
from grammar.speaker import PAST_TENSES, Speaker
from grammar.state import asset, feeling, weather
from grammar.state import scene as any_scene
from grammar.verbs import (
    ASKING,
    ATTEMPTS,
    MOTIVES,
    PURPOSES,
    RAIN,
    REASONS,
    SHINE,
    SNOW,
    TELLING,
    TRYING,
    VERBS,
    Verb,
)
from grammar.words import fits

DOING = [verb for verb in VERBS if verb.kind == "activity"]
EXPLICABLE = [
    verb
    for verb in VERBS
    if verb.kind == "activity" or verb.infinitive in REASONS or verb.infinitive in MOTIVES
]
ALIVE = ("person", "adult", "child", "pet", "farm")
# Tenses of main clauses that go with a present tense in the subordinate clause.
OPEN_TENSES = ("present", "gladly", "wird", "kann", "muss", "will", "soll", "darf", "möchte")


def main_clause(speaker: Speaker, scene: Scene, fronted: float = 0.6) -> Phrase:
    """The scene as a main clause; ``fronted`` is the probability that it does not begin with
    the subject."""
    # Objects twice, because in most sentences their case does not allow it.
    fronts = [*scene.fronts, *(front for front in scene.fronts if not front.role.fronts)]
    front = speaker.pick(fronts) if fronts and speaker.chance(fronted) else None
    return grammar.arrange(scene.clause, "second", front)


# Subordinate clauses


def reason(speaker: Speaker, scene: Scene, subject: Nominal) -> Scene:
    """Why the subject of a scene acts, or does not act."""
    past, name = scene.tense in PAST_TENSES, scene.verb.infinitive
    if "person" not in subject.tags:
        return feeling(subject, "müde" if scene.denied else REASONS.get(name, "Hunger"), past)
    if scene.denied:
        if speaker.chance(0.4):
            tag = "asset" if name == "kaufen" else "time"
            return asset(speaker, subject, tag, past, denied=True)
        return feeling(subject, speaker.pick(("müde", "krank")), past)
    if name in REASONS:
        return feeling(subject, REASONS[name], past)
    obliged = scene.tense in ("muss", "musste", "soll")
    if obliged or speaker.chance(0.8 if name in MOTIVES else 0.4):
        tense = speaker.pick(("wollte", "musste") if past else ("will", "muss"))
        verb = speaker.pick(able(subject, named(MOTIVES.get(name, "helfen"))))
        return speaker.action(subject, verb, tense, timed=False, deniable=False)
    return asset(speaker, subject, "time", past)


def obstacle(speaker: Speaker, scene: Scene, subject: Nominal) -> Scene:
    """Why it is surprising that the subject acts, or does not act."""
    past, name = scene.tense in PAST_TENSES, scene.verb.infinitive
    if scene.denied and name in REASONS:
        return feeling(subject, REASONS[name], past)
    if "person" in subject.tags and (scene.denied or speaker.chance(0.3)):
        return asset(speaker, subject, "time", past, denied=not scene.denied)
    feelings = [f for f in ("müde", "krank", "Angst") if f != REASONS.get(name)]
    return feeling(subject, speaker.pick(feelings), past)


def condition(speaker: Speaker, scene: Scene, subject: Nominal) -> Scene:
    """Condition under which the subject acts."""
    if not scene.denied and scene.verb.infinitive in REASONS:
        return feeling(subject, REASONS[scene.verb.infinitive])
    if "person" in subject.tags and (not scene.denied or speaker.chance(0.5)):
        return asset(speaker, subject, "time", denied=scene.denied)
    moods = ("müde", "krank") if scene.denied else ("Hunger", "Durst")
    return feeling(subject, speaker.pick(moods))


def weathered(speaker: Speaker, scene: Scene) -> Phrase:
    """Clause about the weather: if, because or although it rains."""
    conjunction = "wenn=if"
    if speaker.chance(0.5):
        prevented = scene.denied or CAUSES.get(scene.verb.infinitive) == BECAUSE_OF_RAIN
        conjunction = "weil=because" if prevented else "obwohl=although"
    verbs = (RAIN, SNOW) if conjunction != "wenn=if" else (RAIN, SNOW, SHINE)
    return grammar.subordinate(conjunction, weather(speaker.pick(verbs)).clause)


def subordinate(speaker: Speaker, scene: Scene, subject: Nominal) -> tuple[Phrase, bool]:
    """Subordinate clause for the scene, and whether its subject is ``subject``."""
    kinds = {"weil": 4, "obwohl": 3}
    if scene.tense in OPEN_TENSES and scene.verb.kind == "activity":
        kinds |= {"wenn": 3, "weather": 2}
    if scene.tense == "present":
        kinds |= {"während": 2, "nachdem": 2, "bevor": 2}
    kind = speaker.weigh(kinds)
    if kind == "weil":
        return grammar.subordinate("weil=because", reason(speaker, scene, subject).clause), True
    if kind == "obwohl":
        clause = obstacle(speaker, scene, subject).clause
        return grammar.subordinate("obwohl=although", clause), True
    if kind == "weather":
        return weathered(speaker, scene), False
    if kind == "während":
        other = speaker.nominal(speaker.noun("person"), "nominative", "subject")
        verb = speaker.pick(able(other, DOING))
        clause = speaker.action(other, verb, "present", timed=False, deniable=False).clause
        return grammar.subordinate("während=while", clause), False
    if kind == "wenn":
        return grammar.subordinate("wenn=if", condition(speaker, scene, subject).clause), True
    conjunction, tense = {
        "nachdem": ("nachdem=after", "perfect"),
        "bevor": ("bevor=before", "present"),
    }[kind]
    verb = speaker.pick(able(subject, DOING))
    clause = speaker.action(subject, verb, tense, timed=False, deniable=False).clause
    return grammar.subordinate(conjunction, clause), True


# Statements


class Statement(NamedTuple):
    phrase: Phrase
    subject: Nominal


def plain(speaker: Speaker) -> Statement:
    scene = any_scene(speaker)
    return Statement(main_clause(speaker, scene), scene.subject)


def explained(speaker: Speaker) -> Statement:
    """Der Hund schläft nicht, weil er Hunger hat. Weil der Hund Hunger hat, schläft er nicht."""
    subject = speaker.subject(ALIVE)
    verb = speaker.pick(able(subject, EXPLICABLE))
    scene = speaker.action(subject, verb)
    if speaker.chance(0.65):
        phrase, _ = subordinate(speaker, scene, again(subject))
        return Statement(main_clause(speaker, scene) + enclosed(phrase), subject)
    phrase, same = subordinate(speaker, scene, subject)
    clause = scene.clause._replace(subject=again(subject)) if same else scene.clause
    front = Constituent(phrase + pair(",", ","), grammar.ASKED)
    return Statement(grammar.arrange(clause, "second", front), subject)


def reported(speaker: Speaker) -> Statement:
    """Sie glaubt, dass ihr Bruder morgen ankommt."""
    subject = speaker.subject(("person",))
    verb = speaker.pick(TELLING)
    parts: tuple[Constituent, ...] = ()
    if speaker.chance(0.3):
        content = speaker.action(again(subject))
    else:
        content = any_scene(speaker)
        if verb.infinitive in ("wissen", "glauben") and speaker.chance(0.3):
            parts = (grammar.negation(),)
    clause = Clause(subject, grammar.simple(verb, subject.person), parts)
    dependent = grammar.subordinate("dass=that", content.clause)
    return Statement(grammar.arrange(clause, "second") + enclosed(dependent), subject)


def wondered(speaker: Speaker) -> Statement:
    """Er fragt, wo der Ball liegt."""
    subject = speaker.subject(("person",))
    if speaker.chance(0.5):
        clause = Clause(subject, grammar.simple(ASKING[0], subject.person))
    else:
        predicate = grammar.simple(TELLING[0], subject.person)
        clause = Clause(subject, predicate, (grammar.negation(),))
    if speaker.chance(0.35):
        dependent = grammar.subordinate("ob=whether", any_scene(speaker).clause)
    else:
        scene, asked = question(speaker)
        dependent = grammar.arrange(scene.clause, "final", asked)
    return Statement(grammar.arrange(clause, "second") + enclosed(dependent), subject)


def infinitive(speaker: Speaker, verb: Verb, subject: Nominal) -> Phrase:
    parts, _, _ = speaker.complements(verb, subject, denied=False, gap=None)
    return grammar.infinitive(verb, tuple(parts))


def attempted(speaker: Speaker) -> Statement:
    """Das Kind versucht, die Tür aufzumachen."""
    subject = speaker.subject(("person",))
    trying = speaker.pick(TRYING)
    tense = speaker.pick(("present", "perfect", "past", "wird", "muss", "will", "wollte"))
    scene = speaker.action(subject, trying, tense)
    verb = speaker.pick(able(subject, named(ATTEMPTS[trying.infinitive])))
    # Not "tries today to open the door": the time would separate the two verbs.
    phrase = main_clause(speaker, scene, fronted=1) + enclosed(infinitive(speaker, verb, subject))
    return Statement(phrase, subject)


def purposeful(speaker: Speaker) -> Statement:
    """Die Frau geht auf den Markt, um Brot zu kaufen."""
    subject = speaker.subject(("adult",))
    place = speaker.pick(list(PURPOSES))
    name = "fahren" if place == "town" else speaker.pick(("gehen", "laufen"))
    motion = named(name)[0]._replace(frame=(f"to:{place}",))
    scene = speaker.action(subject, motion, deniable=False)
    verb = speaker.pick(able(subject, named(PURPOSES[place])))
    purpose = pair("um", "in order") + infinitive(speaker, verb, subject)
    return Statement(main_clause(speaker, scene) + enclosed(purpose), subject)


def continued(speaker: Speaker) -> Statement:
    """Die Frau kauft ein Buch und geht dann in den Park."""
    subject = speaker.subject(("person",))
    tense = speaker.pick(("present", "present", "past", "perfect"))
    scene = speaker.action(subject, speaker.pick(able(subject, DOING)), tense, deniable=False)
    silent = subject._replace(phrase=Phrase())
    verb = speaker.pick([v for v in able(subject, DOING) if v is not scene.verb])
    clause = speaker.action(silent, verb, tense, timed=False, deniable=False).clause
    then = Constituent(pair("dann", "then"), grammar.FREQUENCY)
    clause = clause._replace(constituents=(*clause.constituents, then))
    # An object before both verbs would seem to belong to both.
    scene = scene._replace(fronts=tuple(front for front in scene.fronts if front.role.fronts))
    both = main_clause(speaker, scene) + pair("und", "and")
    return Statement(both + grammar.arrange(clause, "second"), subject)


def listed(speaker: Speaker) -> Statement:
    """Der Koch kauft drei Äpfel, ein Ei und Brot."""
    subject = speaker.subject(("person",))
    name, tags = speaker.pick(
        (
            ("kaufen", ("food", "drink")),
            ("kaufen", ("clothing",)),
            ("essen", ("food",)),
            ("sehen", ("person", "animal")),
            ("suchen", ("thing",)),
            ("einladen", ("person",)),
            ("malen", ("animal", "plant")),
            ("mitnehmen", ("thing",)),
        )
    )
    verb = named(name)[0]
    objects = [
        speaker.nominal(speaker.noun(*tags), "accusative", "object", subject)
        for _ in range(2 + int(3 * speaker.rng.random()))
    ]
    gap = Gap(0, Constituent(coordinate(objects).phrase, grammar.OBJECT))
    scene = speaker.action(subject, verb, gap=gap, deniable=False)
    return Statement(main_clause(speaker, scene), subject)


STATEMENTS: dict[Callable[[Speaker], Statement], float] = {
    plain: 12,
    explained: 6,
    reported: 2.5,
    wondered: 1.5,
    attempted: 2,
    purposeful: 1.5,
    continued: 2,
    listed: 1.5,
}


# Sentences


def sentence(rng: random.Random) -> AlignedPair:
    """A random sentence."""
    kind, richness = rng.random(), rng.random() ** 1.3
    speaker = Speaker(rng, richness, asking=kind < 0.18)
    if kind < 0.09:
        return finish(grammar.arrange(any_scene(speaker).clause, "first"), "?")
    if kind < 0.18:
        scene, asked = question(speaker)
        return finish(grammar.arrange(scene.clause, "asking", asked), "?")
    phrase, subject = speaker.weigh(STATEMENTS)(speaker)
    joints = [pair("und", "and"), pair(",", ",") + pair("aber", "but")]
    while joints and speaker.chance(0.65 * richness):
        phrase += joints.pop(int(2 * rng.random()) % len(joints))
        if fits(subject.tags, ALIVE) and speaker.chance(0.6):
            phrase += main_clause(speaker, speaker.action(again(subject)))
        else:
            more, subject = speaker.weigh(STATEMENTS)(speaker)
            phrase += more
    return finish(phrase, ".")
