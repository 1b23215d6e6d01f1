"""One node's share of one group: the decisions (raft/), the log (storage/) and the way to the others, tied together.

Everything runs on one event loop and in one order: messages, the timer and what became durable go into the core; the
Elector does what the core wants, persisting before it speaks. The parts: Appender (the leader's intake),
EntryDispatcher (one task per follower), EntryHandler (a follower's side), QuorumAckChecker, Reader.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from random import Random
from typing import Protocol

from dledger.config import NodeConfig
from dledger.errors import Code, DLedgerError, error
from dledger.metrics.group import GroupMetrics
from dledger.raft.effects import Committed, Effect, Persist, ReadsConfirmed, RoleChanged, Send, TransferEnded
from dledger.raft.membership import Membership
from dledger.raft.messages import (
    NOBODY,
    Append,
    AppendResponse,
    Compare,
    CompareResponse,
    Heartbeat,
    HeartbeatResponse,
    Message,
    PushResult,
    TakeLeadership,
    Truncate,
    TruncateResponse,
    VoteRequest,
    VoteResponse,
)
from dledger.raft.node import RaftNode
from dledger.server.appender import Appender
from dledger.server.commit_index import CommitIndex
from dledger.server.elector import Elector, HardStateSaver
from dledger.server.entry_dispatcher import EntryDispatcher
from dledger.server.entry_handler import EntryHandler
from dledger.server.quorum_ack_checker import QuorumAckChecker
from dledger.server.reader import Reader
from dledger.storage.api import Log
from dledger.storage.frame import Frame
from dledger.storage.hard_state import HardState
from dledger.types import NodeId, Position, Role, Term

logger = logging.getLogger(__name__)

MAX_HELD_MESSAGES = 10_000
"""Messages kept while a save or a truncation is under way; more are dropped, as a network would."""

DISK_FULL_PAUSE_MS = 500


class Host(Protocol):
    """What a replica asks of the node it lives in."""

    def send(self, peer: NodeId, message: Message) -> bool: ...

    def is_connected(self, peer: NodeId) -> bool: ...

    def messages_dropped(self, peer: NodeId) -> int:
        """How many were not sent to ``peer``: not connected, or its buffer full."""
        ...

    def client_address(self, node_id: NodeId) -> str:
        """Where clients reach it; empty when unknown."""
        ...

    def on_role(self, group: str, role: Role, term: Term, leader_id: NodeId) -> None: ...

    def on_failure(self, group: str, failure: DLedgerError) -> None:
        """The replica stopped for good."""
        ...


class Replica:
    """The driver of one group on one node. Implements ``GroupContext`` for its parts."""

    def __init__(
        self,
        config: NodeConfig,
        group: str,
        log: Log,
        hard_state: HardState,
        *,
        saver: HardStateSaver,
        host: Host,
        metrics: GroupMetrics,
        random: Random,
        wall_clock_ms: Callable[[], int],
        commit_index: int,
    ) -> None:
        self.config = config
        self.group = group
        self.log = log
        self.metrics = metrics
        self.wall_clock_ms = wall_clock_ms
        self._host = host
        self._random = random
        self._loop = asyncio.get_running_loop()
        self._members = log.state.members
        self.core = RaftNode(
            group=group,
            node_id=NodeId(config.id),
            membership=Membership(self._members),
            term=hard_state.term,
            vote=hard_state.vote,
            log=log,
            commit_position=min(log.commit_hint, log.last.position),
            timings=config.timings,
            limits=config.limits,
            random=random,
            now_ms=self.now_ms(),
        )
        self.checker = QuorumAckChecker(config.limits, config.timings, metrics.append_duration_s.observe)
        self.appender = Appender(self, self.checker)
        self.reader = Reader(self)
        self._commit_index = CommitIndex(commit_index)
        self._commit_index.appended(log.last.position, log.state.next_index)
        self.reader.commit_index = commit_index
        self._handler = EntryHandler(self)
        self._elector = Elector(self.core, saver, self._execute, self.guard, self._fail_with)
        self.dispatchers: dict[NodeId, EntryDispatcher] = {}
        self.role = Role.FOLLOWER
        self.leader_id = NOBODY
        self.term = self.core.term
        self._is_stopping = False
        self._is_shut = False
        self._progress = asyncio.Event()
        """Something was committed, or a peer is gone: what a drain waits for."""
        self._transfer_target = NOBODY
        self.failure: DLedgerError | None = None
        self._held_messages = 0
        self._heartbeat_sent_s: dict[NodeId, float] = {}
        self._transfer: asyncio.Future[NodeId] | None = None
        self._maintenance: asyncio.TimerHandle | None = None
        log.set_callbacks(self._on_durable, self._on_log_failure, metrics.fsync_duration_s.observe)

    def wait_until_caught_up(self) -> None:
        """After an unclean stop without fsync this node may have lost what it acknowledged: it does not vote until a
        leader's log is its own again (see ``on_leader_commit``)."""
        self.core.set_may_vote(False, self.now_ms())

    def doubt(self, peer: NodeId) -> None:
        """``peer`` is not what it was: no quorum rests on it from now on."""
        self.core.doubt(peer)

    def start(self) -> None:
        self._elector.start()
        self._maintain()

    async def stop(self) -> None:
        """Stops taking appends, drains, hands the leadership over, syncs and closes. Never raises for the first two."""
        self._is_stopping = True
        timeout_s = self.config.timings.stop_timeout_ms / 1000
        if self.role is Role.LEADER and self.failure is None:
            try:
                async with asyncio.timeout(timeout_s):
                    await self._drain_and_hand_over()
            except TimeoutError:
                why = f"neither drained nor handed over within {timeout_s:g} s"
                logger.warning("stopping without a handover", extra={"group": self.group, "why": why})
            except DLedgerError as failure:
                logger.warning("stopping without a handover", extra={"group": self.group, "why": str(failure)})
        self._shut(error(Code.SHUTTING_DOWN, "the node is stopping; ask another"))
        await self.log.close()

    async def _drain_and_hand_over(self) -> None:
        last = self.log.last.position
        while self.role is Role.LEADER and self.core.commit_position < last and self._has_quorum():
            self._progress.clear()
            await self._progress.wait()
        if self.role is Role.LEADER and len(self.core.membership.voters) > 1:
            await self.transfer_leadership(None)

    def _has_quorum(self) -> bool:
        """Whether enough voters are connected for anything to be committed."""
        voters = self.core.membership.voters
        return self.core.membership.is_quorum(v for v in voters if v == self.config.id or self.is_connected(v))

    def _shut(self, refusal: DLedgerError) -> None:
        self._is_shut = True
        if self._maintenance is not None:
            self._maintenance.cancel()
        self._elector.stop()
        self._handler.stop()
        self._leave_leadership(refusal)
        if self.role is not Role.FOLLOWER or self.leader_id:
            # Whatever ended it, a host that was the master must hear that it is not any more.
            self.role, self.leader_id = Role.FOLLOWER, NOBODY
            self._host.on_role(self.group, self.role, self.term, self.leader_id)
        self.reader.close(refusal)

    def fail(self, code: Code, message: str) -> None:
        """Stops this replica for good; the host decides what becomes of the process."""
        if self.failure is not None:
            return
        self.failure = error(code, message)
        logger.critical("the group stops on this node", extra={"group": self.group, "code": code.value, "why": message})
        self._shut(self.failure)
        self._host.on_failure(self.group, self.failure)

    def watch_task(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (failure := task.exception()) is not None:
            self._fail_with(failure)

    def _fail_with(self, failure: BaseException) -> None:
        if isinstance(failure, DLedgerError):
            self.fail(failure.code, str(failure))
        else:
            logger.critical("an invariant or an assumption broke", exc_info=failure, extra={"group": self.group})
            self.fail(Code.INTERNAL_ERROR, f"{type(failure).__name__}: {failure}")

    # The context of the parts ------------------------------------------------------------------------------------

    def now_s(self) -> float:
        return self._loop.time()

    def now_ms(self) -> float:
        return self._loop.time() * 1000

    def send(self, peer: NodeId, message: Message) -> bool:
        if self._elector.is_behind:
            self._elector.defer(lambda: self._send_held(peer, message))
            return True
        return self._host.send(peer, message)

    def _send_held(self, peer: NodeId, message: Message) -> None:
        self._host.send(peer, message)

    def is_connected(self, peer: NodeId) -> bool:
        return self._host.is_connected(peer)

    def exclusive(self) -> AbstractAsyncContextManager[None]:
        return self._elector.exclusive()

    def run_effects(self) -> None:
        self._elector.run()

    def cluster_id_or_new(self) -> str:
        return self.log.state.cluster_id or self.config.cluster_id or f"{self._random.getrandbits(64):016x}"

    def last_position_in_terms(self, position: Position, term: Term) -> Position:
        state = self.log.state
        position = min(position, state.last.position)
        while position > state.start.position and state.term_at(position) > term:
            position = Position(state.first_position_of_term_at(position) - 1)
        return position

    def check_reader(self) -> None:
        if self.failure is not None:
            raise error(self.failure.code, str(self.failure))
        if self._is_stopping:
            raise error(Code.SHUTTING_DOWN, "the node is stopping; ask another")
        if self.role is not Role.LEADER:
            raise self.not_leader()

    def check_leader(self) -> None:
        self.check_reader()
        leadership = self.core.leadership
        if leadership is not None and leadership.transfer is not None:
            raise error(Code.LEADER_TRANSFERRING, "the leadership is being handed over; try again after a moment")

    def not_leader(self) -> DLedgerError:
        leader_id = self.leader_id if self.leader_id != self.config.id else NOBODY
        address = self._host.client_address(leader_id) if leader_id else ""
        hint = f"ask {leader_id} at {address}" if address else "no leader is known yet; try again after a moment"
        return error(
            Code.NOT_LEADER, f"{self.config.id} is not the leader; {hint}", leader_id=leader_id, leader_address=address
        )

    # Messages ----------------------------------------------------------------------------------------------------

    def on_message(self, sender: NodeId, message: Message) -> None:
        """Anything from another node. Never raises."""
        if self._is_shut:
            return
        if not self._elector.is_holding:
            self.guard(partial(self._dispatch, sender, message))
        elif self._held_messages < MAX_HELD_MESSAGES:
            self._held_messages += 1
            self._elector.defer(partial(self._receive_held, sender, message))

    def _receive_held(self, sender: NodeId, message: Message) -> None:
        self._held_messages -= 1
        self.on_message(sender, message)

    def guard(self, work: Callable[[], None]) -> None:
        """Does ``work``, then what the core wants. Every callback of the loop goes through here."""
        if self._is_shut:
            return
        try:
            work()
            self._elector.run()
        except Exception as failure:  # noqa: BLE001 – whatever it is, it must stop the group and be seen
            self._fail_with(failure)

    def _dispatch(self, sender: NodeId, message: Message) -> None:
        now_ms = self.now_ms()
        match message:
            case Append() | Compare() | Truncate():
                self._handler.on_push(sender, message)
            case AppendResponse():
                self._on_append_response(sender, message, now_ms)
            case Heartbeat():
                self.core.on_heartbeat(sender, message, now_ms)
            case HeartbeatResponse():
                sent_s = self._heartbeat_sent_s.pop(sender, None)
                if sent_s is not None:
                    self.metrics.peer(sender).round_trip_s.observe(self.now_s() - sent_s)
                self.core.on_heartbeat_response(sender, message, now_ms)
            case CompareResponse() | TruncateResponse():
                self._on_push_response(sender, message, now_ms)
            case VoteRequest():
                self.core.on_vote_request(sender, message, now_ms)
            case VoteResponse():
                self.core.on_vote_response(sender, message, now_ms)
            case TakeLeadership():
                self.core.on_take_leadership(sender, message, now_ms)

    def _on_append_response(self, sender: NodeId, answer: AppendResponse, now_ms: float) -> None:
        leadership = self.core.hear_follower(sender, answer.term, now_ms)
        dispatcher = self.dispatchers.get(sender)
        if leadership is None or dispatcher is None:
            return
        progress = dispatcher.progress
        if answer.result is PushResult.DISK_FULL:
            progress.restart(self.log.last.position)
            progress.paused_until_ms = now_ms + DISK_FULL_PAUSE_MS
        elif progress.on_append(answer, self.log.last.position):
            self.core.advance(self.log.durable_position, now_ms)
        dispatcher.push()

    def _on_push_response(self, sender: NodeId, answer: CompareResponse | TruncateResponse, now_ms: float) -> None:
        leadership = self.core.hear_follower(sender, answer.term, now_ms)
        dispatcher = self.dispatchers.get(sender)
        if leadership is None or dispatcher is None:
            return
        if isinstance(answer, CompareResponse):
            dispatcher.on_compare_response(answer)
        else:
            dispatcher.progress.on_truncate(answer, self.log.last.position)
            dispatcher.wake()

    def on_connected(self, peer: NodeId) -> None:
        dispatcher = self.dispatchers.get(peer)
        if dispatcher is not None:
            dispatcher.on_connected()

    def on_disconnected(self, peer: NodeId) -> None:
        if self._is_shut:
            return
        self._progress.set()
        if peer == self._transfer_target:
            self._on_transfer_ended(NOBODY)
        self.guard(partial(self.core.on_peer_disconnected, peer, self.now_ms()))

    # The log -----------------------------------------------------------------------------------------------------

    def _on_durable(self, position: Position) -> None:
        self.guard(partial(self._use_durable, position))

    def _use_durable(self, position: Position) -> None:
        if self.core.leadership is not None:
            self.core.advance(position, self.now_ms())
        else:
            self._handler.acknowledge()

    def _on_log_failure(self, failure: DLedgerError) -> None:
        self.fail(failure.code, str(failure))

    def on_appended(self, frames: Sequence[Frame]) -> None:
        for frame in frames:
            header = frame.header
            self._commit_index.appended(header.position, header.end_index)
            self.metrics.records_appended += header.count
            self.metrics.bytes_appended += header.stored_bytes
        self._follow_members()
        for dispatcher in self.dispatchers.values():
            dispatcher.push()

    def _follow_members(self) -> None:
        """The members are what the log's last word says, committed or not; a truncation takes it back."""
        if self.log.state.members is not self._members:
            self._members = self.log.state.members
            self.core.set_membership(Membership(self._members), self.now_ms())

    def on_append_refused(self, refusal: DLedgerError) -> None:
        self.metrics.proposals_failed += 1
        if refusal.code is not Code.DISK_FULL:
            self.fail(refusal.code, str(refusal))

    def on_truncated(self, after: Position) -> None:
        self._commit_index.truncated(after)
        self._follow_members()

    # Effects -----------------------------------------------------------------------------------------------------

    def _execute(self, effect: Effect) -> None:
        match effect:
            case Send():
                if isinstance(effect.message, Heartbeat):
                    self._heartbeat_sent_s.setdefault(effect.to, self.now_s())
                self._host.send(effect.to, effect.message)
            case Committed():
                self._on_commit(effect.position)
            case ReadsConfirmed():
                self.reader.on_confirmed(effect.round)
            case RoleChanged():
                self._on_role(effect)
            case TransferEnded():
                self._on_transfer_ended(effect.new_leader_id)
            case Persist():
                raise AssertionError("the Elector persists")

    def _on_commit(self, position: Position) -> None:
        self._progress.set()
        self._commit_index.committed(position)
        self.log.set_commit_hint(position)
        self.metrics.proposals_committed += self.checker.on_commit(position, self.now_s())
        self.reader.on_commit(self._commit_index.index)

    def on_leader_commit(self, position: Position) -> None:
        """After an unclean stop: when all that a leader has committed is here, a frame of its own term at the end of
        it, then so is whatever this node acknowledged before and others rely on."""
        core = self.core
        if core.may_vote or not 0 < position <= core.matched_position:
            return
        if self.log.term_at(position) == core.term:
            logger.info("caught up after an unclean stop; voting again", extra={"group": self.group})
            core.set_may_vote(True, self.now_ms())

    def _on_role(self, change: RoleChanged) -> None:
        if change == RoleChanged(self.role, self.term, self.leader_id):
            return
        was_leader = self.role is Role.LEADER
        new_leader = change.leader_id != self.leader_id
        self.role, self.term, self.leader_id = change.role, change.term, change.leader_id
        if was_leader:
            self._leave_leadership(self.not_leader())
        if new_leader and change.leader_id:
            self.metrics.leader_changes += 1
        logger.info(
            "role changed",
            extra={"group": self.group, "role": change.role.value, "term": change.term, "leader": change.leader_id},
        )
        if change.role is Role.LEADER:
            self._take_leadership()
        self._host.on_role(self.group, change.role, change.term, change.leader_id)

    def _take_leadership(self) -> None:
        leadership = self.core.leadership
        if leadership is None or self.core.term != self.term:
            return  # lost again before its hard state was durable
        for peer, progress in leadership.followers.items():
            self.dispatchers[peer] = EntryDispatcher(self, peer, self.term, progress)
            self.dispatchers[peer].start()
        self.appender.open(self.term)

    def _leave_leadership(self, refusal: DLedgerError) -> None:
        for dispatcher in self.dispatchers.values():
            dispatcher.stop()
        self.dispatchers.clear()
        self.appender.close(refusal)
        self.metrics.proposals_failed += self.checker.fail_all(
            error(Code.TERM_CHANGED, "the leadership was lost before a quorum acknowledged; it may still be committed")
        )
        self.reader.fail_all(refusal)

    def refresh_metrics(self) -> None:
        """Copies the gauges; called at a scrape, so that an append does not pay for them."""
        metrics, state = self.metrics, self.log.state
        metrics.has_leader = bool(self.leader_id)
        metrics.is_leader = self.role is Role.LEADER
        metrics.term = self.term
        metrics.proposals_pending = len(self.checker)
        metrics.first_index = state.first_index
        metrics.commit_index = self.reader.commit_index
        metrics.last_index = state.next_index - 1
        metrics.commit_position = self.core.commit_position
        metrics.last_position = state.last.position
        metrics.durable_position = self.log.durable_position
        for peer in self.core.membership.others(self.core.node_id):
            dispatcher = self.dispatchers.get(peer)
            metrics.peer(peer).connected = self.is_connected(peer)
            metrics.peer(peer).messages_dropped = self._host.messages_dropped(peer)
            metrics.peer(peer).lag_frames = state.last.position - dispatcher.progress.match if dispatcher else 0

    def _maintain(self) -> None:
        """What needs no timer of its own: appends that waited too long, answers that are overdue, a no-op refused."""
        interval_s = self.config.timings.heartbeat_interval_ms / 1000
        self._maintenance = self._loop.call_later(interval_s, self._maintain)
        if self.role is Role.LEADER:
            self.metrics.proposals_failed += self.checker.expire(self.now_s())
            self.appender.retry_open()
            for dispatcher in self.dispatchers.values():
                dispatcher.wake()

    # Handover ----------------------------------------------------------------------------------------------------

    async def transfer_leadership(self, target: NodeId | None) -> NodeId:
        """Hands the leadership to ``target``, or to the voter with the smallest lag; returns who leads then.

        Raises NOT_LEADER, LEADER_TRANSFERRING, UNKNOWN_MEMBER, FALL_BEHIND_TOO_MUCH, and TAKE_LEADERSHIP_FAILED when
        the target did not take it within an election timeout: this node leads on then.
        """
        leadership = self.core.leadership
        if self.role is not Role.LEADER or leadership is None:
            raise self.not_leader()
        if self._transfer is not None or leadership.transfer is not None:
            raise error(Code.LEADER_TRANSFERRING, "the leadership is being handed over already")
        chosen = self._choose_target(target)
        if chosen == self.config.id:
            return chosen
        self._transfer, self._transfer_target = self._loop.create_future(), chosen
        try:
            self.core.begin_transfer(chosen, self.log.durable_position, self.now_ms())
            self._elector.run()
            async with asyncio.timeout(3 * self.config.timings.election_timeout_max_ms / 1000):
                new_leader = await self._transfer
        except TimeoutError:
            new_leader = NOBODY
        finally:
            self._transfer, self._transfer_target = None, NOBODY
        if not new_leader:
            raise error(Code.TAKE_LEADERSHIP_FAILED, f"{chosen} did not take the leadership in time; see its log")
        return new_leader

    def _choose_target(self, target: NodeId | None) -> NodeId:
        leadership = self.core.leadership
        assert leadership is not None
        if target is None:
            connected = [peer for peer in leadership.followers if self.is_connected(peer)]
            target = leadership.closest_follower(connected)
            if target is None:
                raise error(Code.TAKE_LEADERSHIP_FAILED, "no other voter is connected")
        if target == self.config.id:
            return target
        progress = leadership.followers.get(target)
        if progress is None or target not in self.core.membership.voters:
            raise error(Code.UNKNOWN_MEMBER, f"{target} is not a voter of group {self.group}")
        lag = self.log.last.position - progress.match
        if lag > self.config.limits.max_transfer_lag_frames or not self.is_connected(target):
            raise error(Code.FALL_BEHIND_TOO_MUCH, f"{target} is {lag} frames behind, or not connected; try another")
        return target

    def _on_transfer_ended(self, new_leader: NodeId) -> None:
        if self._transfer is not None and not self._transfer.done():
            self._transfer.set_result(new_leader)
