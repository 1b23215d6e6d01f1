"""The outcome of a call after this node sent it on to another one. Decisions, without IO.

This node hands the other node's answer or refusal to the caller. If the other node said nothing, the caller must not
take it for a refusal: the other node may have carried the call out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from dledger.common.errors import Code, DLedgerError, error
from dledger.rpc.client.failures import from_rpc, is_of_grpc
from dledger.rpc.client.rpc_failure import RpcFailure
from dledger.rpc.status import StatusCode

MOST_HOPS = {Code.NOT_LEADER: 1, Code.NOT_HERE: 2}
"""How often a call is sent on, by why this node does not answer it: a member of the group knows the leader, another
node knows a member."""
CHANGES = frozenset({"Append", "AppendStream", "InitProducer", "AppendCommands"})
"""Methods that change the log: without an answer, their outcome is unknown."""
NOT_DONE = frozenset({Code.NOT_LEADER, Code.NOT_HERE, Code.UNKNOWN_CLUSTER})
"""Refusals by which another node surely did nothing: a further node may be asked."""


class Address(NamedTuple):
    """Where another node may be reached."""

    node_id: str
    address: str


def in_order(addresses: Iterable[Address], own: str, failed: Callable[[str], bool]) -> list[Address]:
    """Each once, and never this node's ``own``. Those that ``failed`` the last time come last."""
    known: dict[str, Address] = {}
    for each in addresses:
        known.setdefault(each.address, each)
    known.pop(own, None)
    return sorted(known.values(), key=lambda each: failed(each.address))


def verdict(failure: RpcFailure, method: str, address: str) -> DLedgerError | None:
    """The error for the caller; None when the other node surely did not begin the call."""
    if not failure.was_sent:
        return None
    said = from_rpc(failure, address)
    if not is_of_grpc(said):
        return said
    if failure.status is StatusCode.UNIMPLEMENTED:  # it runs an earlier version
        return None
    is_late = failure.status is StatusCode.DEADLINE_EXCEEDED
    text = f"the call was sent on to {address}, and no answer came back ({failure.details})"
    if method not in CHANGES:
        return error(Code.TIMEOUT if is_late else Code.NETWORK_ERROR, f"{text}: ask again")
    code = Code.WAIT_QUORUM_ACK_TIMEOUT if is_late else Code.TERM_CHANGED
    return error(code, f"{text}: whether it was carried out is not known")


def not_sent(refusal: DLedgerError, why: str) -> DLedgerError:
    """``refusal``, which names the leader, once more: this node could not send the call on."""
    text = f"{refusal}; it cannot be reached from this node ({why})" if why else str(refusal)
    return error(refusal.code, text, **refusal.metadata)
