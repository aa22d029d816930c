"""Noun phrases of the sample corpus: determiners, endings, pronouns and prepositions.

Everything here is deterministic; ``speaker`` makes the random choices.
"""

from typing import NamedTuple

from grammar.lexicon import NUMBERS, Adjective, Noun
from grammar.phrase import Link, Phrase, gloss, merge, pair, spell

CASES = {"nominative": 0, "accusative": 1, "dative": 2, "genitive": 3}


def endings(rows: str) -> dict[str, list[str]]:
    """Gender (p: plural of all genders) -> one ending per case; ``-`` stands for none."""
    return {row[0]: row.replace("-", "").split(" ")[1:] for row in rows.split(", ")}


DEFINITE = endings("m er en em es, f ie ie er er, n as as em es, p ie ie en er")
MARKED = endings("m er en em es, f e e er er, n es es em es, p e e en er")  # dieser, jeder
UNMARKED = endings("m - en em es, f e e er er, n - - em es, p e e en er")  # ein, kein, mein
NONE = endings("m - - - -, f - - - -, n - - - -, p - - - -")
STRONG = endings("m er en em en, f e e er er, n es es em en, p e e en er")
MIXED = endings("m er en en en, f e e en en, n es es en en, p en en en en")
WEAK = endings("m e en en en, f e e en en, n e e en en, p en en en en")


class Determiner(NamedTuple):
    stem: str
    endings: dict[str, list[str]]
    adjective_endings: dict[str, list[str]]  # of adjectives after it
    english: str
    english_plural: str  # also with uncountable nouns, such as milk
    definite: bool = True


DETERMINERS = {
    "der": Determiner("d", DEFINITE, WEAK, "the", "the"),
    "dieser": Determiner("dies", MARKED, WEAK, "this", "these"),
    "jeder": Determiner("jed", MARKED, WEAK, "every", ""),
    "alle": Determiner("all", MARKED, WEAK, "", "all"),
    "viele": Determiner("viel", MARKED, STRONG, "", "many", definite=False),
    "ein": Determiner("ein", UNMARKED, MIXED, "a", "", definite=False),
    "kein": Determiner("kein", UNMARKED, MIXED, "a", "any", definite=False),
    "wie viele": Determiner("wie viel", MARKED, STRONG, "", "how many", definite=False),
    "welcher": Determiner("welch", MARKED, WEAK, "which", "which"),
    "": Determiner("", NONE, STRONG, "", "", definite=False),
}


class Referent(NamedTuple):
    """Keys of the pronouns for a person or thing in both languages: Mädchen is es, but she."""

    source: str
    target: str


class Pronoun(NamedTuple):
    forms: tuple[str, ...]  # nominative, accusative, dative; English: subject, object
    possessive: str
    person: int  # index into the forms of a verb: ich, du, er, wir, ihr, sie


def pronouns(rows: str) -> dict[str, Pronoun]:
    table = {}
    for row in rows.strip().splitlines():
        key, person, possessive, *forms = row.split()
        table[key] = Pronoun(tuple(forms), possessive, int(person))
    return table


# The key of the plural "sie" is "they", because it must differ from the singular "sie".
GERMAN = pronouns("""
ich 0 mein ich mich mir
du 1 dein du dich dir
er 2 sein er ihn ihm
sie 2 ihr sie sie ihr
es 2 sein es es ihm
wir 3 unser wir uns uns
ihr 4 euer ihr euch euch
they 5 ihr sie sie ihnen
""")
ENGLISH = pronouns("""
I 0 my I me
you 1 your you you
he 2 his he him
she 2 her she her
it 2 its it it
we 3 our we us
they 5 their they them
""")
SPEAKERS = {
    german: Referent(german, english)
    for german, english in zip(
        GERMAN, ("I", "you", "he", "she", "it", "we", "you", "they"), strict=True
    )
}
BY_GENDER = {"m": "er", "w": "er", "f": "sie", "n": "es"}


class Nominal(NamedTuple):
    """A noun phrase or pronoun, with the properties that the rest of the sentence needs."""

    phrase: Phrase
    referent: Referent
    tags: tuple[str, ...] = ()
    definite: bool = True
    negator: Link | None = None  # of "kein", which English splits: not (at the verb) ... a

    @property
    def person(self) -> int:
        return GERMAN[self.referent.source].person


def possessive(owner: Referent) -> Determiner:
    english = ENGLISH[owner.target].possessive
    return Determiner(GERMAN[owner.source].possessive, UNMARKED, MIXED, english, english)


def number(value: int) -> Determiner:
    """From 2 to 999, as a determiner: ``dreihundertzwölf``, ``three hundred and twelve``."""
    german, english = spell_number(value)
    return Determiner(german, NONE, STRONG, "", english, definite=False)


def spell_number(value: int) -> tuple[str, str]:
    """A number from 1 to 999 in words."""
    if value >= 100:
        (german, english), rest = NUMBERS[value // 100], value % 100
        german, english = f"{german}hundert", f"{english} hundred"
        if rest == 0:
            return german, english
        small_german, small_english = spell_number(rest)
        return f"{german}{small_german}", f"{english} and {small_english}"
    if value in NUMBERS:
        return NUMBERS[value]
    (tens, english_tens), (ones, english_ones) = NUMBERS[value // 10 * 10], NUMBERS[value % 10]
    return f"{ones}und{tens}", f"{english_tens}-{english_ones}"


def decline(noun: Noun, case: str, plural: bool) -> str:
    """German form of a noun; only nouns for persons are used in the genitive."""
    if plural:
        return noun.plural + "n" * (case == "dative" and noun.plural[-1] not in "ns")
    if noun.gender == "w":
        return noun.singular if case == "nominative" else noun.plural
    if case == "genitive" and noun.gender in "mn":
        return noun.singular + ("es" if noun.singular in ("Mann", "Kind", "Freund") else "s")
    return noun.singular


def noun_phrase(
    noun: Noun,
    determiner: Determiner,
    case: str = "nominative",
    plural: bool = False,
    adjectives: tuple[Adjective, ...] = (),
    tail: Phrase | None = None,
) -> Nominal:
    """Noun phrase; ``tail`` (a relative clause or an owner) follows the noun."""
    gender = "p" if plural else noun.gender.replace("w", "m")
    column = CASES[case]
    ending = determiner.endings[gender][column]
    # The stem loses an e before an ending: "euren", not "eueren".
    stem = "eur" if determiner.stem == "euer" and ending else determiner.stem
    counted = bool(noun.english_plural) and not plural
    english = determiner.english if counted else determiner.english_plural
    noun_english = noun.english_plural if plural else noun.english
    if english == "a" and (*(a.english for a in adjectives), noun_english)[0][0] in "aeiou":
        english = "an"

    link = Link()
    phrase = Phrase(spell(stem + ending, link), spell(english, link))
    for adjective in adjectives:
        form = adjective.stem + determiner.adjective_endings[gender][column]
        phrase += pair(form, adjective.english)
    phrase += pair(decline(noun, case, plural), noun_english)
    return Nominal(
        phrase + (tail or Phrase()),
        SPEAKERS["they"] if plural else Referent(BY_GENDER[noun.gender], noun.pronoun),
        noun.tags,
        determiner.definite,
        link if determiner.stem == "kein" else None,
    )


def pronoun(referent: Referent, case: str = "nominative", tags: tuple[str, ...] = ()) -> Nominal:
    german = GERMAN[referent.source].forms[CASES[case]]
    english = ENGLISH[referent.target].forms[case != "nominative"]
    return Nominal(pair(german, english), referent, tags)


def relative_pronoun(noun: Noun, plural: bool, case: str, preposition: str = "") -> Nominal:
    """The ``der, dem, den`` that begins a relative clause; ``preposition`` as ``mit=with``."""
    gender = "p" if plural else noun.gender.replace("w", "m")
    german = "denen" if plural and case == "dative" else "d" + DEFINITE[gender][CASES[case]]
    if "person" in noun.tags:
        english = "who" if case == "nominative" else "whom"
    else:
        english = "which" if preposition else "that"
    referent = SPEAKERS["they"] if plural else Referent(BY_GENDER[noun.gender], noun.pronoun)
    phrase = (gloss(preposition) if preposition else Phrase()) + pair(german, english)
    return Nominal(phrase, referent, noun.tags)


def coordinate(nominals: list[Nominal]) -> Nominal:
    """``the man, the woman and the child``: the pronoun is always "they"."""
    phrase = nominals[0].phrase
    for nominal in nominals[1:-1]:
        phrase += pair(",", ",") + nominal.phrase
    phrase += pair("und", "and") + nominals[-1].phrase
    shared = tuple(t for t in nominals[0].tags if all(t in other.tags for other in nominals))
    return Nominal(phrase, SPEAKERS["they"], shared)


def case_shows(nominal: Nominal) -> bool:
    """Whether the form distinguishes subject and object: it is not a name, and neither feminine,
    neuter nor plural."""
    return "name" not in nominal.tags and nominal.referent.source in ("ich", "du", "er", "wir")


def with_case_word(word: str, nominal: Nominal) -> Phrase:
    """Add ``of`` or ``to``, which expresses the case of the first German word."""
    source, target = nominal.phrase.source, nominal.phrase.target
    return Phrase(source, spell(word, *source[0].links) + target)


CONTRACTIONS = {
    ("in", "dem"): "im",
    ("in", "das"): "ins",
    ("an", "dem"): "am",
    ("zu", "dem"): "zum",
    ("zu", "der"): "zur",
}


def prepositional(preposition: str, nominal: Nominal) -> Phrase:
    """``zu=to`` and ``dem Haus`` become ``zum Haus``: one word that translates ``to the``."""
    phrase = gloss(preposition) + nominal.phrase
    first, second, *rest = phrase.source
    contraction = CONTRACTIONS.get((first.text, second.text))
    if contraction is None:
        return phrase
    return Phrase((merge(contraction, first, second), *rest), phrase.target)


def ago(value: int, unit: Phrase) -> Phrase:
    """``unit`` in the dative plural: vor drei Tagen, three days ago."""
    before, count = pair("vor", "ago"), pair(*spell_number(value))
    return Phrase(before.source) + count + unit + Phrase((), before.target)
