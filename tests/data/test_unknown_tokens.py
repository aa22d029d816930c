import logging

import pytest

from seq2seq.data import vocabulary as module
from seq2seq.data.vocabulary import SPECIALS, UnknownTokenCounter, Vocabulary


@pytest.mark.guarantee("Tokens unknown to the model are counted, and the most frequent are named.")
@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["the dog", "", "dog"], []),
        (["the cat"], ["1 source token unknown to the model, read as <unk>: 'cat'"]),
        (
            ["the cat </s>", "a cat"],
            ["4 source tokens unknown to the model, read as <unk>: 'cat', '</s>', 'a'"],
        ),
        (
            ["a b c d e f g"],
            ["7 source tokens unknown to the model, read as <unk>: 'a', 'b', 'c', 'd', 'e', ..."],
        ),
    ],
)
def test_unknown_tokens_are_reported_with_the_most_frequent_first(texts, expected, caplog):
    assert report(texts, caplog) == expected


@pytest.mark.guarantee("Tokens unknown to the model are counted, and the most frequent are named.")
def test_memory_for_unknown_tokens_is_bounded(caplog, monkeypatch):
    monkeypatch.setattr(module, "MAX_COUNTED", 2)
    assert report(["a b c c c", "b c a b"], caplog) == [
        "9 source tokens unknown to the model, read as <unk>: 'b', 'a'"
    ]


def report(texts, caplog):
    counter = UnknownTokenCounter("source", Vocabulary([*SPECIALS, "the", "dog"]))
    for text in texts:
        counter.count(text.split())
    with caplog.at_level(logging.INFO):
        counter.report()
    return caplog.messages
