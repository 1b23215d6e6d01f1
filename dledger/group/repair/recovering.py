"""RecoveringReplica: a node's part in a group while its log cannot be opened, as frames needed by a start are damaged.

It gives its good frames to other nodes, and fetches its missing ones. No leader is needed for that: nodes that are all
damaged, each in another place, repair each other and then elect one. It votes by the end of its log, and hears leaders.
It does not stand, takes no appends and serves no reads. When everything is repaired, the log is opened and a
``Replica`` takes over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from random import Random

from dledger.common.config import NodeConfig
from dledger.common.errors import Code, DLedgerError, error
from dledger.common.types import NodeId, Role
from dledger.group.effect_runner import EffectRunner
from dledger.group.failing import as_refusal
from dledger.group.hard_state import HardStateStore
from dledger.group.host import Host
from dledger.group.repair.damaged_log_truncation import DamagedLogTruncation
from dledger.group.repair.frame_exchange import FrameExchange
from dledger.log.damage.damaged_log import DamagedLog
from dledger.metrics.group import GroupMetrics
from dledger.raft.effects import Effect, RoleChanged, Send
from dledger.raft.following import LedDown
from dledger.raft.membership import Membership
from dledger.raft.messages import (
    MAX_TERM_LEAP,
    NOBODY,
    Append,
    Compare,
    Fetch,
    FetchResponse,
    Heartbeat,
    Message,
    Reset,
    Truncate,
    VoteRequest,
)
from dledger.raft.raft_node import RaftNode
from dledger.raft.state import VoteBlocker


class RecoveringReplica:
    """``on_repaired`` is told when nothing is damaged any more. What it has of ``Replica`` means the same here."""

    def __init__(
        self,
        config: NodeConfig,
        log: DamagedLog,
        *,
        saver: HardStateStore,
        host: Host,
        metrics: GroupMetrics,
        random: Random,
        owes_catch_up: bool,
        on_repaired: Callable[[], None],
    ) -> None:
        self.config = config
        self.group = log.group
        self.log = log
        self.saver = saver
        self.metrics = metrics
        self.role = Role.FOLLOWER
        self.leader_id = NOBODY
        self.failure: DLedgerError | None = None
        self._host = host
        self._loop = asyncio.get_running_loop()
        self._on_repaired = on_repaired
        self._is_shut = False
        now_ms = self.now_ms()
        self.core = RaftNode(
            group=log.group,
            node_id=NodeId(config.id),
            membership=Membership(log.state.members),
            term=saver.state.term,
            vote=saver.state.vote,
            log=log,
            commit_position=log.commit_hint,
            timings=config.timings,
            limits=config.limits,
            random=random,
            now_ms=now_ms,
            lease_reads=config.lease_reads,
            is_connected=host.is_connected,
        )
        self.core.set_may_lead(False, now_ms, VoteBlocker.DAMAGED_LOG)
        self.core.set_may_vote(not owes_catch_up, now_ms)
        self.term = self.core.term
        self._effect_runner = EffectRunner(self.core, saver, self._execute, self.guard, self._fail_with)
        self._truncation = DamagedLogTruncation(
            log,
            self.core,
            send=self.send,
            owe_catch_up=self._owe_catch_up,
            on_cut=self._on_damage,
            watch_task=self.watch_task,
        )
        self.exchange = FrameExchange(self, log, self._truncation.on_trimmed)
        log.set_on_damage(self._on_damage)

    def start(self) -> None:
        self._effect_runner.start()
        self._on_damage()

    @property
    def owes_catch_up(self) -> bool:
        return VoteBlocker.OWES_CATCH_UP in self.core.vote_blockers

    @property
    def leads(self) -> bool:
        return False

    @property
    def led_down(self) -> LedDown:
        """By this one, or another replica that stood here before."""
        return self._truncation.led_down

    def was_led_down(self, led_down: LedDown) -> None:
        """By another replica that stood here before. Comes before ``start``."""
        self._truncation.was_led_down(led_down)

    def wait_for_tail(self) -> None:
        """An earlier replica had not heard yet what a start cut, or lacks those frames. Must be called before
        ``start``."""
        self.core.lose_tail()

    async def _owe_catch_up(self) -> None:
        self.guard(lambda: self.core.set_may_vote(False, self.now_ms()))
        await self._host.owe_catch_up(self.group)

    def tell_members(self) -> None:
        """Tells the node the members that are known, before the start. Damaged frames may name other members, so what
        the node keeps of those must stay: hence ``is_committed=False``."""
        self._host.on_members(self.group, self.log.state.members, is_committed=False)

    async def stop(self) -> None:
        """What was promised is durable, and the log closed, when it returns."""
        self._is_shut = True
        self.exchange.stop()
        await self._truncation.stop()
        await self._effect_runner.settle()
        self._effect_runner.stop()
        await self.log.close()

    def refusal(self) -> DLedgerError:
        """The refusal of every request to this node."""
        frames = sum(each.frames for each in self.log.damaged())
        return error(
            Code.CORRUPT_LOG,
            f"{frames} frames of the log of {self.config.id} are damaged and being repaired from the other nodes; "
            "ask another node",
        )

    # What the others are to it (Correspondent, TrustListener) ----------------------------------------------------

    def now_s(self) -> float:
        return self._loop.time()

    def now_ms(self) -> float:
        return self._loop.time() * 1000

    def send(self, peer: NodeId, message: Message) -> bool:
        return self._effect_runner.send(partial(self._host.send, peer, message))

    def fetch_from(self) -> Sequence[NodeId]:
        # What is left of the log may be of a time before they were members.
        known = {*self._host.known_peers(self.group), *map(NodeId, self.config.peers), *self.core.membership.members}
        others = sorted(known - {NodeId(self.config.id), self.leader_id})
        return [*([self.leader_id] if self.leader_id else []), *others]

    def doubt(self, peer: NodeId) -> None:
        self.guard(partial(self.core.doubt, peer))

    def may_found(self, may_found: bool) -> None:
        self.guard(partial(self.core.set_may_found, may_found, self.now_ms()))

    def trust(self, peer: NodeId) -> None:
        self.guard(partial(self.core.trust, peer, self.now_ms()))

    def forget(self, peer: NodeId) -> None:
        self.guard(partial(self.core.forget, peer, self.now_ms()))

    def on_connected(self, peer: NodeId) -> None:
        self.exchange.on_connected(peer)

    def on_disconnected(self, peer: NodeId) -> None:
        self.exchange.on_disconnected(peer)
        self.guard(partial(self.core.on_peer_disconnected, peer, self.now_ms()))

    # Messages ----------------------------------------------------------------------------------------------------

    def on_message(self, sender: NodeId, message: Message) -> None:
        """Never raises."""
        if self._is_shut:
            return
        if self._effect_runner.is_holding:
            self._effect_runner.defer(partial(self.on_message, sender, message))
        else:
            self.guard(partial(self._take, sender, message))

    def _take(self, sender: NodeId, message: Message) -> None:
        if message.term - self.core.term >= MAX_TERM_LEAP:
            return
        now_ms = self.now_ms()
        match message:
            case VoteRequest():
                self.core.on_vote_request(sender, message, now_ms)
            case Heartbeat():
                self.core.on_heartbeat(sender, message, now_ms)
            case Append() | Compare() | Truncate() | Reset():
                if self.core.hear_leader(sender, message.term, now_ms) and isinstance(message, Compare):
                    self._truncation.on_compare(sender, message)
            case Fetch() | FetchResponse():
                self.exchange.on_message(sender, message)
            case _:
                return  # answers to what it did not ask, and a leadership that it does not take

    def guard(self, work: Callable[[], None]) -> None:
        """Does ``work``, then what the core wants."""
        if self._is_shut:
            return
        try:
            work()
            self._effect_runner.run()
        except Exception as failure:  # noqa: BLE001 – any failure must stop the group and be seen
            self._fail_with(failure)

    def _execute(self, effect: Effect) -> None:
        match effect:
            case Send():
                self._host.send(effect.to, effect.message)
            case RoleChanged():
                changed = (effect.role, effect.term, effect.leader_id) != (self.role, self.term, self.leader_id)
                self.role, self.term, self.leader_id = effect.role, effect.term, effect.leader_id
                if changed:
                    self._host.on_role(self.group, effect.role, effect.term, effect.leader_id)
            case _:
                return  # it commits nothing, and leads nothing

    def _on_damage(self) -> None:
        if not self.exchange.on_damage() and not self._is_shut:
            self._on_repaired()

    # Failure -----------------------------------------------------------------------------------------------------

    def watch_task(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (failure := task.exception()) is not None:
            self._fail_with(failure)

    def fail(self, code: Code, message: str) -> None:
        """Stops for good."""
        self._fail_with(error(code, message))

    def _fail_with(self, failure: BaseException) -> None:
        if self.failure is not None:
            return
        self.failure = as_refusal(failure, self.group)
        self._is_shut = True
        self.exchange.stop()
        self._effect_runner.stop()
        self._host.on_failure(self.group, self.failure)
