import random
from dataclasses import replace

import numpy as np
import pytest
import torch
from conftest import torch_threads

from seq2seq.config.model import AttentionConfig, ModelConfig, OutputConfig
from seq2seq.config.training import DecodingConfig
from seq2seq.data.codec import Codec
from seq2seq.data.tokenizer import WhitespaceTokenizer
from seq2seq.data.vocabulary import BOS, EOS, PAD, SPECIALS, UNK, Vocabulary
from seq2seq.fast.accelerate import accelerate
from seq2seq.model.build import build_model
from seq2seq.search import translator as translator_module
from seq2seq.search.hypothesis import length_penalty
from seq2seq.search.translator import POSITIONS, Translator

SOURCE_WORDS = [f"quelle{i}" for i in range(9)]
TARGET_WORDS = [f"ziel{i}" for i in range(12)]
GREEDY = DecodingConfig(beam_size=1, batch_size=64, max_length_factor=1.5, max_length_extra=3)
BEAM = replace(GREEDY, beam_size=4)


ALONE = pytest.mark.guarantee("Batch size and order do not change translations.")
HONEST = pytest.mark.guarantee(
    "The score and alignment of a translation equal those of forced decoding."
)

# Seeds of models that write many different sentences of all lengths; a test checks this.
SEEDS = {"gru": 3, "lstm": 13, "paper_gru": 8}


def build_translator(config=BEAM, cell="gru", bias=None, dropout=0.0):
    """Build a random model that attends to single words and writes many different sentences.

    PAD and BOS are among its most probable tokens, UNK is not; ``bias`` changes the output biases,
    by id.
    """
    torch.manual_seed(SEEDS[cell])
    source, target = (
        Codec(WhitespaceTokenizer(language), Vocabulary([*SPECIALS, *words]))
        for language, words in (("de", SOURCE_WORDS), ("en", TARGET_WORDS))
    )
    settings = ModelConfig(
        cell=cell,
        embedding_size=8,
        encoder_size=8,
        decoder_size=24,
        dropout=dropout,
        attention=AttentionConfig(size=8),
        output=OutputConfig(size=8),
    )
    model = build_model(settings, len(source.vocabulary), len(target.vocabulary))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(25)  # from U(-0.1, 0.1): then the state depends on every word
        model.decoder.embedding.weight.mul_(2)
        logits = model.decoder.output.logits_layer
        logits.weight.mul_(0.1)  # then several words are probable
        logits.bias.zero_()
        for id, value in ({PAD: 2, BOS: 2, UNK: -100, EOS: 1.5} | (bias or {})).items():
            logits.bias[id] = value
    # Such a model is chaotic: in single precision rounding errors would grow beyond 1e-4.
    return Translator(accelerate(model).double(), source, target, config)


def some_sentences():
    """Return sentences of 1 to 9 words, some of them unknown, and blank and repeated sentences."""
    generator = random.Random(1)
    words = [*SOURCE_WORDS, "unbekannt", "</s>"]
    sentences = [" ".join(generator.choices(words, k=generator.randint(1, 9))) for _ in range(30)]
    sentences += ["", " \t ", *sentences[:4], "", "x"]
    generator.shuffle(sentences)
    return sentences


SENTENCES = some_sentences()
NOT_BLANK = [sentence for sentence in SENTENCES if sentence.strip()]


def assert_same(found, expected):
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert one.text == other.text
        assert one.tokens == other.tokens
        assert one.source_tokens == other.source_tokens
        assert one.log_prob == pytest.approx(other.log_prob, abs=1e-4)
        assert one.score == pytest.approx(other.score, abs=1e-4)
        np.testing.assert_allclose(one.alignment, other.alignment, atol=1e-4)


greedy_and_beam = pytest.mark.parametrize("config", [GREEDY, BEAM], ids=["greedy", "beam"])
every_cell = pytest.mark.parametrize("cell", SEEDS)


@every_cell
@greedy_and_beam
def test_outputs_of_these_tests_are_varied(config, cell):
    """A model that always wrote the same sentence would pass all of the tests below."""
    translations = build_translator(config, cell).translate(SENTENCES)
    assert len({t.text for t in translations}) > 12
    assert len({len(t.tokens) for t in translations}) > 8
    limits = [int(1.5 * len(s.split())) + 3 for s in SENTENCES]
    ended = [1 < len(t.tokens) < n for t, n in zip(translations, limits, strict=True)]
    assert 3 < sum(ended) < 35
    assert any(t.alignment.max() > 0.7 for t in translations if len(t.source_tokens) > 2)


@ALONE
@pytest.mark.guarantee("Line n of the output translates line n of the input.")
@every_cell
@greedy_and_beam
@pytest.mark.parametrize("batch_size", [1, 7])
def test_batch_size_order_and_repetition_change_no_translation(config, cell, batch_size):
    expected = build_translator(config, cell).translate(SENTENCES)
    for sentence, translation in zip(SENTENCES, expected, strict=True):
        assert translation.source_tokens == [*sentence.split(), "</s>"]
        shape = len(translation.tokens), len(translation.source_tokens)
        assert translation.alignment.shape == shape
        np.testing.assert_allclose(translation.alignment.sum(axis=1), 1, atol=1e-5)
    translator = build_translator(replace(config, batch_size=batch_size), cell)
    order = random.Random(2).choices(range(len(SENTENCES)), k=len(SENTENCES))
    found = translator.translate([SENTENCES[i] for i in order])
    assert_same(found, [expected[i] for i in order])


@greedy_and_beam
def test_number_of_threads_changes_nothing(config):
    translator = build_translator(replace(config, batch_size=4))
    pairs = [(sentence, "ziel3 ziel1") for sentence in SENTENCES]
    expected, scored = translator.translate(SENTENCES), translator.score(pairs)
    with torch_threads(3):
        assert_same(translator.translate(SENTENCES), expected)
        assert_same(translator.score(pairs), scored)


@pytest.mark.guarantee("Exactly the blank lines have blank translations.")
@greedy_and_beam
def test_exactly_the_blank_sentences_have_blank_translations(config):
    translator = build_translator(config, bias={EOS: -20})  # a model that does not end at once
    for sentence, translation in zip(SENTENCES, translator.translate(SENTENCES), strict=True):
        assert (translation.text == "") == (not sentence.strip())
        if not sentence.strip():
            assert translation.tokens == ["</s>"]
            assert translation.log_prob == translation.score == 0
    assert translator.translate([]) == translator.score([]) == []
    assert [t.text for t in translator.translate(["", "  "])] == ["", ""]


@HONEST
@every_cell
@greedy_and_beam
@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_reported_score_is_the_models_own_score_of_that_output(config, cell, alpha):
    """The search, step by step, and forced decoding, in one pass, agree."""
    translator = build_translator(replace(config, length_penalty=alpha), cell)
    found = translator.translate(NOT_BLANK)
    pairs = [(s, t.text) for s, t in zip(NOT_BLANK, found, strict=True)]
    assert_same(found, translator.score(pairs))
    for translation in found:
        divisor = length_penalty(len(translation.tokens), alpha)
        assert translation.score == pytest.approx(translation.log_prob / divisor)


@pytest.mark.parametrize("positions", [3, POSITIONS])
def test_score_of_a_given_translation_does_not_depend_on_its_batch(monkeypatch, positions):
    monkeypatch.setattr(translator_module, "POSITIONS", positions)
    texts = [t.text for t in build_translator().translate(SENTENCES)]
    pairs = list(zip(SENTENCES, reversed(texts), strict=True))
    expected = build_translator().score(pairs)
    for batch_size in (1, 7):
        assert_same(build_translator(replace(BEAM, batch_size=batch_size)).score(pairs), expected)
    assert [t.text for t in expected] == [text for _, text in pairs]


@HONEST
def test_best_translations_are_distinct_and_sorted_and_start_with_the_best():
    translator = build_translator()
    best = translator.translate(SENTENCES)
    found = translator.translate_num_best(SENTENCES, 4)
    for sentence, translations, first in zip(SENTENCES, found, best, strict=True):
        assert_same(translations[:1], [first])
        assert len({tuple(t.tokens) for t in translations}) == len(translations)
        assert len(translations) == (4 if sentence.strip() else 1)
        scores = [t.score for t in translations]
        assert scores == sorted(scores, reverse=True)
        if sentence.strip():
            pairs = [(sentence, t.text) for t in translations]
            assert_same(translations, translator.score(pairs))


@pytest.mark.guarantee("Every output ends within its limit and contains no padding.")
@greedy_and_beam
def test_control_tokens_are_never_written(config):
    translations = build_translator(config, bias={PAD: 50, BOS: 50}).translate(SENTENCES)
    for translation in translations:
        assert translation.tokens[-1] == "</s>"
        assert not {"<pad>", "<s>", "</s>"} & set(translation.tokens[:-1])


@pytest.mark.guarantee("Every output ends within its limit and contains no padding.")
@greedy_and_beam
def test_translation_ends_at_its_limit_with_the_models_own_score(config):
    translator = build_translator(config, bias={EOS: -30})
    found = translator.translate(NOT_BLANK)
    for sentence, translation in zip(NOT_BLANK, found, strict=True):
        assert len(translation.tokens) == int(1.5 * len(sentence.split())) + 3
        assert translation.tokens.index("</s>") == len(translation.tokens) - 1
        assert translation.log_prob < -20
    pairs = [(s, t.text) for s, t in zip(NOT_BLANK, found, strict=True)]
    assert_same(found, translator.score(pairs))


@greedy_and_beam
def test_unknown_word_is_replaced_by_the_source_word_of_largest_weight(config):
    bias = {UNK: 4}
    plain = build_translator(config, bias=bias).translate(SENTENCES)
    copied = build_translator(replace(config, replace_unknown=True), bias=bias).translate(SENTENCES)
    num_copied = 0
    for sentence, before, after in zip(SENTENCES, plain, copied, strict=True):
        assert after.tokens == before.tokens
        assert before.text == " ".join(before.tokens[:-1])
        if not sentence.strip():
            assert after.text == ""
            continue
        expected = []
        for token, weights in zip(after.tokens[:-1], after.alignment, strict=False):
            # The end of the source is not a word that could be copied.
            by_weight = sorted(zip(weights, sentence.split(), strict=False), reverse=True)
            expected.append(by_weight[0][1] if token == "<unk>" else token)
            num_copied += token == "<unk>"
        assert after.text == " ".join(expected)
    assert num_copied > 20


@greedy_and_beam
def test_parameters_that_change_between_calls_are_used(config):
    translator, other = build_translator(config), build_translator(config)
    before = translator.translate(SENTENCES)
    for model in (translator.model, other.model):
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(-1.1)
    after = translator.translate(SENTENCES)
    assert [t.log_prob for t in after] != [t.log_prob for t in before]
    assert_same(after, other.translate(SENTENCES))


@pytest.mark.guarantee("Translating uses no dropout and draws no random numbers.")
@greedy_and_beam
def test_translating_uses_no_dropout_and_restores_the_mode_of_the_model(config):
    trained, plain = build_translator(config, dropout=0.5), build_translator(config)
    trained.model.train()
    assert_same(trained.translate(SENTENCES), plain.translate(SENTENCES))
    assert trained.model.training
    trained.model.eval()
    trained.translate(SENTENCES[:1])
    assert not trained.model.training
