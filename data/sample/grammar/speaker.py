"""Random clauses of the sample corpus whose words make sense together.

Two rules make the English a function of the German: a third-person pronoun refers to the subject of
its sentence or to someone unnamed, and an object precedes the subject only if the case of one of
them shows which is which.
"""

from collections.abc import Sequence

from grammar import clause as grammar
from grammar.clause import Clause, Constituent
from grammar.lexicon import CAUSES, FREQUENCIES, MEANS, Noun
from grammar.nominal import (
    DETERMINERS,
    Nominal,
    case_shows,
    coordinate,
    noun_phrase,
    prepositional,
    relative_pronoun,
    with_case_word,
)
from grammar.phrase import Phrase, enclosed, gloss, pair
from grammar.scene import Gap, Scene, fittings, governed, predicate
from grammar.verbs import DUTIES, MODALS, OBJECTS, VERBS, Verb
from grammar.words import PERSON, Words, fits, verbs_of

# Weights of the tenses for each kind of verb.
TENSES = {
    "activity": {
        **{"present": 30, "progressive": 7, "gladly": 7, "perfect": 9, "already": 4, "past": 13},
        **{"wird": 11, "kann": 4, "muss": 4, "will": 4, "soll": 3, "darf": 2, "möchte": 4},
        **{"konnte": 2, "musste": 2, "wollte": 2},
    },
    "event": {"present": 3, "perfect": 4, "past": 7, "wird": 3, "already": 2},
    "state": {"present": 1},
}
PAST_TENSES = ("past", "konnte", "musste", "wollte")
NOT_DENIED = ("progressive", "gladly", "already")


class Speaker(Words):
    """Makes random clauses; ``inside`` a relative clause it does not begin another one."""

    inside = False

    def subject(self, tags: Sequence[str]) -> Nominal:
        if fits(tags, PERSON):
            if self.chance(0.35):
                return self.pronoun()
            if self.chance(0.08):
                people = [tag for tag in tags if tag in PERSON]
                return coordinate(
                    [self.nominal(self.noun(*people), "nominative", "subject") for _ in range(2)]
                )
        return self.nominal(self.noun(*tags), "nominative", "subject")

    def nominal(self, noun: Noun, case: str, role: str, subject: Nominal | None = None) -> Nominal:
        """Noun phrase in a role of DETERMINED; the ``subject`` of its clause may own the thing."""
        determiner, plural = self.determiner(noun, subject, role)
        if "name" in noun.tags:
            return noun_phrase(noun, determiner, case)
        adjectives = self.adjectives(noun)
        tail = self.tail(noun, plural, ownable=determiner is DETERMINERS["der"])
        return noun_phrase(noun, determiner, case, plural, adjectives, tail)

    def tail(self, noun: Noun, plural: bool, ownable: bool = False) -> Phrase | None:
        """Relative clause or, if the noun is ``ownable``, its owner; None in most cases."""
        if self.inside or "mass" in noun.tags:
            return None
        if self.chance(0.3 * self.richness):
            self.inside = True
            clause = self.relative(noun, plural)
            self.inside = False
            return enclosed(clause)
        if ownable and fits(noun.tags, ("thing", "vehicle", "pet", "room")) and self.chance(0.1):
            owner = noun_phrase(self.noun("owner"), DETERMINERS["der"], "genitive")
            return with_case_word("of", owner)
        return None

    def relative(self, noun: Noun, plural: bool) -> Phrase:
        """Relative clause such as "der den Hund füttert", with any verb that fits the noun."""
        agents = verbs_of(noun.tags)
        patients = fittings(noun.tags)
        if not patients or (agents and self.chance(0.6)):
            who = relative_pronoun(noun, plural, "nominative")
            return grammar.arrange(self.action(who, self.pick(agents)).clause, "final")

        verb, place = self.pick(patients)
        case, preposition = governed(verb.frame[place], noun)
        relative = relative_pronoun(noun, plural, case, preposition)
        # Not "whom he gives the book": together with another object, English uses "to whom".
        moved = case == "dative" and not preposition and len(verb.frame) > 1
        filler = Constituent(
            with_case_word("to", relative) if moved else relative.phrase, grammar.ASKED
        )
        subject = self.subject(verb.subjects)
        while case == "accusative" and not (case_shows(relative) or case_shows(subject)):
            # "die Frau, die das Kind sieht" would leave open who sees whom.
            subject = self.pronoun()
        scene = self.action(subject, verb, gap=Gap(place, filler))
        return grammar.arrange(scene.clause, "final", filler)

    def complement(self, spec: str, subject: Nominal, role: str) -> tuple[Nominal, Constituent]:
        """Complement of a verb, in a role of DETERMINED or "denied" (definite, or with "kein")."""
        kind, _, cell = spec.partition(":")
        noun = self.noun(*cell.split(","))
        if kind == "bare":
            the = "the " if "instrument" in noun.tags else ""
            phrase = pair(noun.singular, the + noun.english)
            nominal = Nominal(phrase, subject.referent, noun.tags, definite=False)
            return nominal, Constituent(phrase, grammar.OBJECT)
        case, preposition = governed(spec, noun)
        spoken_of = "person" in noun.tags and self.chance(0.25)
        if spoken_of:
            nominal = self.object_pronoun(subject, case)
        elif role == "denied" and kind == "object" and "name" not in noun.tags and self.chance(0.6):
            plural = bool(noun.plural) and "single" not in noun.tags and self.chance(0.3)
            adjectives = self.adjectives(noun)
            nominal = noun_phrase(noun, DETERMINERS["kein"], case, plural, adjectives)
        else:
            role = "place" if kind in ("at", "to") else "definite" if role == "denied" else role
            nominal = self.nominal(noun, case, role, subject)
        if preposition:
            return nominal, Constituent(prepositional(preposition, nominal), grammar.COMPLEMENT)
        phrase = with_case_word("to", nominal) if kind == "dative_to" else nominal.phrase
        return nominal, Constituent(phrase, grammar.OBJECTS[kind, spoken_of])

    def complements(
        self, verb: Verb, subject: Nominal, denied: bool, gap: Gap | None
    ) -> tuple[list[Constituent], list[Constituent], bool]:
        """All complements of a verb, those that may come first in German, and whether they are
        definite."""
        role = "denied" if denied else OBJECTS.get(verb.infinitive, "object")
        parts, fronts, definite = [], [], True
        for place, spec in enumerate(verb.frame):
            if gap and gap.place == place:
                parts.append(gap.filler)
                continue
            nominal, constituent = self.complement(spec, subject, role)
            parts.append(constituent)
            if nominal.negator:
                parts.append(grammar.denial(nominal.negator))
            if constituent.role in (grammar.OBJECT, grammar.INDIRECT):
                definite = definite and nominal.definite
                clear = constituent.role is grammar.INDIRECT or case_shows(nominal)
                named = "name" in nominal.tags
                if (clear or case_shows(subject)) and nominal.definite and not named:
                    fronts.append(constituent)
        return parts, fronts, definite

    def action(
        self,
        subject: Nominal | None = None,
        verb: Verb | None = None,
        tense: str = "",
        gap: Gap | None = None,
        timed: bool = True,
        deniable: bool = True,
    ) -> Scene:
        """Clause about an action; arguments that are not given are drawn at random.

        Args:
            timed: whether adverbials may be added.
            deniable: whether the clause may be negated.
        """
        if verb is None:
            verb = self.pick(verbs_of(subject.tags) if subject else VERBS)
        subject = subject or self.subject(verb.subjects)
        tense = tense or self.tense(verb, subject)
        deniable &= tense not in NOT_DENIED and "bare" not in "".join(verb.frame)
        denied = deniable and self.chance(0.14)
        parts, fronts, definite = self.complements(verb, subject, denied, gap)
        if denied and not any(part.role is grammar.NEGATION for part in parts):
            parts.append(grammar.negation())
        if tense == "progressive":
            parts.append(Constituent(pair("gerade", "currently"), grammar.FREQUENCY))
        if tense == "already":
            role = grammar.ALREADY if definite else grammar.FREQUENCY
            parts.append(Constituent(pair("schon", "already"), role))
        if timed:
            adverbials = self.adverbials(verb, tense, denied)
            parts += adverbials
            fronts += [adverbial for adverbial in adverbials if adverbial.role.fronts]
        clause = Clause(subject, predicate(verb, subject.person, tense), tuple(parts))
        return Scene(clause, verb, tense, tuple(fronts))

    def tense(self, verb: Verb, subject: Nominal) -> str:
        """Random tense that fits verb and subject; relative clauses have no time adverbials."""
        tense = self.weigh(TENSES[verb.kind])
        if tense == "gladly" and verb.infinitive in DUTIES:
            return "present"
        if "person" not in subject.tags and tense in MODALS and tense not in ("wird", "kann"):
            return "present"
        if self.inside:
            return {"past": "perfect", "progressive": "present"}.get(tense, tense)
        return tense

    def adverbials(self, verb: Verb, tense: str, denied: bool) -> list[Constituent]:
        """Random adverbials of time, frequency, place, means and cause."""
        found = []
        if tense in ("present", "past") and verb.infinitive in CAUSES and self.chance(0.1):
            found.append(Constituent(gloss(CAUSES[verb.infinitive]), grammar.CAUSE))
        if verb.kind == "state":
            return found
        times = "denied" if denied and tense == "present" else tense
        if not self.inside and (time := self.time(times)):
            found.append(Constituent(time, grammar.TIME))
        elif tense == "present" and not denied and self.chance(0.2):
            found.append(Constituent(gloss(self.pick(FREQUENCIES)), grammar.FREQUENCY))
        if verb.infinitive == "fahren" and self.chance(0.4):
            found.append(Constituent(gloss(self.pick(MEANS)), grammar.MEANS))
        if verb.places and not denied and self.chance(0.1 + 0.3 * self.richness):
            noun = self.noun(*verb.places)
            place = prepositional(noun.location, self.nominal(noun, "dative", "place"))
            found.append(Constituent(place, grammar.PLACE))
        return found
