"""One node's share of one group: the decisions (raft/), the log (log/) and the way to the others, tied together.

Everything runs on one event loop and in one order. Messages, the timer and the durable position go into the core. The
EffectRunner carries out the core's effects, persisting before it speaks. The parts: Appender (the leader's intake),
EntryDispatcher (one task per follower), EntryHandler (a follower's side), QuorumAckChecker, Reader, LeadershipTransfer,
Inbox.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from functools import partial
from random import Random

from dledger.common.closing import unless_cancelled
from dledger.common.config import NodeConfig
from dledger.common.errors import Code, DLedgerError, error
from dledger.common.types import GENESIS, Consistency, LogPoint, NodeId, NodeStart, Position, Role, Term
from dledger.disk.room import RoomWatch
from dledger.group.admission import Admission
from dledger.group.disk_watch import DiskWatch
from dledger.group.effect_runner import EffectRunner, HardStateSaver
from dledger.group.failing import as_refusal
from dledger.group.follower.entry_handler import EntryHandler
from dledger.group.hard_state import HardState
from dledger.group.host import Host
from dledger.group.inbox import Inbox
from dledger.group.leader.appender import Appender
from dledger.group.leader.commit_teller import CommitTeller
from dledger.group.leader.dispatchers import Dispatchers
from dledger.group.leader.members import Members
from dledger.group.leader.preferred import PreferredLeaders, is_spread
from dledger.group.leader.quorum_ack_checker import QuorumAckChecker
from dledger.group.leader.retention import Retention
from dledger.group.leader.settings import Settings
from dledger.group.leader.transfer import LeadershipTransfer
from dledger.group.machine_link import MachineLink
from dledger.group.reads.commit_index import CommitIndex
from dledger.group.reads.read_service import Reader
from dledger.group.repair.frame_exchange import FrameExchange
from dledger.group.repair.scrubber import Scrubber
from dledger.group.repair.tail_fetcher import TailFetcher
from dledger.group.repair.tail_query import TailQuery
from dledger.group.roster import Roster
from dledger.group.upkeep import Upkeep
from dledger.log.frame.frame import Frame
from dledger.log.log_api import Damaged, DamagedRange, Log
from dledger.metrics.group import GroupMetrics
from dledger.raft.effects import Committed, Effect, FetchTail, Persist, ReadsConfirmed, RoleChanged, Send, TransferEnded
from dledger.raft.following import LedDown
from dledger.raft.membership import Membership
from dledger.raft.messages import NOBODY, Append, Heartbeat, HeartbeatResponse, Message
from dledger.raft.raft_node import RaftNode
from dledger.raft.state import VoteBlocker

logger = logging.getLogger(__name__)

MAX_HELD_MESSAGES = 10_000
"""Messages kept while a save or a truncation is under way; more are dropped, as a network would."""


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
        upkeep: Upkeep,
        room: RoomWatch,
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
        self._upkeep = upkeep
        self._random = random
        self._loop = asyncio.get_running_loop()
        self.core = self._make_core(hard_state)
        self.role = Role.FOLLOWER
        self.leader_id = NOBODY
        self.term = self.core.term
        self.failure: DLedgerError | None = None
        self.is_stopping = False
        self._is_shut = False
        self._is_settling = False
        """What it owed is being made no debt any more."""
        self._held_messages = 0
        self._last_append: Append | None = None
        self._commit_index = CommitIndex(commit_index)
        self._commit_index.appended(log.last.position, log.state.next_index)
        self._effect_runner = EffectRunner(self.core, saver, self._execute, self.guard, self._fail_with)
        self._make_parts(room)
        self.reader.commit_index = commit_index
        log.set_callbacks(self._on_durable, self._on_log_failure, metrics.fsync_duration_s.observe, self._on_damage)

    def _make_core(self, hard_state: HardState) -> RaftNode:
        log, config = self.log, self.config
        return RaftNode(
            group=self.group,
            node_id=NodeId(config.id),
            membership=Membership(log.state.members),
            term=hard_state.term,
            vote=hard_state.vote,
            log=log,
            commit_position=max(log.state.start.position, min(log.commit_hint, log.last.position)),
            timings=config.timings,
            limits=config.limits,
            random=self._random,
            is_connected=self.is_connected,
            now_ms=self.now_ms(),
            lease_reads=config.lease_reads,
            in_turn=is_spread(config, self.group),
        )

    def _make_parts(self, room: RoomWatch) -> None:
        self.disk_watch = DiskWatch(self, room)
        self.admission = Admission(self, self._host, self.disk_watch)
        self.machine = MachineLink(self)
        self.checker = QuorumAckChecker(self.config.limits, self.config.timings, self.metrics.append_duration_s.observe)
        self.appender = Appender(self, self.checker)
        self.reader: Reader = Reader(self)
        self.dispatchers = Dispatchers(self)
        self.commit_teller = CommitTeller(self)
        self.roster = Roster(self, self._host, self.dispatchers)
        self.handover = LeadershipTransfer(self, self.appender.flush)
        self.exchange = FrameExchange(self, self.log)
        self._handler = EntryHandler(self)
        self._tail = TailFetcher(self, self.exchange.client, self._handler)
        self._inbox = Inbox(self, self._handler, self.dispatchers, self.exchange)
        self.settings = Settings(self, self.appender)
        self.members = Members(self, self.appender, self.handover, self.settings)
        self.retention = Retention(self, self.appender, self.settings)
        self._preferred = PreferredLeaders(self, self.handover)
        self._scrubber = Scrubber(self)
        self._tail_query: TailQuery | None = None

    def wait_until_caught_up(self) -> None:
        """This node may have lost what it acknowledged: it does not vote until a leader's log is its own again (see
        ``on_leader_commit``)."""
        self._is_settling = False
        self.core.set_may_vote(False, self.now_ms())
        logger.warning(
            "it may have lost what it acknowledged: not voting before a leader has caught it up",
            extra={"group": self.group},
        )

    async def owe_catch_up(self) -> None:
        self.guard(self.wait_until_caught_up)
        await self._host.owe_catch_up(self.group)

    def ask_for_tail(self, cut_behind: LogPoint) -> None:
        """This start, or an earlier one, cut the log behind ``cut_behind``. The node votes as before once it has asked
        all nodes that it knows for the frames there. A learner asks too, as these frames may have promoted it. So does
        a node that is the only voter by the rest of the log, as these frames may have added others. Comes before
        ``start``."""
        self.core.lose_tail()
        self._tail_query = TailQuery(
            self,
            self.exchange.client,
            self._handler,
            cut_behind=cut_behind,
            others=partial(self._host.known_peers, self.group),
            on_answered=lambda min_candidate_end: self.guard(partial(self._know_tail, min_candidate_end)),
        )

    def _know_tail(self, min_candidate_end: LogPoint) -> None:
        self.core.know_tail(min_candidate_end, self.now_ms())
        self.roster.on_commit(self.core.commit_position)

    @property
    def owes_catch_up(self) -> bool:
        return VoteBlocker.OWES_CATCH_UP in self.core.vote_blockers

    @property
    def leads(self) -> bool:
        """Of ``term``: the core is ahead of both while a vote is being written."""
        return self.core.leadership is not None and self.core.term == self.term

    @property
    def led_down(self) -> LedDown:
        """The last COMPARE that was looked at here."""
        return self._handler.led_down

    def was_led_down(self, led_down: LedDown) -> None:
        """By another replica that stood here before. Comes before ``start``."""
        self._handler.was_led_down(led_down)

    def start(self) -> None:
        if is_spread(self.config, self.group):
            self.core.found_in_turn(self.now_ms())
        self._effect_runner.start()
        self._upkeep.add(self._look)
        self._on_damage()
        self._scrubber.start()
        if self._tail_query is not None:
            self._tail_query.start()

    async def leave(self) -> None:
        """Stops taking appends, drains and hands the leadership over. Never raises. Earlier requests are still
        answered, and later ones are told to ask another node."""
        if not self.is_stopping:
            self.is_stopping = True
            if self.role is Role.LEADER and self.failure is None:
                await self.handover.leave()

    async def end(self) -> None:
        """As ``stop``, of a group that is gone: nobody is to lead it any more, and others may have given it up."""
        self.is_stopping = True
        await self.stop()

    async def stop(self) -> None:
        """``leave``, then syncs and closes."""
        async with AsyncExitStack() as closing:  # the last one first
            closing.push_async_exit(unless_cancelled(self._close))
            closing.callback(self._shut, error(Code.SHUTTING_DOWN, "the node is stopping; ask another"))
            await self.leave()

    async def _close(self) -> None:
        async with AsyncExitStack() as closing:  # the last one first
            for close in (self.log.close, self.retention.settle, self.disk_watch.settle):
                closing.push_async_exit(unless_cancelled(close))

    async def step_aside(self, why: Damaged) -> None:
        """Ends for a ``RecoveringReplica``: all promises are durable, and the log closed in order. Raises the error
        that prevented this, and then nothing may take this replica's place."""
        self._is_shut = True
        self._handler.stop()
        await self._effect_runner.settle()
        self._shut(why)
        await self._close()
        failure = self.failure or self.log.failure
        if failure is not None:
            raise failure

    def suspect(self, damaged: Sequence[DamagedRange]) -> None:
        """Takes over the damage known to the replica that stood here before. Comes before ``start``."""
        self._scrubber.suspect([each.first for each in damaged])

    def _shut(self, refusal: DLedgerError) -> None:
        self._is_shut = True
        self._upkeep.remove(self._look)
        self._effect_runner.stop()
        self._handler.stop()
        self._tail.stop()
        self.exchange.stop()
        self._scrubber.stop()
        if self._tail_query is not None:
            self._tail_query.stop()
        self._preferred.stop()
        self._leave_leadership(refusal)
        if self.role is not Role.FOLLOWER or self.leader_id:
            # After any end, a host that was the master must hear that it is not any more.
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
        refusal = as_refusal(failure, self.group)
        self.fail(refusal.code, str(refusal))

    # The context of the parts ------------------------------------------------------------------------------------

    def now_s(self) -> float:
        return self._loop.time()

    def now_ms(self) -> float:
        return self._loop.time() * 1000

    def send(self, peer: NodeId, message: Message) -> bool:
        return self._effect_runner.send(partial(self._host.send, peer, message))

    def append_message(self, term: Term, frames: Sequence[Frame]) -> Append:
        last, commit = self._last_append, self.core.commit_position
        if (
            last is None
            or last.term != term
            or last.commit_position != commit
            or last.frames[0] is not frames[0]
            or len(last.frames) != len(frames)
        ):
            last = self._last_append = Append(self.group, term, commit, tuple(frames))
            self.commit_teller.sent(commit)
        return last

    def is_connected(self, peer: NodeId) -> bool:
        return self._host.is_connected(peer)

    def may_spread(self) -> bool:
        return self._host.may_spread()

    def messages_dropped(self, peer: NodeId) -> int:
        return self._host.messages_dropped(peer)

    def fetch_from(self) -> Sequence[NodeId]:
        others = [peer for peer in self.core.membership.others(self.core.node_id) if peer != self.leader_id]
        leader = [self.leader_id] if self.leader_id not in (NOBODY, self.core.node_id) else []
        return [*leader, *filter(self.is_connected, others)]

    def start_of(self, peer: NodeId) -> NodeStart | None:
        return self._host.start_of(peer)

    def disk_of(self, node_id: NodeId) -> bytes:
        return self._host.disk_of(self.group, node_id)

    async def keep_peers(self) -> None:
        await self._host.keep_peers()

    def on_lost_frames(self, peer: NodeId) -> None:
        self.roster.on_lost_frames(peer)

    def exclusive(self) -> AbstractAsyncContextManager[None]:
        return self._effect_runner.exclusive()

    def run_effects(self) -> None:
        self._effect_runner.run()

    async def confirm_leadership(self) -> None:
        await self.reader.read_point(Consistency.LINEARIZABLE)

    def cluster_id_or_new(self) -> str:
        return self.log.state.cluster_id or self._host.cluster_id_or_new(self.group)

    @property
    def commit_index(self) -> int:
        return self._commit_index.index

    # Messages ----------------------------------------------------------------------------------------------------

    def on_message(self, sender: NodeId, message: Message) -> None:
        """Anything from another node. Never raises."""
        if self._is_shut:
            return
        if not self._effect_runner.is_holding:
            self.guard(partial(self._inbox.take, sender, message))
        elif self._held_messages < MAX_HELD_MESSAGES:
            self._held_messages += 1
            self._effect_runner.defer(partial(self._receive_held, sender, message))

    @property
    def _is_at_ease(self) -> bool:
        """Whether a message may be answered past the EffectRunner: no save, cut or effect is waited for."""
        return not self._is_shut and not self._effect_runner.is_behind

    def answer_if_steady(
        self, sender: NodeId, heartbeat: Heartbeat, now_ms: float, wall_clock_ms: int
    ) -> HeartbeatResponse | None:
        """The answer to a heartbeat that changes nothing; None: ``on_message`` is to take it. Never raises."""
        if self._tail_query is not None or not self._is_at_ease:
            return None
        return self.core.answer_if_steady(sender, heartbeat, now_ms, wall_clock_ms)

    def take_if_steady(self, sender: NodeId, answer: HeartbeatResponse, now_ms: float) -> bool:
        """Takes an answer that confirms nothing new. False: ``on_message`` is to take it. Never raises."""
        return self._is_at_ease and self._inbox.take_if_steady(sender, answer, now_ms)

    def _receive_held(self, sender: NodeId, message: Message) -> None:
        self._held_messages -= 1
        self.on_message(sender, message)

    def guard(self, work: Callable[[], None]) -> None:
        """Does ``work``, then what the core wants. Every callback of the loop goes through here."""
        if self._is_shut:
            return
        try:
            work()
            self._effect_runner.run()
        except Exception as failure:  # noqa: BLE001 – any failure must stop the group and be seen
            self._fail_with(failure)

    def on_connected(self, peer: NodeId) -> None:
        dispatcher = self.dispatchers.get(peer)
        if dispatcher is not None:
            dispatcher.on_connected()
        self.exchange.on_connected(peer)
        if self._tail_query is not None:
            self._tail_query.on_connected()

    def on_disconnected(self, peer: NodeId) -> None:
        if self._is_shut:
            return
        self.handover.on_disconnected(peer)
        self.exchange.on_disconnected(peer)
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

    def _on_damage(self) -> None:
        self.guard(self._judge_damage)

    def _judge_damage(self) -> None:
        """A damaged log does not lead: another has what it lacks. It follows and votes, by the end that it has."""
        is_damaged = self.exchange.on_damage()
        if is_damaged and not self.core.membership.others(self.core.node_id):
            self.fail(Code.CORRUPT_LOG, "the log is damaged, and there is no other node to repair it from")
        elif is_damaged or VoteBlocker.DAMAGED_LOG in self.core.vote_blockers:
            self.core.set_may_lead(not is_damaged, self.now_ms(), VoteBlocker.DAMAGED_LOG)

    def on_appended(self, frames: Sequence[Frame]) -> None:
        for frame in frames:
            header = frame.header
            self._commit_index.appended(header.position, header.end_index)
            self.metrics.records_appended += header.count
            self.metrics.bytes_appended += header.stored_bytes
        # Pushed first: a node removed by these frames is to hear of it.
        self.dispatchers.push()
        self.roster.follow_log()

    def on_append_refused(self, refusal: DLedgerError) -> None:
        self.metrics.proposals_failed += 1
        if refusal.code is Code.DISK_FULL:
            self.on_disk_full()
        else:
            self.on_write_failed(refusal)

    def on_write_failed(self, refusal: DLedgerError) -> None:
        # TERM_CHANGED: part of it is there and could not be taken back. What is asked from now on is surely refused.
        is_unknown = refusal.code is Code.TERM_CHANGED
        self.fail(Code.DISK_ERROR if is_unknown else refusal.code, str(refusal))

    def on_disk_full(self) -> None:
        self.disk_watch.refused()

    def on_blocked(self, why: Damaged) -> None:
        was_trimmed = why.range.last <= self.log.state.start.position
        if (was_trimmed or why.range in self.exchange.repairer.missing) and not self._is_shut:
            self._is_shut = True
            self._host.on_stuck(self.group, why)

    def on_beginning_untold(self) -> None:
        self._preferred.on_beginning_untold()

    def on_truncated(self, after: Position) -> None:
        self._commit_index.truncated(after)
        self.roster.follow_log()

    def on_reset(self) -> None:
        state = self.log.state
        self._commit_index.reset(state.first_index)
        self.metrics.resets += 1
        self.roster.follow_log()
        self.core.on_reset(state.last)

    # Effects -----------------------------------------------------------------------------------------------------

    def _execute(self, effect: Effect) -> None:
        match effect:
            case Send():
                if isinstance(effect.message, Heartbeat):
                    self._inbox.heartbeat_sent(effect.to)
                self._host.send(effect.to, effect.message)
            case Committed():
                self._on_commit(effect.position)
            case ReadsConfirmed():
                self.reader.on_confirmed(effect.round)
            case RoleChanged():
                self._on_role(effect)
            case FetchTail():
                self._tail.fetch(effect.peer)
            case TransferEnded():
                self.handover.on_ended(effect.new_leader_id)
            case Persist():
                raise AssertionError("the EffectRunner persists")

    def _on_commit(self, position: Position) -> None:
        self.handover.on_progress()
        self.roster.on_commit(position)
        self._commit_index.committed(position)
        self.log.set_commit_hint(position)
        self.metrics.proposals_committed += self.checker.on_commit(position, self.now_s())
        self.reader.on_commit(self._commit_index.index)
        self.retention.on_commit()
        if self.core.leadership is not None:
            self.commit_teller.on_commit()
            self.on_leader_commit(position)

    def on_leader_commit(self, position: Position) -> None:
        """Ends a loss, if all frames that a leader has committed are here and durable, the last one of its own term.
        Then everything that this node acknowledged before, and that others rely on, is here and durable too. The leader
        must have heard where this log ends now. Else it may commit by acknowledgements from before the loss."""
        core = self.core
        if (core.may_vote and self._tail_query is None) or not self._has_caught_up(position):
            return
        if self._tail_query is not None:
            self._tail_query.stop()
            self._tail_query = None
            self._know_tail(GENESIS)
            self._host.on_tail_known(self.group)
        if self.owes_catch_up and not self._is_settling:
            self._is_settling = True
            self._host.on_caught_up(self.group)

    def on_debt_settled(self) -> None:
        """Durably, unless this node came to owe anew meanwhile."""
        if self._is_settling:
            self._is_settling = False
            logger.info("caught up after a loss; voting again", extra={"group": self.group})
            self.guard(lambda: self.core.set_may_vote(True, self.now_ms()))
            self.roster.on_commit(self.core.commit_position)

    def _has_caught_up(self, position: Position) -> bool:
        core, log = self.core, self.log
        is_the_leaders = core.is_ready or (core.is_compared and position <= core.matched_position)
        # A word that comes late may speak of what was trimmed since: a later one tells.
        is_here = max(1, log.state.start.position) <= position <= log.durable_position
        return is_the_leaders and is_here and log.term_at(position) == core.term

    def _on_role(self, change: RoleChanged) -> None:
        if change == RoleChanged(self.role, self.term, self.leader_id):
            return
        was_leader = self.role is Role.LEADER
        new_leader = change.leader_id != self.leader_id
        self.role, self.term, self.leader_id = change.role, change.term, change.leader_id
        if was_leader:
            self._leave_leadership(self.admission.not_leader())
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
        self.machine.begin_term(self.log.state.next_index)
        self.dispatchers.follow(leadership, self.term)
        self.appender.open(self.term)

    def _leave_leadership(self, refusal: DLedgerError) -> None:
        self.handover.on_progress()
        self.dispatchers.stop()
        self.commit_teller.stop()
        self.appender.close(refusal)
        self.metrics.proposals_failed += self.checker.fail_all(
            error(Code.TERM_CHANGED, "the leadership was lost before a quorum acknowledged; it may still be committed")
        )
        self.reader.fail_all(refusal)

    def _look(self) -> None:
        """Called every heartbeat interval: is there work that has no timer of its own?"""
        is_busy = self.role is Role.LEADER or self.retention.is_due or self.machine.has_machine
        if not self._is_shut and (self.disk_watch.look() or is_busy):
            self.guard(self._maintain)

    def _maintain(self) -> None:
        """Looks after late appends and reads, overdue answers, a refused no-op, the disk's state, trims, and the node
        that should lead."""
        if self.role is Role.LEADER:
            self._maintain_leadership()
        self.disk_watch.check()
        self.machine.check()
        self.retention.check()
        self._preferred.check()

    def _maintain_leadership(self) -> None:
        self.metrics.proposals_failed += self.checker.expire(self.now_s(), self.admission.why_stalled)
        if self.appender.retry_open():
            self.reader.expire(self.now_s(), self.admission.not_ready)
        else:
            self.reader.fail_all(self.admission.not_ready())
        self.dispatchers.wake()
