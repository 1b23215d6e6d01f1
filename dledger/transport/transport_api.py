"""How nodes speak: messages of one node to another, unordered and unreliable in principle, in order over TCP in fact.

``TcpTransport`` (peer.py) and the simulation's in-memory network have this interface. A message that cannot be sent now
is dropped and counted, never queued without bound: the sender's protocol sends again if need be. The transport knows
nothing of the messages: their type is a parameter, and their codec (codec.py) is handed in.

Two rules of Raft's groups rest on the order, so heartbeats may not have a connection of their own:

* A node that lost frames votes again when it has the frames that a heartbeat calls committed
  (``Replica.on_leader_commit``). That heartbeat must have been sent after the COMPARE that found the logs equal. An
  older one may name less than the leader has committed since, by counting what the node lost.
* A TAKE is void when APPENDs behind it made the log grow (``Inbox``): then that handover was given up.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol, TypeVar

from dledger.common.errors import PeerRefused
from dledger.common.types import NodeId

M = TypeVar("M")
M_contra = TypeVar("M_contra", contravariant=True)


class PeerIdentity(NamedTuple):
    """What a node says of itself in its hello (proto/dledger/v1/raft.proto, Hello)."""

    node_id: NodeId
    node_uuid: bytes
    start_count: int
    start_nonces: tuple[int, ...]
    """Of the last starts, in order; this one's is the last."""
    cluster_id: str
    client_address: str
    http_address: str
    peer_address: str = ""
    """Where nodes reach it."""
    is_new: bool = False
    """Its log is empty: it may be one of those that found a cluster."""


class HelloHandler(Protocol):
    """The node's part in a hello: what it says of itself, and whether it accepts a peer."""

    def check_peer(self, identity: PeerIdentity) -> None:
        """Judges a hello. Raises PeerRefused (UNKNOWN_CLUSTER, UNEXPECTED_MEMBER, UNKNOWN_MEMBER) to turn it away."""
        ...

    def local_identity(self) -> PeerIdentity:
        """What to say in a hello now (the cluster id may become known later)."""
        ...


class TransportHandler(HelloHandler, Protocol[M_contra]):
    """Told what happens on the connections. Called on the event loop, never concurrently; must not raise."""

    def on_message(self, sender: NodeId, message: M_contra) -> None: ...

    def on_connected(self, peer: NodeId) -> None:
        """Messages to ``peer`` can be sent from now on."""
        ...

    def on_disconnected(self, peer: NodeId) -> None:
        """The connection to or from ``peer`` closed: a hint, not a proof, that it is gone."""
        ...


class Transport(Protocol[M]):
    """One node's way to all its peers."""

    @property
    def refusals(self) -> dict[NodeId, PeerRefused]:
        """Why peers that were dialled are not connected: they turned this node away, or it them."""
        ...

    async def check_port(self) -> None:
        """Raises CONFIG_ERROR when it is in use, as ``start`` would."""
        ...

    async def start(self, handler: TransportHandler[M]) -> None:
        """Listens and begins to dial. Raises CONFIG_ERROR when the port is in use."""
        ...

    def set_peers(self, addresses: dict[NodeId, str]) -> None:
        """The peers to dial, and to go on dialling: id → host:port. Connections to others are closed."""
        ...

    def send(self, peer: NodeId, message: M) -> bool:
        """False when it was dropped: not connected, or the bounded buffer to ``peer`` is full."""
        ...

    def is_connected(self, peer: NodeId) -> bool: ...

    def dropped_messages(self, peer: NodeId) -> int:
        """How many ``send`` refused."""
        ...

    async def close(self) -> None: ...
