"""Tokens without a word of their own are counted, and the commonest named."""

import logging

import pytest

from seq2seq.data.vocabulary import SPECIALS, Vocabulary
from seq2seq.search import unknown as module
from seq2seq.search.unknown import UnknownTokens


@pytest.fixture
def line_of(caplog):
    """What is said of several texts."""

    def report(*texts):
        unknown = UnknownTokens("source", Vocabulary([*SPECIALS, "the", "dog"]))
        for text in texts:
            unknown.count(text.split())
        with caplog.at_level(logging.INFO):
            unknown.report()
        return caplog.messages

    return report


def test_nothing_is_said_where_all_is_known(line_of):
    assert line_of("the dog", "", "dog") == []


def test_the_commonest_come_first_and_special_tokens_are_no_words(line_of):
    assert line_of("the cat </s>", "a cat") == [
        "4 source tokens unknown to the model, read as <unk>: 'cat', '</s>', 'a'"
    ]


def test_one_is_one(line_of):
    assert line_of("the cat") == ["1 source token unknown to the model, read as <unk>: 'cat'"]


def test_five_are_named(line_of):
    (line,) = line_of("a b c d e f g")
    assert line.startswith("7 source tokens")
    assert line.endswith(": 'a', 'b', 'c', 'd', 'e', ...")


def test_a_long_text_needs_no_more_memory(line_of, monkeypatch):
    monkeypatch.setattr(module, "KEPT", 2)
    assert line_of("a b c c c", "b c a b") == [
        "9 source tokens unknown to the model, read as <unk>: 'b', 'a'"
    ]
