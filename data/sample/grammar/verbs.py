"""The verbs of the sample corpus: how they are conjugated, and what is said with them of what.

Tables, and the few lines that read them and complete what is regular.
"""

from typing import NamedTuple

from grammar.lexicon import rows


class English(NamedTuple):
    """The forms of an English verb, without the words that belong to it (``look for``)."""

    base: str
    third: str
    past: str
    participle: str
    gerund: str
    rest: str = ""


class Verb(NamedTuple):
    """A verb in one of its uses."""

    stem: str  # the infinitive without its particle
    particle: str  # "an" of "anrufen"; "" if the verb is not separable
    present: tuple[str, ...]  # ich, du, er, wir, ihr, sie
    participle: str
    auxiliary: str  # of the perfect: haben or sein
    english: English
    preterite: tuple[str, ...] = ()
    kind: str = "state"  # activity, event (unintentional) or state (present tense only)
    subjects: tuple[str, ...] = ()  # tags of nouns
    frame: tuple[str, ...] = ()  # its complements, see below
    places: tuple[str, ...] = ()  # tags of the places where it may happen

    @property
    def infinitive(self) -> str:
        return self.particle + self.stem


class Modal(NamedTuple):
    """A verb that takes an infinitive.

    ``english`` is an operator with what follows it (``would like to``), or, with a ``tense``,
    a full verb, which needs do-support (``has to``, ``does not have to``).
    """

    finite: tuple[str, ...]
    english: str
    tense: str = ""


def conjugate(infinitive: str, cell: str) -> tuple[str, ...]:
    """All persons of the present; the cell has those of ich, du, er and ihr, or "regular"."""
    stem = infinitive.removesuffix("n").removesuffix("e")
    if cell == "regular":
        vowel = "e" if stem[-1] in "dt" else ""
        second = "t" if stem[-1] in "sßz" else f"{vowel}st"
        cell = f"{stem}e {stem}{second} {stem}{vowel}t {stem}{vowel}t"
    first, second, third, plural = cell.split()
    return first, second, third, infinitive, plural, infinitive


# Verbs that double their last letter before -ed and -ing.
DOUBLING = {"begin", "forget", "get", "put", "run", "sit", "swim", "travel"}


def inflect(cell: str) -> English:
    """The cell has the base, or base, past and participle; last may come a word that stays."""
    words = cell.split()
    rest = words.pop() if len(words) in (2, 4) else ""
    base = words[0]
    third, past, gerund = f"{base}s", f"{base}ed", f"{base}ing"
    if base in DOUBLING:
        past, gerund = f"{base}{base[-1]}ed", f"{base}{base[-1]}ing"
    elif base.endswith(("ch", "sh", "o")):
        third = f"{base}es"
    elif base.endswith("y") and base[-2] not in "aeiou":
        third, past = f"{base[:-1]}ies", f"{base[:-1]}ied"
    elif base.endswith("ie"):
        past, gerund = f"{base}d", f"{base[:-2]}ying"
    elif base.endswith("e") and not base.endswith("ee"):
        past, gerund = f"{base}d", f"{base[:-1]}ing"
    _, past, participle = words if len(words) == 3 else (base, past, past)
    return English(base, third, past, participle, gerund, rest)


def read_forms(table: str) -> dict[str, Verb]:
    verbs = {}
    for infinitive, present, participle, english in rows(table):
        particle, _, stem = infinitive.rpartition("-")
        verbs[infinitive] = Verb(
            stem,
            particle,
            conjugate(stem, present),
            participle.rstrip("*"),
            "sein" if participle.endswith("*") else "haben",
            inflect(english),
        )
    return verbs


def read_uses(table: str) -> tuple[Verb, ...]:
    return tuple(
        FORMS[infinitive]._replace(
            kind=kind,
            subjects=tuple(subjects.split()),
            frame=tuple(frame.split()),
            places=tuple(places.split()),
        )
        for infinitive, kind, subjects, frame, places in rows(table)
    )


# Infinitive | present | participle, * for those with "sein" | English
FORMS = read_forms("""
essen | esse isst isst esst | gegessen | eat ate eaten
fressen | fresse frisst frisst fresst | gefressen | eat ate eaten
trinken | regular | getrunken | drink drank drunk
kaufen | regular | gekauft | buy bought bought
verkaufen | regular | verkauft | sell sold sold
lesen | lese liest liest lest | gelesen | read read read
schreiben | regular | geschrieben | write wrote written
schlafen | schlafe schläfst schläft schlaft | geschlafen | sleep slept slept
arbeiten | regular | gearbeitet | work
spielen | regular | gespielt | play
suchen | regular | gesucht | look for
helfen | helfe hilfst hilft helft | geholfen | help
geben | gebe gibst gibt gebt | gegeben | give gave given
zeigen | regular | gezeigt | show showed shown
schicken | regular | geschickt | send sent sent
erzählen | regular | erzählt | tell told told
erklären | regular | erklärt | explain
warten | regular | gewartet | wait
sprechen | spreche sprichst spricht sprecht | gesprochen | speak spoke spoken
an-rufen | regular | angerufen | call
ein-laden | lade lädst lädt ladet | eingeladen | invite
auf-machen | regular | aufgemacht | open
zu-machen | regular | zugemacht | close
auf-räumen | regular | aufgeräumt | tidy up
an-ziehen | regular | angezogen | put put put on
mit-nehmen | nehme nimmst nimmt nehmt | mitgenommen | take took taken along
ein-kaufen | regular | eingekauft | go went gone shopping
fern-sehen | sehe siehst sieht seht | ferngesehen | watch television
vor-lesen | lese liest liest lest | vorgelesen | read read read
zu-hören | regular | zugehört | listen to
gehen | regular | gegangen* | go went gone
fahren | fahre fährst fährt fahrt | gefahren* | travel
laufen | laufe läufst läuft lauft | gelaufen* | run ran run
fliegen | regular | geflogen* | fly flew flown
schwimmen | regular | geschwommen* | swim swam swum
singen | regular | gesungen | sing sang sung
tanzen | regular | getanzt | dance
kochen | regular | gekocht | cook
tragen | trage trägst trägt tragt | getragen | wear wore worn
besuchen | regular | besucht | visit
lernen | regular | gelernt | learn
reparieren | regular | repariert | repair
füttern | füttere fütterst füttert füttert | gefüttert | feed fed fed
legen | regular | gelegt | put put put
sitzen | regular | gesessen | sit sat sat
beantworten | regular | beantwortet | answer
malen | regular | gemalt | paint
sehen | sehe siehst sieht seht | gesehen | see saw seen
hören | regular | gehört | hear heard heard
finden | regular | gefunden | find found found
vergessen | vergesse vergisst vergisst vergesst | vergessen | forget forgot forgotten
verlieren | regular | verloren | lose lost lost
an-kommen | regular | angekommen* | arrive
ab-fahren | fahre fährst fährt fahrt | abgefahren* | depart
auf-stehen | regular | aufgestanden* | get got got up
auf-wachen | regular | aufgewacht* | wake woke woken up
wohnen | regular | - | live
lieben | regular | - | love
mögen | mag magst mag mögt | - | like
brauchen | regular | - | need
kennen | regular | - | know knew known
verstehen | regular | - | understand understood understood
gehören | regular | - | belong to
liegen | regular | - | lie lay lain
stehen | regular | - | stand stood stood
kosten | regular | - | cost cost cost
regnen | - - regnet - | - | rain
schneien | - - schneit - | - | snow
scheinen | - - scheint - | - | shine
wissen | weiß weißt weiß wisst | - | know knew known
glauben | regular | - | believe
sagen | regular | gesagt | say said said
hoffen | regular | - | hope
fragen | regular | gefragt | ask
versuchen | regular | versucht | try
an-fangen | fange fängst fängt fangt | angefangen | begin began begun
""")

# Infinitive | kind | subjects | frame | places. A frame is made of
#   object:..., dative:...    English puts both after the verb without a preposition
#   dative_to:...             English moves it after the object: explains the rule to me
#   bare:...                  an object without an article
#   at:..., to:...            where and whereto, with the preposition of the place
#   auf+accusative=for:...    a prepositional object and its English preposition
VERBS = read_uses("""
essen | activity | person | object:food | room outdoors
fressen | activity | farm | bare:fodder | outdoors
trinken | activity | person | object:drink | room outdoors
kaufen | activity | person | object:food,clothing,instrument,gift,vehicle,luggage | market
verkaufen | activity | adult | object:fruit,clothing,vehicle,plant | market
lesen | activity | person | object:text | room outdoors study
schreiben | activity | person | object:writing | room study
schlafen | activity | person pet farm | | outdoors
arbeiten | activity | adult | | outdoors study museum work market
spielen | activity | child pet | mit+dative=with:toy,pet | room outdoors
spielen | activity | person | bare:instrument | room
suchen | activity | person | object:thing,pet,clothing,child | room outdoors
helfen | activity | person | dative:person | kitchen outdoors
geben | activity | person | dative:person object:gift,toy,fruit |
zeigen | activity | person | dative:person object:gift,writing,clothing |
schicken | activity | person | dative:person object:gift,writing |
erzählen | activity | person | dative:person object:story | room
erklären | activity | adult | dative_to:person object:abstract | study
warten | activity | person | auf+accusative=for:person,public | stop
sprechen | activity | person | mit+dative=with:person | room outdoors
an-rufen | activity | person | object:person |
ein-laden | activity | person | object:person |
auf-machen | activity | person | object:open |
zu-machen | activity | person | object:open |
auf-räumen | activity | person | object:room |
an-ziehen | activity | person | object:clothing |
mit-nehmen | activity | person | object:luggage,thing,pet |
ein-kaufen | activity | person | | town market
fern-sehen | activity | person | | room
vor-lesen | activity | adult | dative_to:child object:story |
zu-hören | activity | person | dative:person |
gehen | activity | person | to:place |
fahren | activity | person | to:town |
laufen | activity | person runner | to:outdoors,stop,water |
fliegen | activity | bird | über+accusative=over:water,building,tree |
schwimmen | activity | person swimmer | at:water |
singen | activity | person | object:song | room outdoors
tanzen | activity | person | mit+dative=with:person | room
kochen | activity | person | object:dish | kitchen
tragen | activity | person | object:clothing |
besuchen | activity | person | object:person,museum |
lernen | activity | person | bare:language | study
reparieren | activity | adult | object:machine |
füttern | activity | person | object:pet,farm,bird | outdoors
legen | activity | person | object:thing,text to:surface |
sitzen | activity | person pet | at:seat |
beantworten | activity | person | object:question,letter |
malen | activity | person | object:picture,animal,tree | outdoors
sehen | event | person | object:person,animal,building | outdoors
hören | event | person | object:song,pet,bird | outdoors
finden | event | person | object:thing,pet,clothing | room outdoors
vergessen | event | person | object:thing | stop
verlieren | event | person | object:toy,luggage,clothing | outdoors stop
an-kommen | event | person public | at:city,stop |
ab-fahren | event | public | |
auf-stehen | event | person | |
auf-wachen | event | person pet | |
wohnen | state | person | at:home,city |
lieben | state | person | object:person,pet |
mögen | state | person | object:food,pet,text,song |
brauchen | state | person | object:clothing,luggage,vehicle,thing |
kennen | state | person | object:person,song,story |
verstehen | state | person | object:abstract,writing |
gehören | state | thing clothing vehicle pet | dative:person |
liegen | state | thing text pet | at:surface |
stehen | state | tree vehicle | vor+dative=in_front_of:building |
""")


# With a clause that begins with dass, with ob, and with an infinitive with zu.
TELLING = read_uses("""
wissen | state | person | |
glauben | state | person | |
sagen | state | person | |
hoffen | state | person | |
""")
ASKING = read_uses("""
fragen | state | person | |
""")
TRYING = read_uses("""
versuchen | activity | person | |
an-fangen | activity | person | |
""")

ATTEMPTS = {  # what one tries and what one begins to do
    "versuchen": (
        "anrufen aufmachen aufräumen beantworten einladen einkaufen erklären finden helfen "
        "lernen malen reparieren schlafen schwimmen tanzen verkaufen zumachen zuhören"
    ),
    "anfangen": "arbeiten aufräumen kochen lernen lesen malen schreiben singen suchen tanzen",
}
PURPOSES = {  # a place and what one goes there for
    "market": "kaufen verkaufen einkaufen",
    "kitchen": "kochen essen trinken",
    "study": "lesen lernen schreiben arbeiten",
    "outdoors": "füttern malen lesen spielen sprechen",
    "stop": "warten",
    "town": "kaufen einkaufen besuchen",
}

# Verbs that do not go with "likes to".
DUTIES = (
    *("anziehen", "aufmachen", "beantworten", "legen", "mitnehmen", "suchen", "verkaufen"),
    *("warten", "zumachen"),
)
# How these determine their object, where it is not as usual (see DETERMINED).
OBJECTS = {
    **dict.fromkeys(("anziehen", "tragen"), "one"),
    **dict.fromkeys(("aufräumen", "besuchen"), "place"),
    **dict.fromkeys(("lieben", "mögen", "kennen", "verstehen"), "liked"),
}
# Why one does something: because one wants or has to do this.
MOTIVES = {
    "anrufen": "einladen sprechen besuchen",
    "anziehen": "einkaufen gehen laufen",
    "aufräumen": "arbeiten kochen einladen",
    "aufstehen": "arbeiten einkaufen lernen",
    "aufwachen": "arbeiten einkaufen lernen",
    "ankommen": "arbeiten besuchen einkaufen",
    "besuchen": "helfen sprechen vorlesen",
    "einladen": "kochen tanzen sprechen",
    "fahren": "arbeiten besuchen einkaufen",
    "gehen": "arbeiten besuchen helfen",
    "kaufen": "kochen lernen malen reparieren",
    "lernen": "lesen schreiben sprechen",
    "lesen": "lernen vorlesen beantworten",
    "mitnehmen": "fahren arbeiten einkaufen",
    "suchen": "fahren einkaufen gehen",
    "verkaufen": "fahren kaufen",
    "warten": "sprechen gehen helfen",
}
# The state that is the reason, and that speaks against not doing it.
REASONS = {
    "essen": "Hunger",
    "kochen": "Hunger",
    "trinken": "Durst",
    "schlafen": "müde",
    "sitzen": "müde",
    "singen": "glücklich",
    "tanzen": "glücklich",
    "laufen": "Angst",
    "aufwachen": "Angst",
    "vergessen": "müde",
    "verlieren": "müde",
}

COST, RAIN, SNOW, SHINE = (
    FORMS[infinitive] for infinitive in ("kosten", "regnen", "schneien", "scheinen")
)

HAVE = English("have", "has", "had", "had", "having")
BE = English("be", "is", "was", "been", "being")
TO_HAVE, TO_BE = (
    Verb(
        infinitive, "", tuple(present.split()), participle, infinitive, english, tuple(past.split())
    )
    for (infinitive, present, participle, past), english in zip(
        rows("""
haben | habe hast hat haben habt haben | gehabt  | hatte hattest hatte hatten hattet hatten
sein  | bin bist ist sind seid sind    | gewesen | war warst war waren wart waren
"""),
        (HAVE, BE),
        strict=True,
    )
)
# "Hunger haben" is "be hungry": German has the state, English is in it.
TO_HAVE_A_STATE = TO_HAVE._replace(english=BE)
AUXILIARIES = {"haben": TO_HAVE.present, "sein": TO_BE.present}

# Finite forms of ich, du, er, ... | English | tense of an English full verb
MODALS = {
    finite.split()[2]: Modal(tuple(finite.split()), english, tense)
    for finite, english, tense in rows("""
werde wirst wird werden werdet werden             | will          |
kann kannst kann können könnt können              | can           |
konnte konntest konnte konnten konntet konnten    | could         |
soll sollst soll sollen sollt sollen              | should        |
darf darfst darf dürfen dürft dürfen              | may           |
möchte möchtest möchte möchten möchtet möchten    | would like to |
muss musst muss müssen müsst müssen               | have to       | present
musste musstest musste mussten musstet mussten    | have to       | past
will willst will wollen wollt wollen              | want to       | present
wollte wolltest wollte wollten wolltet wollten    | want to       | past
""")
}
