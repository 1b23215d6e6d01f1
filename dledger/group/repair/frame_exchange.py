"""FrameExchange: a group's giving and taking of frames by FETCH, and the repair of its log that rests on it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from dledger.common.types import NodeId
from dledger.group.repair.frame_client import FrameClient
from dledger.group.repair.frame_server import Correspondent, FrameServer, FrameSource
from dledger.group.repair.repairer import Repairable, Repairer
from dledger.log.log_api import DamagedRange
from dledger.raft.messages import Fetch, FetchResponse


class ExchangedLog(FrameSource, Repairable, Protocol):
    """``api.Log``, or a ``DamagedLog``."""


class FrameExchange:
    def __init__(
        self,
        context: Correspondent,
        log: ExchangedLog,
        on_trimmed: Callable[[NodeId, DamagedRange], None] | None = None,
    ) -> None:
        self._context = context
        self._log = log
        self._server = FrameServer(context, log)
        self.client = FrameClient(context)
        self.repairer = Repairer(context, log, self.client, on_trimmed)
        self._known: list[DamagedRange] = []

    def on_message(self, sender: NodeId, message: Fetch | FetchResponse) -> None:
        if isinstance(message, Fetch):
            self._server.on_fetch(sender, message)
        else:
            self.client.on_response(sender, message)

    def on_damage(self) -> bool:
        """What is known to be damaged has changed: counts it, and sees to it. Whether anything is left."""
        damaged, metrics = self._log.damaged(), self._context.metrics
        metrics.damaged_frames = sum(each.frames for each in damaged)
        metrics.corruptions_found += sum(each.frames for each in damaged if each not in self._known)
        self._known = damaged
        if damaged:
            self.repairer.wake()
        return bool(damaged)

    def on_connected(self, peer: NodeId) -> None:
        self.client.on_connected(peer)
        self.repairer.wake()

    def on_disconnected(self, peer: NodeId) -> None:
        self.client.on_disconnected(peer)

    def stop(self) -> None:
        self.repairer.stop()
        self._server.stop()
