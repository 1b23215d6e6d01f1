"""``dledger.Node``: a node of a cluster inside your own program, without a network between the program and its log.

It holds a replica of the groups that it is a member of, as one that ``dledger serve`` runs does. It has no port for
clients and no /metrics. Its own log is the group `default`; ``Node.group`` gives another one.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Self

from dledger.client.arguments import check_group
from dledger.common.config import NodeConfig
from dledger.common.errors import DLedgerError
from dledger.common.logs import setup_default_logging
from dledger.common.own_name import check_own_name
from dledger.common.types import DEFAULT_GROUP, Ack, Consistency, Entry, NodeId, Role, Term
from dledger.node.opening import AnyReplica
from dledger.server.cluster_node import ClusterNode

RoleListener = Callable[[str, Role, Term, NodeId], None]
"""(group, role, term, leader_id)."""


class NodeLog:
    """The log of one group, on this node. Appends, and reads that are linearizable, are for the group's leader.

    All methods raise UNKNOWN_GROUP; NOT_HERE if this node has no replica of the group; and Unavailable while the
    cluster is being founded. The properties raise nothing.
    """

    def __init__(self, node: ClusterNode, group: str) -> None:
        self._node = node
        self._group = group

    @property
    def role(self) -> Role:
        """Of this node in the group: FOLLOWER also before there is a replica here."""
        replica = self._replica
        return replica.role if replica is not None else Role.FOLLOWER

    @property
    def leader_id(self) -> str:
        """Empty when none is known."""
        replica = self._replica
        return replica.leader_id if replica is not None else ""

    @property
    def term(self) -> int:
        """Of the election that is known here to be the latest; 0 before the first."""
        replica = self._replica
        return replica.term if replica is not None else 0

    @property
    def _replica(self) -> AnyReplica | None:
        groups = self._node.groups
        return groups.present(self._group) if groups.is_open(self._group) else None

    async def append(self, record: bytes, *, expect_index: int | None = None) -> Ack:
        """One record, committed. Raises NotLeader, PendingFull, DiskFull; OutcomeUnknown when leadership is lost; and
        WrongExpectedIndex unless the record gets the index ``expect_index``, where one is given."""
        return (await self.append_many([record], expect_index=expect_index))[0]

    async def append_many(self, records: Sequence[bytes], *, expect_index: int | None = None) -> list[Ack]:
        """Records that share one frame: all are committed or none. Raises as ``append``; ``expect_index`` is that of
        the first."""
        appender = (await self._node.find_for_users(self._group)).appender
        result = await appender.append_records(records, expect_index=expect_index)
        return [Ack(result.base_index + ordinal, result.term, result.timestamp_ms) for ordinal in range(result.count)]

    async def get(self, index: int, consistency: Consistency = Consistency.LINEARIZABLE) -> Entry:
        """Raises OutOfRange, and NotLeader for a linearizable read elsewhere."""
        reader = (await self._node.find(self._group)).reader
        return await reader.get(index, await reader.read_point(consistency))

    async def read(
        self, start: int = 0, *, follow: bool = False, consistency: Consistency = Consistency.LINEARIZABLE
    ) -> AsyncGenerator[Entry, None]:
        """Committed records from ``start`` on, in order; up to those committed at the call, or for ever."""
        reader = (await self._node.find(self._group)).reader
        point = await reader.read_point(consistency)
        async for entry in reader.records(start, point, follow=follow):
            yield entry

    async def bounds(self, consistency: Consistency = Consistency.LINEARIZABLE) -> tuple[int, int]:
        """The first index and the commit index (−1: nothing committed). Raises NotLeader for a linearizable read
        elsewhere."""
        replica = await self._node.find(self._group)
        point = await replica.reader.read_point(consistency)
        return replica.log.state.first_index, point.commit_index


class Node:
    """``async with Node(config) as node``, or ``start`` and ``stop``. A node is started once."""

    def __init__(self, config: NodeConfig) -> None:
        """Raises CONFIG_ERROR."""
        self._config = config
        self._inner = ClusterNode(config)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    @property
    def config(self) -> NodeConfig:
        """As it was given."""
        return self._config

    async def start(self) -> None:
        """Opens the data directory, recovers the log and joins the others. Nobody may lead yet when it returns.

        Raises CONFIG_ERROR: the directory is in use or another node's, a port is in use, or the node was started
        before. Raises CORRUPT_LOG for rot beyond repair, or with nobody there to repair it: nothing is cut.
        """
        setup_default_logging()
        await check_own_name(self._config.listen_host, self._config.peer_port)  # before the data directory is made
        await self._inner.start()

    async def stop(self) -> None:
        """Commits what is pending, hands leaderships over, syncs and closes. Safe to call again."""
        await self._inner.stop()

    async def failed(self) -> DLedgerError:
        """Returns when the node cannot go on (disk failure, divergence): the host should stop it and say why."""
        return await self._inner.failed()

    def add_listener(self, listener: RoleListener) -> None:
        """``listener(group, role, term, leader_id)`` is told of every later change in every group of this node, `meta`
        among them: on the event loop, in order. It must not block. Added before ``start``, it misses nothing."""
        groups = self._inner.groups
        self._inner.add_listener(lambda key, role, term, leader: listener(groups.name_of(key), role, term, leader))

    def group(self, name: str = DEFAULT_GROUP) -> NodeLog:
        """The log of the group. Raises UNEXPECTED_ARGUMENT for what is no group's name. Whether there is such a group
        is told at its first use."""
        check_group(name)
        return NodeLog(self._inner, name)

    async def create_group(self, name: str, members: Sequence[str] = ()) -> None:
        """Makes a group of these nodes, by default of those that vote in `meta`; its members open it a moment later.
        For the leader of `meta`: elsewhere it raises NotLeader. Raises GroupExists, UNKNOWN_MEMBER, CHANGE_REFUSED, and
        the errors of an append."""
        check_group(name)
        await self._inner.directory.create(name, [NodeId(each) for each in members])

    # The log `default` -------------------------------------------------------------------------------------------

    @property
    def role(self) -> Role:
        """As ``NodeLog.role``, of the group `default`."""
        return self.group().role

    @property
    def leader_id(self) -> str:
        """As ``NodeLog.leader_id``, of the group `default`."""
        return self.group().leader_id

    @property
    def term(self) -> int:
        """As ``NodeLog.term``, of the group `default`."""
        return self.group().term

    async def append(self, record: bytes, *, expect_index: int | None = None) -> Ack:
        """As ``NodeLog.append``, to the group `default`."""
        return await self.group().append(record, expect_index=expect_index)

    async def append_many(self, records: Sequence[bytes], *, expect_index: int | None = None) -> list[Ack]:
        """As ``NodeLog.append_many``, to the group `default`."""
        return await self.group().append_many(records, expect_index=expect_index)

    async def get(self, index: int, consistency: Consistency = Consistency.LINEARIZABLE) -> Entry:
        """As ``NodeLog.get``, of the group `default`."""
        return await self.group().get(index, consistency)

    def read(
        self, start: int = 0, *, follow: bool = False, consistency: Consistency = Consistency.LINEARIZABLE
    ) -> AsyncGenerator[Entry, None]:
        """As ``NodeLog.read``, of the group `default`."""
        return self.group().read(start, follow=follow, consistency=consistency)
