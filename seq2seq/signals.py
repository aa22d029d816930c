"""Ctrl-C and SIGTERM while a run goes on: it stops where it can be saved."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Interrupted(Exception):  # noqa: N818  (no error: it was asked for)
    """A run was asked to stop (Ctrl-C, SIGTERM); the trainer saves it before it lets this out."""

    def __init__(self, number: int):
        super().__init__(signal.Signals(number).name)
        self.exit_status = 128 + number


class StopSignals:
    """Takes Ctrl-C and SIGTERM: as a note, or where a run can do without what it is at, at once."""

    def __init__(self) -> None:
        self.number: int | None = None  # of the signal that came
        self._raises = False

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Note signals within, but those that are ignored, as nohup has it."""
        handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            for number, handler in handlers.items():
                if handler is not signal.SIG_IGN:
                    signal.signal(number, self._note)
            yield
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)

    @contextmanager
    def raised(self) -> Iterator[None]:
        """Leave off at once when a signal comes within, or came before.

        Raises:
            Interrupted: one did; it is noted too.
        """
        self._raises = True
        try:
            self.check()
            yield
        finally:
            self._raises = False

    def check(self) -> None:
        """Nothing, where no signal came.

        Raises:
            Interrupted: one did.
        """
        if self.number is not None:
            raise Interrupted(self.number)

    def _note(self, number: int, frame: Any) -> None:
        self.number = number
        if self._raises:
            self._raises = False
            self.check()
