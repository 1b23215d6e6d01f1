"""A node: one process's identity, its way to the others, and its replica of each group that it has.

The node opens and closes groups as it is told (``Node.groups``), and at a start all those on its disk. One group,
``NodeConfig.group``, is founded from the configuration's peers. Its first leader mints the cluster's id, so no other
group is opened before that is committed.

A server's node knows the cluster's directory of groups besides (``server/cluster_node.py``).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Sequence
from collections.abc import Set as AbstractSet
from contextlib import AsyncExitStack
from functools import partial
from random import Random
from typing import Any, Self

from dledger.common.closing import unless_cancelled
from dledger.common.config import NodeConfig
from dledger.common.config_checks import validate
from dledger.common.errors import Code, DLedgerError, PeerRefused, error
from dledger.common.limited_log import LimitedLog
from dledger.common.types import Member, NodeId, NodeStart, Role, Term
from dledger.disk.disk import Disk, OsDisk
from dledger.disk.reserve import Reserves
from dledger.disk.room import RoomWatch
from dledger.group import gauges
from dledger.group.replica import Replica
from dledger.group.upkeep import Upkeep
from dledger.log.log_api import Damaged
from dledger.node.groups import Groups
from dledger.node.heartbeats import HeartbeatCoalescer, HeartbeatTaker
from dledger.node.identity import Identity, open_identity
from dledger.node.opening import Opener
from dledger.node.peer_book import PeerBook
from dledger.node.peers import Peers
from dledger.raft import codec
from dledger.raft.messages import Append, Compare, Heartbeat, Message, PeerMessage, Reset, Truncate
from dledger.transport.peer import TcpTransport
from dledger.transport.transport_api import PeerIdentity, Transport

logger = logging.getLogger(__name__)


SPREAD_INTERVAL_S = 0.1
"""Between two handovers that this node begins for an even spread of leaders."""

RoleListener = Callable[[str, Role, Term, NodeId], None]
"""(group, role, term, leader_id): told of every change, on the event loop, in order. Must not block."""


BY_A_LEADER = (Heartbeat, Compare, Truncate, Append, Reset)
"""Messages that only a leader sends, to the members by its log."""


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
        self._disk = disk or OsDisk()
        self.groups = Groups(config, self._disk, self)
        self._random = random or Random()  # seeded by the operating system
        self._transport = transport or TcpTransport(
            config.listen_host,
            config.peer_port,
            codec=codec,
            random=self._random,
            gathering_s=config.timings.election_timeout_max_ms / 1000,
        )
        self._heartbeats = HeartbeatCoalescer(self._transport)
        self._taker = HeartbeatTaker(self.groups.replicas, self._heartbeats.send, self._deliver, wall_clock_ms)
        self._wall_clock_ms = wall_clock_ms
        self._log = LimitedLog(logger)
        self._listeners: list[RoleListener] = []
        self._identity: Identity | None = None
        self._peers: Peers | None = None
        self._book: PeerBook | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._failed: asyncio.Future[DLedgerError] | None = None
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
        CONFIG_ERROR: the directory is in use or another node's, a port is in use, or the node was started before.
        Raises CORRUPT_LOG for rot beyond repair, or with nobody there to repair it: nothing is cut. Raises
        SHUTTING_DOWN when it is stopped meanwhile.
        """
        self._check_new()
        try:
            await self.open()
            await self.join()
        except BaseException:
            await self.stop()
            raise

    async def open(self) -> None:
        """The first half of ``start``: nobody hears of this node yet. ``stop`` has to follow, also after an error."""
        self._check_new()
        self._failed = asyncio.get_running_loop().create_future()
        async with self.groups.changing:
            await self._open()

    async def _open(self) -> None:
        config = self.config
        self._identity = await open_identity(self._disk, config.data_dir, NodeId(config.id), self._random)
        self.groups.check_wanted()
        has_spoken = self._identity.start.start_count > 0  # in an earlier start
        book = self._book = await PeerBook.open(self._disk, config.data_dir, must_exist=has_spoken)
        disk, directory = self._disk, str(config.data_dir)
        reserves = Reserves(disk, config.data_dir, config.group)
        room = RoomWatch(
            directory, config.limits, partial(disk.free_bytes, directory), partial(disk.run, reserves.prove)
        )
        opener = Opener(
            config,
            disk,
            self._identity,
            book,
            reserves=reserves,
            room=room,
            upkeep=Upkeep(config.timings.heartbeat_interval_ms),
            host=self,
            metrics=self.groups.metrics,
            random=self._random,
            wall_clock_ms=self._wall_clock_ms,
            on_repaired=self.groups.on_repaired,
        )
        self._peers = self._meet_others(book)
        self.groups.begin(self._identity, opener, self._peers)
        await self.groups.open_found(self._founders())

    def _founders(self) -> list[Member]:
        """A node that joins has no members of its own: those of the group come with the frames."""
        peers = self.config.peers
        is_founder = self.config.id in peers
        return [Member(NodeId(peer), address) for peer, address in peers.items()] if is_founder else []

    def _check_new(self) -> None:
        if self.groups.is_stopped or self._failed is not None:
            raise error(Code.CONFIG_ERROR, "a Node is started once: make another one of the same configuration")

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
            told_cluster_id=lambda: self.groups.told_cluster_id,
            is_new=lambda: self._is_new,
            save=lambda: self._keep(book.save(), "peer-book"),
        )

    # Lives -------------------------------------------------------------------------------------------------------

    async def join(self) -> None:
        """The second half: it speaks with the others, and may lead from now on."""
        assert self._identity is not None, "open comes first"
        async with self.groups.changing:
            self.groups.check_wanted()
            await self._transport.check_port()
            await self.groups.begin_start()
            await self._identity.begin_start()
            self.groups.check_wanted()
            await self._transport.start(self)
            self._all_peers.start()
            self.groups.start()

    async def leave(self) -> None:
        """The first half of ``stop``: no appends any more, and the leaderships handed over. Committed reads go on."""
        await self.groups.leave()

    async def stop(self) -> None:
        """Drains, hands leaderships over, syncs, closes: every part, even if others fail; the last failure is raised.
        Safe to call again."""
        if self.groups.is_stopped:
            return
        self.groups.is_stopped = True
        async with AsyncExitStack() as closing:  # the last one first
            for close in (self._free_directory, self._settle_tasks, self.groups.stop_recovering):
                closing.push_async_exit(unless_cancelled(close))
            closing.push_async_callback(self._transport.close)
            closing.push_async_exit(unless_cancelled(self.groups.stop))
            async with self.groups.changing:
                pass  # what it opens is there to be closed

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
        for replica in list(self.groups.replicas.values()):  # a scrape comes in a thread of its own
            gauges.refresh(replica)

    def add_listener(self, listener: RoleListener) -> None:
        """Told of every later change of role, term or leader."""
        self._listeners.append(listener)

    def replica(self, group: str) -> Replica:
        """Raises UNKNOWN_GROUP, and CORRUPT_LOG while its log is being repaired. An empty name is the configured
        group."""
        return self.groups.get(group)

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
    def refusals(self) -> dict[NodeId, PeerRefused]:
        """Of the peers that turned this node away when it last dialled them."""
        return self._transport.refusals

    @property
    def founders_missing(self) -> list[NodeId]:
        """The nodes that a node with an empty log has yet to meet, as new as itself, before it takes part in founding a
        cluster."""
        return self._peers.founders_missing if self._peers is not None else []

    def disk_of(self, group: str, node_id: NodeId) -> bytes:
        assert self._identity is not None, "open comes first"
        is_own = node_id == self._identity.node_id
        return self._identity.start.node_uuid if is_own else self._all_peers.trust(group).disk_of(node_id)

    async def keep_peers(self) -> None:
        assert self._book is not None, "open comes first"
        # A caller may give up, and a second save must not begin beside the first.
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

    def on_stuck(self, group: str, why: Damaged) -> None:
        self.groups.on_stuck(group, why)

    def on_failure(self, group: str, failure: DLedgerError) -> None:
        # A group that fails stops by itself, and the others go on; without the founding one the node does not.
        if group == self.config.group and self._failed is not None and not self._failed.done():
            self._failed.set_result(failure)

    # What the transport tells (TransportHandler) -----------------------------------------------------------------

    def on_message(self, sender: NodeId, message: PeerMessage) -> None:
        self._taker.take(sender, message)

    def _deliver(self, sender: NodeId, message: Message) -> None:
        replica = self.groups.replicas.get(message.group) or self.groups.recovering.get(message.group)
        if replica is not None:
            replica.on_message(sender, message)
        elif not (isinstance(message, BY_A_LEADER) and self.groups.on_called(message.group, message.term)):
            now_s = asyncio.get_running_loop().time()
            fields = {"group": message.group, "peer": sender}
            key = f"{sender} {message.group}"
            self._log.say(logging.WARNING, key, now_s, "a message for a group that is not here", **fields)

    def on_connected(self, peer: NodeId) -> None:
        for replica in self.groups.all():
            replica.on_connected(peer)

    def on_disconnected(self, peer: NodeId) -> None:
        for replica in self.groups.all():
            replica.on_disconnected(peer)

    def local_identity(self) -> PeerIdentity:
        # Asked for with every message. It stays as it is from the first frame of a known cluster on, and not before. If
        # a node went on calling itself new, emptied disks could found another cluster beside the log it holds.
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
        replica = self.groups.replicas.get(self.config.group)
        return replica is not None and replica.log.last.position == 0

    @property
    def cluster_id(self) -> str:
        """Empty until a committed frame says it."""
        return self.groups.cluster_id

    def cluster_id_or_new(self, group: str) -> str:
        known = self.cluster_id
        assert known or group == self.config.group, "only the founding group mints the cluster's id"
        return known or f"{self._random.getrandbits(64):016x}"

    def check_peer(self, identity: PeerIdentity) -> None:
        self._all_peers.check(identity, self.cluster_id)
        if identity.client_address == self.config.client_address:
            fields = {"peer": identity.node_id, "address": identity.client_address}
            self._log.say(
                logging.ERROR,
                f"address {identity.node_id}",
                asyncio.get_running_loop().time(),
                "this node and another tell clients one address: give each an --advertise of its own",
                **fields,
            )

    async def owe_catch_up(self, group: str) -> None:
        await self.groups.record(group).owe_catch_up()

    def on_caught_up(self, group: str) -> None:
        self._keep(self._settle(group, self.groups.record(group).settle_debt()), f"settle-{group}", group)

    async def _settle(self, group: str, settled: Coroutine[Any, Any, None]) -> None:
        await settled
        replica = self.groups.replicas.get(group)
        if replica is not None:
            replica.on_debt_settled()

    def on_tail_known(self, group: str) -> None:
        self._keep(self.groups.record(group).tail_is_known(), f"tail-known-{group}", group)

    def _keep(self, work: Coroutine[Any, Any, None], name: str, group: str = "") -> asyncio.Task[None]:
        """Something to be made durable beside the log. When that fails, ``group`` does not go on, or no group does."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(partial(self._kept, group))
        return task

    def _kept(self, group: str, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (failure := task.exception()) is not None:
            for replica in self.groups.all():
                if group in ("", replica.group):
                    replica.fail(Code.DISK_ERROR, f"what is known of the members cannot be made durable: {failure}")
