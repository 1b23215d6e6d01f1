"""Nodes, a bag of messages, and whatever can happen to them: the core under every order of events.

The decisions are the real ones. Around them stands the smallest driver there can be: logs are lists of (term, value),
pushes carry some items behind the last match, a disk syncs when the schedule says so. Messages are delivered in any
order, lost and doubled; nodes crash anywhere between two effects and come back with what was durable. At every step
``Watch`` checks what Raft promises.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

from dledger.config import Limits
from dledger.raft.effects import Committed, Effect, Persist, RoleChanged, Send
from dledger.raft.membership import Membership
from dledger.raft.messages import (
    NOBODY,
    Heartbeat,
    HeartbeatResponse,
    Message,
    TakeLeadership,
    VoteRequest,
    VoteResponse,
    VoteResult,
)
from dledger.raft.node import RaftNode
from dledger.types import Member, NodeId, Position, Role, Term
from tests.unit.raft.harness import GROUP, START_MS, TIMINGS
from tests.unit.raft.watch import Item, ListLog, Watch


@dataclass(frozen=True)
class Push:
    """Some of the leader's log behind ``after``, which must be in the follower's."""

    term: Term
    after: int
    after_item: Item | None
    items: tuple[Item, ...]
    commit: Position


@dataclass(frozen=True)
class PushAnswer:
    """``match``: durable, and equal to the leader's, up to here."""

    term: Term
    match: int


class Letter(NamedTuple):
    sender: NodeId
    to: NodeId
    message: Message | Push | PushAnswer


class Peer:
    """One node over all its starts: what is on its disk, and the running core, or None while it is down."""

    def __init__(self, node_id: NodeId) -> None:
        self.node_id = node_id
        self.log = ListLog()
        self.term = Term(0)
        self.vote = NOBODY
        self.commit_hint = Position(0)
        self.core: RaftNode | None = None
        self.highest_term = Term(0)


class Schedule:
    """A cluster of ``size`` voters under a seeded, or generated, sequence of steps."""

    def __init__(self, size: int, seed: int) -> None:
        self.random = Random(seed)
        self.now_ms = START_MS
        self.watch = Watch()
        self.bag: list[Letter] = []
        self.values = 0
        self._membership = Membership([Member(NodeId(f"n{i}"), f"h:{i}") for i in range(size)])
        self.peers = {node_id: Peer(node_id) for node_id in sorted(self._membership.voters)}
        self._crash_after: int | None = None
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
        running = [peer for peer in self.peers.values() if peer.core is not None]
        if running:
            peer = running[choice % len(running)]
            assert peer.core is not None
            self.now_ms = max(self.now_ms, peer.core.deadline_ms)
            peer.core.tick(self.now_ms)
            self._run(peer)

    def rest(self, choice: int) -> None:
        self.now_ms += choice % 300

    def propose(self, choice: int) -> None:
        """Every leader, also one that does not know yet that it is none, appends a value and pushes."""
        for peer in self._leading():
            self.values += 1
            assert peer.core is not None
            peer.log.items.append((peer.core.term, self.values))
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
            peer.core.advance(Position(peer.log.durable), self.now_ms)
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
            peer.core.on_peer_disconnected(peer.core.leader_id, self.now_ms)
            self._run(peer)

    def transfer(self, choice: int) -> None:
        for peer in self._leading():
            core = peer.core
            assert core is not None
            assert core.leadership is not None
            followers = sorted(core.leadership.followers)
            if followers and core.leadership.transfer is None:
                target = followers[choice % len(followers)]
                core.begin_transfer(target, Position(peer.log.durable), self.now_ms)
                self._run(peer)

    def heal(self) -> None:
        """Everyone is up, nothing is lost or doubled, disks sync: for as many steps as an election and a push take."""
        self._crash_after = None
        for peer in self.peers.values():
            if peer.core is None:
                self._start(peer)
        for _ in range(400):
            while self.bag:
                self.deliver(0)
            for at in range(len(self.peers)):
                self.sync(at)
            for peer in self._leading():
                self._push(peer)
            while self.bag:
                self.deliver(0)
            self._tick_next()

    def _tick_next(self) -> None:
        """Like a real clock: the earliest deadline is next."""
        cores = [peer.core for peer in self.peers.values() if peer.core is not None]
        first = min(range(len(cores)), key=lambda at: cores[at].deadline_ms)
        self.tick(first)

    # Nodes -------------------------------------------------------------------------------------------------------

    def _peer(self, choice: int) -> Peer:
        return list(self.peers.values())[choice % len(self.peers)]

    def _leading(self) -> list[Peer]:
        return [peer for peer in self.peers.values() if peer.core is not None and peer.core.leadership is not None]

    def _start(self, peer: Peer) -> None:
        peer.core = RaftNode(
            group=GROUP,
            node_id=peer.node_id,
            membership=self._membership,
            term=peer.term,
            vote=peer.vote,
            log=peer.log,
            commit_position=Position(min(peer.commit_hint, len(peer.log.items))),
            timings=TIMINGS,
            limits=Limits(),
            random=self.random,
            now_ms=self.now_ms,
        )
        self._run(peer)

    def _stop(self, peer: Peer) -> None:
        """The power is lost: what was not synced is gone."""
        if peer.core is not None:
            peer.core = None
            peer.log.cut(peer.log.durable)

    # Messages ----------------------------------------------------------------------------------------------------

    def _receive(self, letter: Letter) -> None:
        peer = self.peers[letter.to]
        core = peer.core
        if core is None:
            return
        sender, now_ms = letter.sender, self.now_ms
        match letter.message:
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
            case PushAnswer() as message:
                self._on_push_answer(peer, core, sender, message)
            case message:
                raise AssertionError(f"the core does not send {message}")
        self._run(peer)

    def _push(self, peer: Peer, at_most: int = 1_000_000) -> None:
        core = peer.core
        assert core is not None
        assert core.leadership is not None
        for follower, progress in core.leadership.followers.items():
            after = min(progress.match, len(peer.log.items))
            items = tuple(peer.log.items[after : after + at_most])
            push = Push(core.term, after, peer.log.item(after), items, core.commit_position)
            self.bag.append(Letter(peer.node_id, follower, push))

    def _on_push(self, peer: Peer, core: RaftNode, sender: NodeId, push: Push) -> None:
        if not core.hear_leader(sender, push.term, self.now_ms):
            self.bag.append(Letter(peer.node_id, sender, PushAnswer(core.term, 0)))
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
        core.follow_commit(push.commit)
        self._acknowledge(peer)

    def _acknowledge(self, peer: Peer) -> None:
        core = peer.core
        assert core is not None
        if core.leader_id not in (NOBODY, peer.node_id):
            match = min(peer.log.durable, core.matched_position)
            self.bag.append(Letter(peer.node_id, core.leader_id, PushAnswer(core.term, match)))

    def _on_push_answer(self, peer: Peer, core: RaftNode, sender: NodeId, answer: PushAnswer) -> None:
        leadership = core.hear_follower(sender, answer.term, self.now_ms)
        if leadership is not None:
            progress = leadership.followers[sender]
            progress.match = Position(max(progress.match, answer.match))
            core.advance(Position(peer.log.durable), self.now_ms)

    # Effects -----------------------------------------------------------------------------------------------------

    def _run(self, peer: Peer) -> None:
        """Does what the core wants, in order; a crash may fall between any two."""
        assert peer.core is not None
        core = peer.core
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
                self.bag.append(Letter(peer.node_id, to, message))
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
                self.watch.voted(peer.node_id, term, to)
            case VoteRequest(is_pre_vote=False, term=term):
                assert (peer.term, peer.vote) == (term, peer.node_id), f"{peer.node_id} stands before it is durable"
                self.watch.voted(peer.node_id, term, peer.node_id)
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


def take_step(schedule: Schedule, name: str, choice: int) -> None:
    if name == "double":
        schedule.deliver(choice, keep=True)
    else:
        getattr(schedule, name)(choice)
