"""The words of the sample corpus: forms, translations, and what can be said of what.

Tables only, and the few lines that read them. A cell of several words writes ``_`` for a blank.
"""

from typing import NamedTuple


class Noun(NamedTuple):
    """``gender`` is m, f, n, or w for a masculine noun of the weak declension (den Jungen)."""

    singular: str
    gender: str
    plural: str  # "" if it has none, such as milk
    english: str
    english_plural: str
    pronoun: str  # English pronoun for the noun
    tags: tuple[str, ...]  # kinds of things that it belongs to
    location: str  # "in=in": preposition of place, with the dative
    direction: str  # "in+accusative=into": case and preposition of direction


class Adjective(NamedTuple):
    stem: str  # to which endings are added: "teur" of "teuer"
    base: str
    english: str
    tags: tuple[str, ...]  # nouns it may describe


def rows(table: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.split("|")] for line in table.strip().splitlines()]


def read_nouns(table: str) -> tuple[Noun, ...]:
    nouns = []
    for german, english, tags, *places in rows(table):
        singular, gender, plural = german.replace("-", "").split(" ")
        one, many, pronoun = f"{english} it".replace("-", "").split(" ")[:3]
        location, direction = places[0].split() if places else ("", "")
        kind = tuple(tags.split())
        nouns.append(Noun(singular, gender, plural, one, many, pronoun, kind, location, direction))
    return tuple(nouns)


def read_adjectives(table: str) -> tuple[Adjective, ...]:
    adjectives = []
    for forms, tags in rows(table):
        stem, base, english = forms.split()
        adjectives.append(Adjective(stem, base, english, tuple(tags.split())))
    return tuple(adjectives)


PEOPLE = read_nouns("""
Mann m Männer         | man men he                  | person adult owner
Frau f Frauen         | woman women she             | person adult owner
Kind n Kinder         | child children it           | person child mine pupil
Junge w Jungen        | boy boys he                 | person child
Mädchen n Mädchen     | girl girls she              | person child
Lehrer m Lehrer       | teacher teachers he         | person adult owner mine
Ärztin f Ärztinnen    | doctor doctors she          | person adult owner mine
Nachbar w Nachbarn    | neighbour neighbours he     | person adult owner mine
Student w Studenten   | student students he         | person adult
Koch m Köche          | cook cooks he               | person adult
Gärtnerin f Gärtnerinnen | gardener gardeners she   | person adult
Bauer w Bauern        | farmer farmers he           | person adult owner
Künstlerin f Künstlerinnen | artist artists she     | person adult
Freund m Freunde      | friend friends he           | person adult kin owner
Mutter f Mütter       | mother mothers she          | person adult kin single owner
Vater m Väter         | father fathers he           | person adult kin single owner
Bruder m Brüder       | brother brothers he         | person adult kin owner
Schwester f Schwestern | sister sisters she         | person adult kin owner
Großmutter f Großmütter | grandmother grandmothers she | person adult kin single owner
Onkel m Onkel         | uncle uncles he             | person adult kin
""")

NAMES = read_nouns("""
Anna f -   | Anna - she   | person child adult name
Maria f -  | Maria - she  | person child adult name
Peter m -  | Peter - he   | person child adult name
Jonas m -  | Jonas - he   | person child adult name
""")

ANIMALS = read_nouns("""
Hund m Hunde     | dog dogs      | animal pet runner dog
Katze f Katzen   | cat cats      | animal pet runner cat
Pferd n Pferde   | horse horses  | animal farm runner fast
Kuh f Kühe       | cow cows      | animal farm
Schaf n Schafe   | sheep sheep   | animal farm
Vogel m Vögel    | bird birds    | animal bird
Ente f Enten     | duck ducks    | animal bird swimmer
""")

THINGS = read_nouns("""
Apfel m Äpfel            | apple apples             | food fruit
Birne f Birnen           | pear pears               | food fruit
Tomate f Tomaten         | tomato tomatoes          | food fruit
Ei n Eier                | egg eggs                 | food
Brot n -                 | bread -                  | food baked mass
Käse m -                 | cheese -                 | food mass
Suppe f -                | soup -                   | food dish mass
Kartoffelsuppe f -       | potato_soup -            | food dish mass
Kuchen m Kuchen          | cake cakes               | food baked
Apfelkuchen m Apfelkuchen | apple_cake apple_cakes  | food baked
Wasser n -               | water -                  | drink cold mass
Milch f -                | milk -                   | drink cold mass
Kaffee m -               | coffee -                 | drink hot mass
Tee m -                  | tea -                    | drink hot mass
Orangensaft m -          | orange_juice -           | drink cold mass
Gras n -                 | grass -                  | fodder mass
Heu n -                  | hay -                    | fodder mass
Buch n Bücher            | book books               | text long thing gift
Kochbuch n Kochbücher    | cookery_book cookery_books | text long thing gift
Zeitung f Zeitungen      | newspaper newspapers     | text
Brief m Briefe           | letter letters           | text writing letter
Liebesbrief m Liebesbriefe | love_letter love_letters | text writing letter
Gedicht n Gedichte       | poem poems               | text writing
Geschichte f Geschichten | story stories            | text writing story
Märchen n Märchen        | fairy_tale fairy_tales   | text story
Lied n Lieder            | song songs               | song
Frage f Fragen           | question questions       | abstract question
Regel f Regeln           | rule rules               | abstract
Aufgabe f Aufgaben       | exercise exercises       | abstract
Ball m Bälle             | ball balls               | thing toy colour
Puppe f Puppen           | doll dolls               | thing toy
Schlüssel m Schlüssel    | key keys                 | thing
Hausschlüssel m Hausschlüssel | house_key house_keys | thing
Koffer m Koffer          | suitcase suitcases       | thing luggage open colour
Tasche f Taschen         | bag bags                 | thing luggage open colour
Uhr f Uhren              | clock clocks             | thing machine
Regenschirm m Regenschirme | umbrella umbrellas     | thing colour
Geschenk n Geschenke     | present presents         | thing gift
Bild n Bilder            | picture pictures         | thing gift picture
Blume f Blumen           | flower flowers           | plant gift colour
Rose f Rosen             | rose roses               | plant gift colour
Mantel m Mäntel          | coat coats               | clothing colour
Hut m Hüte               | hat hats                 | clothing colour
Kleid n Kleider          | dress dresses            | clothing colour
Winterjacke f Winterjacken | winter_jacket winter_jackets | clothing colour
Auto n Autos             | car cars                 | vehicle machine fast colour
Fahrrad n Fahrräder      | bicycle bicycles         | vehicle machine fast colour
Bus m Busse              | bus buses                | public
Zug m Züge               | train trains             | public fast
Nachtzug m Nachtzüge     | night_train night_trains | public
Klavier n Klaviere       | piano pianos             | instrument
Gitarre f Gitarren       | guitar guitars           | instrument
Zeit f -                 | time -                   | asset time mass
Geld n -                 | money -                  | asset mass
Deutsch n -              | German -                 | language
Englisch n -             | English -                | language
Tür f Türen              | door doors               | open fixed
Fenster n Fenster        | window windows           | open fixed
Baum m Bäume             | tree trees               | plant tree
Apfelbaum m Apfelbäume   | apple_tree apple_trees   | plant tree
Kirschbaum m Kirschbäume | cherry_tree cherry_trees | plant tree
""")

PLACES = read_nouns("""
Garten m Gärten | garden gardens | place outdoors | in=in in+accusative=into
Park m Parks | park parks | place outdoors common | in=in in+accusative=into
Wald m Wälder | forest forests | place outdoors common | in=in in+accusative=into
Küche f Küchen | kitchen kitchens | place room kitchen | in=in in+accusative=into
Wohnzimmer n Wohnzimmer | living_room living_rooms | place room | in=in in+accusative=into
Schule f Schulen | school schools | place building study common | in=at in+accusative=to
Bibliothek f Bibliotheken | library libraries | place building study common | in=in in+accusative=to
Museum n Museen | museum museums | place building museum common | in=in in+accusative=to
Krankenhaus n Krankenhäuser | hospital hospitals | place building work | in=in in+accusative=to
Kirche f Kirchen           | church churches       | place building common  | in=in in+accusative=to
Haus n Häuser | house houses | building home house | in=in in+accusative=into
Stadt f Städte             | city cities           | place town home common | in=in in+accusative=to
Dorf n Dörfer              | village villages      | place town home common | in=in in+accusative=to
Markt m Märkte | market markets | place market common | auf=at auf+accusative=to
Bahnhof m Bahnhöfe         | station stations      | place stop common      | an=at zu+dative=to
Bushaltestelle f Bushaltestellen | bus_stop bus_stops | place stop common | an=at zu+dative=to
See m Seen                 | lake lakes            | place water common     | in=in zu+dative=to
Tisch m Tische | table tables | surface | auf=on auf+accusative=on
Küchentisch m Küchentische | kitchen_table kitchen_tables | surface | auf=on auf+accusative=on
Bett n Betten | bed beds | surface seat | auf=on auf+accusative=on
Sofa n Sofas | sofa sofas | surface seat | auf=on auf+accusative=on
Berlin n -                 | Berlin -              | town city name         | in=in nach+dative=to
Wien n -                   | Vienna -              | town city name         | in=in nach+dative=to
München n -                | Munich -              | town city name         | in=in nach+dative=to
""")

NOUNS = PEOPLE + NAMES + ANIMALS + THINGS + PLACES

ADJECTIVES = read_adjectives("""
alt alt old                 | adult text building vehicle tree clothing instrument dog long
jung jung young             | adult animal
klein klein small           | child animal building town toy luggage room plant surface
groß groß big               | farm dog building room tree surface luggage town
neu neu new                 | vehicle text clothing thing instrument surface
schön schön beautiful       | plant clothing town song instrument picture story bird
klug klug clever            | adult child dog
nett nett nice | adult child
berühmt berühmt famous      | song long story picture museum
müd müde tired             | person
krank krank sick            | adult child farm pet
glücklich glücklich happy   | adult child
traurig traurig sad         | song story child
frisch frisch fresh         | fruit baked fodder
warm warm warm              | dish clothing
kalt kalt cold              | cold
heiß heiß hot               | hot dish
teur teuer expensive       | clothing vehicle instrument gift luggage
schwer schwer heavy         | luggage
rot rot red                 | colour
blau blau blue              | colour
weiß weiß white             | colour cat farm
schwarz schwarz black       | colour cat dog farm
kurz kurz short             | writing song
schwierig schwierig difficult | abstract
leicht leicht easy          | abstract
schnell schnell fast        | fast
""")
COLOURS = ("rot", "blau", "weiß", "schwarz")

COMPARATIVES = {
    "alt": "älter=older",
    "jung": "jünger=younger",
    "klein": "kleiner=smaller",
    "groß": "größer=bigger",
    "schnell": "schneller=faster",
    "teuer": "teurer=more_expensive",
    "schwer": "schwerer=heavier",
}

WEEKDAYS = (
    "Montag=Monday",
    "Dienstag=Tuesday",
    "Mittwoch=Wednesday",
    "Donnerstag=Thursday",
    "Freitag=Friday",
    "Samstag=Saturday",
    "Sonntag=Sunday",
)
ON_WEEKDAYS = tuple(f"am=on {day}" for day in WEEKDAYS)
HABITS = (
    "jeden=every Tag=day",
    "jeden=every Abend=evening",
    "jeden=every Morgen=morning",
    "im=in_the Sommer=summer",
    "im=in_the Winter=winter",
    "am=at_the Wochenende=weekend",
    *(f"jeden=every {day}" for day in WEEKDAYS),
)
NOW = ("heute=today", "jetzt=now")
PAST = ("gestern=yesterday", "letzte=last Woche=week", "letztes=last Jahr=year", *ON_WEEKDAYS)
FUTURE = (
    "morgen=tomorrow",
    "bald=soon",
    "nächste=next Woche=week",
    "nächstes=next Jahr=year",
    *ON_WEEKDAYS,
)
FREQUENCIES = ("oft=often", "immer=always", "manchmal=sometimes", "nie=never", "selten=rarely")
BECAUSE_OF_RAIN = "wegen=because_of des=the Regens=rain"
DESPITE_RAIN = "trotz=despite des=the Regens=rain"
CAUSES = {
    "zumachen": BECAUSE_OF_RAIN,
    "fernsehen": BECAUSE_OF_RAIN,
    "anziehen": BECAUSE_OF_RAIN,
    "arbeiten": DESPITE_RAIN,
    "einkaufen": DESPITE_RAIN,
    "fahren": DESPITE_RAIN,
    "gehen": DESPITE_RAIN,
    "laufen": DESPITE_RAIN,
    "schwimmen": DESPITE_RAIN,
    "spielen": DESPITE_RAIN,
}

MEANS = (
    "mit=by dem= Zug=train",
    "mit=by dem= Bus=bus",
    "mit=by dem= Auto=car",
    "mit=by dem= Fahrrad=bicycle",
)

# In German one has these, in English one is so; the last cell is the negation.
FEELINGS = {
    "Hunger": ("Hunger=hungry", "keinen"),
    "Durst": ("Durst=thirsty", "keinen"),
    "Angst": ("Angst=afraid", "keine"),
    "recht": ("recht=right", "nicht"),
}
# Numbers that are single words; the others are composed of them.
NUMBERS = {
    int(value): (german, english)
    for value, german, english in rows("""
1 | ein | one
2 | zwei | two
3 | drei | three
4 | vier | four
5 | fünf | five
6 | sechs | six
7 | sieben | seven
8 | acht | eight
9 | neun | nine
10 | zehn | ten
11 | elf | eleven
12 | zwölf | twelve
13 | dreizehn | thirteen
14 | vierzehn | fourteen
15 | fünfzehn | fifteen
16 | sechzehn | sixteen
17 | siebzehn | seventeen
18 | achtzehn | eighteen
19 | neunzehn | nineteen
20 | zwanzig | twenty
30 | dreißig | thirty
40 | vierzig | forty
50 | fünfzig | fifty
60 | sechzig | sixty
70 | siebzig | seventy
80 | achtzig | eighty
90 | neunzig | ninety
""")
}
