"""How a command runs and how it ends: the loop, the exit codes, one line on stderr."""

from __future__ import annotations

import asyncio
import gc
import re
import sys
import traceback
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import click
import uvloop

from dledger.cli.streams import OutputError, discard_output
from dledger.common.errors import MAX_QUOTED_CHARS, DLedgerError

Result = TypeVar("Result")

_GC_THRESHOLDS = (20_000, 20, 50)
"""Of every command, a node's too. A batch leaves no cycles behind, reference counts free it, and each look for some
stops the loop: seldom is often enough."""

_LONG_QUOTE = re.compile(rf"('[^']{{{MAX_QUOTED_CHARS}}})[^']+'")
"""What was typed, as click repeats it: whole."""

EXIT_OK = 0
EXIT_BAD = 1
EXIT_USAGE = 2
EXIT_UNAVAILABLE = 3
EXIT_UNKNOWN = 4
EXIT_BUG = 5
EXIT_OUTPUT = 6
EXIT_INTERRUPTED = 130


class ReaderGoneError(Exception):
    """The reader of our output has had enough: not a failure. Click ends the process with 1 for a BrokenPipeError."""


def run(coroutine: Coroutine[Any, Any, Result]) -> Result:
    """Runs a command's coroutine to its end on uvloop; Ctrl-C cancels it and raises KeyboardInterrupt.

    The first failure of a task group is raised in its stead."""
    gc.freeze()  # what was imported stays
    gc.set_threshold(*_GC_THRESHOLDS)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(coroutine)
    except BaseExceptionGroup as several:
        raise first_of(several) from several


def first_of(several: BaseExceptionGroup[BaseException]) -> BaseException:
    """The failure that ended a task group: the first, the others being its consequences."""
    first = several.exceptions[0]
    return first_of(first) if isinstance(first, BaseExceptionGroup) else first


def complain(sentence: object) -> None:
    """The one line on stderr that says why a command failed."""
    click.echo(f"dledger: {' '.join(str(sentence).split())}", err=True)


def exit_code_of(command: Callable[[], object]) -> int:
    """Runs ``command`` and says how it ended, by the table of exit codes; every failure is told on stderr.

    A command ends early with a code of its own by ``click.exceptions.Exit``.
    """
    try:
        result = command()
        sys.stdout.flush()
    except DLedgerError as failure:
        complain(failure)
        return failure.exit_code
    except click.exceptions.NoArgsIsHelpError as failure:
        click.echo(failure.format_message(), err=True)
        return EXIT_USAGE
    except click.ClickException as failure:
        complain(_usage_sentence(failure))
        return EXIT_USAGE
    except (BrokenPipeError, ReaderGoneError):
        discard_output()
        return EXIT_OK
    except OutputError as failure:
        discard_output()
        sequel = "what was done stands, its output is incomplete: send it where it can be written"
        complain(f"stdout cannot be written: {failure.strerror}; {sequel}")
        return EXIT_OUTPUT
    except OSError as failure:
        discard_output()
        complain(f"{failure.filename}: {failure.strerror}" if failure.filename else failure)
        return EXIT_USAGE
    except (KeyboardInterrupt, asyncio.CancelledError, click.Abort):
        return EXIT_INTERRUPTED
    except Exception as bug:  # noqa: BLE001  # the outermost frame: told in full, with an exit code
        traceback.print_exc()
        complain(f"this is a bug ({type(bug).__name__}: {bug}); please report it with the lines above")
        return EXIT_BUG
    return result if isinstance(result, int) else EXIT_OK


def _usage_sentence(failure: click.ClickException) -> str:
    message = _LONG_QUOTE.sub(r"\1…'", failure.format_message())
    context = getattr(failure, "ctx", None)
    return f"{message} See '{context.command_path} --help'." if context is not None else message
