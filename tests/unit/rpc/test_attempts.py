"""What the end of a call says that was asked of several nodes."""

from __future__ import annotations

import asyncio
import random

import pytest

from dledger.common.errors import (
    ChangeRefused,
    Code,
    DeadlineExceeded,
    DLedgerError,
    OutcomeUnknown,
    Unavailable,
    UnknownGroup,
    Unsupported,
    error,
)
from dledger.rpc.client.attempts import Attempts
from dledger.rpc.client.failures import from_rpc
from dledger.rpc.client.rpc_failure import RpcFailure
from dledger.rpc.status import StatusCode

DOUBT = error(Code.TERM_CHANGED, "the leader lost its term")
REFUSAL = error(Code.CHANGE_REFUSED, "no quorum would remain")


def untyped(status: StatusCode) -> DLedgerError:
    """As gRPC itself refuses, or something between."""
    return from_rpc(RpcFailure(status, ""), "a:1")


async def test_a_refusal_by_a_node_in_doubt_leaves_the_doubt() -> None:
    """The earlier attempt may still be before it."""
    attempts = Attempts(1_000, random.Random(7), repeatable=True)
    attempts.refused("a:1", DOUBT)
    with pytest.raises(OutcomeUnknown, match="a:1"):
        attempts.refused("a:1", REFUSAL)


async def test_a_refusal_by_the_next_leader_ends_the_doubt() -> None:
    """Whatever the earlier leader may still write is never committed."""
    attempts = Attempts(1_000, random.Random(7), repeatable=True)
    attempts.refused("a:1", DOUBT)
    with pytest.raises(ChangeRefused):
        attempts.refused("b:1", REFUSAL)


async def test_what_may_not_be_done_twice_ends_with_the_first_doubt() -> None:
    attempts = Attempts(1_000, random.Random(7), repeatable=False)
    attempts.refused("a:1", error(Code.LEADER_NOT_READY, "not yet"))
    with pytest.raises(OutcomeUnknown):
        attempts.refused("a:1", DOUBT)


async def test_a_call_that_found_no_connection_was_not_sent() -> None:
    attempts = Attempts(1_000, random.Random(7), repeatable=False)
    attempts.refused("a:1", error(Code.NETWORK_ERROR, "a:1 cannot be reached", sent="no"))
    assert isinstance(attempts.overdue(), Unavailable)


async def test_a_refusal_that_is_no_word_of_the_node_leaves_a_doubt() -> None:
    attempts = Attempts(1_000, random.Random(7), repeatable=False)
    with pytest.raises(OutcomeUnknown, match="PERMISSION_DENIED"):
        attempts.refused("a:1", untyped(StatusCode.PERMISSION_DENIED))


async def test_a_node_that_does_not_know_the_call_has_not_done_it() -> None:
    attempts = Attempts(1_000, random.Random(7), repeatable=True)
    with pytest.raises(Unsupported, match="does not know this call"):
        attempts.refused("a:1", untyped(StatusCode.UNIMPLEMENTED))


async def test_a_search_that_fails_is_no_doubt() -> None:
    attempts = Attempts(1_000, random.Random(7), repeatable=True)
    attempts.refused("", error(Code.NETWORK_ERROR, "no node answers"))
    assert isinstance(attempts.overdue(), Unavailable)
    with pytest.raises(UnknownGroup):
        attempts.refused("", error(Code.UNKNOWN_GROUP, "there is no such group"))


async def test_a_search_ends_with_the_calls_time() -> None:
    attempts = Attempts(10, random.Random(7), repeatable=True)
    with pytest.raises(DeadlineExceeded):
        await attempts.bound(asyncio.Event().wait())
    assert attempts.left_ms == 0
