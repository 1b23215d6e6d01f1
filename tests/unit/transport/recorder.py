"""A handler, and a log, that write down what they are told, and can be waited for."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Self

from dledger.common.types import NodeId
from dledger.raft.messages import PeerMessage
from dledger.transport.transport_api import PeerIdentity


class Condition:
    """Something told one after the other, and waited for without polling."""

    def __init__(self) -> None:
        self._told = asyncio.Event()

    def notify(self) -> None:
        self._told.set()

    async def until(self, holds: Callable[[], bool]) -> None:
        """Returns when ``holds`` does; it is asked again after each thing told."""
        async with asyncio.timeout(10):
            while not holds():
                self._told.clear()
                await self._told.wait()


class LogRecorder(logging.Handler):
    """The records of one logger and those below it, while the context lasts."""

    def __init__(self, name: str) -> None:
        super().__init__(logging.INFO)
        self.records: list[dict[str, object]] = []
        self._logger = logging.getLogger(name)
        self._condition = Condition()

    def __enter__(self) -> Self:
        self._level = self._logger.level
        self._logger.setLevel(logging.INFO)
        self._logger.addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        self._logger.removeHandler(self)
        self._logger.setLevel(self._level)

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(vars(record) | {"event": record.getMessage()})
        self._condition.notify()

    def of(self, event: str) -> list[dict[str, object]]:
        return [record for record in self.records if record["event"] == event]

    async def until(self, event: str, count: int = 1) -> dict[str, object]:
        """The ``count``-th record that says ``event``, as soon as it is there."""
        await self._condition.until(lambda: len(self.of(event)) >= count)
        return self.of(event)[count - 1]


class Recorder(Condition):
    """A ``TransportHandler``. ``judge`` stands in for the node's own judgement of a hello."""

    def __init__(
        self, node: str, *, cluster_id: str = "c", judge: Callable[[PeerIdentity], None] | None = None
    ) -> None:
        super().__init__()
        self.node = NodeId(node)
        self.cluster_id = cluster_id
        self.judge = judge
        self.messages: list[tuple[NodeId, PeerMessage]] = []
        self.connected: list[NodeId] = []
        self.disconnected: list[NodeId] = []
        self.hellos: list[PeerIdentity] = []

    def on_message(self, sender: NodeId, message: PeerMessage) -> None:
        self.messages.append((sender, message))
        self.notify()

    def on_connected(self, peer: NodeId) -> None:
        self.connected.append(peer)
        self.notify()

    def on_disconnected(self, peer: NodeId) -> None:
        self.disconnected.append(peer)
        self.notify()

    def check_peer(self, identity: PeerIdentity) -> None:
        self.hellos.append(identity)
        self.notify()
        if self.judge is not None:
            self.judge(identity)

    def local_identity(self) -> PeerIdentity:
        return PeerIdentity(self.node, f"uuid-{self.node}".encode(), 1, (7,), self.cluster_id, "client:1", "http:2")
