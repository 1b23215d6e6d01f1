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
from dledger.raft.rendezvous import ranked


class LogView(Protocol):
    """The facts about the log on which decisions rest: its end, from memory."""

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
"""So many calls for its vote make a learner stand itself: by then the callers have had time to fetch the missing
frames."""

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
        in_turn: bool = False,
    ) -> None:
        """``in_turn``: after a leader's silence the voters stand one after the other, in the group's own order
        (rendezvous.py), and not at random. If a node leads many groups, all of them lose their leader at once. Split
        votes would cost every one of them a save and another round."""
        self.group, self.node_id, self.membership = group, node_id, membership
        self.term = max(term, log.last.term)
        self.vote = vote if self.term == term else NOBODY
        self.role = Role.FOLLOWER
        self.leader_id = NOBODY
        self.commit_position = commit_position
        self.matched_position = commit_position
        """Up to here this log is known to equal the log of the term's leader. A follower acknowledges and commits
        nothing beyond it. It begins at the commit position, as every later leader's log holds all committed frames."""
        self.committed_before_term = commit_position
        """The commit position when this node took the term. The leader of the term holds all frames up to here."""
        self.is_compared = False
        """Whether the term's leader has compared its log with this one since this start. Before that, the leader may
        count frames of an earlier start, acknowledged then and lost since."""
        self.min_candidate_end = GENESIS
        """The furthest log end that this node may have acknowledged and then lost. It rejects a candidate if the
        candidate's log ends before this point, and does not stand itself until its own log reaches it."""
        self.leadership: Leadership | None = None
        self.ballot: Ballot | None = None
        self.vote_blockers: set[VoteBlocker] = set()
        self.disk = DiskState.OK
        """The state of this node's disk: followers report it, and leaders do not hand over to a node with a full
        disk."""
        self.may_found = True
        """Whether this node may take part in founding: it has met all founders, and their logs were empty. While it is
        False and this log is empty, the node neither stands nor votes for a candidate with an empty log. So nodes with
        emptied disks do not begin anew beside a node that holds acknowledged frames."""
        self.doubted: set[NodeId] = set()
        """Peers in doubt: their disk is, or may be, another one. They receive everything, and no quorum counts them."""
        self._log, self._timings, self._limits, self._random = log, timings, limits, random
        self._is_connected, self._lease_reads, self._in_turn = is_connected, lease_reads, in_turn
        self._take_place()
        self._effects: list[Effect] = []
        self._started_ms = now_ms
        self._heard_leader_ms: float | None = None
        self._last_led = Term(0)
        self._forgave_lateness = self._awaits_successor = False
        self._rounds_alone = self._fetches = 0
        """Two counts since this node last knew of a leader. The first: how often it asked whether it may stand. The
        second: how often it had frames fetched for that, each time from another voter."""
        self._calls = 0
        """How often a candidate with a shorter log asked this learner for its vote, since the learner last heard a
        leader or stood in vain."""
        self.deadline_ms = self._election_deadline(now_ms)
        """When ``tick`` wants to be called next."""
        self._settle_role()

    # What is known -----------------------------------------------------------------------------------------------

    @property
    def may_vote(self) -> bool:
        """False for a node that must not be part of a quorum. It does not stand, and votes at most for a log that is
        ahead."""
        return self.vote_blockers.isdisjoint(_KEEPS_FROM_VOTING)

    @property
    def keeps_promises(self) -> bool:
        """False for a node that may lack acknowledged frames, and does not know how far they went. (If it knows,
        ``min_candidate_end`` says so.) A disk that replaced another one keeps its promises: only the disk before it
        acknowledged the frames missing here."""
        return VoteBlocker.OWES_CATCH_UP not in self.vote_blockers

    @property
    def may_lead(self) -> bool:
        """False for a node with a disk that does not keep up, or with a damaged log: it follows and votes, and does not
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
        is_free = not self.vote_blockers and self.min_candidate_end is GENESIS  # the usual case, asked for very often
        return is_free or (self.may_vote and not self.lacks_end)

    def lose_tail(self) -> None:
        """The end of this log was cut, and it is not known yet what this node had acknowledged there.

        Until ``know_tail`` it votes only for a log that ends in a later term than its own. That is safe. The node
        cannot have acknowledged frames of such a term. The leader of such a term had every committed frame of earlier
        ones (Raft §5.4.3). So a log with a frame of that term has them too.
        """
        self._hinder(VoteBlocker.UNKNOWN_TAIL, hinders=True)
        self.min_candidate_end = LogPoint(Position(0), Term(self.term + 1), 0)

    def know_tail(self, min_candidate_end: LogPoint, now_ms: float) -> None:
        """The frames that this node may have acknowledged end at ``min_candidate_end`` or before."""
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
        voters = self.membership.voters
        return len(voters) == 1 and self.node_id in voters and self._may_stand

    @property
    def has_effects(self) -> bool:
        """Whether ``take_effects`` has something to give."""
        return bool(self._effects)

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
        return now_ms + self._least_patience_ms + self._more_patience_ms * self._random.random()

    def _take_place(self) -> None:
        """Sets how long this node waits for a leader: between both election timeouts at random, or in its own part
        of that time. It stands in the first half of its part. The second half is left free, so that its election can
        end."""
        least_ms, most_ms = self._timings.election_timeout_min_ms, self._timings.election_timeout_max_ms
        self._least_patience_ms, self._more_patience_ms = float(least_ms), float(most_ms - least_ms)
        if self._in_turn:
            order = ranked(self.group, self.membership.voters | {self.node_id})
            part_ms = self._more_patience_ms / len(order)
            self._least_patience_ms += order.index(self.node_id) * part_ms
            self._more_patience_ms = part_ms / 2

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
        if self.ballot is not None:
            self.leadership.know_clocks(self.ballot.clock_offsets_ms)
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
        """The log's last word on the members of the group; effective when appended, not when committed.

        A leader that is no voter by it leads on without counting itself. Any other node that is no voter does not
        stand, and an election that it began is over. A node that is the only voter stands at once.
        """
        self.membership = membership
        self._take_place()
        leadership = self.leadership
        if leadership is None:
            is_role_wrong = (self.role is Role.LEARNER) == self.is_voter
            if is_role_wrong or self.ballot is not None:
                self._become(Role.FOLLOWER, self.leader_id, now_ms)
            elif self._is_sole_voter:
                self.deadline_ms = now_ms
            return
        leadership.set_membership(membership, self._log.last.position, now_ms)
        # A member that had not answered the round may be none any more: the others may be a quorum now.
        self._take_round(leadership, self.node_id, leadership.own_round)
        if leadership.transfer is not None and leadership.transfer.target not in membership.voters:
            self.abort_transfer()

    def abort_transfer(self) -> None:
        """The target cannot take the leadership any more: appends are taken again."""
        if self.leadership is not None and self.leadership.transfer is not None:
            self.leadership.transfer = None
            self._effects.append(TransferEnded(NOBODY))

    def set_may_vote(self, may_vote: bool, now_ms: float, why: VoteBlocker = VoteBlocker.OWES_CATCH_UP) -> None:
        """Sets or lifts the one reason ``why``. The node votes again when no such reason is left."""
        before = self.may_vote
        self._hinder(why, hinders=not may_vote)
        if before != self.may_vote and self.leadership is None:
            self._become(Role.FOLLOWER, self.leader_id, now_ms)

    def judge_own_disk(self, node_uuid: bytes, now_ms: float) -> None:
        """Blocks votes while the log names another disk under this node's id. ``node_uuid`` is this disk's.

        A disk that replaced another one receives the log from its beginning. On the way, its log may have this node as
        a voter, or even as the only one. That vote belonged to the disk before it. The other nodes doubt this disk, so
        it must not trust itself either.
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
        """``peer`` lost its directory, or came back with an old one. From now on it receives everything. A leader
        counts none of its acknowledgements, a candidate none of its votes, and it gets no vote."""
        self.doubted.add(peer)
        if self.leadership is not None and peer in self.leadership.followers:
            self.leadership.followers[peer].counts = False

    def trust(self, peer: NodeId, now_ms: float) -> None:
        """Ends the doubt about ``peer``: the admitted disk is back, or its present disk was readmitted. Nothing that
        was known of its log counts any more."""
        self.doubted.discard(peer)
        self.forget(peer, now_ms)

    def forget(self, peer: NodeId, now_ms: float) -> None:
        """``peer`` said hello with another identity (node uuid, start). A leader compares its log anew, with a new
        ``Progress``, even if it had given the peer up as DIVERGED."""
        if self.leadership is not None:
            self.leadership.forget(peer, self._log.last.position, now_ms)
