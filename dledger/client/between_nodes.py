"""What nodes ask of each other about groups, as clients of their leaders. Every call raises what a client's calls
raise."""

from __future__ import annotations

from collections.abc import Sequence

from dledger.client.client_options import ClientOptions
from dledger.client.log import Log
from dledger.common.types import META_GROUP, NodeId
from dledger.v1 import directory_pb2

TELL_TIMEOUT_MS = 2_000.0
"""Of what is told again when no answer came."""


class OtherNodes:
    """The way to the leaders of groups, over the nodes at ``endpoints``."""

    async def seal(self, endpoints: Sequence[str], group: str) -> None:
        """The first step of a group's removal. Returns when the group's leader has refused every append for good, and
        that is committed."""
        async with Log(endpoints, ClientOptions(group=group)) as log:
            await log.admin.seal()

    async def record_members(self, endpoints: Sequence[str], command: directory_pb2.RecordMembersCommand) -> None:
        """Returns when the directory has it."""
        async with Log(endpoints, ClientOptions(group=META_GROUP)) as log:
            await log.admin.record_members(command, timeout_ms=TELL_TIMEOUT_MS)

    async def members_of_cluster(self, endpoints: Sequence[str]) -> dict[NodeId, str]:
        """All nodes of the cluster, and where other nodes reach them: the members of ``meta``, as its leader knows
        them."""
        async with Log(endpoints, ClientOptions(group=META_GROUP)) as log:
            told = await log.metadata()
        return {NodeId(each.id): each.peer_address for each in told.members}
