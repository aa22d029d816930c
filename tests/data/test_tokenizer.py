"""Tokenizers give back the text, with and without optional packages."""

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
    TOKENIZERS,
    TorchtextTokenizer,
    WhitespaceTokenizer,
    build_tokenizer,
    check_tokenizer,
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
# Any line that a file can hold, with emphasis on characters that have caused bugs.
SENTENCES = st.one_of(
    st.text(),
    st.text(alphabet="ab ▁▅⁇<>/sunk&;ap'\"@-.\t\0\x1f\x85\xa0\u2028\ufeff½…Ａßİ人😀"),
)
OWN = ["moses", "whitespace", "characters", "sentencepiece"]
EXTERNAL = {n: t.package for n, t in TOKENIZERS.items() if issubclass(t, TorchtextTokenizer)}


@pytest.fixture(scope="module")
def models():
    return {kind: train_sentencepiece(TEXT, 50, kind) for kind in ("bpe", "unigram")}


def available(name):
    """Build the tokenizer for English; skip the test if a package is missing."""
    if name in EXTERNAL:
        pytest.importorskip(EXTERNAL[name])
    model = train_sentencepiece(TEXT, 50) if name == "sentencepiece" else None
    return build_tokenizer(name, "en", model=model)


def one_blank(text):
    return " ".join(text.split())


# --- all tokenizers


@pytest.mark.parametrize("name", sorted(set(TOKENIZERS) - {"spacy"}))
def test_blank_sentences_have_no_tokens_and_many_are_split_like_one(name):
    tokenizer = available(name)
    sentences = [*TEXT, "", " ", " \t\u2028\xa0 ", "unseen: Ж ▁ \0 😀", "x" * 5000]
    tokens = tokenizer.tokenize_many(iter(sentences))
    assert tokens == [tokenizer.tokenize(sentence) for sentence in sentences]
    assert tokens[len(TEXT) : len(TEXT) + 3] == [[], [], []]
    assert tokenizer.detokenize([]) == ""


@pytest.mark.guarantee("Tokenizers restore the text, and behave the same in another process.")
@pytest.mark.parametrize("name", sorted(set(TOKENIZERS) - {"spacy"}))
def test_state_in_json_restores_tokenizer_and_it_can_be_pickled(name):
    tokenizer = available(name)
    restored = tokenizer_from_state(json.loads(json.dumps(tokenizer.state())), tokenizer.model)
    copied = pickle.loads(pickle.dumps(tokenizer))
    for sentence in TEXT:
        tokens = tokenizer.tokenize(sentence)
        assert restored.tokenize(sentence) == copied.tokenize(sentence) == tokens
        assert restored.detokenize(tokens) == tokenizer.detokenize(tokens)
    assert restored.state() == tokenizer.state()
    assert restored.model == tokenizer.model


@pytest.mark.parametrize("name", OWN)
def test_lowercase_is_in_the_state_and_applied_before_splitting(name):
    model = train_sentencepiece(TEXT, 50, lowercase=True) if name == "sentencepiece" else None
    folding = build_tokenizer(name, "de", lowercase=True, model=model)
    cased = build_tokenizer(name, "de", model=model)
    for sentence in TEXT:
        assert folding.tokenize(sentence) == cased.tokenize(sentence.lower())
        assert folding.tokenize_many([sentence]) == [folding.tokenize(sentence)]
    assert tokenizer_from_state(folding.state(), folding.model).lowercase


@pytest.mark.parametrize("check", [check_tokenizer, build_tokenizer])
def test_unknown_name_is_refused_with_the_known_ones(check):
    with pytest.raises(ValueError, match=r"data\.tokenizer\.name=mosse .*'moses'.*characters"):
        check("mosse", "de")


def test_registered_tokenizer_is_built_by_name(monkeypatch):
    class HyphenTokenizer(WhitespaceTokenizer):
        name = "hyphen"

        def _split(self, text):
            return text.split("-")

    monkeypatch.setattr(TOKENIZERS, "_entries", dict(TOKENIZERS))
    TOKENIZERS.register("hyphen", HyphenTokenizer)
    check_tokenizer("hyphen", "de")
    tokenizer = tokenizer_from_state(build_tokenizer("hyphen", "de").state(), None)
    assert tokenizer.tokenize("a-b") == ["a", "b"]


@pytest.mark.guarantee(
    "A missing optional package is named with the command that installs it, before work begins."
)
def test_own_tokenizers_and_vocabulary_need_no_torch():
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
def test_whitespace_restores_words(sentence):
    tokenizer = build_tokenizer("whitespace", "de")
    assert tokenizer.detokenize(tokenizer.tokenize(sentence)) == one_blank(sentence)


@pytest.mark.guarantee("Tokenizers restore the text, and behave the same in another process.")
@given(SENTENCES)
def test_characters_restore_the_sentence_exactly(sentence):
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


@pytest.mark.guarantee("Tokenizers restore the text, and behave the same in another process.")
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


def test_moses_neither_escapes_nor_unescapes():
    tokenizer = build_tokenizer("moses", "en")
    assert tokenizer.tokenize("it's | <b> [x]") == ["it", "'s", "|", "<", "b", ">", "[", "x", "]"]
    assert tokenizer.detokenize(["&amp;", "&apos;s"]) == "&amp; &apos;s"


@pytest.mark.parametrize("language", ["en", "de", "cs", "zh"])
def test_moses_tokens_equal_those_of_sacremoses(language):
    """Only its speed is changed."""
    ours, theirs = build_tokenizer("moses", language), sacremoses.MosesTokenizer(language)
    for sentence in [*TEXT, "The U.S. e.g. has 3. No. 4 is late. ß.ö. x.", "1.a. ὦ. 人.口. Q."]:
        assert ours.tokenize(sentence) == theirs.tokenize(sentence, escape=False)


@settings(deadline=None)
@given(SENTENCES, st.sampled_from(["de", "en", "cs", "fr", "fi"]))
def test_moses_drops_only_blanks_and_control_characters(sentence, language):
    tokenizer = build_tokenizer("moses", language)
    tokens = tokenizer.tokenize(sentence)
    kept = [c for c in sentence if not c.isspace() and ord(c) > 31]
    assert "".join(tokens) == "".join(kept)
    assert one_blank(tokenizer.detokenize(tokens)) == tokenizer.detokenize(tokens)


# --- sentencepiece


@pytest.mark.guarantee("Tokenizers restore the text, and behave the same in another process.")
@pytest.mark.parametrize("kind", ["bpe", "unigram"])
@given(sentence=SENTENCES)
def test_pieces_restore_the_sentence(models, kind, sentence):
    """Even characters that the model has not seen; "▁" is a blank."""
    tokenizer = build_tokenizer("sentencepiece", "de", model=models[kind])
    expected = one_blank(sentence.replace("▁", " "))
    assert tokenizer.detokenize(tokenizer.tokenize(sentence)) == expected


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_training_is_repeatable_and_silent_and_converts_case(kind, models, capfd):
    assert train_sentencepiece(iter(TEXT), 50, kind) == models[kind]
    folded = [sentence.lower() for sentence in TEXT]
    lowercase = train_sentencepiece(TEXT, 45, kind, lowercase=True)
    assert lowercase == train_sentencepiece(folded, 45, kind)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_impossible_vocabulary_size_is_refused_with_a_possible_one(kind):
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


def test_training_sentencepiece_without_text_is_refused():
    for sentences in ([], [""], [" ", "\t\u2028"]):
        with pytest.raises(ValueError, match=r"only blank sentences.*check the training files"):
            train_sentencepiece(sentences, 10)


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_unusual_lines_do_not_stop_training(kind):
    strange = ["Ж" * 50_000, "ab" * 40_000, "a\0b", "▁", "▅", "\ufeff c\u2028d", "<s> </s> <unk>"]
    model = train_sentencepiece([*TEXT, *strange], 60, kind)
    tokenizer = build_tokenizer("sentencepiece", "de", model=model)
    # SentencePiece itself ignores lines of more than 4,192 bytes.
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    assert processor.piece_to_id("Ж") != processor.unk_id()
    for line in strange:
        expected = one_blank(line.replace("▁", " "))
        assert tokenizer.detokenize(tokenizer.tokenize(line)) == expected


@pytest.mark.parametrize("model", [None, b"", b"rubbish"])
def test_missing_or_damaged_model_is_refused(model):
    with pytest.raises(ValueError, match="no usable model"):
        build_tokenizer("sentencepiece", "de", model=model)


# --- tokenizers of torchtext


def test_basic_english_splits_only_english():
    tokenizer = build_tokenizer("basic_english", "en")
    assert tokenizer.tokenize('Two "Dogs", running.') == ["two", "dogs", ",", "running", "."]
    assert tokenizer.detokenize(["two", "dogs", ",", "running", "."]) == "two dogs, running."
    with pytest.raises(ValueError, match=r"data\.tokenizer\.name='basic_english'.*'en'.*'de'"):
        build_tokenizer("basic_english", "de")


@pytest.mark.guarantee(
    "A missing optional package is named with the command that installs it, before work begins."
)
@pytest.mark.parametrize(("name", "package"), sorted(EXTERNAL.items()))
def test_missing_package_is_named(name, package, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)  # an import of it fails
    with pytest.raises(ValueError, match=rf"{name}.*`pip install {package}`") as error:
        check_tokenizer(name, "lt")
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


@pytest.mark.guarantee(
    "A missing optional package is named with the command that installs it, before work begins."
)
def test_spacy_uses_the_model_of_the_language(monkeypatch):
    monkeypatch.setitem(sys.modules, "spacy", fake_spacy("pl_core_news_sm"))
    polish = build_tokenizer("spacy", "pl")
    assert polish.tokenize("dwa psy .") == ["dwa", "psy", "."]
    assert polish.detokenize(["dwa", "psy", "."]) == "dwa psy."
    for language, model in {"pt": "pt_core_news_sm", "zh": "zh_core_web_sm"}.items():
        with pytest.raises(ValueError, match=f"`python -m spacy download {model}`"):
            build_tokenizer("spacy", language)


@settings(deadline=None)  # the first example imports torchtext
@given(sentence=st.text(alphabet="abCD EF,.!'\"-ßÉ😀"))
def test_revtok_restores_the_sentence(sentence):
    tokenizer = available("revtok")
    assert tokenizer.detokenize(tokenizer.tokenize(sentence)) == one_blank(sentence)


def test_toktok_does_not_escape():
    tokenizer = available("toktok")
    tokens = tokenizer.tokenize("Cats & dogs | mice, in 3.5 days.")
    assert " ".join(tokens) == "Cats & dogs | mice , in 3.5 days ."
    assert tokenizer.detokenize(tokens) == "Cats & dogs | mice, in 3.5 days."
