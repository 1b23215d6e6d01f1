"""``dledger.Node``: a node of a cluster inside your own program, without a network between the program and its log.

It holds a replica of the groups that it is a member of, as one that ``dledger serve`` runs does. It serves clients at
its port, and has no /metrics. Its own log is the group `default`; ``Node.group`` gives another one.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import Self

from dledger.client.arguments import check_group
from dledger.common.config import NodeConfig
from dledger.common.errors import DLedgerError
from dledger.common.logs import setup_default_logging
from dledger.common.own_name import check_own_name
from dledger.common.types import DEFAULT_GROUP, Ack, Consistency, Entry, NodeId, Role, Term
from dledger.group.leader.quorum_ack_checker import AppendResult
from dledger.node.opening import AnyReplica
from dledger.server.client_port import ClientPort
from dledger.server.cluster_node import ClusterNode
from dledger.server.forwarding import IN_PROCESS, RefusedCall
from dledger.v1 import log_pb2

RoleListener = Callable[[str, Role, Term, NodeId], None]
"""(group, role, term, leader_id)."""
_ON_THE_WIRE = {
    Consistency.LINEARIZABLE: log_pb2.CONSISTENCY_LINEARIZABLE,
    Consistency.COMMITTED: log_pb2.CONSISTENCY_COMMITTED,
}


class NodeLog:
    """The log of one group, on this node. Another node answers a call that this one may not answer.

    All methods raise UNKNOWN_GROUP, and Unavailable while the cluster is being founded. The properties raise nothing.
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
        """One record, committed. If ``expect_index`` is given, raises WrongExpectedIndex unless the record gets that
        index. Raises NotLeader while no leader can be asked, PendingFull, DiskFull, and OutcomeUnknown when leadership
        is lost."""
        return (await self.append_many([record], expect_index=expect_index))[0]

    async def append_many(self, records: Sequence[bytes], *, expect_index: int | None = None) -> list[Ack]:
        """Records that share one frame: all are committed or none. Raises as ``append``; ``expect_index`` is that of
        the first."""
        try:
            appender = (await self._node.find_for_users(self._group)).appender
            result: AppendResult | log_pb2.AppendResponse
            result = await appender.append_records(records, expect_index=expect_index)
        except DLedgerError as refusal:
            request = log_pb2.AppendRequest(group=self._group, records=records, expect_index=expect_index)
            result = await self._node.forwarder.unary(self._refused("Append", refusal), request, log_pb2.AppendResponse)
        return [Ack(result.base_index + ordinal, result.term, result.timestamp_ms) for ordinal in range(result.count)]

    async def get(self, index: int, consistency: Consistency = Consistency.LINEARIZABLE) -> Entry:
        """Raises OutOfRange, and NotLeader while no leader can be asked."""
        try:
            reader = (await self._node.find(self._group)).reader
            return await reader.get(index, await reader.read_point(consistency))
        except DLedgerError as refusal:
            request = log_pb2.GetRequest(group=self._group, index=index, consistency=_ON_THE_WIRE[consistency])
            found = await self._node.forwarder.unary(self._refused("Get", refusal), request, log_pb2.GetResponse)
        return _entry(found.entry)

    async def read(
        self, start: int = 0, *, follow: bool = False, consistency: Consistency = Consistency.LINEARIZABLE
    ) -> AsyncGenerator[Entry, None]:
        """Committed records from ``start`` on, in order; up to those committed at the call, or for ever."""
        has_begun = False
        try:
            reader = (await self._node.find(self._group)).reader
            point = await reader.read_point(consistency)
            async for entry in reader.records(start, point, follow=follow):
                has_begun = True
                yield entry
        except DLedgerError as refusal:
            if has_begun:
                raise
            request = log_pb2.ReadRecordsRequest(
                group=self._group, start_index=start, follow=follow, consistency=_ON_THE_WIRE[consistency]
            )
            async with aclosing(self._node.forwarder.read(self._refused("ReadRecords", refusal), request)) as answers:
                async for answer in answers:
                    yield _entry(log_pb2.ReadRecordsResponse.FromString(answer).entry)

    def _refused(self, method: str, refusal: DLedgerError) -> RefusedCall:
        return RefusedCall(method, self._group, refusal, IN_PROCESS)

    async def bounds(self, consistency: Consistency = Consistency.LINEARIZABLE) -> tuple[int, int]:
        """The first index and the commit index (−1: nothing committed). Raises NotLeader for a linearizable read
        elsewhere."""
        replica = await self._node.find(self._group)
        point = await replica.reader.read_point(consistency)
        return replica.log.state.first_index, point.commit_index


class Node:
    """``async with Node(config) as node``, or ``start`` and ``stop``. A node is started once."""

    def __init__(self, config: NodeConfig, *, serves_clients: bool = True) -> None:
        """Without ``serves_clients`` the node listens on its port for nodes alone. While it leads, the other nodes then
        refuse calls with NOT_LEADER. It sends on its own calls all the same. Raises CONFIG_ERROR."""
        self._config = config
        self._inner = ClusterNode(config)
        self._serves_clients = serves_clients
        self._port: ClientPort | None = None

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
        inner = self._inner
        try:
            await inner.open()
            if self._serves_clients:  # taken before it joins: a node that nobody can ask must not stand for election
                self._port = await ClientPort.take(inner)
            await inner.join()
            if self._port is not None:
                await self._port.open()
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Commits pending records, hands leaderships over, syncs and closes. Clients are told first, so they move to
        the next leader. Safe to call again."""
        port, self._port = self._port, None
        try:
            if port is not None:
                await self._inner.leave()
                await port.close()
        finally:
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


def _entry(entry: log_pb2.Entry) -> Entry:
    return Entry(entry.index, entry.term, entry.timestamp_ms, entry.value)
