"""A codec turns text into ids and ids into text, in checkpoints as in training."""

import json

import pytest

from seq2seq.data.codec import Codec, codec_from_state
from seq2seq.data.tokenizer import build_tokenizer
from seq2seq.data.vocabulary import BOS, EOS, PAD, SPECIALS, UNK, Vocabulary


@pytest.fixture
def codec():
    return Codec(build_tokenizer("whitespace", "de"), Vocabulary([*SPECIALS, "ein", "Hund"]))


def test_encode_gives_tokens_and_ids_of_each_sentence(codec):
    sentences = codec.encode(["ein  Hund bellt", " ", "</s>"])
    assert [sentence.tokens for sentence in sentences] == [["ein", "Hund", "bellt"], [], ["</s>"]]
    assert [sentence.ids for sentence in sentences] == [[4, 5, UNK], [], [UNK]]


@pytest.mark.parametrize(
    ("sentence", "text"),
    [
        ([4, 5, EOS], "ein Hund"),
        ([BOS, 4, UNK, EOS, PAD], "ein <unk>"),
        (["ein", "</s>"], "ein </s>"),
        ([], ""),
    ],
)
def test_decode_joins_ids_or_tokens_without_control_ids(codec, sentence, text):
    assert codec.decode(sentence) == text


def test_state_in_json_restores_codec(codec):
    state = json.loads(json.dumps(codec.state()))
    restored = codec_from_state(state, None)
    assert restored.language == "de"
    assert restored.encode(["ein Hund"]) == codec.encode(["ein Hund"])
    assert restored.state() == state
