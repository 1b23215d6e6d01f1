"""Heartbeats of many groups between two nodes travel together.

A process may hold hundreds of Raft groups, and each leader sends a heartbeat to each follower several times a second::

    leaders' timers ──▶ HeartbeatCoalescer ── one message a peer and turn ──▶ HeartbeatTaker ──▶ each row's group
                  (holds rows until the                                       │ nothing changes: answered at once
                   end of the turn)                                           └ else: as any message of the group

Raft does not know of it: each row counts for its own group, term and round alone.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from dledger.common.types import NodeId
from dledger.group.replica import Replica
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

    def has_place_for(self, message: Heartbeat | HeartbeatResponse, size_bytes: int) -> bool:
        """Whether it may leave together with what waits."""
        kind = type(message)
        is_in_order = self.kinds.get(message.group, kind) is kind
        return is_in_order and self.size_bytes + size_bytes <= MAX_ROWS_BYTES

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
        self._last_batch: HeartbeatBatch | None = None

    def send(self, peer: NodeId, message: Message) -> bool:
        """False when the message was dropped. True for a heartbeat, or an answer to one, that is to leave at the end of
        the turn. If it is dropped then, it is only counted."""
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
        size_bytes = MAX_ROW_BYTES + len(message.group.encode())
        waiting = self._waiting.get(peer)
        if waiting is not None and waiting.has_place_for(message, size_bytes):
            waiting.add(message, size_bytes)
            return True
        if not self._transport.is_connected(peer):
            return self._transport.send(peer, message)
        if waiting is not None:
            self._flush(peer)
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self._flush_all)
        self._waiting[peer] = waiting = _Waiting()
        waiting.add(message, size_bytes)
        return True

    def _flush_all(self) -> None:
        for peer in list(self._waiting):
            self._flush(peer)

    def _flush(self, peer: NodeId) -> None:
        waiting = self._waiting.pop(peer)
        if waiting.heartbeats:
            beats = waiting.heartbeats
            self._send(peer, self._batch_of(tuple(beats)) if len(beats) > 1 else beats[0])
        if waiting.responses:
            answers = waiting.responses
            self._send(peer, HeartbeatResponseBatch(tuple(answers)) if len(answers) > 1 else answers[0])

    def _batch_of(self, rows: tuple[Heartbeat, ...]) -> HeartbeatBatch:
        """One object for every peer that gets the same rows, so it is encoded once."""
        last = self._last_batch
        if last is None or last.rows != rows:
            last = self._last_batch = HeartbeatBatch(rows)
        return last

    def _send(self, peer: NodeId, message: PeerMessage) -> None:
        if not self._transport.send(peer, message):
            self._rows_dropped[peer] += len(rows_of(message)) - 1


class HeartbeatTaker:
    """Gives what arrives from other nodes to its groups. ``deliver`` takes one message of one group.

    Nearly all that an idle group hears changes nothing. That is answered without the group's queue of effects; whether
    it is so is Raft's to say (``RaftNode.answer_if_steady``, ``take_if_steady``).
    """

    def __init__(
        self,
        replicas: Mapping[str, Replica],
        send: Callable[[NodeId, Message], bool],
        deliver: Callable[[NodeId, Message], None],
        wall_clock_ms: Callable[[], int],
    ) -> None:
        self._replicas = replicas
        self._send = send
        self._deliver = deliver
        self._wall_clock_ms = wall_clock_ms

    def take(self, sender: NodeId, message: PeerMessage) -> None:
        """Every row goes to its own group, in the order they were sent."""
        if isinstance(message, HeartbeatBatch):
            self._answer(sender, message.rows)
        elif isinstance(message, Heartbeat):
            self._answer(sender, (message,))
        elif isinstance(message, HeartbeatResponseBatch):
            self._take_answers(sender, message.rows)
        elif isinstance(message, HeartbeatResponse):
            self._take_answers(sender, (message,))
        else:
            self._deliver(sender, message)

    def _answer(self, sender: NodeId, rows: Sequence[Heartbeat]) -> None:
        now_ms, wall_clock_ms = asyncio.get_running_loop().time() * 1000, max(0, self._wall_clock_ms())
        replicas, send = self._replicas, self._send
        for row in rows:
            replica = replicas.get(row.group)
            answer = None if replica is None else replica.answer_if_steady(sender, row, now_ms, wall_clock_ms)
            if answer is not None:
                send(sender, answer)
            else:
                self._deliver(sender, row)

    def _take_answers(self, sender: NodeId, rows: Sequence[HeartbeatResponse]) -> None:
        now_ms, replicas = asyncio.get_running_loop().time() * 1000, self._replicas
        for row in rows:
            replica = replicas.get(row.group)
            if replica is None or not replica.take_if_steady(sender, row, now_ms):
                self._deliver(sender, row)
