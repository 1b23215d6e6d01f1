"""Heartbeats of many groups to one peer travel together.

A process may hold hundreds of Raft groups, and each leader sends a heartbeat to each follower several times a second.
``HeartbeatCoalescer`` stands between the groups and the transport. It holds heartbeats, and their answers, until the
end of the event loop's turn, and sends those to one peer as one message. Raft does not know of it: the receiver takes
the message apart with ``rows_of``, and each row counts for its own group, term and round alone.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import TypeVar

from dledger.common.types import NodeId
from dledger.raft.messages import (
    Heartbeat,
    HeartbeatBatch,
    HeartbeatResponse,
    HeartbeatResponseBatch,
    Message,
    PeerMessage,
)
from dledger.transport.framing import MAX_HEADER_BYTES
from dledger.transport.transport_api import Transport

Row = TypeVar("Row", Heartbeat, HeartbeatResponse)

MAX_ROW_BYTES = 48
"""More than the encoded numbers of one row take; its group's name comes on top."""
MAX_ROWS_BYTES = MAX_HEADER_BYTES - 4096
"""Of one batch: a header has to hold it beside the ids of the cluster and of the sender."""


def rows_of(message: PeerMessage) -> Sequence[Message]:
    """The messages that ``message`` carries, in the order they were sent."""
    if isinstance(message, HeartbeatBatch | HeartbeatResponseBatch):
        return message.rows
    return (message,)


class _Waiting:
    """What is to be sent to one peer at the end of this turn."""

    __slots__ = ("heartbeats", "kinds", "responses", "size_bytes")

    def __init__(self) -> None:
        self.heartbeats: list[Heartbeat] = []
        self.responses: list[HeartbeatResponse] = []
        self.kinds: dict[str, type[Message]] = {}
        """By group: which of the two waits. Both of one group never wait together, as that would lose their order."""
        self.size_bytes = 0
        """No less than the rows take on the wire."""

    def add(self, message: Heartbeat | HeartbeatResponse, size_bytes: int) -> None:
        if isinstance(message, Heartbeat):
            self.heartbeats.append(message)
        else:
            self.responses.append(message)
        self.kinds[message.group] = type(message)
        self.size_bytes += size_bytes


class HeartbeatCoalescer:
    """Sends all messages of this node's groups. The order of the messages of one group to one peer stays as it was."""

    def __init__(self, transport: Transport[PeerMessage]) -> None:
        self._transport = transport
        self._waiting: dict[NodeId, _Waiting] = {}
        self._rows_dropped: Counter[NodeId] = Counter()
        """Rows of dropped batches, less the one for each batch that the transport counts itself."""

    def send(self, peer: NodeId, message: Message) -> bool:
        """False when the message was dropped. True for a heartbeat, or an answer to one, that is to leave at the end of
        the turn: if it is dropped then, it is only counted."""
        if isinstance(message, Heartbeat | HeartbeatResponse):
            return self._hold(peer, message)
        waiting = self._waiting.get(peer)
        if waiting is not None and message.group in waiting.kinds:
            self._flush(peer)
        return self._transport.send(peer, message)

    def dropped_messages(self, peer: NodeId) -> int:
        """How many messages to ``peer`` were dropped, each heartbeat of a batch for itself."""
        return self._transport.dropped_messages(peer) + self._rows_dropped[peer]

    def _hold(self, peer: NodeId, message: Heartbeat | HeartbeatResponse) -> bool:
        if not self._transport.is_connected(peer):
            return self._transport.send(peer, message)
        size_bytes = MAX_ROW_BYTES + len(message.group.encode())
        waiting = self._waiting.get(peer)
        if waiting is not None and (
            waiting.kinds.get(message.group, type(message)) is not type(message)
            or waiting.size_bytes + size_bytes > MAX_ROWS_BYTES
        ):
            self._flush(peer)
            waiting = None
        if waiting is None:
            if not self._waiting:
                asyncio.get_running_loop().call_soon(self._flush_all)
            waiting = self._waiting[peer] = _Waiting()
        waiting.add(message, size_bytes)
        return True

    def _flush_all(self) -> None:
        for peer in list(self._waiting):
            self._flush(peer)

    def _flush(self, peer: NodeId) -> None:
        waiting = self._waiting.pop(peer)
        if waiting.heartbeats:
            whole = HeartbeatBatch(tuple(waiting.heartbeats)) if len(waiting.heartbeats) > 1 else waiting.heartbeats[0]
            self._send(peer, whole)
        if waiting.responses:
            answers = waiting.responses
            self._send(peer, HeartbeatResponseBatch(tuple(answers)) if len(answers) > 1 else answers[0])

    def _send(self, peer: NodeId, message: PeerMessage) -> None:
        if not self._transport.send(peer, message):
            self._rows_dropped[peer] += len(rows_of(message)) - 1
