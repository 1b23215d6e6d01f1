"""A node: one process's identity, its way to the others, and its replica of each group that it has.

The node opens and closes groups as it is told (``open_group``, ``remove_group``), and at a start whatever is on its
disk. One group, ``NodeConfig.group``, is founded from the configuration's peers; its first leader mints the cluster's
id, so no other group is opened before that is committed.

This is also the embedded form: a host program makes a ``Node`` in its own event loop, is told of role changes, and
appends and reads without a network in between. ``dledger serve`` puts gRPC and /metrics in front of the same class.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from collections.abc import Set as AbstractSet
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Self

from dledger.common.batches import in_batches
from dledger.common.closing import unless_cancelled
from dledger.common.config import NodeConfig
from dledger.common.config_checks import validate
from dledger.common.errors import Code, DLedgerError, error, quoted
from dledger.common.limited_log import LimitedLog
from dledger.common.types import Ack, Consistency, Entry, Member, NodeId, NodeStart, Role, Term
from dledger.disk.disk import Disk, OsDisk, remove_directory, run_to_the_end
from dledger.disk.reserve import Reserve
from dledger.disk.room import RoomWatch
from dledger.group import gauges
from dledger.group.failing import as_refusal
from dledger.group.repair.recovering import RecoveringReplica
from dledger.group.replica import Replica
from dledger.group.upkeep import Upkeep
from dledger.log.log_api import Damaged
from dledger.metrics.group import GroupMetrics
from dledger.node.heartbeats import HeartbeatCoalescer, HeartbeatTaker
from dledger.node.identity import Identity, open_identity
from dledger.node.opening import AnyReplica, Opener
from dledger.node.peer_book import PeerBook, is_before
from dledger.node.peer_trust import TrustListener
from dledger.node.peers import Peers
from dledger.raft import codec
from dledger.raft.messages import Message, PeerMessage
from dledger.transport.peer import TcpTransport
from dledger.transport.transport_api import PeerIdentity, Transport

logger = logging.getLogger(__name__)


SPREAD_INTERVAL_S = 0.2
"""Between two handovers that this node begins for an even spread of leaders."""

RoleListener = Callable[[str, Role, Term, NodeId], None]
"""(group, role, term, leader_id): told of every change, on the event loop, in order. Must not block."""


def _system_clock_ms() -> int:
    return time.time_ns() // 1_000_000


class Node:
    """``async with Node(config) as node``, or ``start`` and ``stop``.

    The last four arguments are what a simulation replaces; production uses the real ones.
    """

    def __init__(
        self,
        config: NodeConfig,
        *,
        disk: Disk | None = None,
        transport: Transport[PeerMessage] | None = None,
        random: Random | None = None,
        wall_clock_ms: Callable[[], int] = _system_clock_ms,
    ) -> None:
        validate(config)
        self.config = config
        self.replicas: dict[str, Replica] = {}
        self.recovering: dict[str, RecoveringReplica] = {}
        """Groups whose log is being repaired before it can be opened; then they are among ``replicas``."""
        self.unopened: dict[str, DLedgerError] = {}
        """Groups whose files are here and could not be opened, and why."""
        self.metrics: dict[str, GroupMetrics] = {}
        self._disk = disk or OsDisk()
        self._random = random or Random()  # seeded by the operating system
        self._transport = transport or TcpTransport(
            config.listen_host, config.peer_port, codec=codec, random=self._random
        )
        self._heartbeats = HeartbeatCoalescer(self._transport)
        self._taker = HeartbeatTaker(self.replicas, self._heartbeats.send, self._deliver, wall_clock_ms)
        self._wall_clock_ms = wall_clock_ms
        self._log = LimitedLog(logger)
        self.names: dict[str, str] = {}
        """Of groups that are known to others by another name than here: name → what it is called here."""
        self._listeners: list[RoleListener] = []
        self._identity: Identity | None = None
        self._peers: Peers | None = None
        self._book: PeerBook | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._reopening: dict[asyncio.Task[None], str] = {}
        """Which group each of them opens anew."""
        self._opener: Opener | None = None
        self._failed: asyncio.Future[DLedgerError] | None = None
        self._starting = asyncio.Lock()
        """Held by a step of the start; a stop waits for it."""
        self._is_stopped = False
        self._spread_s = -SPREAD_INTERVAL_S
        """When the last handover for an even spread began."""
        self._local_identity: PeerIdentity | None = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Opens the data directory, recovers the log and joins the others.

        Returns also while damaged frames that a start needs are still being repaired from the others. Raises
        CONFIG_ERROR (directory in use or another node's, port in use; started before) and CORRUPT_LOG (rot that nobody
        is there to repair, or beyond repair: nothing is cut); SHUTTING_DOWN when it is stopped meanwhile.
        """
        self._check_new()
        try:
            await self.open()
            await self.join()
        except BaseException:
            await self.stop()
            raise

    async def open(self) -> None:
        """The first half of ``start``: nobody hears of this node yet. ``stop`` has to follow, whatever happens."""
        self._check_new()
        self._failed = asyncio.get_running_loop().create_future()
        async with self._starting:
            await self._open()

    async def _open(self) -> None:
        config = self.config
        self._identity = await open_identity(self._disk, config.data_dir, NodeId(config.id), self._random)
        self._check_wanted()
        self._check_founding_group(self._identity.groups)
        has_spoken = self._identity.start.start_count > 0  # in an earlier start
        book = self._book = await PeerBook.open(self._disk, config.data_dir, must_exist=has_spoken)
        disk, directory = self._disk, str(config.data_dir)
        reserve = Reserve(disk, config.data_dir)
        room = RoomWatch(
            directory, config.limits, partial(disk.free_bytes, directory), partial(disk.run, reserve.prove)
        )
        self._opener = Opener(
            config,
            disk,
            self._identity,
            book,
            reserve=reserve,
            room=room,
            upkeep=Upkeep(config.timings.heartbeat_interval_ms),
            host=self,
            metrics=self.metrics,
            random=self._random,
            wall_clock_ms=self._wall_clock_ms,
            on_repaired=self._on_repaired,
        )
        self._peers = self._meet_others(book)
        await self._finish_removals()
        await self._open_group(config.group, self._founders())
        others = [group for group in self._identity.groups if group != config.group]
        await in_batches([partial(self._open_or_leave, group) for group in others])

    def _founders(self) -> list[Member]:
        """A node that joins has no members of its own: those of the group come with the frames."""
        peers = self.config.peers
        is_founder = self.config.id in peers
        return [Member(NodeId(peer), address) for peer, address in peers.items()] if is_founder else []

    async def _open_or_leave(self, group: str) -> None:
        """A group whose files cannot be used does not keep the others from going on. A disk that is full or fails does:
        another start may find it mended."""
        try:
            await self._open_group(group)
        except DLedgerError as failure:
            if failure.code not in (Code.CORRUPT_LOG, Code.UNSUPPORTED_VERSION):
                raise
            logger.critical(
                "a group cannot be opened", extra={"group": group, "code": failure.code.value, "why": failure}
            )
            self.unopened[group] = failure

    async def _open_group(self, group: str, founders: Sequence[Member] | None = None) -> None:
        assert self._opener is not None, "open comes first"
        self._admit(await self._opener.open(group, founders))

    def _admit(self, replica: AnyReplica) -> None:
        """From now on it is told of everything that concerns its group."""
        assert self._opener is not None, "open comes first"
        group = replica.group
        self._take(replica)
        trust = self._all_peers.add_group(group, partial(self._listener, group))
        if group != self.config.group:  # its founders are named with their disks: no other disk is believed
            trust.set_may_found(bool(self._opener.record(group).founders))
        self._tell_members(group)

    def _check_new(self) -> None:
        if self._is_stopped or self._failed is not None:
            raise error(Code.CONFIG_ERROR, "a Node is started once: make another one of the same configuration")

    def _check_founding_group(self, groups: Sequence[str]) -> None:
        if groups and self.config.group not in groups:
            raise error(
                Code.CONFIG_ERROR,
                f"{self.config.data_dir} belongs to group {groups[0]!r}, not {self.config.group!r}: "
                "start it with --many-groups if it was founded so, else without; or use another directory",
            )

    def _check_wanted(self) -> None:
        if self._is_stopped:
            raise error(Code.SHUTTING_DOWN, "the node was stopped while it started")

    def _take(self, replica: AnyReplica) -> None:
        self.recovering.pop(replica.group, None)
        self.replicas.pop(replica.group, None)
        if isinstance(replica, RecoveringReplica):
            self.recovering[replica.group] = replica
        else:
            self.replicas[replica.group] = replica

    def _present(self, group: str) -> AnyReplica:
        """Raises UNKNOWN_GROUP. An empty name is the founding group."""
        group = self._key_of(group)
        present = self.replicas.get(group) or self.recovering.get(group)
        if present is None:
            raise self._unknown(self.name_of(group))
        return present

    def _key_of(self, group: str) -> str:
        return self.names.get(group, group or self.config.group)

    def name_of(self, group: str) -> str:
        """What others call the group that is called so here."""
        return next((name for name, key in self.names.items() if key == group), group)

    def recovering_replica(self, group: str) -> RecoveringReplica | None:
        return self.recovering.get(self._key_of(group))

    def has_group(self, group: str) -> bool:
        """Also while its log is being repaired, or when its files cannot be opened."""
        return group in self.replicas or group in self.recovering or group in self.unopened

    def _unknown(self, group: str) -> DLedgerError:
        known = ", ".join([*self.replicas, *self.recovering]) or "none"
        return error(Code.UNKNOWN_GROUP, f"{self.config.id} has no group {quoted(group)}; it has: {known}")

    def _tell_members(self, group: str) -> None:
        replica = self._present(group)
        if isinstance(replica, RecoveringReplica):
            replica.tell_members()
        else:
            replica.roster.tell()

    def _listener(self, group: str) -> TrustListener:
        replica = self._present(group)
        return replica if isinstance(replica, RecoveringReplica) else replica.roster

    @property
    def _all_peers(self) -> Peers:
        assert self._peers is not None, "open comes first"
        return self._peers

    def _meet_others(self, book: PeerBook) -> Peers:
        return Peers(
            NodeId(self.config.id),
            {NodeId(peer): address for peer, address in self.config.peers.items()},
            founding_group=self.config.group,
            book=book,
            transport=self._transport,
            told_cluster_id=self._told_cluster_id,
            is_new=lambda: self._is_new,
            save=lambda: self._keep(book.save(), "peer-book"),
        )

    # Groups ------------------------------------------------------------------------------------------------------

    async def open_group(self, group: str, founders: Sequence[Member]) -> None:
        """Opens a group that is not on this disk yet, and takes part in it. ``founders`` are its first members, each
        with the disk that the record of the group names: this node votes in an empty log only if it is one of them. It
        joins as a learner when it is not, or when its disk is in an older state. Returns at once when the group is open
        already. May be called again after it raised.

        Raises UNKNOWN_GROUP for a group that was removed for good, LEADER_NOT_READY before the cluster has its id, and
        what opening raises: DISK_FULL, DISK_ERROR, CORRUPT_LOG.
        """
        async with self._starting:
            self._check_wanted()
            assert self._identity is not None, "open comes first"
            assert self._opener is not None, "open comes first"
            if group in self._identity.removed_groups:
                raise error(Code.UNKNOWN_GROUP, f"group {quoted(group)} was removed for good")
            if self.has_group(group):
                return
            if not self.cluster_id:
                raise error(Code.LEADER_NOT_READY, "no group is opened before the cluster has its id: try again")
            is_founder = any(each.id == self.config.id and self._is_named_by(each) for each in founders)
            replica = await self._opener.open(group, founders if is_founder else ())
            try:
                await self._opener.record(group).begin_start()
            except BaseException:
                self._opener.forget(group)
                await replica.stop()
                raise
            self._admit(replica)
            replica.start()

    def _is_named_by(self, founder: Member) -> bool:
        """Whether the record of a group means the disk of this node, as it is."""
        assert self._identity is not None, "open comes first"
        start = self._identity.start
        return founder.node_uuid == start.node_uuid and not is_before(founder, start)

    async def remove_group(self, group: str) -> None:
        """Removes the group from this node for good: that is durable before its files go. Safe to call again. Raises
        DISK_FULL or DISK_ERROR."""
        async with self._starting:
            assert self._identity is not None, "open comes first"
            assert group != self.config.group, "the founding group stays"
            await self._identity.remove_group(group)
            await self._close_group(group)
            self.unopened.pop(group, None)
            await run_to_the_end(self._disk, partial(remove_directory, self._disk, self._group_directory(group)))

    async def _close_group(self, group: str) -> None:
        while reopening := [task for task, each in self._reopening.items() if each == group]:
            await asyncio.wait(reopening)  # what it opens would be there again
        replica = self.replicas.get(group) or self.recovering.get(group)
        if replica is None:
            return
        await replica.stop()
        self.replicas.pop(group, None)
        self.recovering.pop(group, None)
        self.metrics.pop(group, None)
        self._all_peers.remove_group(group)
        assert self._opener is not None, "open comes first"
        self._opener.forget(group)

    def _group_directory(self, group: str) -> Path:
        assert self._opener is not None, "open comes first"
        return self._opener.directory(group)

    async def _finish_removals(self) -> None:
        """Files of groups that were removed while a start came to nothing."""
        assert self._identity is not None, "open comes first"
        for group in self._identity.removed_groups:
            await run_to_the_end(self._disk, partial(remove_directory, self._disk, self._group_directory(group)))

    # Lives -------------------------------------------------------------------------------------------------------

    async def join(self) -> None:
        """The second half: it speaks with the others, and may lead from now on."""
        assert self._identity is not None, "open comes first"
        assert self._opener is not None, "open comes first"
        async with self._starting:
            self._check_wanted()
            await self._transport.check_port()
            await in_batches([self._opener.record(replica.group).begin_start for replica in self._all()])
            await self._identity.begin_start()
            self._check_wanted()
            await self._transport.start(self)
            self._all_peers.start()
            for replica in self._all():
                replica.start()

    def _all(self) -> list[AnyReplica]:
        return [*self.replicas.values(), *self.recovering.values()]

    def _on_repaired(self, group: str) -> None:
        """Nothing of the log is damaged any more: it is opened now."""
        recovering = self.recovering[group]
        self._begin_reopening(group, self._reopen(recovering, recovering.stop()))

    def on_stuck(self, group: str, why: Damaged) -> None:
        replica = self.replicas[group]
        logger.error("the leader's word is needed on what is damaged: the log is closed", extra={"group": group})
        self._begin_reopening(group, self._reopen(replica, replica.step_aside(why), why))

    def _begin_reopening(self, group: str, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work, name=f"reopen-{group}")
        self._reopening[task] = group
        task.add_done_callback(self._reopening.pop)

    async def _reopen(self, before: AnyReplica, closed: Coroutine[Any, Any, None], why: Damaged | None = None) -> None:
        group = before.group
        try:
            await closed
            assert self._opener is not None, "open comes first"
            replica = await self._opener.reopen(before, why)
            if self._is_stopped:
                await replica.stop()
                return
            self._take(replica)
            logger.info("the log was opened anew", extra={"group": group, "is_damaged": group in self.recovering})
            self._all_peers.trust(group).tell_all()
            self._tell_members(group)
            replica.start()
        except Exception as failure:  # noqa: BLE001 – whatever it is, the node must not go on without the group
            self.on_failure(group, as_refusal(failure, group))

    async def leave(self) -> None:
        """The first half of ``stop``: no appends any more, and the leaderships handed over. Committed reads go on."""
        await asyncio.gather(*(replica.leave() for replica in self.replicas.values()))

    async def stop(self) -> None:
        """Drains, hands leaderships over, syncs, closes: every part, whatever fails of the others; the last failure is
        raised. Safe to call again."""
        if self._is_stopped:
            return
        self._is_stopped = True
        async with AsyncExitStack() as closing:  # the last one first
            for close in (self._free_directory, self._settle_tasks, self._stop_recovering):
                closing.push_async_exit(unless_cancelled(close))
            closing.push_async_callback(self._transport.close)
            closing.push_async_exit(unless_cancelled(self._stop_replicas))
            async with self._starting:
                pass  # what it opens is there to be closed

    async def _stop_replicas(self) -> None:
        async with AsyncExitStack() as closing:
            for replica in self.replicas.values():
                closing.push_async_exit(unless_cancelled(replica.stop))

    async def _stop_recovering(self) -> None:
        for recovering in self.recovering.values():
            await recovering.stop()
        if self._reopening:
            await asyncio.wait(self._reopening)

    async def _free_directory(self) -> None:
        self._disk.shutdown()  # a save that nobody waits for any more may be under way: nobody else gets in before
        if self._identity is not None:
            await self._identity.close()

    async def _settle_tasks(self) -> None:
        if self._tasks:
            await asyncio.wait(self._tasks)  # one that fails was told of by ``_kept``

    async def failed(self) -> DLedgerError:
        """Returns when the node cannot go on (disk failure, divergence): the host should stop it and say why."""
        assert self._failed is not None, "start comes first"
        return await asyncio.shield(self._failed)

    def refresh_metrics(self) -> None:
        """Copies the gauges; called at a scrape."""
        for replica in list(self.replicas.values()):  # a scrape comes in a thread of its own
            gauges.refresh(replica)

    def add_listener(self, listener: RoleListener) -> None:
        """Told of every later change of role, term or leader."""
        self._listeners.append(listener)

    def replica(self, group: str) -> Replica:
        """Raises UNKNOWN_GROUP, and CORRUPT_LOG while its log is being repaired. An empty name is the configured
        group."""
        group = self._key_of(group)
        replica = self.replicas.get(group)
        if group in self.unopened:
            raise self.unopened[group].copy()
        if replica is None and group in self.recovering:
            raise self.recovering[group].refusal()
        if replica is None:
            raise self._unknown(self.name_of(group))
        if replica.failure is not None:
            raise replica.failure
        return replica

    # The log, for a host program ---------------------------------------------------------------------------------

    @property
    def role(self) -> Role:
        return self.role_in("")

    def role_in(self, group: str) -> Role:
        """Raises UNKNOWN_GROUP."""
        return self._present(group).role

    @property
    def leader_id(self) -> str:
        """Empty when none is known."""
        return self._present("").leader_id

    async def append(self, record: bytes, *, expect_index: int | None = None, group: str = "") -> Ack:
        """One record, committed. Raises NotLeader, PendingFull, DiskFull; OutcomeUnknown when leadership is lost; and
        WrongExpectedIndex unless the record gets the index ``expect_index``, where one is given."""
        return (await self.append_many([record], expect_index=expect_index, group=group))[0]

    async def append_many(
        self, records: Sequence[bytes], *, expect_index: int | None = None, group: str = ""
    ) -> list[Ack]:
        """Records that share one frame: all are committed or none. Raises as ``append``; ``expect_index`` is that of
        the first."""
        result = await self.replica(group).appender.append_records(records, expect_index=expect_index)
        return [Ack(result.base_index + ordinal, result.term, result.timestamp_ms) for ordinal in range(result.count)]

    async def get(self, index: int, consistency: Consistency = Consistency.LINEARIZABLE, *, group: str = "") -> Entry:
        """Raises OutOfRange, and NotLeader for a linearizable read elsewhere."""
        reader = self.replica(group).reader
        return await reader.get(index, await reader.read_point(consistency))

    async def read(
        self,
        start: int = 0,
        *,
        follow: bool = False,
        consistency: Consistency = Consistency.LINEARIZABLE,
        group: str = "",
    ) -> AsyncGenerator[Entry, None]:
        """Committed records from ``start`` on, in order; up to those committed at the call, or for ever."""
        reader = self.replica(group).reader
        point = await reader.read_point(consistency)
        async for entry in reader.records(start, point, follow=follow):
            yield entry

    # What replicas ask (Host) ------------------------------------------------------------------------------------

    def send(self, peer: NodeId, message: Message) -> bool:
        return self._heartbeats.send(peer, message)

    def is_connected(self, peer: NodeId) -> bool:
        return self._transport.is_connected(peer)

    def messages_dropped(self, peer: NodeId) -> int:
        return self._heartbeats.dropped_messages(peer)

    def may_spread(self) -> bool:
        now_s = asyncio.get_running_loop().time()
        may = now_s >= self._spread_s + SPREAD_INTERVAL_S
        if may:
            self._spread_s = now_s
        return may

    def client_address(self, node_id: NodeId) -> str:
        if node_id == self.config.id:
            return self.config.client_address
        identity = self._identity_of(node_id)
        return identity.client_address if identity is not None else ""

    def http_address(self, node_id: NodeId) -> str:
        if node_id == self.config.id:
            return self.config.http_address
        identity = self._identity_of(node_id)
        return identity.http_address if identity is not None else ""

    def _identity_of(self, node_id: NodeId) -> PeerIdentity | None:
        return self._peers.identity_of(node_id) if self._peers is not None else None

    def known_peers(self, group: str) -> AbstractSet[NodeId]:
        return self._all_peers.known_peers(group)

    def start_of(self, peer: NodeId) -> NodeStart | None:
        return self._peers.start_of(peer) if self._peers is not None else None

    @property
    def founders_missing(self) -> list[NodeId]:
        """Whom a node with an empty log has to meet, as new as itself, before it takes part in founding a cluster."""
        return self._peers.founders_missing if self._peers is not None else []

    def disk_of(self, group: str, node_id: NodeId) -> bytes:
        assert self._identity is not None, "open comes first"
        is_own = node_id == self._identity.node_id
        return self._identity.start.node_uuid if is_own else self._all_peers.trust(group).disk_of(node_id)

    async def keep_peers(self) -> None:
        assert self._book is not None, "open comes first"
        # Whoever asked may give up, and a second save must not begin beside the first.
        await asyncio.shield(self._keep(self._book.save(), "peer-book"))

    def on_role(self, group: str, role: Role, term: Term, leader_id: NodeId) -> None:
        if self._peers is not None:
            self._peers.follow_leader(group, leader_id)
        for listener in self._listeners:
            try:
                listener(group, role, term, leader_id)
            except Exception:
                logger.exception("a listener failed; the node goes on", extra={"group": group})

    def on_members(self, group: str, members: Sequence[Member], *, is_committed: bool) -> None:
        self._all_peers.follow_members(group, members, is_committed=is_committed)

    def on_lost_frames(self, group: str, peer: NodeId) -> None:
        self._all_peers.trust(group).lost_frames(peer)

    def on_failure(self, group: str, failure: DLedgerError) -> None:
        # A group that fails stops by itself, and the others go on; without the founding one the node does not.
        if group == self.config.group and self._failed is not None and not self._failed.done():
            self._failed.set_result(failure)

    # What the transport tells (TransportHandler) -----------------------------------------------------------------

    def on_message(self, sender: NodeId, message: PeerMessage) -> None:
        self._taker.take(sender, message)

    def _deliver(self, sender: NodeId, message: Message) -> None:
        replica = self.replicas.get(message.group) or self.recovering.get(message.group)
        if replica is None:
            now_s = asyncio.get_running_loop().time()
            key = f"{sender} {message.group}"
            fields = {"group": message.group, "peer": sender}
            self._log.say(logging.WARNING, key, now_s, "a message for a group that is not here", **fields)
        else:
            replica.on_message(sender, message)

    def on_connected(self, peer: NodeId) -> None:
        for replica in self._all():
            replica.on_connected(peer)

    def on_disconnected(self, peer: NodeId) -> None:
        for replica in self._all():
            replica.on_disconnected(peer)

    def local_identity(self) -> PeerIdentity:
        # Asked for with every message. It stays as it is from the first frame of a known cluster on, and not before: a
        # node that went on calling itself new would let emptied disks found another cluster beside the log it holds.
        known = self._local_identity
        if known is not None and known.cluster_id and not known.is_new:
            return known
        cluster_id, is_new = self.cluster_id, self._is_new
        if known is not None and (known.cluster_id, known.is_new) == (cluster_id, is_new):
            return known
        assert self._identity is not None, "start comes first"
        identity = self._identity
        self._local_identity = PeerIdentity(
            node_id=identity.node_id,
            node_uuid=identity.start.node_uuid,
            start_count=identity.start.start_count,
            start_nonces=identity.start.start_nonces,
            cluster_id=cluster_id,
            client_address=self.config.client_address,
            http_address=self.config.http_address,
            peer_address=self.config.peer_address,
            is_new=is_new,
        )
        return self._local_identity

    @property
    def _is_new(self) -> bool:
        """Nothing is in the log, and nothing is to be repaired in it."""
        replica = self.replicas.get(self.config.group)
        return replica is not None and replica.log.last.position == 0

    @property
    def cluster_id(self) -> str:
        """Empty until the first leader's no-op, which carries it, is committed: an uncommitted one may yet be cut, and
        a node must not be turned away for it."""
        minted = (each.log.state.cluster_id for each in self._all() if each.core.commit_position > 0)
        return next(filter(None, minted), self.config.cluster_id)

    def _told_cluster_id(self) -> str:
        """As far as any log here says it, committed or not."""
        return next(filter(None, (each.log.state.cluster_id for each in self._all())), "")

    def cluster_id_or_new(self, group: str) -> str:
        known = self.cluster_id
        assert known or group == self.config.group, "only the founding group mints the cluster's id"
        return known or f"{self._random.getrandbits(64):016x}"

    def check_peer(self, identity: PeerIdentity) -> None:
        self._all_peers.check(identity, self.cluster_id)

    async def owe_catch_up(self, group: str) -> None:
        assert self._opener is not None, "open comes first"
        await self._opener.record(group).owe_catch_up()

    def on_caught_up(self, group: str) -> None:
        assert self._opener is not None, "open comes first"
        self._keep(self._settle(group, self._opener.record(group).settle_debt()), f"settle-{group}", group)

    async def _settle(self, group: str, settled: Coroutine[Any, Any, None]) -> None:
        await settled
        replica = self.replicas.get(group)
        if replica is not None:
            replica.on_debt_settled()

    def on_tail_known(self, group: str) -> None:
        assert self._opener is not None, "open comes first"
        self._keep(self._opener.record(group).tail_is_known(), f"tail-known-{group}", group)

    def _keep(self, work: Coroutine[Any, Any, None], name: str, group: str = "") -> asyncio.Task[None]:
        """Something to be made durable beside the log. When that fails, ``group`` does not go on, or no group does."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(partial(self._kept, group))
        return task

    def _kept(self, group: str, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (failure := task.exception()) is not None:
            for replica in self._all():
                if group in ("", replica.group):
                    replica.fail(Code.DISK_ERROR, f"what is known of the members cannot be made durable: {failure}")
