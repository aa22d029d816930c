import json
import pickle
import re
import subprocess
import sys
import types

import pytest
import sacremoses
import sentencepiece
from hypothesis import given, settings
from hypothesis import strategies as st

from seq2seq.data.tokenizer import (
    PACKAGES,
    TOKENIZERS,
    build_tokenizer,
    tokenizer_from_state,
    train_sentencepiece,
)

TEXT = [
    "a man's dog runs after the red ball .",
    "Two dogs, one in a T-shirt, are running!",
    'The sign says "no dogs" … and ½ of them obey.',
    "Ein Mann geht über die Straße.",
    "Zwei Hunde laufen über eine Wiese, oder?",
]
# Whatever a line of a file can hold, and above all what has once been a trap.
SENTENCES = st.one_of(
    st.text(),
    st.text(alphabet="ab ▁▅⁇<>/sunk&;ap'\"@-.\t\0\x1f\x85\xa0\u2028\ufeff½…Ａßİ人😀"),
)


@pytest.fixture(scope="module")
def models():
    return {kind: train_sentencepiece(TEXT, 50, kind) for kind in ("bpe", "unigram")}


def available(name):
    """The tokenizer for English, if what it needs is here."""
    if name in PACKAGES:
        pytest.importorskip(PACKAGES[name])
    model = train_sentencepiece(TEXT, 50) if name == "sentencepiece" else None
    return build_tokenizer(name, "en", model=model)


def one_blank(text):
    return " ".join(text.split())


# --- every tokenizer


@pytest.mark.parametrize("name", sorted(set(TOKENIZERS) - {"spacy"}))
def test_blank_sentences_have_no_tokens_and_no_tokens_are_no_text(name):
    tokenizer = available(name)
    for blank in ("", " ", " \t\u2028\xa0 "):
        assert tokenizer.tokenize(blank) == []
        assert tokenizer.tokenize_many([blank, blank]) == [[], []]
    assert tokenizer.tokenize_many([]) == []
    assert tokenizer.detokenize([]) == ""


@pytest.mark.parametrize("name", sorted(set(TOKENIZERS) - {"spacy"}))
def test_many_sentences_are_split_like_single_ones(name):
    tokenizer = available(name)
    sentences = [*TEXT, "", "unseen: Ж ▁ \0 😀", "x" * 5000]
    assert tokenizer.tokenize_many(iter(sentences)) == [tokenizer.tokenize(s) for s in sentences]


@pytest.mark.parametrize("name", sorted(set(TOKENIZERS) - {"spacy"}))
def test_a_tokenizer_survives_its_state_in_json_and_another_process(name):
    tokenizer = available(name)
    again = tokenizer_from_state(json.loads(json.dumps(tokenizer.state())), tokenizer.model)
    copied = pickle.loads(pickle.dumps(tokenizer))
    for sentence in TEXT:
        tokens = tokenizer.tokenize(sentence)
        assert again.tokenize(sentence) == copied.tokenize(sentence) == tokens
        assert again.detokenize(tokens) == tokenizer.detokenize(tokens)
    assert again.state() == tokenizer.state()
    assert again.model == tokenizer.model


@pytest.mark.parametrize("name", ["moses", "whitespace", "characters", "sentencepiece"])
def test_lowercase_is_part_of_the_state_and_folds_before_splitting(name):
    model = train_sentencepiece(TEXT, 50, lowercase=True) if name == "sentencepiece" else None
    folding = build_tokenizer(name, "de", lowercase=True, model=model)
    cased = build_tokenizer(name, "de", model=model)
    for sentence in TEXT:
        assert folding.tokenize(sentence) == cased.tokenize(sentence.lower())
        assert folding.tokenize_many([sentence]) == [folding.tokenize(sentence)]
    assert tokenizer_from_state(folding.state(), folding.model).lowercase


def test_unknown_names_are_refused_with_the_known_ones():
    with pytest.raises(ValueError, match=r"data\.tokenizer\.name='mosse'.*'moses'"):
        build_tokenizer("mosse", "de")


def test_all_but_torchtexts_own_work_without_torchtext():
    code = """
import sys
from seq2seq.data.tokenizer import tokenizer_from_state, train_sentencepiece
from seq2seq.data.vocabulary import SPECIALS, Vocabulary
model = train_sentencepiece(["a b"] * 3, 6)
for name in ("moses", "whitespace", "characters", "sentencepiece"):
    state = {"name": name, "language": "de", "lowercase": False}
    tokenizer = tokenizer_from_state(state, model if name == "sentencepiece" else None)
    Vocabulary(SPECIALS).ids(tokenizer.tokenize(tokenizer.detokenize(["a"])))
assert not {"torch", "torchtext"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True)


# --- whitespace and characters


@given(SENTENCES)
def test_whitespace_gives_back_the_words(sentence):
    tokenizer = build_tokenizer("whitespace", "de")
    assert tokenizer.detokenize(tokenizer.tokenize(sentence)) == one_blank(sentence)


@given(SENTENCES)
def test_characters_give_back_the_sentence_exactly(sentence):
    tokenizer = build_tokenizer("characters", "de")
    tokens = tokenizer.tokenize(sentence)
    assert all(len(token) == 1 for token in tokens)
    assert tokenizer.detokenize(tokens) == ("" if sentence.isspace() else sentence)


# --- moses


@pytest.mark.parametrize(
    ("language", "sentence", "tokens"),
    [
        ("en", "a man's dog & a T-shirt.", "a man 's dog & a T-shirt ."),
        ("en", "We don't pay $3.50, Mr. Hill!", "We don 't pay $ 3.50 , Mr. Hill !"),
        ("en", 'He said "hi" (twice) &amp; left.', 'He said " hi " ( twice ) & amp ; left .'),
        ("de", "Er ist z.B. am 3. Mai da, oder?", "Er ist z.B. am 3. Mai da , oder ?"),
        ("de", "„Nein“, sagt sie: 1.000,5 km.", "„ Nein “ , sagt sie : 1.000,5 km ."),
        ("fr", "L'homme s'en va.", "L' homme s' en va ."),
    ],
)
def test_moses_splits_by_the_rules_of_the_language(language, sentence, tokens):
    assert build_tokenizer("moses", language).tokenize(sentence) == tokens.split()


@pytest.mark.parametrize(
    ("language", "sentence"),
    [
        ("en", "a man's dog, in a T-shirt, can't jump."),
        ("en", 'A sign says "Stop!" (in red); the girls\' team waits...'),
        ("en", "Mr. Hill lives in the U.S. for $3.50 & more."),
        ("de", "Zwei Männer, z.B. am 3. Mai, tragen „rote“ T-Shirts?"),
        ("fr", "L'homme s'en va."),
        ("it", "L'uomo dell'acqua beve."),
        ("xx", "Nobody knows this language, yet it works."),
        ("zh", "这是一个句子。"),
    ],
)
def test_moses_joins_what_it_split(language, sentence):
    tokenizer = build_tokenizer("moses", language)
    assert tokenizer.detokenize(tokenizer.tokenize(sentence)) == sentence


def test_moses_does_not_touch_entities():
    """Neither splitting nor joining escapes or unescapes anything."""
    tokenizer = build_tokenizer("moses", "en")
    assert tokenizer.tokenize("it's | <b> [x]") == ["it", "'s", "|", "<", "b", ">", "[", "x", "]"]
    assert tokenizer.detokenize(["&amp;", "&apos;s"]) == "&amp; &apos;s"


@pytest.mark.parametrize("language", ["en", "de", "cs", "zh"])
def test_the_quick_moses_is_sacremoses(language):
    """Only the speed of sacremoses is changed: the tokens are its own."""
    ours, theirs = build_tokenizer("moses", language), sacremoses.MosesTokenizer(language)
    for sentence in [*TEXT, "The U.S. e.g. has 3. No. 4 is late. ß.ö. x.", "1.a. ὦ. 人.口. Q."]:
        assert ours.tokenize(sentence) == theirs.tokenize(sentence, escape=False)


@settings(deadline=None)  # the first example of a language pays for its rules
@given(SENTENCES, st.sampled_from(["de", "en", "cs", "fr", "fi"]))
def test_moses_loses_blanks_and_control_characters_only(sentence, language):
    tokenizer = build_tokenizer("moses", language)
    tokens = tokenizer.tokenize(sentence)
    kept = [c for c in sentence if not c.isspace() and ord(c) > 31]
    assert "".join(tokens) == "".join(kept)
    assert one_blank(tokenizer.detokenize(tokens)) == tokenizer.detokenize(tokens)


# --- sentencepiece


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
@given(sentence=SENTENCES)
def test_pieces_give_back_the_sentence(models, kind, sentence):
    """All of it, whether the model has seen its characters or not; "▁" is a blank."""
    tokenizer = build_tokenizer("sentencepiece", "de", model=models[kind])
    expected = one_blank(sentence.replace("▁", " "))
    assert tokenizer.detokenize(tokenizer.tokenize(sentence)) == expected


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_training_is_repeatable_and_silent(kind, models, capfd):
    assert train_sentencepiece(iter(TEXT), 50, kind) == models[kind]
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_sizes_beyond_the_text_are_refused_with_the_sizes_that_work(kind):
    for size in (10**6, 3, 1, 0, -5):
        with pytest.raises(ValueError, match=rf"data\.tokenizer\.vocabulary_size={size} ") as error:
            train_sentencepiece(TEXT, size, kind)
        assert "\n" not in str(error.value)
        possible = int(
            re.search(r"set data\.tokenizer\.vocabulary_size=(\d+) or", str(error.value))[1]
        )
        train_sentencepiece(TEXT, possible, kind)
        worse = possible + 1 if size > possible else possible - 1
        with pytest.raises(ValueError, match="vocabulary_size"):
            train_sentencepiece(TEXT, worse, kind)


@pytest.mark.parametrize("sentences", [[], [""], [" ", "\t\u2028"]])
def test_training_needs_text(sentences):
    with pytest.raises(ValueError, match=r"only blank sentences.*check the training files"):
        train_sentencepiece(sentences, 10)


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_strange_lines_do_not_stop_training(kind):
    strange = ["x" * 50_000, "ab" * 40_000, "a\0b", "▁", "▅", "\ufeff c\u2028d", "<s> </s> <unk>"]
    model = train_sentencepiece([*TEXT, *strange], 60, kind)
    tokenizer = build_tokenizer("sentencepiece", "de", model=model)
    for line in strange:
        expected = one_blank(line.replace("▁", " "))
        assert tokenizer.detokenize(tokenizer.tokenize(line)) == expected


def test_long_lines_are_learnt_from():
    """SentencePiece by itself passes over lines of more than 4,192 bytes."""
    model = train_sentencepiece([*TEXT, "Ж" * 3000], 50)
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    assert processor.piece_to_id("Ж") != processor.unk_id()


def test_lowercase_training_sees_lowercase_text():
    folded = [sentence.lower() for sentence in TEXT]
    assert train_sentencepiece(TEXT, 50, lowercase=True) == train_sentencepiece(folded, 50)


def test_errors_of_the_reader_reach_the_user():
    def broken():
        yield from TEXT
        raise ValueError("line 6 of train.de is not UTF-8")

    with pytest.raises(ValueError, match=r"^line 6 of train\.de is not UTF-8$"):
        train_sentencepiece(broken(), 50)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"model_type": "word"}, r"data\.tokenizer\.model_type='word'.*'bpe' or 'unigram'"),
        ({"character_coverage": 0.5}, r"data\.tokenizer\.character_coverage=0\.5.*\[0\.98, 1\]"),
    ],
)
def test_other_settings_are_checked(settings, message):
    with pytest.raises(ValueError, match=message):
        train_sentencepiece(TEXT, 50, **settings)


@pytest.mark.parametrize("model", [None, b"", b"rubbish"])
def test_a_missing_or_damaged_model_is_refused(model):
    with pytest.raises(ValueError, match="no usable model"):
        build_tokenizer("sentencepiece", "de", model=model)


# --- torchtext's


def test_basic_english_is_torchtexts():
    tokenizer = build_tokenizer("basic_english", "en")
    assert tokenizer.tokenize('Two "Dogs", running.') == ["two", "dogs", ",", "running", "."]
    assert tokenizer.detokenize(["two", "dogs", ",", "running", "."]) == "two dogs, running."
    with pytest.raises(ValueError, match=r"data\.tokenizer\.name='basic_english'.*'en'.*'de'"):
        build_tokenizer("basic_english", "de")


@pytest.mark.parametrize(("name", "package"), sorted(PACKAGES.items()))
def test_a_missing_package_is_named_when_the_tokenizer_is_built(name, package, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)  # an import of it fails
    with pytest.raises(ValueError, match=rf"{name}.*`pip install {package}`") as error:
        build_tokenizer(name, "lt")
    assert "\n" not in str(error.value)


def fake_spacy(installed):
    """spaCy with one installed model, which splits at blanks."""

    def load(model):
        if model != installed:
            raise OSError(f"[E050] Can't find model '{model}'.")
        return types.SimpleNamespace(
            tokenizer=lambda text: [types.SimpleNamespace(text=word) for word in text.split()]
        )

    module = types.ModuleType("spacy")
    module.load = load
    return module


def test_spacy_asks_for_the_model_of_the_language(monkeypatch):
    monkeypatch.setitem(sys.modules, "spacy", fake_spacy("pl_core_news_sm"))
    polish = build_tokenizer("spacy", "pl")
    assert polish.tokenize("dwa psy .") == ["dwa", "psy", "."]
    assert polish.detokenize(["dwa", "psy", "."]) == "dwa psy."
    for language, model in {"pt": "pt_core_news_sm", "zh": "zh_core_web_sm"}.items():
        with pytest.raises(ValueError, match=f"`python -m spacy download {model}`"):
            build_tokenizer("spacy", language)


@pytest.mark.parametrize("name", ["revtok", "subword"])
@settings(deadline=None)  # the first example pays for the import of torchtext
@given(sentence=st.text(alphabet="abCD EF,.!'\"-ßÉ😀"))
def test_revtok_gives_back_the_sentence(name, sentence):
    tokenizer = available(name)
    assert tokenizer.detokenize(tokenizer.tokenize(sentence)) == one_blank(sentence)


def test_toktok_leaves_no_entities():
    tokenizer = available("toktok")
    tokens = tokenizer.tokenize("Cats & dogs | mice, in 3.5 days.")
    assert " ".join(tokens) == "Cats & dogs | mice , in 3.5 days ."
    assert tokenizer.detokenize(tokens) == "Cats & dogs | mice, in 3.5 days."
