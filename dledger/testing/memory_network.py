"""A network in memory for simulations: the same interface as TCP, with faults on demand, and the same in every run.

Messages pass through the real codec, and arrive by the loop's timers, in order on each connection unless a rule says
otherwise. All randomness comes from the ``random.Random`` handed in.

What a connection does, as TCP would:

* It comes up a round trip after both nodes are there and nothing is cut between them, once both accept the other's
  hello. A refused one is tried again every ``RETRY_S``.
* A **cut** link loses messages silently, connected as it may look. ``disconnect`` closes it; both ends see that.
* When a node closes, its sent messages still arrive, and then all nodes that can hear it see it go. When it crashes, or
  cannot be heard, nothing arrives, and its peers notice when next they send, or after ``KEEPALIVE_S``.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from math import inf, nextafter
from random import Random

from dledger.common.errors import Code, PeerRefused, error
from dledger.common.types import NodeId
from dledger.raft import codec
from dledger.raft.messages import PeerMessage
from dledger.testing.network_faults import Faults
from dledger.transport.codec import Encoded
from dledger.transport.transport_api import TransportHandler

RETRY_S = 0.1
KEEPALIVE_S = 3.0
MAX_IN_FLIGHT = 100_000


@dataclass(slots=True)
class NetworkCounters:
    """Messages: every one accepted for sending is delivered, dropped, or in flight."""

    sent: int = 0
    delivered: int = 0
    dropped: int = 0
    duplicated: int = 0
    refused: int = 0
    """``send`` said False."""


@dataclass(slots=True, eq=False)
class _Connection:
    """From ``source`` to ``target``."""

    source: MemoryTransport
    target: MemoryTransport
    is_up: bool = False
    is_broken: bool = False
    """What is in flight is lost."""
    in_flight: int = 0
    last_arrival_s: float = 0.0


class MemoryNetwork:
    """All nodes of a simulation. ``latency_s`` (one way) and ``faults`` may be changed at any time."""

    def __init__(
        self,
        random: Random,
        *,
        latency_s: float = 0.001,
        jitter_s: float = 0.0,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        """``loop``: the clock by which messages travel, if nodes have clocks of their own; else the running loop's."""
        self.latency_s = latency_s
        self.jitter_s = jitter_s
        """Up to so much is added to each message's latency; the order on a connection stays."""
        self.faults = Faults(random)
        self.counters = NetworkCounters()
        self._random = random
        self._own_loop = loop
        self._nodes: dict[NodeId, MemoryTransport] = {}
        self._connections: dict[tuple[NodeId, NodeId], _Connection] = {}

    @property
    def _loop(self) -> asyncio.AbstractEventLoop:
        return self._own_loop or asyncio.get_running_loop()

    def transport(self, node: NodeId) -> MemoryTransport:
        """A transport for ``node``: one for each of its lives, as a closed one stays closed."""
        return MemoryTransport(self, node)

    # Faults that change connections; those that only lose or delay messages are in ``faults``. ---------------------

    def heal(self) -> None:
        """Ends all cuts, and lets everybody dial again."""
        self.faults.heal()
        self.dial()

    def disconnect(self, a: NodeId, b: NodeId) -> None:
        """Closes the connections between two nodes in both directions; they dial again at once."""
        for pair in ((a, b), (b, a)):
            if connection := self._connections.get(pair):
                self._break(connection)
        self.dial()

    # Nodes come and go. --------------------------------------------------------------------------------------------

    def join(self, transport: MemoryTransport) -> None:
        if transport.node in self._nodes:
            raise error(Code.CONFIG_ERROR, f"the network has a node {transport.node} already: close that one first")
        self._nodes[transport.node] = transport
        self.dial()

    def leave(self, transport: MemoryTransport, *, is_crash: bool) -> None:
        if self._nodes.get(transport.node) is not transport:
            return
        del self._nodes[transport.node]
        for connection in list(self._connections.values()):
            is_outbound = connection.source is transport
            if not is_outbound and connection.target is not transport:
                continue
            other = connection.target if is_outbound else connection.source
            is_heard = not is_crash and not self.faults.is_cut(transport.node, other.node)
            connection.is_broken |= is_crash
            if is_heard or is_outbound:
                self._close(connection, *((other,) if is_heard else ()))
            else:
                self._loop.call_later(KEEPALIVE_S, self._close, connection, other)

    # Connections. --------------------------------------------------------------------------------------------------

    def dial(self) -> None:
        """Begins every connection that should be and is not."""
        for source in list(self._nodes.values()):
            for peer in source.peers:
                self._dial_one(source, peer)
            for pair, connection in list(self._connections.items()):
                if pair[0] == source.node and pair[1] not in source.peers:
                    self._break(connection)

    def shut_out(self, target: MemoryTransport) -> None:
        """Ends the connections from nodes that are not its peers any more."""
        for pair, connection in list(self._connections.items()):
            if connection.target is target and connection.is_up and pair[0] not in target.peers:
                self._break(connection)

    def _dial_one(self, source: MemoryTransport, peer: NodeId, delay_s: float = 0.0) -> None:
        target = self._nodes.get(peer)
        if target is None or (source.node, peer) in self._connections or self._is_cut_either_way(source.node, peer):
            return
        connection = self._connections[source.node, peer] = _Connection(source, target)
        self._loop.call_later(delay_s + 2 * self._latency_s(), self._shake_hands, connection)

    def _shake_hands(self, connection: _Connection) -> None:
        source, target = connection.source, connection.target
        if not self._is_current(connection):
            return
        if self._is_cut_either_way(source.node, target.node) or self._nodes.get(target.node) is not target:
            self._forget(connection)
            self._dial_one(source, target.node, RETRY_S)  # it may have begun another life meanwhile
            return
        try:
            target.handler.check_peer(source.handler.local_identity())
            source.handler.check_peer(target.handler.local_identity())
        except PeerRefused as refusal:
            source.last_refusal = source.refusals[target.node] = refusal
            self._forget(connection)
            self._dial_one(source, target.node, RETRY_S)
            return
        connection.is_up = True
        source.refusals.pop(target.node, None)
        source.handler.on_connected(target.node)

    def _close(self, connection: _Connection, *told: MemoryTransport) -> None:
        """Ends a connection now; ``told`` hear of it behind what is in flight."""
        if not self._is_current(connection):
            return
        self._forget(connection)
        if not connection.is_up:
            return
        connection.is_up = False
        loop = self._loop
        for end in told:
            other = connection.target if end is connection.source else connection.source
            heard_s = max(loop.time() + self._latency_s(), nextafter(connection.last_arrival_s, inf))
            loop.call_at(heard_s, self._tell_closed, end, other.node)

    def _break(self, connection: _Connection) -> None:
        """Ends a connection with the messages in flight on it; both ends see that."""
        connection.is_broken = True
        self._close(connection, connection.source, connection.target)

    def _tell_closed(self, end: MemoryTransport, other: NodeId) -> None:
        if self._nodes.get(end.node) is end:
            end.handler.on_disconnected(other)
            self.dial()

    def _forget(self, connection: _Connection) -> None:
        del self._connections[connection.source.node, connection.target.node]

    def _is_current(self, connection: _Connection) -> bool:
        return self._connections.get((connection.source.node, connection.target.node)) is connection

    def _is_cut_either_way(self, a: NodeId, b: NodeId) -> bool:
        return self.faults.is_cut(a, b) or self.faults.is_cut(b, a)

    # Messages. -----------------------------------------------------------------------------------------------------

    def is_up(self, source: NodeId, target: NodeId) -> bool:
        connection = self._connections.get((source, target))
        return connection is not None and connection.is_up

    def send(self, source: NodeId, target: NodeId, message: PeerMessage) -> bool:
        """As ``Transport.send``. What the network loses was sent."""
        connection = self._connections.get((source, target))
        if connection is None or not connection.is_up or connection.in_flight >= MAX_IN_FLIGHT:
            self.counters.refused += 1
            return False
        self.counters.sent += 1
        if self._nodes.get(target) is not connection.target:
            self._reset(connection)
            return True
        fate = self.faults.judge(source, target, message)
        if fate.is_dropped:
            self.counters.dropped += 1
            return True
        cluster_id = connection.source.handler.local_identity().cluster_id
        encoded = codec.encode(message, cluster_id=cluster_id, sender=source)
        self.counters.duplicated += fate.copies - 1
        self._put_in_flight(connection, encoded, fate.delay_s, overtakes=fate.overtakes)
        for _ in range(1, fate.copies):
            overtakes = fate.overtakes or fate.echo_s > 0
            self._put_in_flight(connection, encoded, fate.delay_s + fate.echo_s, overtakes=overtakes)
        return True

    def _reset(self, connection: _Connection) -> None:
        """The node it was made with is gone: what is sent is lost, and answered with a reset unless cut."""
        self.counters.dropped += 1
        if not self._is_cut_either_way(connection.source.node, connection.target.node):
            self._close(connection, connection.source)

    def _put_in_flight(self, connection: _Connection, encoded: Encoded, delay_s: float, *, overtakes: bool) -> None:
        loop = self._loop
        arrival_s = loop.time() + self._latency_s() + delay_s
        if not overtakes:
            # Strictly later than the one before: timers of the same instant have no order among themselves.
            arrival_s = max(arrival_s, nextafter(connection.last_arrival_s, inf))
            connection.last_arrival_s = arrival_s
        connection.in_flight += 1
        loop.call_at(arrival_s, self._deliver, connection, encoded)

    def _deliver(self, connection: _Connection, encoded: Encoded) -> None:
        source, target = connection.source.node, connection.target
        connection.in_flight -= 1
        is_lost = connection.is_broken or self.faults.is_cut(source, target.node)
        if is_lost or self._nodes.get(target.node) is not target:
            self.counters.dropped += 1
            return
        cluster_id = target.handler.local_identity().cluster_id
        body = b"".join(encoded.body)
        try:
            message = codec.decode(encoded.header, body, cluster_id=cluster_id, sender=source)
        except PeerRefused as refusal:
            target.last_refusal = refusal
            self.counters.dropped += 1
            self._break(connection)
            return
        self.counters.delivered += 1
        target.handler.on_message(source, message)

    def _latency_s(self) -> float:
        return self.latency_s + (self._random.uniform(0, self.jitter_s) if self.jitter_s else 0.0)


class MemoryTransport:
    """One life of one node on a ``MemoryNetwork``: a ``Transport``."""

    def __init__(self, network: MemoryNetwork, node: NodeId) -> None:
        self.node = node
        self.peers: tuple[NodeId, ...] = ()
        """In a fixed order: what a simulation does must not depend on how strings hash."""
        self.last_refusal: PeerRefused | None = None
        self.refusals: dict[NodeId, PeerRefused] = {}
        """Why the last dial, or message of a peer, was turned away, for tests."""
        self._network = network
        self._handler: TransportHandler[PeerMessage] | None = None
        self._dropped: dict[NodeId, int] = {}

    def __repr__(self) -> str:
        return f"MemoryTransport({self.node})"

    @property
    def handler(self) -> TransportHandler[PeerMessage]:
        assert self._handler is not None, "start comes first"
        return self._handler

    async def check_port(self) -> None:
        """There is none."""

    async def start(self, handler: TransportHandler[PeerMessage]) -> None:
        """Joins the network. Raises CONFIG_ERROR when another life of this node is still there."""
        self._handler = handler
        self._network.join(self)

    def set_peers(self, addresses: dict[NodeId, str]) -> None:
        """The peers to dial; the addresses are not looked at."""
        self.peers = tuple(peer for peer in addresses if peer != self.node)
        self._network.shut_out(self)
        self._network.dial()

    def send(self, peer: NodeId, message: PeerMessage) -> bool:
        sent = self._network.send(self.node, peer, message)
        if not sent:
            self._dropped[peer] = self._dropped.get(peer, 0) + 1
        return sent

    def is_connected(self, peer: NodeId) -> bool:
        return self._network.is_up(self.node, peer)

    def dropped_messages(self, peer: NodeId) -> int:
        return self._dropped.get(peer, 0)

    async def close(self) -> None:
        """Leaves the network for good, as a process that ends: its sent messages still arrive."""
        self._network.leave(self, is_crash=False)

    def crash(self) -> None:
        """Leaves the network for good, as a machine without power: nobody is told."""
        self._network.leave(self, is_crash=True)
