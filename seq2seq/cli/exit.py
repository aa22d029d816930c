"""How a script ends: one line for what a user can change, and a status that always means the same.

======  ===========================================================================
status  meaning
======  ===========================================================================
0       done
1       a fault in the program, with its traceback
2       refused: a setting, a file or the machine; one line on stderr says what to do
3       ``reproduce.py`` alone: the runs are not equal; stdout says where they part
130     stopped by Ctrl-C
141     nobody reads the output any more, as after ``| head``
143     stopped by SIGTERM
======  ===========================================================================

Knows nothing of settings: that is ``command_line``'s, which imports this before anything else.
"""

import io
import logging
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn

REFUSED = 2
CLOSED_OUTPUT = 128 + 13  # SIGPIPE, which Windows does not have
_stopped_by: list[int] = []  # the signals that have come since ``orderly`` began


def _is_script() -> bool:
    """Whether this process runs a file of ``scripts/``, and not a test or somebody's notebook."""
    started = getattr(sys.modules["__main__"], "__file__", None) or ""
    return Path(started).absolute().parent == Path(__file__).absolute().parents[2] / "scripts"


# Python answers Ctrl-C with the traceback of whatever import it interrupts. Until the work begins
# there is nothing to tidy up: the signal may end the process, as it ends any other program.
if _is_script() and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)

# Where it was not installed by way of pip, which would have refused too.
if _is_script() and not (3, 11) <= sys.version_info < (3, 14):
    print(
        "error: Python 3.11 to 3.13 is needed, this is {}.{}: make an environment with one of "
        "these, as with make PYTHON=python3.12 train.".format(*sys.version_info),
        file=sys.stderr,
    )
    raise SystemExit(REFUSED)


def refuse(error: Exception, text: str) -> NoReturn:
    """Say in one line what is wrong, and leave.

    Raises:
        SystemExit: always.
    """
    if _stopped_by:  # inside a library, which made an error of its own of it
        raise SystemExit(128 + _stopped_by[0]) from error
    if isinstance(error, BrokenPipeError):  # there is no other pipe than stdout
        _lose_output(error)
    _finish_output()
    print(f"error: {' '.join(text.split())}", file=sys.stderr)
    raise SystemExit(REFUSED) from error


def write(text: str) -> None:
    """Lines for stdout, at once.

    Raises:
        SystemExit: they cannot be written.
    """
    try:
        print(text, flush=True)
    except OSError as error:
        _lose_output(error)


@contextmanager
def orderly() -> Iterator[None]:
    """Within, a signal leaves by way of every ``finally``; and the output is UTF-8 and arrives.

    Raises:
        SystemExit: Ctrl-C, SIGTERM, or the output cannot be written.
    """
    # A log file on a full disk would print a traceback for each line; what is lost, the checkpoint
    # or the journal will tell.
    logging.raiseExceptions = False
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    _stopped_by.clear()
    for number, handler in handlers.items():
        if handler is not signal.SIG_IGN:  # as nohup has it
            signal.signal(number, _stop)
    if isinstance(sys.stdout, io.TextIOWrapper):
        # UTF-8 and LF, whatever the locale and the platform.
        sys.stdout.reconfigure(encoding="utf-8", newline="\n")
    try:
        yield
    except Exception:
        # Somebody's ``finally`` failed on what the signal left half made: that is no fault to tell.
        if _stopped_by:
            raise SystemExit(128 + _stopped_by[0]) from None
        raise
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        _finish_output()


def _stop(number: int, frame: Any) -> NoReturn:
    _stopped_by.append(number)
    raise SystemExit(128 + number)


def _finish_output() -> None:
    """Write what is still in the buffer of stdout now, when a failure can still be told."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as error:
        _lose_output(error)


def _lose_output(error: OSError) -> NoReturn:
    """Leave, as nothing can be written to stdout."""
    with suppress(OSError):
        # What is left in the buffer goes nowhere; Python would try once more and complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if isinstance(error, BrokenPipeError):
        raise SystemExit(CLOSED_OUTPUT) from None
    refuse(ValueError(), f"standard output cannot be written ({error.strerror}); free some space.")
