"""Inbox: hands each message of another node to the part it is meant for."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from dledger.common.limited_log import LimitedLog
from dledger.common.types import LogPoint, NodeId
from dledger.group.context import GroupContext
from dledger.group.follower.entry_handler import EntryHandler
from dledger.group.leader.entry_dispatcher import EntryDispatcher
from dledger.group.repair.frame_exchange import FrameExchange
from dledger.raft.messages import (
    MAX_TERM_LEAP,
    Append,
    AppendResponse,
    Compare,
    CompareResponse,
    Fetch,
    FetchResponse,
    Heartbeat,
    HeartbeatResponse,
    MachineReport,
    Message,
    PushResult,
    Reset,
    ResetResponse,
    TakeLeadership,
    Truncate,
    TruncateResponse,
    VoteRequest,
    VoteResponse,
)

logger = logging.getLogger(__name__)

DISK_FULL_PAUSE_MS = 500
MAX_TAKES = 16
"""TAKEs that wait for their second look; a leader sends one, and a network may double it."""


class Inbox:
    def __init__(
        self,
        context: GroupContext,
        handler: EntryHandler,
        dispatchers: Mapping[NodeId, EntryDispatcher],
        exchange: FrameExchange,
    ) -> None:
        self._context = context
        self._exchange = exchange
        self._core = context.core
        self._handler = handler
        self._dispatchers = dispatchers
        self._heartbeat_sent_s: dict[NodeId, float] = {}
        self._limited_log = LimitedLog(logger)
        self._takes: list[tuple[TakeLeadership, LogPoint]] = []
        """Each TAKE to be looked at again once all arrived messages are taken, and the end of the log when it came."""

    def heartbeat_sent(self, peer: NodeId) -> None:
        """For the round trip that the metrics show."""
        self._heartbeat_sent_s.setdefault(peer, self._context.now_s())

    def take_if_steady(self, sender: NodeId, answer: HeartbeatResponse, now_ms: float) -> bool:
        """An answer to a heartbeat, if it confirms nothing new."""
        is_taken = self._core.take_if_steady(sender, answer, now_ms)
        if is_taken:
            self._observe_round_trip(sender)
        return is_taken

    def take(self, sender: NodeId, message: Message) -> None:
        if message.term - self._core.term >= MAX_TERM_LEAP:
            self._disbelieve(sender, "speaks of a term out of reach", term=message.term)
            return
        now_ms = self._context.now_ms()
        core = self._core
        match message:
            case Append() | Compare() | Truncate() | Reset():
                self._handler.on_push(sender, message)
            case AppendResponse():
                self._on_append_response(sender, message, now_ms)
            case Heartbeat():
                core.on_heartbeat(sender, message, now_ms, max(0, self._context.wall_clock_ms()))
                if core.leader_id == sender and core.term == message.term:
                    self._context.on_leader_commit(message.commit_position)
            case HeartbeatResponse():
                self._observe_round_trip(sender)
                core.on_heartbeat_response(sender, message, now_ms)
            case CompareResponse() | TruncateResponse() | ResetResponse():
                self._on_push_response(sender, message, now_ms)
            case VoteRequest() | VoteResponse() | TakeLeadership():
                self._on_ballot(sender, message, now_ms)
            case Fetch() | FetchResponse():
                self._exchange.on_message(sender, message)
            case MachineReport():
                self._context.machine.on_report(sender, message, now_ms)

    def _on_ballot(self, sender: NodeId, message: VoteRequest | VoteResponse | TakeLeadership, now_ms: float) -> None:
        match message:
            case VoteRequest():
                self._tell_ballot("a candidate asks for a vote", sender, message, last=message.last_position)
                self._core.on_vote_request(sender, message, now_ms, max(0, self._context.wall_clock_ms()))
            case VoteResponse():
                self._tell_ballot("a voter answers", sender, message, result=message.result.name)
                self._core.on_vote_response(sender, message, now_ms)
            case TakeLeadership():
                self._on_take_leadership(sender, message, now_ms)

    def _tell_ballot(self, event: str, peer: NodeId, message: VoteRequest | VoteResponse, **fields: object) -> None:
        said = {"term": message.term, "is_pre_vote": message.is_pre_vote, **fields}
        logger.debug(event, extra={"group": self._context.group, "peer": peer, **said})

    def _on_take_leadership(self, sender: NodeId, message: TakeLeadership, now_ms: float) -> None:
        """A process that stood still finds an old TAKE. Behind it lie messages from after its leader had given that
        handover up. So the arrived messages are taken first, and the TAKE is void if they made the log grow. While a
        TAKE counts, the leader appends nothing."""
        last = self._context.log.last
        for at, (awaited, end) in enumerate(self._takes):
            if awaited is message:
                del self._takes[at]
                if end == last:
                    self._core.on_take_leadership(sender, message, now_ms)
                return
        if len(self._takes) < MAX_TAKES:
            self._takes.append((message, last))
            asyncio.get_running_loop().call_soon(self._context.on_message, sender, message)

    def _disbelieve(self, sender: NodeId, what: str, **fields: object) -> None:
        """No sane node says it: it is passed over, and changes nothing."""
        fields |= {"group": self._context.group, "peer": sender}
        self._limited_log.say(logging.ERROR, f"{sender} {what}", self._context.now_s(), f"a member {what}", **fields)

    def _observe_round_trip(self, sender: NodeId) -> None:
        sent_s = self._heartbeat_sent_s.pop(sender, None)
        if sent_s is not None:
            self._context.metrics.peer(sender).round_trip_s.observe(self._context.now_s() - sent_s)

    def _on_append_response(self, sender: NodeId, answer: AppendResponse, now_ms: float) -> None:
        leadership = self._core.hear_follower(sender, answer.term, now_ms)
        dispatcher = self._dispatchers.get(sender)
        if leadership is None or dispatcher is None:
            return
        progress, log = dispatcher.progress, self._context.log
        if answer.position > log.last.position:
            what = "acknowledges what was never sent to it"
            self._disbelieve(sender, what, position=answer.position, last=log.last.position)
            return
        if answer.result is PushResult.DISK_FULL:
            progress.restart(log.last.position)
            progress.paused_until_ms = now_ms + DISK_FULL_PAUSE_MS
        elif progress.on_append(answer, log.last.position, now_ms):
            self._core.advance(log.durable_position, now_ms)
        dispatcher.push()

    def _on_push_response(
        self, sender: NodeId, answer: CompareResponse | TruncateResponse | ResetResponse, now_ms: float
    ) -> None:
        leadership = self._core.hear_follower(sender, answer.term, now_ms)
        dispatcher = self._dispatchers.get(sender)
        if leadership is None or dispatcher is None:
            return
        match answer:
            case CompareResponse():
                dispatcher.on_compare_response(answer)
            case ResetResponse():
                dispatcher.on_reset_response(answer)
            case TruncateResponse():
                dispatcher.progress.on_truncate(answer, self._context.log.last.position)
                dispatcher.wake()
