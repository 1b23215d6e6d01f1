"""Nodes, a bag of messages, and whatever can happen to them: the core under every order of events.

The decisions are the real ones. Around them stands the smallest driver there can be: logs are lists of (term, value),
pushes carry some items behind the last match, a disk syncs when the schedule says so. Messages are delivered in any
order, lost and doubled; nodes crash anywhere between two effects and come back with what was durable, or with another
disk; clocks run at rates of their own; members are added, promoted, removed and admitted anew; logs are trimmed. At
every step ``Watch`` checks what Raft promises.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from dledger.common.config import Limits
from dledger.common.errors import DLedgerError
from dledger.common.types import LogPoint, Member, NodeId, Position, Role, Term
from dledger.raft.effects import Committed, Effect, FetchTail, Persist, RoleChanged, Send
from dledger.raft.fitness import Measure
from dledger.raft.following import judge_reset
from dledger.raft.membership import Membership, plan_add, plan_promote, plan_readmit, plan_remove
from dledger.raft.messages import (
    NOBODY,
    Heartbeat,
    HeartbeatResponse,
    Message,
    PushResult,
    TakeLeadership,
    VoteRequest,
    VoteResponse,
    VoteResult,
)
from dledger.raft.raft_node import RaftNode
from tests.unit.raft.harness import GROUP, START_MS, TIMINGS
from tests.unit.raft.peers import AskTail, Letter, Peer, Push, PushAnswer, PushReset, Tail, configuration, facts_of
from tests.unit.raft.watch import Watch

Sent = Message | Push | PushReset | PushAnswer | AskTail | Tail
LIMITS = Limits(max_transfer_lag_frames=8)
MEASURE = Measure.of(LIMITS, TIMINGS)


class Schedule:
    """A cluster of ``size`` voters under a seeded, or generated, sequence of steps; ``spares`` run and are no members.

    With ``lease_reads`` clocks run at rates up to ``clock_drift`` apart, within the bound unless a test says otherwise.
    """

    def __init__(
        self,
        size: int,
        seed: int,
        *,
        spares: int = 0,
        lease_reads: bool = False,
        clock_drift: float = TIMINGS.max_clock_drift,
    ) -> None:
        self.random = Random(seed)
        self.real_ms = START_MS
        self.watch = Watch()
        self.bag: list[Letter] = []
        self.values = 0
        self.changes: dict[int, Membership] = {}
        """By the value of the item that carries it."""
        self.lease_reads = lease_reads
        self._crash_after: int | None = None
        self._isolated = NOBODY
        self._unsettled: set[NodeId] = set()
        """Nodes whose disk was lost, until the group has admitted the new one: only a minority may be at a time."""
        initial = configuration(size)
        self.peers = {}
        for at in range(size + spares):
            node_id = NodeId(f"n{at}")
            rate = self.random.uniform(1 - clock_drift / 2, 1 + clock_drift / 2)
            self.peers[node_id] = Peer(node_id, initial if at < size else Membership([]), rate)
        for peer in self.peers.values():
            self._start(peer)

    # Steps: ``choice`` is any number, reduced to what there is to choose from ------------------------------------

    def deliver(self, choice: int, *, keep: bool = False) -> None:
        """Some message arrives; with ``keep`` it will arrive once more."""
        if self.bag:
            letter = self.bag[choice % len(self.bag)] if keep else self.bag.pop(choice % len(self.bag))
            self._receive(letter)

    def lose(self, choice: int) -> None:
        if self.bag:
            self.bag.pop(choice % len(self.bag))

    def tick(self, choice: int) -> None:
        """Time passes to some node's deadline; others may see theirs late."""
        running = self._running()
        if running:
            peer = running[choice % len(running)]
            core = self._core(peer)
            self.real_ms = max(self.real_ms, peer.real_ms(core.deadline_ms))
            core.tick(max(core.deadline_ms, self._now(peer)))
            self._run(peer)

    def clock(self, _: int) -> None:
        """Like a real clock: the earliest deadline is next, and nobody is late."""
        running = self._running()
        if running:
            ends = [peer.real_ms(self._core(peer).deadline_ms) for peer in running]
            self.tick(ends.index(min(ends)))

    def rest(self, choice: int) -> None:
        self.real_ms += choice % 300

    def propose(self, choice: int) -> None:
        """Every leader, also one that does not know yet that it is none, appends a value and pushes."""
        for peer in self._leading():
            self.values += 1
            peer.log.items.append((self._core(peer).term, self.values))
            self._push(peer, at_most=choice % 6)

    def push(self, choice: int) -> None:
        """Every leader pushes a few items to each follower; their acknowledgements bring the next."""
        for peer in self._leading():
            self._push(peer, at_most=choice % 6)

    def sync(self, choice: int) -> None:
        """Some node's disk has caught up."""
        peer = self._peer(choice)
        if peer.core is not None:
            peer.log.durable = len(peer.log.items)
            peer.core.advance(Position(peer.log.durable), self._now(peer))
            self._acknowledge(peer)
            self._run(peer)

    def crash(self, choice: int) -> None:
        """Some node stops; with its next events when ``choice`` is odd, between two of the effects they have."""
        if choice % 2:
            self._crash_after = choice // 2 % 4
        else:
            self._stop(self._peer(choice // 2))

    def restart(self, choice: int) -> None:
        down = [peer for peer in self.peers.values() if peer.core is None]
        if down:
            self._start(down[choice % len(down)])

    def disconnect(self, choice: int) -> None:
        """Some node sees its connection to its leader close."""
        peer = self._peer(choice)
        if peer.core is not None and peer.core.leader_id:
            peer.core.on_peer_disconnected(peer.core.leader_id, self._now(peer))
            self._run(peer)

    def isolate(self, choice: int) -> None:
        """Some node, most often a leader, hears nobody and is heard by nobody; or all hear each other again."""
        leading = self._leading()
        if choice % 3 == 0:
            self._isolated = NOBODY
        elif choice % 3 == 1 and leading:
            self._isolated = leading[choice // 3 % len(leading)].node_id
        else:
            self._isolated = self._peer(choice // 3).node_id

    def transfer(self, choice: int) -> None:
        for peer in self._leading():
            core = self._core(peer)
            assert core.leadership is not None
            followers = sorted(core.leadership.followers)
            if followers and core.leadership.transfer is None:
                target = followers[choice % len(followers)]
                core.begin_transfer(target, Position(peer.log.durable), self._now(peer))
                self._run(peer)

    def change(self, choice: int) -> None:
        """Every leader that may change the members tries to."""
        for peer in self._leading():
            core = self._core(peer)
            try:
                self._check_change(peer, core)
                planned = self._plan(peer, core, choice)
            except DLedgerError:
                continue
            if planned is not None:
                self.append_change(peer, Membership(planned))

    def may_lead(self, choice: int) -> None:
        """Some node's disk hangs, or is well again."""
        peer = self._peer(choice)
        if peer.core is not None:
            peer.core.set_may_lead(choice // 16 % 3 != 0, self._now(peer))
            self._run(peer)

    def trim(self, choice: int) -> None:
        """Some node drops what is committed there, up to somewhere."""
        peer = self._peer(choice)
        if peer.core is not None:
            reach = min(peer.core.commit_position, peer.log.durable)
            peer.log.start = max(peer.log.start, reach - choice // 16 % 8)

    def wipe(self, choice: int) -> None:
        """Some node comes back with another disk. As many as make a minority may at a time, and while no change of the
        members is under way: more is loss that no group survives."""
        peer = self._peer(choice)
        settled = self._settled_membership()
        if settled is None or len(settled.voters) < 3 or self._unsettled - {peer.node_id}:
            return
        self._stop(peer)
        peer.wipe()
        if peer.node_id in settled.members:
            self._unsettled.add(peer.node_id)

    def read(self, choice: int) -> None:
        """Whoever leads with a lease answers a read."""
        for peer in self._leading():
            core = self._core(peer)
            if core.has_lease(self._now(peer)):
                self.watch.read_by_lease(peer.node_id, core.commit_position)

    def heal(self) -> None:
        """Everyone is up, nothing is lost or doubled, disks sync: for as many steps as an election and a push take."""
        self._crash_after, self._isolated = None, NOBODY
        for peer in self.peers.values():
            if peer.core is None:
                self._start(peer)
            self._core(peer).set_may_lead(True, self._now(peer))
            self._run(peer)
        for _ in range(400):
            self.settle(0)
            self.clock(0)

    def settle(self, _: int) -> None:
        """Networks and disks are quick beside the clock: everything arrives, is written, and is answered."""
        self._deliver_all()
        for at in range(len(self.peers)):
            self.sync(at)
        for peer in self._leading():
            self._push(peer)
        self._deliver_all()

    def _deliver_all(self) -> None:
        while self.bag:
            self.deliver(0)

    # Nodes -------------------------------------------------------------------------------------------------------

    def _peer(self, choice: int) -> Peer:
        return list(self.peers.values())[choice % len(self.peers)]

    def _running(self) -> list[Peer]:
        return [peer for peer in self.peers.values() if peer.core is not None]

    def _leading(self) -> list[Peer]:
        return [peer for peer in self._running() if self._core(peer).leadership is not None]

    def _core(self, peer: Peer) -> RaftNode:
        assert peer.core is not None
        return peer.core

    def _now(self, peer: Peer) -> float:
        return peer.now_ms(self.real_ms)

    def _start(self, peer: Peer) -> None:
        peer.start += 1
        peer.core = RaftNode(
            group=GROUP,
            node_id=peer.node_id,
            membership=peer.membership(self.changes),
            term=peer.term,
            vote=peer.vote,
            log=peer.log,
            commit_position=Position(max(peer.log.start, min(peer.commit_hint, len(peer.log.items)))),
            timings=TIMINGS,
            limits=LIMITS,
            random=self.random,
            is_connected=lambda other: self.peers[other].core is not None,
            now_ms=self._now(peer),
            lease_reads=self.lease_reads,
        )
        for other in self._running():
            if other is not peer:
                peer.hear_hello(other, self._now(peer))
                other.hear_hello(peer, self._now(other))
        self._run(peer)

    def _stop(self, peer: Peer) -> None:
        """The power is lost: what was not synced is gone."""
        if peer.core is not None:
            peer.core = None
            peer.log.cut(peer.log.durable)

    # Members -----------------------------------------------------------------------------------------------------

    def _check_change(self, peer: Peer, core: RaftNode) -> None:
        core.check_change(peer.members_position(self.changes))

    def _plan(self, peer: Peer, core: RaftNode, choice: int) -> Sequence[Member] | None:
        members, facts = core.membership, facts_of(peer, self.peers)
        node_id = self._peer(choice // 16).node_id
        match choice % 4:
            case 0:
                return plan_add(members, node_id, f"h:{100 + int(node_id[1:])}")
            case 1:
                return plan_promote(members, node_id, peer.node_id, facts, MEASURE)
            case 2 if node_id != peer.node_id:  # a leader hands over first
                return plan_remove(members, node_id, peer.node_id, facts, MEASURE)
            case 2:
                return None
            case _:
                return plan_readmit(members, node_id, peer.node_id, facts, MEASURE)

    def append_change(self, peer: Peer, membership: Membership) -> None:
        """The leader writes it; from now on it counts by it."""
        self.values += 1
        self.changes[self.values] = membership
        peer.log.items.append((self._core(peer).term, self.values))
        self._follow_members(peer)
        self._push(peer, at_most=1)
        self._run(peer)

    def _follow_members(self, peer: Peer) -> None:
        core, membership = self._core(peer), peer.membership(self.changes)
        if core.membership is not membership:
            core.set_membership(membership, self._now(peer))
            for other in self._running():
                if other is not peer:
                    peer.judge(other, self._now(peer))

    def _settled_membership(self) -> Membership | None:
        """The committed members, when no log knows others."""
        committed = [self.changes[value] for _, value in self.watch.committed if value in self.changes]
        for node_id in tuple(self._unsettled):
            member = committed[-1].members.get(node_id) if committed else None
            if committed and (member is None or member.node_uuid == self.peers[node_id].disk_uuid):
                self._unsettled.discard(node_id)
        known = {id(peer.membership(self.changes)) for peer in self.peers.values() if peer.log.items}
        latest = committed[-1] if committed else self.peers[NodeId("n0")].configured
        return latest if known <= {id(latest)} else None

    # Messages ----------------------------------------------------------------------------------------------------

    def _post(self, sender: Peer, to: NodeId, message: Sent) -> None:
        self.bag.append(Letter(sender.node_id, sender.start, to, self.peers[to].start, message))

    def _receive(self, letter: Letter) -> None:
        peer, core = self.peers[letter.to], self.peers[letter.to].core
        is_lost = letter.sender_start != self.peers[letter.sender].start or letter.to_start != peer.start
        if core is None or is_lost or self._isolated in (letter.sender, letter.to):
            return
        before = (core.term, core.vote, core.role, core.leader_id)
        is_member = letter.sender in core.membership.members
        self._take(peer, core, letter.sender, letter.message)
        if not is_member and isinstance(letter.message, VoteResponse | HeartbeatResponse | PushAnswer):
            assert (core.term, core.vote, core.role, core.leader_id) == before, f"{letter.sender} is no member"
        self._run(peer)

    def _take(self, peer: Peer, core: RaftNode, sender: NodeId, what: Sent) -> None:
        now_ms = self._now(peer)
        match what:
            case VoteRequest() as message:
                core.on_vote_request(sender, message, now_ms)
            case VoteResponse() as message:
                core.on_vote_response(sender, message, now_ms)
            case Heartbeat() as message:
                core.on_heartbeat(sender, message, now_ms)
            case HeartbeatResponse() as message:
                core.on_heartbeat_response(sender, message, now_ms)
            case TakeLeadership() as message:
                core.on_take_leadership(sender, message, now_ms)
            case Push() as message:
                self._on_push(peer, core, sender, message)
            case PushReset() as message:
                self._on_reset(peer, core, sender, message)
            case PushAnswer() as message:
                self._on_push_answer(peer, core, sender, message)
            case AskTail() as message:
                self._on_ask_tail(peer, sender, message)
            case Tail() as message:
                self._on_tail(peer, core, message)
            case message:
                raise AssertionError(f"the core does not send {message}")

    def _push(self, peer: Peer, at_most: int = 1_000_000) -> None:
        core, log = self._core(peer), peer.log
        assert core.leadership is not None
        for follower, progress in core.leadership.followers.items():
            after = min(progress.match, len(log.items))
            if after < log.start:
                after = log.start
                self._post(peer, follower, PushReset(core.term, tuple(log.items[:after])))
            items = tuple(log.items[after : after + at_most])
            self._post(peer, follower, Push(core.term, after, log.item(after), items, core.commit_position))

    def _on_push(self, peer: Peer, core: RaftNode, sender: NodeId, push: Push) -> None:
        if not core.hear_leader(sender, push.term, self._now(peer)):
            self._post(peer, sender, PushAnswer(core.term, 0))
            return
        log = peer.log
        if push.after > len(log.items) or log.item(push.after) != push.after_item:
            return  # a leader that knows nothing of this one's match pushes its whole log in the end
        at = push.after
        for item in push.items:
            if at < len(log.items) and log.items[at] != item:
                self.watch.cut(peer.node_id, at, core.commit_position)
                log.cut(at)
            if at == len(log.items):
                log.items.append(item)
            at += 1
        core.on_matched(Position(at))
        self._follow_members(peer)
        core.follow_commit(push.commit)
        self._acknowledge(peer)

    def _on_reset(self, peer: Peer, core: RaftNode, sender: NodeId, push: PushReset) -> None:
        if not core.hear_leader(sender, push.term, self._now(peer)):
            self._post(peer, sender, PushAnswer(core.term, 0))
            return
        log, end = peer.log, len(push.items)
        point = log.point(end) if end <= len(log.items) else None
        mine = point if end >= log.start else None
        theirs = LogPoint(Position(end), Term(push.items[-1][0]), 0)
        result = judge_reset(theirs, mine, log.point(log.start), core.commit_position)
        assert result is not PushResult.DIVERGED
        if result is PushResult.SUCCESS:
            self.watch.reset(peer.node_id, list(push.items), core.commit_position)
            log.reset(list(push.items))
            core.on_reset(log.last)
            self._follow_members(peer)
        self._acknowledge(peer)

    def _acknowledge(self, peer: Peer) -> None:
        core = self._core(peer)
        if core.leader_id not in (NOBODY, peer.node_id):
            match = min(peer.log.durable, core.matched_position)
            self._post(peer, core.leader_id, PushAnswer(core.term, match))

    def _on_push_answer(self, peer: Peer, core: RaftNode, sender: NodeId, answer: PushAnswer) -> None:
        leadership = core.hear_follower(sender, answer.term, self._now(peer))
        if leadership is not None:
            progress = leadership.followers[sender]
            progress.match = Position(max(progress.match, answer.match))
            core.advance(Position(peer.log.durable), self._now(peer))

    def _on_ask_tail(self, peer: Peer, sender: NodeId, ask: AskTail) -> None:
        log = peer.log
        if log.start <= ask.after < len(log.items) and log.item(ask.after) == ask.item:
            self._post(peer, sender, Tail(ask.after, ask.item, tuple(log.items[ask.after : ask.after + 3])))

    def _on_tail(self, peer: Peer, core: RaftNode, tail: Tail) -> None:
        """What no leader sent: it is in the log from now on, and nothing more."""
        log = peer.log
        fits = len(log.items) == tail.after and log.item(tail.after) == tail.item
        if core.takes_tail and fits and tail.items[-1][0] <= core.term:
            self.watch.tails += 1
            log.items.extend(tail.items)
            self._follow_members(peer)

    # Effects -----------------------------------------------------------------------------------------------------

    def _run(self, peer: Peer) -> None:
        """Does what the core wants, in order; a crash may fall between any two."""
        core = self._core(peer)
        while effects := core.take_effects():
            for effect in effects:
                if self._crash_after == 0:
                    self._crash_after = None
                    self._stop(peer)
                    return
                if self._crash_after is not None:
                    self._crash_after -= 1
                self._execute(peer, core, effect)
        assert core.term >= peer.highest_term, f"the term of {peer.node_id} fell"
        peer.highest_term = peer.term

    def _execute(self, peer: Peer, core: RaftNode, effect: Effect) -> None:
        match effect:
            case Persist(term, vote):
                peer.term, peer.vote = term, vote
            case Send(to, message):
                self._check_promise(peer, to, message)
                self._post(peer, to, message)
            case FetchTail(asked):
                end = len(peer.log.items)
                self._post(peer, asked, AskTail(end, peer.log.item(end)))
            case RoleChanged(Role.LEADER, term, _):
                self.watch.led(peer.node_id, term, peer.log)
                if core.leadership is not None and core.term == term:
                    self.values += 1
                    peer.log.items.append((term, -self.values))  # the term's no-op
                    self._push(peer, at_most=1)
            case Committed(position):
                self.watch.saw_commit(peer.node_id, peer.log, position)
                peer.commit_hint = max(peer.commit_hint, position)
            case _:
                pass

    def _check_promise(self, peer: Peer, to: NodeId, message: Message) -> None:
        """Persist before send: nothing is told that a crash could make untrue."""
        match message:
            case VoteResponse(result=VoteResult.ACCEPT, is_pre_vote=False, request_term=term):
                assert (peer.term, peer.vote) == (term, to), f"{peer.node_id} tells {to} a vote that is not durable"
                self.watch.voted(peer.node_id, peer.disk, term, to)
            case VoteRequest(is_pre_vote=False, term=term):
                assert (peer.term, peer.vote) == (term, peer.node_id), f"{peer.node_id} stands before it is durable"
                self.watch.voted(peer.node_id, peer.disk, term, peer.node_id)
            case VoteRequest():
                pass
            case _:
                assert message.term <= max(peer.term, peer.log.last.term), f"{peer.node_id} speaks of a term in memory"


Step = Callable[[Schedule, int], None]

STEPS: Sequence[tuple[str, int]] = (
    ("deliver", 70),
    ("tick", 5),
    ("rest", 2),
    ("propose", 6),
    ("push", 10),
    ("sync", 12),
    ("lose", 3),
    ("double", 3),
    ("crash", 2),
    ("restart", 5),
    ("disconnect", 1),
    ("transfer", 1),
)
"""What happens, and how often in a hundred or so."""

CHANGING_STEPS: Sequence[tuple[str, int]] = (
    ("deliver", 60),
    ("settle", 6),
    ("clock", 10),
    ("tick", 2),
    ("rest", 1),
    ("propose", 6),
    ("push", 8),
    ("sync", 10),
    ("lose", 3),
    ("double", 3),
    ("crash", 2),
    ("restart", 6),
    ("disconnect", 1),
    ("transfer", 1),
    ("isolate", 2),
    ("change", 10),
    ("may_lead", 1),
    ("trim", 2),
    ("wipe", 1),
)
"""With members that change, logs that are trimmed and disks that are lost."""

LEASE_STEPS: Sequence[tuple[str, int]] = (
    ("deliver", 30),
    ("settle", 20),
    ("clock", 20),
    ("propose", 6),
    ("crash", 1),
    ("restart", 6),
    ("disconnect", 4),
    ("transfer", 2),
    ("isolate", 4),
    ("read", 20),
)
"""With leaders that answer reads alone, and all that could make another leader behind their back."""


def take_step(schedule: Schedule, name: str, choice: int) -> None:
    if name == "double":
        schedule.deliver(choice, keep=True)
    else:
        getattr(schedule, name)(choice)


def walk(schedule: Schedule, random: Random, steps: Sequence[tuple[str, int]], count: int) -> None:
    names, weights = [name for name, _ in steps], [weight for _, weight in steps]
    for name in random.choices(names, weights, k=count):
        take_step(schedule, name, random.getrandbits(16))
