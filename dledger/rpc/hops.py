"""Metadata of calls: their way from node to node, and the leader in a refusal."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dledger.common.errors import Code, DLedgerError, error, quoted

HOPS = "dledger-hops"
"""How often the call may still be sent on. Absent: as often as the node asked likes."""
CLUSTER_ID = "dledger-cluster-id"
"""Of the sending node: an address may have come to lead to another cluster."""
LEADER_ID = "dledger-leader-id"
LEADER_ADDRESS = "dledger-leader-address"

DIRECTLY = ((HOPS, "0"),)
"""For a caller with a search for the leader of its own: only the node asked answers, and refuses."""

_CONTROLS = frozenset({HOPS, CLUSTER_ID})


def controls(metadata: Iterable[tuple[str, Any]] | None) -> dict[str, str]:
    """The part of a call's metadata about its way."""
    return {name: value for name, value in metadata or () if name in _CONTROLS}


def hops_left(told: str | None, most: int) -> int:
    """How often this node may send the call on; ``most`` without a word of the caller's. Raises UNEXPECTED_ARGUMENT."""
    if told is None:
        return most
    if not (told.isascii() and told.isdigit() and len(told) <= 3):
        raise error(Code.UNEXPECTED_ARGUMENT, f"{HOPS} is a number from 0 on, not {quoted(told)}")
    return min(int(told), most)


def leader_metadata(refusal: DLedgerError) -> tuple[tuple[str, str], ...]:
    """The leader, for callers without a decoder of status details: empty values while none is known, and nothing at all
    with refusals for other reasons."""
    if refusal.code is not Code.NOT_LEADER:
        return ()
    leader_id, address = refusal.metadata.get("leader_id", ""), refusal.metadata.get("leader_address", "")
    return (LEADER_ID, _plain(leader_id)), (LEADER_ADDRESS, _plain(address))


def _plain(value: str) -> str:
    """Metadata are printable ASCII."""
    return value if value.isascii() and value.isprintable() else ""
