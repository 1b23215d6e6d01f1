"""The meaning of an AppendStream's refusal for the batches in flight. A table, without IO.

A stream is answered in order and ends with its first refusal. So the refusal is about the stream's oldest unanswered
batch. The log takes a producer's next sequence only, so nothing behind this batch was appended either. An end without
such a word leaves the batches **doubtful**: appended or not. It may be a broken stream, a lost term, or a message that
gRPC itself does not take.
"""

from __future__ import annotations

from enum import Enum

from dledger.common.errors import Code, DLedgerError, WrongExpectedIndex
from dledger.rpc.client.failures import is_of_grpc


class Verdict(Enum):
    """What to do."""

    RESEND = "resend everything unanswered, with the same boundaries and sequences"
    RENEW = "nothing was appended: the same records again, under a new producer"
    REFUSE_HEAD = "the oldest batch was refused for good: fail it, the others go on under a new producer"
    REFUSE_EXPECTATION = "the oldest batch expected another index: fail it; the producer goes on with its sequence"
    ABANDON = "this producer cannot go on and what is in flight is doubtful: outcome unknown; a new producer follows"


LEAVE_DOUBT = frozenset(
    {
        Code.NETWORK_ERROR,
        Code.TIMEOUT,
        Code.SHUTTING_DOWN,
        Code.WAIT_QUORUM_ACK_TIMEOUT,
        Code.TERM_CHANGED,
        Code.DISK_ERROR,
        Code.INTERNAL_ERROR,
        Code.CORRUPT_LOG,
        Code.DIVERGED,
    }
)

_FINAL = frozenset(
    {
        Code.UNEXPECTED_ARGUMENT,
        Code.REQUEST_WITH_EMPTY_BODYS,
        Code.RECORD_TOO_LARGE,
        Code.BATCH_TOO_LARGE,
        Code.CORRUPT_BATCH,
        Code.UNSUPPORTED,
        Code.UNKNOWN_GROUP,
        Code.GROUP_SEALED,
        Code.PRODUCER_FENCED,
        Code.SEQUENCE_CONFLICT,
        Code.REPEATED_REQUEST,
    }
)

SAYS_ITSELF = frozenset({Code.SEQUENCE_CONFLICT, Code.REPEATED_REQUEST})
"""Codes that the caller of the oldest batch gets as they are, doubtful or not: they tell more than "unknown".

A fence tells less: the doubtful batch may have been appended before the newer epoch came."""

FOR_ALL = frozenset(
    {
        Code.UNKNOWN_GROUP,
        Code.GROUP_SEALED,
        Code.UNSUPPORTED,
        Code.UNEXPECTED_ARGUMENT,
        Code.UNEXPECTED_MEMBER,
        Code.UNKNOWN_CLUSTER,
        Code.DISK_FULL,
    }
)
"""Codes that, answered before anything is sent, refuse everything queued: it is for the caller to decide on."""


def leaves_doubt(refusal: DLedgerError) -> bool:
    """Whether what was in flight when a stream ended so may have been appended."""
    return refusal.code in LEAVE_DOUBT or is_of_grpc(refusal)


def judge_expectation(refusal: WrongExpectedIndex, expect_index: int, *, doubtful: bool) -> Verdict:
    """Of a conditional append. The log held no batch of its sequence, and ended at another index.

    An earlier attempt that is still on its way cannot succeed any more when the log has passed ``expect_index``. It can
    when the log is still shorter.
    """
    may_come = doubtful and refusal.next_index < expect_index
    return Verdict.ABANDON if may_come else Verdict.REFUSE_EXPECTATION


def judge(code: Code, *, doubtful: bool) -> Verdict:
    """``doubtful``: whether an earlier attempt at the oldest batch left doubt."""
    if code is Code.UNKNOWN_PRODUCER:
        return Verdict.ABANDON if doubtful else Verdict.RENEW
    if code is Code.DISK_FULL:
        return Verdict.RESEND if doubtful else Verdict.REFUSE_HEAD
    if code in _FINAL:
        return Verdict.ABANDON if doubtful else Verdict.REFUSE_HEAD
    return Verdict.RESEND
