"""When to ask again: the refusals that pass by themselves, and those after which another node may know better."""

from __future__ import annotations

from dledger.common.errors import Code

PASSING = frozenset(
    {
        Code.NOT_LEADER,
        Code.NOT_HERE,
        Code.LEADER_NOT_READY,
        Code.LEADER_TRANSFERRING,
        Code.LEADER_PENDING_FULL,
        Code.SHUTTING_DOWN,
        Code.NETWORK_ERROR,
        Code.TIMEOUT,
        Code.WAIT_QUORUM_ACK_TIMEOUT,
        Code.TERM_CHANGED,
        Code.DISK_ERROR,
        Code.INTERNAL_ERROR,
    }
)
"""The codes after which a read asks again, of the leader at that time."""

ASKS_ELSEWHERE = PASSING - {Code.LEADER_PENDING_FULL, Code.LEADER_NOT_READY}
"""The codes after which the node asked may not be the leader any more."""

NOT_THIS_NODE = frozenset({Code.NOT_LEADER, Code.NOT_HERE})
"""The codes by which a node says it is the wrong one to ask. A call for that very node will not pass."""
