"""How a script exits: one line for errors of the user, and exit statuses with fixed meanings.

======  ==================================================================================
status  meaning
======  ==================================================================================
0       success
1       a bug in the program, with its traceback
2       refused: a setting, a file or the machine; one line on stderr says what to do
3       only ``reproduce.py``: the runs differ; stdout says where they diverge
130     stopped by Ctrl-C
141     output pipe closed (SIGPIPE), for example by ``| head``
143     stopped by SIGTERM
======  ==================================================================================

Independent of settings. Imports only the standard library, so that a script can call ``begin``
before the imports that take seconds.
"""

import io
import logging
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, NoReturn

from seq2seq.signals import handle_stop_signals

REFUSED = 2
CLOSED_OUTPUT = 128 + 13  # SIGPIPE, which Windows does not have
_received: list[int] = []  # signals received since ``orderly_exit`` began


def begin() -> None:
    """Start a script: refuse an unsupported Python, and let Ctrl-C stop the imports quietly.

    Raises:
        SystemExit: this Python version is not supported.
    """
    if not (3, 11) <= sys.version_info < (3, 14):
        print(
            "error: Python 3.11 to 3.13 is needed, this is {}.{}: create an environment with one "
            "of these, for example by make PYTHON=python3.12 train.".format(*sys.version_info),
            file=sys.stderr,
        )
        raise SystemExit(REFUSED)
    # By default, Ctrl-C prints a traceback of the import that it interrupts. There is nothing to
    # clean up yet, so the signal may simply end the process.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def refuse(error: Exception, text: str) -> NoReturn:
    """Print an error on one line, and exit.

    Raises:
        SystemExit: always.
    """
    if _received:  # a library turned the SystemExit into its own error
        raise SystemExit(128 + _received[0]) from error
    if isinstance(error, BrokenPipeError):  # stdout is the only pipe that the scripts write to
        _exit_without_output(error)
    _flush_output()
    print(f"error: {' '.join(text.split())}", file=sys.stderr)
    raise SystemExit(REFUSED) from error


def write(text: str) -> None:
    """Print lines on stdout immediately.

    Raises:
        SystemExit: they cannot be written.
    """
    try:
        print(text, flush=True)
    except OSError as error:
        _exit_without_output(error)


@contextmanager
def orderly_exit() -> Iterator[None]:
    """Make signals exit through every ``finally`` of the block; write UTF-8, and flush it.

    Raises:
        SystemExit: Ctrl-C, SIGTERM, or the output cannot be written.
    """
    # Logging to a full disk would print a traceback for each line. The problem is reported when
    # the checkpoint or the journal cannot be written.
    logging.raiseExceptions = False
    _received.clear()
    if isinstance(sys.stdout, io.TextIOWrapper):
        # UTF-8 and LF, whatever the locale and the platform.
        sys.stdout.reconfigure(encoding="utf-8", newline="\n")
    try:
        with handle_stop_signals(_exit):
            yield
    except Exception:
        # A ``finally`` block failed because the signal interrupted setup; not worth a traceback.
        if _received:
            raise SystemExit(128 + _received[0]) from None
        raise
    finally:
        _flush_output()


def _exit(number: int, frame: Any) -> NoReturn:
    _received.append(number)
    raise SystemExit(128 + number)


def _flush_output() -> None:
    """Flush stdout now, while a failure can still be reported."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as error:
        _exit_without_output(error)


def _exit_without_output(error: OSError) -> NoReturn:
    """Exit because stdout cannot be written."""
    with suppress(OSError):
        # Discard the buffer, which Python would otherwise try to write again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if isinstance(error, BrokenPipeError):
        raise SystemExit(CLOSED_OUTPUT) from None
    refuse(ValueError(), f"standard output cannot be written ({error.strerror}); free some space.")
