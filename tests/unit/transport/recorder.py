"""A handler that writes down what it is told, and can be waited for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from dledger.raft.messages import Message
from dledger.transport.api import PeerIdentity
from dledger.types import NodeId


class Recorder:
    """A ``TransportHandler``. ``judge`` stands in for the node's own judgement of a hello."""

    def __init__(
        self, node: str, *, cluster_id: str = "c", judge: Callable[[PeerIdentity], None] | None = None
    ) -> None:
        self.node = NodeId(node)
        self.cluster_id = cluster_id
        self.judge = judge
        self.messages: list[tuple[NodeId, Message]] = []
        self.connected: list[NodeId] = []
        self.disconnected: list[NodeId] = []
        self.hellos: list[PeerIdentity] = []
        self._changed = asyncio.Condition()
        self._notifying: set[asyncio.Task[None]] = set()

    def on_message(self, sender: NodeId, message: Message) -> None:
        self.messages.append((sender, message))
        self._notify()

    def on_connected(self, peer: NodeId) -> None:
        self.connected.append(peer)
        self._notify()

    def on_disconnected(self, peer: NodeId) -> None:
        self.disconnected.append(peer)
        self._notify()

    def check_peer(self, identity: PeerIdentity) -> None:
        self.hellos.append(identity)
        self._notify()
        if self.judge is not None:
            self.judge(identity)

    def local_identity(self) -> PeerIdentity:
        return PeerIdentity(self.node, f"uuid-{self.node}".encode(), 1, 7, self.cluster_id, "client:1", "http:2")

    def _notify(self) -> None:
        async def notify() -> None:
            async with self._changed:
                self._changed.notify_all()

        task = asyncio.get_running_loop().create_task(notify())
        self._notifying.add(task)
        task.add_done_callback(self._notifying.discard)

    async def until(self, holds: Callable[[], bool]) -> None:
        """Returns when ``holds`` does; it is asked again after each thing told."""
        async with asyncio.timeout(10), self._changed:
            await self._changed.wait_for(holds)
