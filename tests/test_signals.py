"""A signal is noted, or immediately stops work that can be abandoned."""

import os
import signal
from types import SimpleNamespace

import pytest

from seq2seq.runs.run import Run
from seq2seq.signals import Interrupted, StopSignals

NUMBERS = [signal.SIGINT, signal.SIGTERM]


@pytest.fixture(params=NUMBERS)
def number(request):
    before = signal.getsignal(request.param)
    yield request.param
    signal.signal(request.param, before)


def send(number):
    os.kill(os.getpid(), number)


def test_a_signal_is_noted_and_previous_handlers_return(number):
    before = [signal.getsignal(n) for n in NUMBERS]
    signals = StopSignals()

    def work():
        with signals.noted():
            assert signals.number is None
            send(number)
            send(number)
            assert signals.number == number
            raise KeyError

    with pytest.raises(KeyError):
        work()
    assert [signal.getsignal(n) for n in NUMBERS] == before


def test_an_ignored_signal_stays_ignored(number):
    signal.signal(number, signal.SIG_IGN)
    signals = StopSignals()
    with signals.noted():
        send(number)
    assert signals.number is None
    assert signal.getsignal(number) is signal.SIG_IGN


def test_raised_block_ends_at_once_and_does_not_start_after_a_signal(number):
    signals, done = StopSignals(), []

    def work():
        with signals.raised():
            done.append("began")
            send(number)
            done.append("went on")

    with signals.noted():
        with pytest.raises(Interrupted, match=number.name) as caught:
            work()
        assert caught.value.exit_status == 128 + number
        assert signals.number == number
        send(number)  # while the run is saved
        with pytest.raises(Interrupted):
            work()
    assert done == ["began"]


def test_a_signal_ends_scoring_at_once(number, monkeypatch):
    run = Run.__new__(Run)
    run.trainer = SimpleNamespace(stop=StopSignals())
    monkeypatch.setattr(Run, "_score", lambda self: send(number))
    before = signal.getsignal(number)
    with pytest.raises(Interrupted):
        run.finish()
    assert signal.getsignal(number) is before
