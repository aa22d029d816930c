"""Temporary handlers for SIGINT (Ctrl-C) and SIGTERM.

Importing this module installs no handler.
"""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def handle_stop_signals(handler: Callable[[int, Any], Any]) -> Iterator[None]:
    """Let ``handler(number, frame)`` receive SIGINT and SIGTERM within the block.

    An ignored signal stays ignored, as ``nohup`` requires. Afterward, the previous handlers are
    restored.
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
    """The user asked a run to stop; when the trainer raises this, the run has been saved."""

    def __init__(self, number: int):
        super().__init__(signal.Signals(number).name)
        self.exit_status = 128 + number

    def __str__(self) -> str:
        """Name the signal and, inside a ``continued_by`` block, say how to continue."""
        return "; ".join([super().__str__(), *getattr(self, "__notes__", [])])


@contextmanager
def continued_by(advice: str) -> Iterator[None]:
    """Add advice on how to continue to an ``Interrupted`` raised in the block."""
    try:
        yield
    except Interrupted as stop:
        stop.add_note(advice)
        raise


class StopSignals:
    """Receives SIGINT and SIGTERM: notes them, or raises where work can be abandoned."""

    def __init__(self) -> None:
        self.number: int | None = None  # the last signal received
        self._raises = False

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Note the signals that arrive during the block."""
        with handle_stop_signals(self._note):
            yield

    @contextmanager
    def raised(self) -> Iterator[None]:
        """Abandon the block as soon as a signal arrives, or if one arrived before it.

        Raises:
            Interrupted: a signal arrived; it is noted as well.
        """
        self._raises = True
        try:
            self.check()
            yield
        finally:
            self._raises = False

    def check(self) -> None:
        """Raise if a signal has been noted.

        Raises:
            Interrupted: a signal has been noted.
        """
        if self.number is not None:
            raise Interrupted(self.number)

    def _note(self, number: int, frame: Any) -> None:
        self.number = number
        if self._raises:
            self._raises = False
            self.check()
