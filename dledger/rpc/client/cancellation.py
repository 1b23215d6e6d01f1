"""The end of a call when its client is closed, and how it is told from a cancellation of the caller's own."""

from __future__ import annotations

from dledger.common.errors import Code, DLedgerError, error


def client_closed() -> DLedgerError:
    """For a call that surely was not carried out, or changes nothing; others end with OutcomeUnknown."""
    return error(Code.SHUTTING_DOWN, "the client was closed: connect again to go on")


def task_cancelled() -> DLedgerError:
    """A task of the client's own was cancelled by the program, which cancelled all tasks of its loop perhaps."""
    return error(
        Code.SHUTTING_DOWN, "a task of the client was cancelled by the program: call again to begin another one"
    )
