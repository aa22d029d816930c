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


# Seeds of models that write sentences of all lengths and hardly one twice; a test says so.
SEEDS = {"gru": 3, "lstm": 13, "paper_gru": 8}


def build_translator(config=BEAM, cell="gru", bias=None, dropout=0.0, attention=None):
    """A random model that looks at single words and writes many different sentences.

    PAD and BOS are among its favourites, an unknown word is never one of them; ``bias``
    changes such preferences, by id.
    """
    torch.manual_seed(SEEDS[cell])
    source, target = (
        Codec(WhitespaceTokenizer(language), Vocabulary([*SPECIALS, *words]))
        for language, words in (("de", SOURCE_WORDS), ("en", TARGET_WORDS))
    )
    sizes = {"embedding_size": 8, "encoder_size": 8, "decoder_size": 24, "dropout": dropout}
    attention = AttentionConfig(**({"size": 8} | (attention or {})))
    output = OutputConfig(size=8)
    config_of_model = ModelConfig(cell=cell, attention=attention, output=output, **sizes)
    model = accelerate(build_model(config_of_model, len(source.vocabulary), len(target.vocabulary)))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(25)  # from U(-0.1, 0.1): the state then hangs on every word
        model.decoder.embedding.weight.mul_(2)
        logits = model.decoder.output.logits_layer
        logits.weight.mul_(0.1)  # several words then have a chance
        logits.bias.zero_()
        for id, value in ({PAD: 2, BOS: 2, UNK: -100, EOS: 1.5} | (bias or {})).items():
            logits.bias[id] = value
    # Such a model is chaotic: in single precision rounding alone would grow beyond 1e-4.
    return Translator(model.double(), source, target, config)


def some_sentences():
    """Of 1 to 9 words, some of them unknown; blank ones and repeated ones among them."""
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


CONFIGS = pytest.mark.parametrize("config", [GREEDY, BEAM], ids=["greedy", "beam"])
CELLS = pytest.mark.parametrize("cell", ["gru", "lstm", "paper_gru"])


@CELLS
@CONFIGS
def test_the_outputs_of_these_tests_are_varied(config, cell):
    """A model that always says the same would pass all of what follows."""
    translations = build_translator(config, cell).translate(SENTENCES)
    assert len({t.text for t in translations}) > 12
    assert len({len(t.tokens) for t in translations}) > 8
    limits = [int(1.5 * len(s.split())) + 3 for s in SENTENCES]
    ended = [1 < len(t.tokens) < n for t, n in zip(translations, limits, strict=True)]
    assert 3 < sum(ended) < 35
    assert any(t.alignment.max() > 0.7 for t in translations if len(t.source_tokens) > 2)


@CELLS
@CONFIGS
@pytest.mark.parametrize("batch_size", [1, 3, 7])
def test_the_size_of_a_batch_changes_nothing(config, cell, batch_size):
    expected = build_translator(config, cell).translate(SENTENCES)
    small = build_translator(replace(config, batch_size=batch_size), cell)
    assert_same(small.translate(SENTENCES), expected)


@CELLS
@CONFIGS
@pytest.mark.parametrize("batch_size", [3, 64])
def test_translations_come_in_the_order_of_their_sentences(config, cell, batch_size):
    translator = build_translator(replace(config, batch_size=batch_size), cell)
    expected = translator.translate(SENTENCES)
    order = random.Random(2).sample(range(len(SENTENCES)), len(SENTENCES))
    shuffled = translator.translate([SENTENCES[i] for i in order])
    assert_same(shuffled, [expected[i] for i in order])
    for sentence, translation in zip(SENTENCES, expected, strict=True):
        assert translation.source_tokens == [*sentence.split(), "</s>"]


@CONFIGS
def test_the_number_of_threads_changes_nothing(config):
    translator = build_translator(replace(config, batch_size=4))
    pairs = [(sentence, "ziel3 ziel1") for sentence in SENTENCES]
    expected, forced = translator.translate(SENTENCES), translator.score(pairs)
    with torch_threads(3):
        assert_same(translator.translate(SENTENCES), expected)
        assert_same(translator.score(pairs), forced)


@CONFIGS
def test_a_repeated_sentence_is_translated_alike_and_each_time(config):
    translator = build_translator(replace(config, batch_size=3))
    once = translator.translate(SENTENCES[:5])
    assert_same(translator.translate(SENTENCES[:5] * 3), once * 3)


@CONFIGS
def test_a_blank_sentence_has_a_blank_translation_and_no_other_has(config):
    # Whoever ends at once is given a reason to go on.
    translator = build_translator(config, bias={EOS: -20})
    for sentence, translation in zip(SENTENCES, translator.translate(SENTENCES), strict=True):
        assert (translation.text == "") == (not sentence.strip())
        if not sentence.strip():
            assert translation.tokens == ["</s>"]
            assert translation.log_prob == translation.score == 0


@CONFIGS
def test_nothing_to_translate_is_no_error(config):
    translator = build_translator(config)
    assert translator.translate([]) == []
    assert translator.score([]) == []
    assert [t.text for t in translator.translate(["", "  "])] == ["", ""]


@CELLS
@CONFIGS
@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_a_reported_score_is_the_models_own_score_of_that_output(config, cell, alpha):
    """The search, step by step, and teacher forcing, in one pass, agree on the winner."""
    translator = build_translator(replace(config, length_penalty=alpha), cell)
    found = translator.translate(NOT_BLANK)
    forced = translator.score([(s, t.text) for s, t in zip(NOT_BLANK, found, strict=True)])
    assert_same(found, forced)
    for translation in found:
        divisor = length_penalty(len(translation.tokens), alpha)
        assert translation.score == pytest.approx(translation.log_prob / divisor)


@CONFIGS
@pytest.mark.parametrize(
    "attention",
    [
        {"coverage": True},
        {"mode": "local_m", "window": 2},
        {"mode": "local_p", "window": 2},
        {"mode": "monotonic"},
        {"mode": "hard"},
        {"name": "bilinear", "normalization": "entmax15"},
        {"heads": 2},
        {"name": "none"},
    ],
    ids=str,
)
def test_a_search_hands_every_hypothesis_its_own_past(config, attention):
    """What an attention knows of earlier positions goes with the hypothesis, as under force."""
    translator = build_translator(config, attention=attention)
    for found in translator.translate_num_best(NOT_BLANK[:12], config.beam_size):
        source = " ".join(found[0].source_tokens[:-1])
        assert_same(found, translator.score([(source, t.text) for t in found]))


@pytest.mark.parametrize("positions", [3, POSITIONS])
def test_the_score_of_a_given_translation_does_not_depend_on_its_batch(monkeypatch, positions):
    monkeypatch.setattr(translator_module, "POSITIONS", positions)
    texts = [t.text for t in build_translator().translate(SENTENCES)]
    pairs = list(zip(SENTENCES, reversed(texts), strict=True))
    expected = build_translator().score(pairs)
    for batch_size in (1, 3, 7):
        assert_same(build_translator(replace(BEAM, batch_size=batch_size)).score(pairs), expected)
    assert [t.text for t in expected] == [text for _, text in pairs]


def test_the_best_translations_are_distinct_and_sorted_and_begin_with_the_best():
    translator = build_translator()
    best = translator.translate(SENTENCES)
    for sentence, found, first in zip(
        SENTENCES, translator.translate_num_best(SENTENCES, 4), best, strict=True
    ):
        assert_same(found[:1], [first])
        assert len({tuple(t.tokens) for t in found}) == len(found)
        assert len(found) == (4 if sentence.strip() else 1)
        scores = [t.score for t in found]
        assert scores == sorted(scores, reverse=True)
        if sentence.strip():
            assert_same(found, translator.score([(sentence, t.text) for t in found]))


@CONFIGS
def test_every_row_of_an_alignment_sums_to_one(config):
    for translation in build_translator(config).translate(SENTENCES):
        shape = len(translation.tokens), len(translation.source_tokens)
        assert translation.alignment.shape == shape
        np.testing.assert_allclose(translation.alignment.sum(axis=1), 1, atol=1e-5)


@CONFIGS
def test_padding_and_the_start_are_never_written(config):
    translations = build_translator(config, bias={PAD: 50, BOS: 50}).translate(SENTENCES)
    for translation in translations:
        assert translation.tokens[-1] == "</s>"
        assert not {"<pad>", "<s>", "</s>"} & set(translation.tokens[:-1])


@CONFIGS
def test_a_translation_is_no_longer_than_it_may_be_and_still_ends(config):
    """Where the model would never end, it is made to, at its own price."""
    translator = build_translator(config, bias={EOS: -30})
    found = translator.translate(NOT_BLANK)
    for sentence, translation in zip(NOT_BLANK, found, strict=True):
        assert len(translation.tokens) == int(1.5 * len(sentence.split())) + 3
        assert translation.tokens.index("</s>") == len(translation.tokens) - 1
        assert translation.log_prob < -20
    assert_same(
        found, translator.score([(s, t.text) for s, t in zip(NOT_BLANK, found, strict=True)])
    )


@CONFIGS
def test_an_unknown_word_is_replaced_by_the_source_word_most_looked_at(config):
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


@CONFIGS
def test_weights_that_change_between_calls_are_seen(config):
    translator, other = build_translator(config), build_translator(config)
    before = translator.translate(SENTENCES)
    for model in (translator.model, other.model):
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(-1.1)
    after = translator.translate(SENTENCES)
    assert [t.log_prob for t in after] != [t.log_prob for t in before]
    assert_same(after, other.translate(SENTENCES))


@CONFIGS
def test_translating_uses_no_dropout_and_leaves_the_model_in_training(config):
    trained, plain = build_translator(config, dropout=0.5), build_translator(config)
    trained.model.train()
    assert_same(trained.translate(SENTENCES), plain.translate(SENTENCES))
    assert trained.model.training
    trained.model.eval()
    trained.translate(SENTENCES[:1])
    assert not trained.model.training
