"""How a script exits: one line for what a user can change, and a status with one meaning each.

======  ==================================================================================
status  meaning
======  ==================================================================================
0       done
1       a bug in the program, with its traceback
2       refused: a setting, a file or the machine; one line on stderr says what to do
3       only ``reproduce.py``: the runs differ; stdout says where they diverge
130     stopped by Ctrl-C
141     output pipe closed (SIGPIPE), for example by ``| head``
143     stopped by SIGTERM
======  ==================================================================================

Knows nothing of settings. Imports no third-party package, so that a script can call ``begin``
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
    """Start a script: refuse an unsupported Python, and let Ctrl-C end the imports quietly.

    Raises:
        SystemExit: this Python is not supported; pip would have refused it too.
    """
    if not (3, 11) <= sys.version_info < (3, 14):
        print(
            "error: Python 3.11 to 3.13 is needed, this is {}.{}: create an environment with one "
            "of these, for example by make PYTHON=python3.12 train.".format(*sys.version_info),
            file=sys.stderr,
        )
        raise SystemExit(REFUSED)
    # Python answers Ctrl-C with the traceback of whichever import it interrupts. There is nothing
    # to clean up yet: the signal may end the process, as it ends any other program.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def refuse(error: Exception, text: str) -> NoReturn:
    """Print what is wrong on one line, and exit.

    Raises:
        SystemExit: always.
    """
    if _received:  # inside a library, which turned the SystemExit into an error of its own
        raise SystemExit(128 + _received[0]) from error
    if isinstance(error, BrokenPipeError):  # the scripts write to no other pipe than stdout
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
    """Within the block, a signal exits through every ``finally``, and output is flushed UTF-8.

    Raises:
        SystemExit: Ctrl-C, SIGTERM, or the output cannot be written.
    """
    # Logging to a full disk would print a traceback for each line. The checkpoint or the journal,
    # which cannot be written either, reports the problem.
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
    """Write what is left in the buffer of stdout now, while a failure can still be reported."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as error:
        _exit_without_output(error)


def _exit_without_output(error: OSError) -> NoReturn:
    """Exit because stdout cannot be written."""
    with suppress(OSError):
        # Discard what is left in the buffer: Python would try to write it once more and complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if isinstance(error, BrokenPipeError):
        raise SystemExit(CLOSED_OUTPUT) from None
    refuse(ValueError(), f"standard output cannot be written ({error.strerror}); free some space.")
