"""The wires between simulated processes: what arrives where nothing runs now waits, and no hello is answered there."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import TYPE_CHECKING

from dledger.common.types import NodeId
from dledger.node.heartbeats import rows_of
from dledger.raft.messages import PeerMessage
from dledger.testing.memory_network import RETRY_S, MemoryNetwork, MemoryTransport, _Connection
from dledger.testing.network_faults import Fate, Faults
from dledger.transport.transport_api import PeerIdentity, TransportHandler

if TYPE_CHECKING:
    from tests.simulation.host import SimHost
    from tests.simulation.life import Life


class _Gate:
    """Where messages enter a process: a ``TransportHandler`` that the network may call from outside."""

    def __init__(self, life: Life, handler: TransportHandler[PeerMessage]) -> None:
        self._process = life.process
        self._hosts = life.host.cluster.hosts
        self._life = life
        self._met = life.met
        self._handler = handler

    def on_message(self, sender: NodeId, message: PeerMessage) -> None:
        self._process.call_soon(self._take, sender, message)

    def _take(self, sender: NodeId, message: PeerMessage) -> None:
        now_ms = self._process.time() * 1000
        for each in rows_of(message):
            self._life.of(each.group).heard_ms[sender] = now_ms
        self._handler.on_message(sender, message)

    def on_connected(self, peer: NodeId) -> None:
        self._process.call_soon(self._handler.on_connected, peer)

    def on_disconnected(self, peer: NodeId) -> None:
        self._process.call_soon(self._handler.on_disconnected, peer)

    def check_peer(self, identity: PeerIdentity) -> None:
        with self._process:
            self._handler.check_peer(identity)
        self._met[identity.node_id] = self._hosts[identity.node_id].disk_name

    def local_identity(self) -> PeerIdentity:
        return self._handler.local_identity()


class WatchedTransport(MemoryTransport):
    """Shows the watch what a node says, before anybody hears it."""

    def __init__(self, network: SimNetwork, host: SimHost, life: Life) -> None:
        super().__init__(network, host.id)
        self._host = host
        self._life = life

    async def start(self, handler: TransportHandler[PeerMessage]) -> None:
        await super().start(_Gate(self._life, handler))

    def send(self, peer: NodeId, message: PeerMessage) -> bool:
        if self._life.process.has_ended:
            return False
        for each in rows_of(message):
            self._host.says(peer, each)
        return super().send(peer, message)

    @property
    def is_silent(self) -> bool:
        """The process stands still: the kernel takes what comes, and nobody answers a hello."""
        return self._life.process.is_paused


class CountedFaults(Faults):
    """Counts what befalls messages, each where it does."""

    def __init__(self, random: Random, hits: Counter[str]) -> None:
        super().__init__(random)
        self._hits = hits

    def judge(self, source: NodeId, target: NodeId, message: PeerMessage) -> Fate:
        fate, hits = super().judge(source, target, message), self._hits
        if fate.is_dropped:
            hits["fault message cut off" if self.is_cut(source, target) else "fault message lost"] += 1
            return fate
        hits["fault message doubled"] += fate.copies > 1
        hits["fault message out of order"] += fate.overtakes
        hits["fault message late"] += fate.delay_s > 0
        return fate


class SimNetwork(MemoryNetwork):
    def mend(self) -> None:
        """Everything arrives, once and in order, and every link is there."""
        self.faults.clear()
        self.heal()

    def _shake_hands(self, connection: _Connection) -> None:
        if self._is_current(connection) and any(
            isinstance(end, WatchedTransport) and end.is_silent for end in (connection.source, connection.target)
        ):
            self._forget(connection)
            self._dial_one(connection.source, connection.target.node, RETRY_S)
            return
        super()._shake_hands(connection)
