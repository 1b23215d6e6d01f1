"""A cluster of real nodes on simulated disks, clocks and wires."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random

from dledger.config import Limits, NodeConfig, Timings
from dledger.errors import Code, DLedgerError
from dledger.raft.messages import AppendResponse, Message, VoteResponse
from dledger.server.node import Node
from dledger.server.replica import Replica
from dledger.transport.memory import MemoryNetwork, MemoryTransport
from dledger.types import DEFAULT_GROUP, NodeId, Position, Role, Term
from tests.simulation.disk import DiskMood, Platter, SimDisk
from tests.simulation.trace import Trace
from tests.simulation.watch import Watch

LIMITS = Limits(
    segment_max_bytes=24 * 1024,
    segment_max_frames=200,
    tail_cache_bytes=8 * 1024,
    push_message_bytes=4 * 1024,
    read_message_bytes=4 * 1024,
    push_window_bytes=32 * 1024,
)


class WatchedTransport(MemoryTransport):
    """Shows the watch what a node says, before anybody hears it."""

    def __init__(self, network: MemoryNetwork, host: SimHost) -> None:
        super().__init__(network, host.id)
        self._host = host

    def send(self, peer: NodeId, message: Message) -> bool:
        self._host.says(peer, message)
        return super().send(peer, message)


class SimHost:
    """One machine over all its lives: its disk, its clock, and the node that runs there now, if any."""

    def __init__(self, cluster: SimulatedCluster, node_id: NodeId, address: str) -> None:
        self.id = node_id
        self.address = address
        self.peers: dict[str, str] = {}
        """Its configuration's."""
        self.mood = DiskMood()
        self.clock_ahead_ms = 0
        self._cluster = cluster
        self._disks = 0
        self._boots = 1
        self.platter = self._new_platter()
        self._disk: SimDisk | None = None
        self._node: Node | None = None
        self._transport: WatchedTransport | None = None
        self._promised = Position(0)
        """No crash may take these: durable by the word of the last life."""
        self._starting = False
        self.was_member = False
        """A machine that was removed is not taken again under the same name."""
        self.lives = 0

    def _new_platter(self) -> Platter:
        self._disks += 1
        platter = Platter(Random(self._cluster.random.getrandbits(64)))
        platter.mkdir("/data")
        return platter

    def wipe(self) -> None:
        """While down: another disk, and an empty one."""
        assert self._node is None
        self.platter = self._new_platter()
        self._promised = Position(0)

    def restore(self, backup: Platter) -> None:
        """While down: the disk is what it was when ``backup`` was made."""
        assert self._node is None
        self._disks += 1
        self.platter = backup
        self._promised = Position(0)

    @property
    def disk_name(self) -> str:
        return f"{self.id}/{self._disks}"

    @property
    def is_starting(self) -> bool:
        return self._starting

    @property
    def sectors_lost(self) -> int:
        return self.platter.sectors_lost

    @property
    def is_up(self) -> bool:
        return self._node is not None and not self._starting

    @property
    def replica(self) -> Replica:
        assert self._node is not None, f"{self.id} is down"
        return self._node.replicas[DEFAULT_GROUP]

    @property
    def leads(self) -> bool:
        return self.is_up and self.replica.role is Role.LEADER

    def wall_clock_ms(self) -> int:
        return int(asyncio.get_running_loop().time() * 1000) + self.clock_ahead_ms

    # Lives -------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        assert self._node is None
        self.lives += 1
        cluster = self._cluster
        disk = self._disk = SimDisk(self.platter, self.mood, f"boot-{self._boots}")
        transport = self._transport = WatchedTransport(cluster.network, self)
        self._starting = True
        node = self._node = Node(
            cluster.config_of(self),
            disk=disk,
            transport=transport,
            random=Random(cluster.random.getrandbits(64)),
            wall_clock_ms=self.wall_clock_ms,
        )
        node.add_listener(self._on_role)
        try:
            await node.open()
            if self._node is not node:
                return  # the power went meanwhile
            replica = node.replicas[DEFAULT_GROUP]
            cluster.trace.note("opened", self.id, replica.log.last, replica.core.term)
            cluster.watch.restarted(self.id, self.disk_name, replica, self._promised)
            self._starting = False
            await node.join()
        except DLedgerError as refusal:
            # A process that cannot start ends, and is started again by whoever watches over it.
            cluster.trace.hit("branch start refused", self.id, refusal.code.name, refusal)
            if self._node is node:
                self.crash(power=False)
        except asyncio.CancelledError:
            if not disk.is_dead:
                raise
        else:
            cluster.trace.note("started", self.id)

    def crash(self, *, power: bool = True) -> None:
        """The process ends at once; with ``power``, the machine forgets what was not synced too."""
        node, disk, transport = self._node, self._disk, self._transport
        if node is None or disk is None or transport is None:
            return
        if not self._starting:
            self._promised = self.replica.log.durable_position
        self._node = None
        self._starting = False
        disk.cut_power()
        transport.crash()
        for replica in node.replicas.values():
            replica.fail(Code.SHUTTING_DOWN, "the power was lost")
        if power:
            self.platter.crash()
            self._boots += 1
        else:
            self.platter.kill()
        self._cluster.trace.note("crashed", self.id, "power" if power else "kill", self._promised)

    async def stop(self) -> None:
        """A clean stop; after ten seconds the process is killed."""
        node = self._node
        assert node is not None
        try:
            async with asyncio.timeout(10):
                await node.stop()
        except TimeoutError:
            self.crash(power=False)
            return
        except OSError:
            if self._node is node:
                raise
            return  # the power went meanwhile
        if self._node is node:
            self._node = None
            self._promised = node.replicas[DEFAULT_GROUP].log.last.position

    def describe(self) -> str:
        if not self.is_up:
            return f"{self.id} {'starting' if self._starting else 'down'}"
        replica = self.replica
        return (
            f"{self.id} {replica.role.value} term {replica.term} last {replica.log.last.position} "
            f"commit {replica.core.commit_position}"
        )

    # What it says ------------------------------------------------------------------------------------------------

    def says(self, peer: NodeId, message: Message) -> None:
        watch = self._cluster.watch
        if self._cluster.network.is_up(self.id, peer):
            self._cluster.meets(self, peer)
        self._cluster.trace.note("send", self.id, peer, type(message).__name__, message.term)
        watch.sent(self.id, self.disk_name, message)
        if isinstance(message, VoteResponse):
            watch.granted(self.disk_name, peer, message)
        elif isinstance(message, AppendResponse):
            watch.acknowledged(self.id, message, self.replica)

    def _on_role(self, group: str, role: Role, term: Term, leader_id: NodeId) -> None:
        del group
        self._cluster.trace.note("role", self.id, role.value, term, leader_id)
        if role is Role.LEADER:
            self._cluster.watch.leads(self.id, term)


class SimulatedCluster:
    """``size`` machines; nothing runs before ``start``."""

    def __init__(self, size: int, seed: int, trace: Trace) -> None:
        self.random = Random(seed)
        self.trace = trace
        self.watch = Watch()
        self._met: dict[tuple[NodeId, NodeId], tuple[int, int, float]] = {}
        self._knows: dict[tuple[NodeId, NodeId], int] = {}
        self.network = MemoryNetwork(Random(seed + 1), latency_s=0.0005, jitter_s=0.002)
        self._timings = Timings()
        self.hosts: dict[NodeId, SimHost] = {}
        """Every machine there ever was, members or not."""
        for _ in range(size):
            self.new_host()
        peers = {str(host.id): host.address for host in self.hosts.values()}
        for host in self.hosts.values():
            host.peers = peers

    def new_host(self) -> SimHost:
        """A machine that nobody knows yet."""
        number = len(self.hosts)
        host = SimHost(self, NodeId(f"n{number}"), f"h{number}:{1000 + 10 * number}")
        self.hosts[host.id] = host
        return host

    def config_of(self, host: SimHost) -> NodeConfig:
        return NodeConfig(
            id=host.id,
            peers=host.peers,
            address=host.address,
            data_dir=Path(f"/data/{host.id}"),
            limits=LIMITS,
            timings=self._timings,
        )

    async def start(self) -> None:
        for host in self.hosts.values():
            await host.start()

    def meets(self, host: SimHost, peer: NodeId) -> None:
        """``host`` speaks with ``peer``; after a while it has durably noted which start of which disk that is."""
        now_s = asyncio.get_running_loop().time()
        other = self.hosts[peer]
        lives = (host.lives, other.lives)
        met = self._met.get((host.id, peer))
        if met is None or met[:2] != lives:
            self._met[host.id, peer] = (*lives, now_s)
        elif now_s > met[2] + 2.0:
            self._knows[host.id, peer] = other.lives

    def known_start(self, host: SimHost, peer: NodeId) -> int:
        """The newest life of ``peer`` that ``host`` durably knows of; 0: none."""
        return self._knows.get((host.id, peer), 0)

    def describe(self) -> str:
        return "; ".join(host.describe() for host in self.hosts.values())

    def up(self) -> list[SimHost]:
        return [host for host in self.hosts.values() if host.is_up]

    def down(self) -> list[SimHost]:
        return [host for host in self.hosts.values() if host._node is None]

    def leaders(self) -> list[SimHost]:
        return [host for host in self.up() if host.leads]

    def check(self) -> None:
        """Every node's commit agrees with everybody's."""
        for host in self.up():
            self.watch.commits(host.id, host.lives, host.replica)
