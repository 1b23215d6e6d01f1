"""What a node is: its term and vote, its role, its leader, the members. Every change of them is here."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from random import Random
from typing import Protocol

from dledger.common.config import Limits, Timings
from dledger.common.types import GENESIS, DiskState, LogPoint, NodeId, Position, Role, Term
from dledger.raft import invariants
from dledger.raft.effects import Effect, Persist, ReadsConfirmed, RoleChanged, Send, TransferEnded
from dledger.raft.election import Ballot
from dledger.raft.leadership import Leadership
from dledger.raft.membership import Membership
from dledger.raft.messages import NOBODY, Message


class LogView(Protocol):
    """What the decisions rest on: where the log ends, from memory."""

    @property
    def last(self) -> LogPoint: ...


class VoteBlocker(Enum):
    """Why a node does not stand, or does not vote either."""

    SLOW_DISK = "its disk does not keep up"
    DAMAGED_LOG = "its log is damaged"
    OWES_CATCH_UP = "it may have lost what it acknowledged"
    UNKNOWN_TAIL = "it cut the end of its log, and has not asked the others what was there"
    OTHER_DISK = "its log names another disk under its id"
    STOPPED_MACHINE = "its state machine differs from the others', and is built anew"


CALLS_BEFORE_STANDING = 6
"""Calls for the vote of a learner before it stands itself: whoever calls has had time to fetch what it lacks."""

_KEEPS_FROM_VOTING = frozenset({VoteBlocker.OWES_CATCH_UP, VoteBlocker.OTHER_DISK})
_KEEPS_FROM_LEADING = frozenset({VoteBlocker.SLOW_DISK, VoteBlocker.DAMAGED_LOG, VoteBlocker.STOPPED_MACHINE})


def further(one: LogPoint, other: LogPoint) -> LogPoint:
    """The end that is preferred when logs are compared (Raft §5.4.1)."""
    return max(one, other, key=lambda each: (each.term, each.position))


class NodeState:
    """Invariants: see invariants.py. ``leadership`` is set iff the role is LEADER; ``ballot`` only for a candidate."""

    def __init__(
        self,
        *,
        group: str,
        node_id: NodeId,
        membership: Membership,
        term: Term,
        vote: NodeId,
        log: LogView,
        commit_position: Position,
        timings: Timings,
        limits: Limits,
        random: Random,
        is_connected: Callable[[NodeId], bool],
        now_ms: float,
        lease_reads: bool = False,
    ) -> None:
        self.group = group
        self.node_id = node_id
        self.membership = membership
        self.term = max(term, log.last.term)
        self.vote = vote if self.term == term else NOBODY
        self.role = Role.FOLLOWER
        self.leader_id = NOBODY
        self.commit_position = commit_position
        self.matched_position = commit_position
        """This log is known to equal that of the term's leader up to here: what a follower may acknowledge and commit.
        What is committed is in every leader's log."""
        self.committed_before_term = commit_position
        """The commit position when the term was taken: whoever leads it was elected with all of that in its log."""
        self.is_compared = False
        """Whether the term's leader has compared its log with this one since this start: before, it may count what was
        acknowledged before the start, and is not here any more."""
        self.min_candidate_end = GENESIS
        """This node may have acknowledged what lies up to there, and not have it any more: it votes for no log that
        ends before, its own included."""
        self.leadership: Leadership | None = None
        self.ballot: Ballot | None = None
        self.vote_blockers: set[VoteBlocker] = set()
        self.disk = DiskState.OK
        """What this node's disk is good for: followers say it, leaders do not hand over to one that is full."""
        self.may_found = True
        """False for a node that has not met all founders, none of them with anything in its log: while its own log is
        empty it does not stand, nor vote for one whose log is empty too. Nodes whose disks were emptied do not begin
        anew beside one that holds what was acknowledged."""
        self.doubted: set[NodeId] = set()
        """Nodes that are not, or may not be, what they were: they get everything, and no quorum rests on them."""
        self._log, self._timings, self._limits, self._random = log, timings, limits, random
        self._is_connected, self._lease_reads = is_connected, lease_reads
        self._effects: list[Effect] = []
        self._started_ms = now_ms
        self._heard_leader_ms: float | None = None
        self._last_led = Term(0)
        self._forgave_lateness = False
        self._awaits_successor = False
        self._rounds_alone = self._fetches = 0
        """How often this node asked whether it may stand, since it last knew of a leader; and how often it had frames
        fetched for that, each time from another voter."""
        self._calls = 0
        """How often this learner was asked for its vote by one whose log is behind its own, since it heard a leader, or
        stood in vain."""
        self.deadline_ms = self._election_deadline(now_ms)
        """When ``tick`` wants to be called next."""
        self._settle_role()

    # What is known -----------------------------------------------------------------------------------------------

    @property
    def may_vote(self) -> bool:
        """False for a node that no quorum may rest on: it does not stand, and votes at most for a log that is ahead."""
        return self.vote_blockers.isdisjoint(_KEEPS_FROM_VOTING)

    @property
    def keeps_promises(self) -> bool:
        """False for a node that may lack what it acknowledged, and does not know where that ended
        (``min_candidate_end``). One whose log names another disk lacks what that one acknowledged, and nothing of its
        own."""
        return VoteBlocker.OWES_CATCH_UP not in self.vote_blockers

    @property
    def may_lead(self) -> bool:
        """False for a node whose disk does not keep up, or whose log is damaged: it follows and votes, and does not
        stand."""
        return self.vote_blockers.isdisjoint(_KEEPS_FROM_LEADING)

    def _hinder(self, why: VoteBlocker, *, hinders: bool) -> None:
        if hinders:
            self.vote_blockers.add(why)
        else:
            self.vote_blockers.discard(why)

    @property
    def is_voter(self) -> bool:
        return self.may_vote and self.node_id in self.membership.voters

    @property
    def _may_stand(self) -> bool:
        may_be_voted_for = self.is_voter or self._is_called
        has_begun = self.may_found or self._log.last.position > 0
        return self.may_lead and may_be_voted_for and has_begun and not self.lacks_end

    @property
    def lacks_end(self) -> bool:
        """Whether this log ends before ``min_candidate_end``."""
        last, least = self._log.last, self.min_candidate_end
        return (last.term, last.position) < (least.term, least.position)

    @property
    def has_all_acknowledged(self) -> bool:
        """As far as this node knows."""
        return self.may_vote and not self.lacks_end

    def lose_tail(self) -> None:
        """This log's end was cut, and nobody knows yet what this node had acknowledged there. It was nothing of a later
        term than its own. So a log that ends in one has all of that which is committed, as whoever led that term had
        (Raft §5.4.3), and gets this node's vote; until ``know_tail`` no other does."""
        self._hinder(VoteBlocker.UNKNOWN_TAIL, hinders=True)
        self.min_candidate_end = LogPoint(Position(0), Term(self.term + 1), 0)

    def know_tail(self, min_candidate_end: LogPoint, now_ms: float) -> None:
        """What it may have acknowledged lies up to ``min_candidate_end``."""
        self._hinder(VoteBlocker.UNKNOWN_TAIL, hinders=False)
        self.min_candidate_end = min_candidate_end
        if self._is_sole_voter and self.leadership is None:
            self.deadline_ms = now_ms

    @property
    def _is_called(self) -> bool:
        """Whether this learner is to stand, as its log is needed (see ``Elections._call``)."""
        return self._calls >= CALLS_BEFORE_STANDING and self.may_vote and self.node_id in self.membership.members

    @property
    def _is_sole_voter(self) -> bool:
        return self._may_stand and self.membership.voters == {self.node_id}

    def take_effects(self) -> list[Effect]:
        """What is to be done, in order; each effect is handed out once."""
        effects, self._effects = self._effects, []
        return effects

    def _send(self, to: NodeId, message: Message) -> None:
        self._effects.append(Send(to, message))

    # Waits -------------------------------------------------------------------------------------------------------

    def _election_deadline(self, now_ms: float) -> float:
        """A random wait; none for a sole voter, which has nobody to wait for, nor to ask."""
        if self._is_sole_voter:
            return now_ms
        timings = self._timings
        return now_ms + self._random.uniform(timings.election_timeout_min_ms, timings.election_timeout_max_ms)

    def _next_heartbeat_ms(self, now_ms: float) -> float:
        """The next multiple of the heartbeat interval on the caller's clock, at most one interval away. So the leaders
        of all groups in one process beat at the same instant, and their heartbeats to one peer travel together."""
        interval_ms = self._timings.heartbeat_interval_ms
        return (now_ms // interval_ms + 1) * interval_ms

    def _retry_deadline(self, now_ms: float) -> float:
        """After a lost ballot: soon, but not together with a rival."""
        heartbeat_ms = self._timings.heartbeat_interval_ms
        return now_ms + self._random.uniform(heartbeat_ms, 3 * heartbeat_ms)

    # Roles and terms ---------------------------------------------------------------------------------------------

    def _become(self, role: Role, leader_id: NodeId, now_ms: float) -> None:
        """Every change of role, leader or term ends here."""
        if role is not Role.LEADER and self.leadership is not None:
            self._awaits_successor = self.leadership.transfer is not None
            self.leadership = None
        if role is not Role.CANDIDATE:
            self.ballot = None
        self.role = role
        self.leader_id = leader_id
        if leader_id:
            self._rounds_alone = 0
        self._forgave_lateness = False
        if role is not Role.LEADER:
            self.deadline_ms = self._election_deadline(now_ms)
        self._settle_role()

    def _settle_role(self) -> None:
        stands = self.role is Role.CANDIDATE and self._is_called
        if not self.is_voter and self.role is not Role.LEADER and not stands:
            self.role = Role.LEARNER
        self._effects.append(RoleChanged(self.role, self.term, self.leader_id))

    def _set_hard_state(self, term: Term, vote: NodeId) -> None:
        invariants.check_hard_state(self.term, self.vote, term, vote)
        if term != self.term:
            self.matched_position = self.committed_before_term = self.commit_position
            self.is_compared = False
        self.term = term
        self.vote = vote
        self._effects.append(Persist(term, vote))

    def _adopt_term(self, term: Term, now_ms: float, vote: NodeId = NOBODY) -> None:
        """A higher term was seen from somebody entitled to it. With leases what was promised to the leader heard last
        is kept for its time."""
        self._set_hard_state(term, vote)
        if not self._lease_reads:
            self._heard_leader_ms = None
        self._become(Role.FOLLOWER, NOBODY, now_ms)

    def _lead(self, now_ms: float) -> None:
        invariants.check_became_leader(self._last_led, self.term)
        self._last_led = self.term
        self._calls = 0
        self.leadership = Leadership(
            group=self.group,
            term=self.term,
            node_id=self.node_id,
            membership=self.membership,
            last=self._log.last.position,
            now_ms=now_ms,
            timings=self._timings,
            limits=self._limits,
            is_connected=self._is_connected,
            doubted=self.doubted,
        )
        self.deadline_ms = self._next_heartbeat_ms(now_ms)
        self._become(Role.LEADER, self.node_id, now_ms)
        self._end_transfer(NOBODY)
        self._heartbeat(self.leadership, now_ms)

    def _heartbeat(self, leadership: Leadership, now_ms: float) -> None:
        """With leases each is a round, as its answers prolong the lease."""
        leadership.note_end(self._log.last.position, now_ms)
        if self._lease_reads:
            self._begin_round(leadership, now_ms)
        else:
            leadership.broadcast_heartbeat(self._send, self.commit_position)

    def _begin_round(self, leadership: Leadership, now_ms: float) -> int:
        round_number = leadership.next_round(now_ms)
        leadership.broadcast_heartbeat(self._send, self.commit_position)
        self._take_round(leadership, self.node_id, round_number)
        return round_number

    def _take_round(
        self, leadership: Leadership, sender: NodeId, round_number: int, *, keeps_lease: bool = False
    ) -> None:
        if leadership.on_round(sender, round_number, keeps_lease=keeps_lease):
            self._effects.append(ReadsConfirmed(leadership.confirmed_round))

    def _end_transfer(self, new_leader_id: NodeId) -> None:
        if self._awaits_successor:
            self._awaits_successor = False
            self._effects.append(TransferEnded(new_leader_id))

    # Members and their standing ----------------------------------------------------------------------------------

    def set_membership(self, membership: Membership, now_ms: float) -> None:
        """The log's last word on who belongs to the group; effective when appended, not when committed.

        A leader that is no voter by it leads on without counting itself. Another node that is none does not stand, and
        what it began is over; one that is the only voter stands at once.
        """
        self.membership = membership
        leadership = self.leadership
        if leadership is None:
            is_role_wrong = (self.role is Role.LEARNER) == self.is_voter
            if is_role_wrong or self.ballot is not None:
                self._become(Role.FOLLOWER, self.leader_id, now_ms)
            elif self._is_sole_voter:
                self.deadline_ms = now_ms
            return
        leadership.set_membership(membership, self._log.last.position, now_ms)
        # Who had not answered a round may have been taken from those who must.
        self._take_round(leadership, self.node_id, leadership.own_round)
        if leadership.transfer is not None and leadership.transfer.target not in membership.voters:
            self.abort_transfer()

    def abort_transfer(self) -> None:
        """The target cannot take the leadership any more: appends are taken again."""
        if self.leadership is not None and self.leadership.transfer is not None:
            self.leadership.transfer = None
            self._effects.append(TransferEnded(NOBODY))

    def set_may_vote(self, may_vote: bool, now_ms: float, why: VoteBlocker = VoteBlocker.OWES_CATCH_UP) -> None:
        """As far as ``why`` goes: each vote_blocker is lifted for itself."""
        before = self.may_vote
        self._hinder(why, hinders=not may_vote)
        if before != self.may_vote and self.leadership is None:
            self._become(Role.FOLLOWER, self.leader_id, now_ms)

    def judge_own_disk(self, node_uuid: bytes, now_ms: float) -> None:
        """A disk that replaced another one gets the log from its beginning. On the way this node may be a voter by it,
        the only one even, for what the disk before it held: others know of that one, and doubt this; it must as well.
        """
        member = self.membership.members.get(self.node_id)
        is_own = member is None or member.node_uuid in (b"", node_uuid)
        self.set_may_vote(is_own, now_ms, VoteBlocker.OTHER_DISK)

    def set_may_found(self, may_found: bool, now_ms: float) -> None:
        if may_found != self.may_found:
            self.may_found = may_found
            if self.leadership is None:
                self.deadline_ms = self._election_deadline(now_ms)

    def doubt(self, peer: NodeId) -> None:
        """``peer`` lost its directory, or came back with an old one: from now on it gets everything and no quorum rests
        on it, neither of this leader nor of a candidate; nor does it get a vote."""
        self.doubted.add(peer)
        if self.leadership is not None and peer in self.leadership.followers:
            self.leadership.followers[peer].counts = False

    def trust(self, peer: NodeId, now_ms: float) -> None:
        """Lifts a doubt: the disk that was admitted is back, or the one that is there was admitted anew. What was known
        of its log is void."""
        self.doubted.discard(peer)
        self.forget(peer, now_ms)

    def forget(self, peer: NodeId, now_ms: float) -> None:
        """``peer`` said hello with another identity (node uuid, start): a leader compares its log anew, from nothing,
        also where it had given it up as DIVERGED. Its ``Progress`` is another one then."""
        if self.leadership is not None:
            self.leadership.forget(peer, self._log.last.position, now_ms)
