"""Ctrl-C and SIGTERM while a run goes on: it stops where it can be saved."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Interrupted(Exception):  # noqa: N818  (no error: it was asked for)
    """The run was asked to stop (Ctrl-C, SIGTERM); its state is saved."""

    def __init__(self, number: int):
        super().__init__(signal.Signals(number).name)
        self.exit_status = 128 + number


class StopSignals:
    """Notes that a signal came."""

    def __init__(self) -> None:
        self.number: int | None = None  # of the signal that came
        self._raises = False

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Note signals within, instead of what they would do."""
        numbers = signal.SIGINT, signal.SIGTERM
        handlers = {number: signal.signal(number, self._note) for number in numbers}
        try:
            yield
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)

    @contextmanager
    def raised(self) -> Iterator[None]:
        """Leave off at once when a signal comes within, which is also noted.

        Raises:
            Interrupted: one came.
        """
        self._raises = True
        try:
            yield
        finally:
            self._raises = False

    def _note(self, number: int, frame: Any) -> None:
        self.number = number
        if self._raises:
            self._raises = False
            raise Interrupted(number)
