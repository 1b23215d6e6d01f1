"""A cluster in one event loop, under virtual time: the real driver on logs in memory and a network in memory.

    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        await leader.append(b"x")

What survives a crash is what was durable: the log's synced frames and the saved hard state. Whoever leads is written
down, and at the end, and whenever ``check`` is called, no term had two leaders and all logs agree on what is committed.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Awaitable, Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from pathlib import Path
from random import Random
from types import TracebackType
from typing import NamedTuple, Self

from dledger.common.batch import records_of
from dledger.common.config import Limits, NodeConfig, Timings
from dledger.common.errors import Code, DLedgerError
from dledger.common.types import DEFAULT_GROUP, Consistency, Entry, Member, NodeId, NodeStart, Position, Role, Term
from dledger.disk.room import RoomWatch
from dledger.group.hard_state import HardState
from dledger.group.leader.quorum_ack_checker import AppendResult
from dledger.group.replica import Replica
from dledger.group.upkeep import Upkeep
from dledger.log.frame.frame import Frame
from dledger.log.log_api import Damaged
from dledger.metrics.group import GroupMetrics
from dledger.node.heartbeats import rows_of
from dledger.node.peer_book import PeerBook
from dledger.node.peers import Peers
from dledger.raft.messages import Message, PeerMessage, VoteRequest
from dledger.testing.memory_log import MemoryLog
from dledger.testing.memory_network import MemoryNetwork, MemoryTransport
from dledger.transport.transport_api import PeerIdentity
from tests.support.scenario import SCENARIO_SEED

POLL_S = 0.005


class RoleSeen(NamedTuple):
    """One call of a role listener."""

    role: Role
    term: Term
    leader_id: NodeId


class Backup(NamedTuple):
    """What is on a node's disk."""

    uuid: bytes
    nonces: tuple[int, ...]
    book: bytes
    saver: MemorySaver
    log: MemoryLog


def address_of(node_id: NodeId) -> str:
    """Where nodes reach it."""
    return f"{node_id}:1"


class MemorySaver:
    """Term and vote, durable ``delay_s`` after ``save`` was called."""

    def __init__(self) -> None:
        self.state = HardState()
        self.saved: list[HardState] = []
        self.delay_s = 0.0
        self.failure: Exception | None = None

    async def save(self, state: HardState) -> None:
        await asyncio.sleep(self.delay_s)
        if self.failure is not None:
            raise self.failure
        assert state.term >= self.state.term, "the term on disk fell"
        assert state.term > self.state.term or self.state.vote in ("", state.vote), "the vote on disk changed"
        self.state = state
        self.saved.append(state)


class SimNode:
    """One node over all its lives. ``replica`` is that of the present, or the last, life."""

    def __init__(self, cluster: SimCluster, node_id: NodeId, log: MemoryLog) -> None:
        self.id = node_id
        self.log = log
        self.saver = MemorySaver()
        self.uuid = node_id.encode()
        """Of its disk."""
        self.nonces: tuple[int, ...] = ()
        """Of the starts of its disk."""
        self.book = b""
        """Its peer book, as it is on its disk."""
        self.roles: list[RoleSeen] = []
        """What a role listener of all lives was told."""
        self.failure: DLedgerError | None = None
        self.clock_offset_ms = 0
        """By how much its wall clock is ahead."""
        self.has_caught_up = False
        """After ``wait_until_caught_up``."""
        self.owes_catch_up = False
        """Told to its identity."""
        self.is_up = False
        self.outbox: list[tuple[NodeId, Message]] | None = None
        """When set, what the node sends goes here and nowhere else."""
        self._cluster = cluster
        self._frozen: list[Callable[[], None]] | None = None
        """What it is to do when it goes on; None unless it stands still."""
        self._mail: list[Callable[[], None]] = []
        """What came meanwhile."""
        self._wipes = 0
        self._peers: Peers | None = None
        self._replica: Replica | None = None
        self._transport: MemoryTransport | None = None

    def __repr__(self) -> str:
        return f"SimNode({self.id})"

    @property
    def replica(self) -> Replica:
        assert self._replica is not None, f"{self.id} was never started"
        return self._replica

    @property
    def transport(self) -> MemoryTransport:
        assert self._transport is not None, f"{self.id} was never started"
        return self._transport

    # Lives -------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        assert not self.is_up
        assert self.failure is None, f"{self.id} stopped: {self.failure}"
        cluster = self._cluster
        self.nonces += (cluster.random.getrandbits(64),)
        config = cluster.config_of(self.id)
        self._replica = Replica(
            config,
            DEFAULT_GROUP,
            self.log,
            self.saver.state,
            saver=self.saver,
            host=self,
            upkeep=Upkeep(config.timings.heartbeat_interval_ms),
            room=RoomWatch("", config.limits, self._free_bytes, self._prove_room),
            metrics=GroupMetrics(DEFAULT_GROUP, self.id),
            random=Random(cluster.random.getrandbits(32)),
            wall_clock_ms=lambda: cluster.wall_clock_ms() + self.clock_offset_ms,
            commit_index=await self._commit_index(),
        )
        self.is_up = True
        self._transport = cluster.network.transport(self.id)
        self._peers = self._make_peers()
        self._replica.roster.tell()
        await self._transport.start(self)
        self._peers.start()
        self._replica.start()

    def _free_bytes(self) -> int:
        return self.log.free_bytes()

    async def _prove_room(self) -> bool:
        return await self.log.prove_room()

    def _make_peers(self) -> Peers:
        async def write(payload: bytes) -> None:
            self.book = payload

        book, tasks = PeerBook(self.book, write), set[asyncio.Task[None]]()

        def save() -> None:
            task = asyncio.get_running_loop().create_task(book.save())
            tasks.add(task)
            task.add_done_callback(tasks.discard)

        configured = {NodeId(peer): address for peer, address in self._cluster.config_of(self.id).peers.items()}
        peers = Peers(
            self.id,
            configured,
            founding_group=DEFAULT_GROUP,
            book=book,
            transport=self.transport,
            told_cluster_id=lambda: self.log.state.cluster_id,
            is_new=lambda: self.log.last.position == 0,
            save=save,
        )
        peers.add_group(DEFAULT_GROUP, lambda: self.replica.roster)
        return peers

    async def _commit_index(self) -> int:
        position, state = min(self.log.commit_hint, self.log.last.position), self.log.state
        if position <= state.start.position:
            return state.first_index - 1
        return (await self.log.read(position, 1))[0].header.end_index - 1

    async def stop(self) -> None:
        """A clean stop."""
        await self.replica.stop()
        await self.transport.close()
        self.is_up = False
        self.log.reopen()

    def crash(self) -> None:
        """The power is lost: what was not durable is gone, nobody is told."""
        self.transport.crash()
        self.is_up = False
        self._frozen, self._mail = None, []
        self.replica.fail(Code.SHUTTING_DOWN, "the power was lost")
        self.failure = None
        self.log.reopen()

    def freeze(self) -> None:
        """The process stands still, its connections stay: what is sent to it waits, and it says and does nothing."""
        assert self.is_up
        assert self._frozen is None
        self._frozen = []
        self._guard_with(self._frozen.append)

    def thaw(self) -> None:
        """It goes on: first with the messages that came, then with the timers that are late."""
        late, self._frozen = self._frozen or [], None
        self._guard_with(partial(Replica.guard, self.replica))
        mail, self._mail = self._mail, []
        for take in mail:
            take()
        for work in late:
            self.replica.guard(work)

    def _guard_with(self, guard: Callable[[Callable[[], None]], None]) -> None:
        """Every callback of the loop goes through there."""
        self.replica.guard = self.replica._effect_runner._guard = guard  # type: ignore[method-assign, assignment]

    def wipe(self) -> None:
        """While down: comes back with an empty disk."""
        assert not self.is_up
        self.log = self._cluster.new_log(self.id)
        self.saver = MemorySaver()
        self._wipes += 1
        self.uuid, self.nonces, self.book = f"{self.id} wiped {self._wipes}".encode(), (), b""

    def backup(self) -> Backup:
        """While down: its disk as it is now."""
        assert not self.is_up
        return Backup(self.uuid, self.nonces, self.book, copy.copy(self.saver), self._cluster.copy_log(self.log))

    def restore(self, backup: Backup) -> None:
        """While down: comes back with an older state of a disk."""
        assert not self.is_up
        self.uuid, self.nonces, self.book, self.saver, self.log = backup

    # What is asked of it -----------------------------------------------------------------------------------------

    @property
    def start_said(self) -> NodeStart:
        """In its hellos."""
        return NodeStart(self.uuid, len(self.nonces), self.nonces)

    @property
    def leads(self) -> bool:
        return self.is_up and self.replica.role is Role.LEADER

    @property
    def commit_index(self) -> int:
        return self.replica.reader.commit_index

    @property
    def commit_position(self) -> Position:
        return self.replica.core.commit_position

    def submit(self, *records: bytes) -> asyncio.Future[AppendResult]:
        return self.replica.appender.append_records(records)

    async def append(self, *records: bytes) -> AppendResult:
        return await self.submit(*records)

    async def get(self, index: int, consistency: Consistency = Consistency.LINEARIZABLE) -> Entry:
        reader = self.replica.reader
        return await reader.get(index, await reader.read_point(consistency))

    @property
    def first_index(self) -> int:
        return self.log.state.first_index

    def frames(self) -> list[Frame]:
        """All that its log still has."""
        frames: list[Frame] = []
        first = self.log.state.start.position + 1
        while more := MemoryLog.cached(self.log, Position(first + len(frames)), 1 << 40):
            frames += more
        return frames

    def records(self) -> list[bytes]:
        """Everything in its log, committed or not, from ``first_index`` on."""
        return [record for f in self.frames() if f.header.count for record in records_of(f.body, f.header.count)]

    def committed(self) -> list[bytes]:
        return self.records()[: self.commit_index + 1 - self.first_index]

    def chains(self) -> dict[Position, int]:
        """Of the frames it has committed, and of the point before them."""
        points = [self.log.state.start, *(frame.header.point for frame in self.frames())]
        return {point.position: point.chain for point in points if point.position <= self.commit_position}

    # Host --------------------------------------------------------------------------------------------------------

    def send(self, peer: NodeId, message: Message) -> bool:
        self._check_promise(message)
        assert self._frozen is None, f"{self.id} stands still"
        if self.outbox is not None:
            self.outbox.append((peer, message))
            return True
        return self.is_up and self.transport.send(peer, message)

    def _check_promise(self, message: Message) -> None:
        """Persist before send: nobody hears of a term, or a vote, that a power cut could take back."""
        if isinstance(message, VoteRequest) and message.is_pre_vote:
            return
        state = self.saver.state
        assert message.term <= max(state.term, self.log.last.term), f"{self.id} speaks of a term that is not durable"
        if isinstance(message, VoteRequest):
            assert state.vote == self.id, f"{self.id} stands before its own vote is durable"

    def is_connected(self, peer: NodeId) -> bool:
        return self.is_up and self.transport.is_connected(peer)

    def may_spread(self) -> bool:
        return True

    def messages_dropped(self, peer: NodeId) -> int:
        return self.transport.dropped_messages(peer)

    def cluster_id_or_new(self, group: str) -> str:
        return f"{self._cluster.random.getrandbits(64):016x}"

    def client_address(self, node_id: NodeId) -> str:
        return f"{node_id}:1"

    def on_role(self, group: str, role: Role, term: Term, leader_id: NodeId) -> None:
        self.roles.append(RoleSeen(role, term, leader_id))
        self.peers.follow_leader(group, leader_id)
        if role is Role.LEADER:
            self._cluster.saw_leader(self, term)

    @property
    def peers(self) -> Peers:
        assert self._peers is not None, f"{self.id} was never started"
        return self._peers

    def known_peers(self, group: str) -> AbstractSet[NodeId]:
        return self.peers.known_peers(group)

    def start_of(self, peer: NodeId) -> NodeStart | None:
        return self.peers.start_of(peer)

    def disk_of(self, group: str, node_id: NodeId) -> bytes:
        return self.uuid if node_id == self.id else self.peers.trust(group).disk_of(node_id)

    async def keep_peers(self) -> None:
        """They are not on a disk here."""

    def on_members(self, group: str, members: Sequence[Member], *, is_committed: bool) -> None:
        self.peers.follow_members(group, members, is_committed=is_committed)

    def on_lost_frames(self, group: str, peer: NodeId) -> None:
        self.peers.trust(group).lost_frames(peer)

    async def owe_catch_up(self, group: str) -> None:
        self.owes_catch_up = True

    def on_caught_up(self, group: str) -> None:
        self.has_caught_up = True
        asyncio.get_running_loop().call_soon(self.replica.on_debt_settled)

    def on_stuck(self, group: str, why: Damaged) -> None:
        """Its logs are never closed while it runs."""

    def on_tail_known(self, group: str) -> None:
        """Its disks are not opened again."""

    def on_failure(self, group: str, failure: DLedgerError) -> None:
        self.failure = failure
        self.is_up = False

    # TransportHandler --------------------------------------------------------------------------------------------

    def on_message(self, sender: NodeId, message: PeerMessage) -> None:
        for each in rows_of(message):
            if self._frozen is None:
                self.replica.on_message(sender, each)
            else:
                self._mail.append(partial(self.replica.on_message, sender, each))

    def on_connected(self, peer: NodeId) -> None:
        self.replica.on_connected(peer)

    def on_disconnected(self, peer: NodeId) -> None:
        self.replica.on_disconnected(peer)

    def check_peer(self, identity: PeerIdentity) -> None:
        self.peers.check(identity, self.local_identity().cluster_id)

    def local_identity(self) -> PeerIdentity:
        cluster_id = self.log.state.cluster_id if self.commit_position else ""
        address = self._cluster.config_of(self.id).peer_address
        return PeerIdentity(
            self.id, *self.start_said, cluster_id, f"{self.id}:1", "", address, self.log.last.position == 0
        )


class SimCluster:
    """``size`` nodes n0, n1, …; ``async with`` starts them all, unless ``start`` names those to start."""

    def __init__(
        self,
        size: int,
        *,
        seed: int = SCENARIO_SEED,
        start: Iterable[int] | None = None,
        timings: Timings | None = None,
        limits: Limits | None = None,
        sync_delay_ms: float = 0.1,
        segment_frames: int = 0,
        lease_reads: bool = False,
    ) -> None:
        """``segment_frames``: a log may be trimmed behind every so many positions; 0: nowhere."""
        self.random = Random(seed)
        self.network = MemoryNetwork(Random(seed + 1))
        self.faults = self.network.faults
        self.leaders: dict[Term, NodeId] = {}
        """Who led each term."""
        self._timings = timings or Timings()
        self._limits = limits or Limits()
        self._sync_delay_ms = sync_delay_ms
        self._segment_frames = segment_frames
        self._lease_reads = lease_reads
        self._to_start = set(range(size) if start is None else start)
        ids = [NodeId(f"n{at}") for at in range(size)]
        self._founders = [Member(node_id, address_of(node_id)) for node_id in ids]
        self._joined: dict[NodeId, dict[str, str]] = {}
        """The peers in the configuration of nodes that joined."""
        self.nodes = {node_id: SimNode(self, node_id, self.new_log(node_id)) for node_id in ids}
        self._committed: dict[int, bytes] = {}

    def __getitem__(self, at: int) -> SimNode:
        return self.nodes[NodeId(f"n{at}")]

    async def __aenter__(self) -> Self:
        for at in sorted(self._to_start):
            await self[at].start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, _: TracebackType | None
    ) -> None:
        try:
            if failure is None:
                self.check()
        finally:
            for node in self.up():
                node.crash()

    def new_log(self, node_id: NodeId) -> MemoryLog:
        members = self._founders if node_id not in self._joined else []
        return MemoryLog(DEFAULT_GROUP, members, sync_delay_ms=self._sync_delay_ms, segment_frames=self._segment_frames)

    def copy_log(self, log: MemoryLog) -> MemoryLog:
        copied = copy.copy(log)
        copied._frames = list(log._frames)
        copied._state = log._state.copy()
        return copied

    def config_of(self, node_id: NodeId) -> NodeConfig:
        founders: dict[str, str] = {member.id: member.peer_address for member in self._founders}
        return NodeConfig(
            id=node_id,
            peers=self._joined.get(node_id, founders),
            address=address_of(node_id),
            data_dir=Path("in-memory"),
            lease_reads=self._lease_reads,
            timings=self._timings,
            limits=self._limits,
        )

    async def join(self, at: int) -> SimNode:
        """Starts node ``at``, which is no member, with those who are up as its peers."""
        node_id = NodeId(f"n{at}")
        self._joined[node_id] = {node.id: address_of(node.id) for node in self.up()}
        node = self.nodes[node_id] = SimNode(self, node_id, self.new_log(node_id))
        await node.start()
        return node

    def wall_clock_ms(self) -> int:
        return int(asyncio.get_running_loop().time() * 1000)

    def up(self) -> list[SimNode]:
        return [node for node in self.nodes.values() if node.is_up]

    def others(self, node: SimNode) -> list[SimNode]:
        return [other for other in self.nodes.values() if other is not node]

    # Waiting -----------------------------------------------------------------------------------------------------

    async def until(self, is_so: Callable[[], bool], within_s: float = 10.0) -> float:
        """How long it took. Raises TimeoutError."""
        loop = asyncio.get_running_loop()
        begun_s = loop.time()
        async with asyncio.timeout(within_s):
            while not is_so():  # noqa: ASYNC110 – what is waited for is any state of any part
                await asyncio.sleep(POLL_S)
        return loop.time() - begun_s

    async def leader(self, within_s: float = 5.0) -> SimNode:
        """The leader, once it has committed in its term, and is followed by all members that it can talk with, a
        majority of the voters."""
        found: list[SimNode] = []

        def is_settled() -> bool:
            leading = [node for node in self.up() if node.leads]
            found[:] = sorted(leading, key=lambda node: -node.replica.term)[:1]
            return bool(found) and found[0].replica.core.is_ready and self._follow(found[0])

        await self.until(is_settled, within_s)
        return found[0]

    def _follow(self, leader: SimNode) -> bool:
        membership = leader.replica.core.membership
        followers = [
            node
            for node in self.up()
            if node.id in membership.members
            and not self.faults.is_cut(leader.id, node.id)
            and not self.faults.is_cut(node.id, leader.id)
        ]
        is_enough = membership.is_quorum(node.id for node in followers)
        return is_enough and all(node.replica.leader_id == leader.id for node in followers)

    async def level(self, within_s: float = 5.0) -> None:
        """Until all running members have committed all that the leader has in its log."""
        leader = await self.leader(within_s)
        last = leader.log.last

        def is_level(node: SimNode) -> bool:
            return node.log.last == last and node.commit_position == last.position

        members = leader.replica.core.membership.members
        await self.until(lambda: all(is_level(node) for node in self.up() if node.id in members), within_s)

    # What must hold ----------------------------------------------------------------------------------------------

    def saw_leader(self, node: SimNode, term: Term) -> None:
        known = self.leaders.setdefault(term, node.id)
        assert known == node.id, f"{known} and {node.id} led term {term}"

    def check(self) -> None:
        """All nodes agree on what is committed, now and at every earlier call; no running node failed."""
        for node in self.nodes.values():
            assert node.failure is None, f"{node.id} stopped: {node.failure}"
        for node in self.up():
            for index, record in enumerate(node.committed(), node.first_index):
                assert self._committed.setdefault(index, record) == record, (
                    f"{node.id} committed another record {index}"
                )
        known: dict[Position, int] = {}
        for node in self.up():
            for position, chain in node.chains().items():
                assert known.setdefault(position, chain) == chain, f"{node.id} differs below its commit position"


async def outcome(appended: Awaitable[AppendResult]) -> AppendResult | Code:
    """The result, or the code of the refusal."""
    try:
        return await appended
    except DLedgerError as refusal:
        return refusal.code
