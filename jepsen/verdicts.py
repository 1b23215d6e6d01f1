"""What came of an append, as far as the client can swear to it. A false "failed" cannot be written down.

``Failed`` is made of a ``SurelyNot`` alone, and that enum holds the refusals after which nothing was appended; every
other failure, known or new, is ``Unknown``.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from dledger.common.errors import Code, DeadlineExceeded, DLedgerError, OutcomeUnknown
from dledger.rpc.client.failures import was_sent


class SurelyNot(Enum):
    """Refusals before anything was written."""

    NOT_LEADER = Code.NOT_LEADER
    LEADER_NOT_READY = Code.LEADER_NOT_READY
    LEADER_TRANSFERRING = Code.LEADER_TRANSFERRING
    LEADER_PENDING_FULL = Code.LEADER_PENDING_FULL
    DISK_FULL = Code.DISK_FULL
    UNEXPECTED_ARGUMENT = Code.UNEXPECTED_ARGUMENT
    RECORD_TOO_LARGE = Code.RECORD_TOO_LARGE
    BATCH_TOO_LARGE = Code.BATCH_TOO_LARGE
    NEVER_SENT = Code.TIMEOUT
    """The client had no chance to send it."""


_REFUSALS = {reason.value: reason for reason in SurelyNot if reason is not SurelyNot.NEVER_SENT}


class Acknowledged(NamedTuple):
    """On a majority's disks, from ``first_index`` on."""

    first_index: int
    term: int


class Failed(NamedTuple):
    """It did not happen, and never will."""

    why: SurelyNot


class Unknown(NamedTuple):
    """It may have happened, or happen yet."""

    why: str


Outcome = Acknowledged | Failed | Unknown


def outcome_of_sdk(failure: DLedgerError) -> Failed | Unknown:
    """Of an append through the SDK, which tells what it sent from what it did not."""
    if isinstance(failure, OutcomeUnknown):
        return Unknown(failure.code.value)
    if isinstance(failure, DeadlineExceeded):
        return Failed(SurelyNot.NEVER_SENT)
    return _of_refusal(failure)


def outcome_of_rpc(failure: DLedgerError) -> Failed | Unknown:
    """Of one plain call: what ended without the node's own word may have been done."""
    if failure.code is Code.NETWORK_ERROR and not was_sent(failure):
        return Failed(SurelyNot.NEVER_SENT)
    if failure.code is Code.TIMEOUT:
        return Unknown(failure.code.value)
    return _of_refusal(failure)


def _of_refusal(failure: DLedgerError) -> Failed | Unknown:
    reason = _REFUSALS.get(failure.code)
    return Unknown(failure.code.value) if reason is None else Failed(reason)
