"""SIGINT (Ctrl-C) and SIGTERM: handled for a while, then given back.

Importing this module changes nothing.
"""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def handle_stop_signals(handler: Callable[[int, Any], Any]) -> Iterator[None]:
    """Let ``handler(number, frame)`` receive SIGINT and SIGTERM within the block.

    An ignored signal stays ignored, as ``nohup`` wants it; the previous handlers return afterwards.
    """
    previous = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        for number, before in previous.items():
            if before is not signal.SIG_IGN:
                signal.signal(number, handler)
        yield
    finally:
        for number, before in previous.items():
            signal.signal(number, before)


class Interrupted(Exception):  # noqa: N818  (a request, not an error)
    """The user asked a run to stop; the run has been saved when this leaves the trainer."""

    def __init__(self, number: int):
        super().__init__(signal.Signals(number).name)
        self.exit_status = 128 + number

    def __str__(self) -> str:
        """Name the signal, then say how to continue, where a ``continued_by`` block knows it."""
        return "; ".join([super().__str__(), *getattr(self, "__notes__", [])])


@contextmanager
def continued_by(advice: str) -> Iterator[None]:
    """Add to an ``Interrupted`` from within the block how to continue what it stopped."""
    try:
        yield
    except Interrupted as stop:
        stop.add_note(advice)
        raise


class StopSignals:
    """Receives SIGINT and SIGTERM: notes them, or raises where work can be dropped at once."""

    def __init__(self) -> None:
        self.number: int | None = None  # the last signal received
        self._raises = False

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Note the signals that come within the block."""
        with handle_stop_signals(self._note):
            yield

    @contextmanager
    def raised(self) -> Iterator[None]:
        """Leave the block at once when a signal comes, or came before it.

        Raises:
            Interrupted: a signal came; it is noted too.
        """
        self._raises = True
        try:
            self.check()
            yield
        finally:
            self._raises = False

    def check(self) -> None:
        """Do nothing unless a signal has been noted.

        Raises:
            Interrupted: one has.
        """
        if self.number is not None:
            raise Interrupted(self.number)

    def _note(self, number: int, frame: Any) -> None:
        self.number = number
        if self._raises:
            self._raises = False
            self.check()
