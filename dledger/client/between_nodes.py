"""What nodes ask of each other about groups, over the same API as clients.

A node is asked at several addresses: what clients are told need not lead there from another node.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from collections.abc import Set as AbstractSet
from typing import TypeVar

from dledger.client.stubs import LogStubs
from dledger.common.errors import Code, DLedgerError, Unavailable
from dledger.common.types import META_GROUP, NodeId, Role
from dledger.rpc.client.channels import Channels, Endpoint
from dledger.rpc.client.failures import unary
from dledger.rpc.client.retry import PASSING
from dledger.v1 import admin_pb2

ASK_TIMEOUT_MS = 2_000.0
"""Of one node. What no answer came to is asked again."""
SEAL_TIMEOUT_MS = 6_000.0
"""Of one node: a little more than a leader gives a change to be committed."""

NOT_THE_LEADER = PASSING | {Code.UNKNOWN_CLUSTER}
"""Refusals after which the next node is asked."""
SEALED_ELSEWHERE = NOT_THE_LEADER | {Code.GROUP_SEALED}
"""The same of a seal: a node without a replica says by the directory that the group is being removed."""

Answer = TypeVar("Answer")


class OtherNodes:
    """The way to the leaders of groups: the nodes at ``addresses`` are asked one after the other, until one answers as
    the leader does. Raises its refusal, or the last reason why nobody did."""

    async def seal(self, addresses: Iterable[str], cluster_id: str, group: str) -> None:
        """The first step of a group's removal. Returns when the group's leader has refused every append for good, and
        that is committed."""
        request = admin_pb2.SealGroupRequest(group=group, cluster_id=cluster_id)

        async def ask(endpoint: Endpoint) -> None:
            await unary(endpoint, endpoint.stub(LogStubs).admin.SealGroup, request, SEAL_TIMEOUT_MS)

        await _in_turn(addresses, ask, SEALED_ELSEWHERE)

    async def members_of_cluster(self, addresses: Iterable[str], cluster_id: str) -> dict[NodeId, str]:
        """All nodes of the cluster, and where other nodes reach them: the members of ``meta``, as its leader knows
        them."""
        request = admin_pb2.StatusRequest(group=META_GROUP)

        async def ask(endpoint: Endpoint) -> dict[NodeId, str]:
            told = await unary(endpoint, endpoint.stub(LogStubs).admin.Status, request, ASK_TIMEOUT_MS)
            if told.role != Role.LEADER.value or told.cluster_id != cluster_id:
                raise Unavailable(f"{endpoint.address} does not lead {META_GROUP!r}")
            return {NodeId(each.id): each.peer_address for each in told.members}

        return await _in_turn(addresses, ask)


async def _in_turn(
    addresses: Iterable[str], ask: Callable[[Endpoint], Awaitable[Answer]], passing: AbstractSet[Code] = NOT_THE_LEADER
) -> Answer:
    failure: DLedgerError = Unavailable("no address of another node is known yet")
    channels = Channels()
    try:
        for address in dict.fromkeys(addresses):
            try:
                return await ask(channels.at(address))
            except DLedgerError as refusal:
                if refusal.code not in passing:
                    raise
                failure = refusal
    finally:
        await channels.close()
    raise failure
