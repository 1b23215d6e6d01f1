"""One node's decisions in one group: terms, votes, leadership, commit. No IO, no clock, no randomness of its own.

Inputs are messages, the passing of time and what became durable; ``take_effects`` returns what is to be done about
them, in order. Time is the caller's monotonic clock in milliseconds. What a leader alone knows is in leadership.py;
how a vote is judged in election.py.
"""

from __future__ import annotations

from random import Random
from typing import Protocol

from dledger.config import Limits, Timings
from dledger.raft import invariants
from dledger.raft.effects import (
    Committed,
    Effect,
    Persist,
    ReadsConfirmed,
    RoleChanged,
    Send,
    TransferEnded,
)
from dledger.raft.election import Ballot, VoteStage, judge_log, judge_membership, judge_vote
from dledger.raft.leadership import Leadership
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
from dledger.types import LogPoint, NodeId, Position, Role, Term


class LogView(Protocol):
    """What the decisions rest on: where the log ends, from memory."""

    @property
    def last(self) -> LogPoint: ...


class RaftNode:
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
        now_ms: float,
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
        self.leadership: Leadership | None = None
        self.ballot: Ballot | None = None
        self.may_vote = True
        """False for a node that cannot rely on its promises (see DESIGN: identity, durability): neither votes nor
        stands."""
        self.doubted: set[NodeId] = set()
        """Nodes that are not, or may not be, what they were: they get everything, and no quorum rests on them."""
        self._log = log
        self._timings = timings
        self._limits = limits
        self._random = random
        self._effects: list[Effect] = []
        self._heard_leader_ms: float | None = None
        self._last_led = Term(0)
        self._forgave_lateness = False
        self._awaits_successor = False
        sole_voter = membership.voters == {node_id}
        self.deadline_ms = now_ms if sole_voter else self._election_deadline(now_ms)
        """When ``tick`` wants to be called next."""
        self._settle_role()

    # What is known -----------------------------------------------------------------------------------------------

    @property
    def is_voter(self) -> bool:
        return self.may_vote and self.node_id in self.membership.voters

    def take_effects(self) -> list[Effect]:
        """What is to be done, in order; each effect is handed out once."""
        effects, self._effects = self._effects, []
        return effects

    # Time --------------------------------------------------------------------------------------------------------

    def tick(self, now_ms: float) -> None:
        """Must be called at ``deadline_ms`` or after; early calls do nothing."""
        if now_ms < self.deadline_ms:
            return
        if self._forgive_lateness(now_ms):
            return
        if self.leadership is not None:
            self._leader_tick(self.leadership, now_ms)
        elif self.is_voter:
            self._campaign(VoteStage.WAIT_TO_REVOTE, now_ms)
        else:
            self.deadline_ms = self._election_deadline(now_ms)

    def _forgive_lateness(self, now_ms: float) -> bool:
        """A timer that fires late says that this process stood still, not that the leader is gone: what has arrived
        meanwhile is taken first, and the timer armed once more. Load alone never elects."""
        late_ms = now_ms - self.deadline_ms
        if late_ms < self._timings.heartbeat_interval_ms / 2 or self._forgave_lateness:
            self._forgave_lateness = False
            return False
        self._forgave_lateness = True
        if self.leadership is not None:
            self.leadership.forgive(late_ms)
            self.leadership.broadcast_heartbeat(self._send, self.commit_position)
            self.deadline_ms = now_ms + self._timings.heartbeat_interval_ms
        else:
            self.deadline_ms = self._election_deadline(now_ms)
        return True

    def _leader_tick(self, leadership: Leadership, now_ms: float) -> None:
        if leadership.transfer is not None and now_ms >= leadership.transfer.deadline_ms:
            leadership.transfer = None
            self._effects.append(TransferEnded(NOBODY))
        if not leadership.hears_quorum(now_ms):
            # Check-quorum: candidate in the same term, so that clients stop asking a leader that cannot commit.
            self._become(Role.CANDIDATE, NOBODY, now_ms)
            return
        leadership.broadcast_heartbeat(self._send, self.commit_position)
        self.deadline_ms = now_ms + self._timings.heartbeat_interval_ms

    def _election_deadline(self, now_ms: float) -> float:
        timings = self._timings
        return now_ms + self._random.uniform(timings.election_timeout_min_ms, timings.election_timeout_max_ms)

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
        self._forgave_lateness = False
        if role is not Role.LEADER:
            self.deadline_ms = self._election_deadline(now_ms)
        self._settle_role()

    def _settle_role(self) -> None:
        if not self.is_voter and self.role is not Role.LEADER:
            self.role = Role.LEARNER
        self._effects.append(RoleChanged(self.role, self.term, self.leader_id))

    def _set_hard_state(self, term: Term, vote: NodeId) -> None:
        invariants.check_hard_state(self.term, self.vote, term, vote)
        if term != self.term:
            self.matched_position = self.commit_position
        self.term = term
        self.vote = vote
        self._effects.append(Persist(term, vote))

    def _adopt_term(self, term: Term, now_ms: float) -> None:
        """A higher term was seen from somebody entitled to it."""
        self._set_hard_state(term, NOBODY)
        self._heard_leader_ms = None
        self._become(Role.FOLLOWER, NOBODY, now_ms)

    def set_membership(self, membership: Membership, now_ms: float) -> None:
        """The log's last word on who belongs to the group; effective when appended, not when committed."""
        self.membership = membership
        if self.leadership is not None:
            self.leadership.set_membership(membership, self._log.last.position, now_ms)
        elif (self.role is Role.LEARNER) == self.is_voter:
            self._become(Role.FOLLOWER, self.leader_id, now_ms)

    def set_may_vote(self, may_vote: bool, now_ms: float) -> None:
        if may_vote != self.may_vote:
            self.may_vote = may_vote
            if self.leadership is None:
                self._become(Role.FOLLOWER, self.leader_id, now_ms)

    def doubt(self, peer: NodeId) -> None:
        """``peer`` lost its directory, or came back with an old one."""
        self.doubted.add(peer)
        if self.leadership is not None and peer in self.leadership.followers:
            self.leadership.followers[peer].counts = False

    # Elections ---------------------------------------------------------------------------------------------------

    def _campaign(self, stage: VoteStage, now_ms: float, transfer_from: NodeId = NOBODY) -> None:
        """Asks everyone: whether they would vote (WAIT_TO_REVOTE), or for their vote (WAIT_TO_VOTE_NEXT)."""
        self._become(Role.CANDIDATE, NOBODY, now_ms)
        term = Term(self.term + 1)
        if stage is VoteStage.WAIT_TO_VOTE_NEXT:
            self._set_hard_state(term, self.node_id)
            self._effects.append(RoleChanged(self.role, self.term, NOBODY))
        last = self._log.last
        is_pre_vote = stage is VoteStage.WAIT_TO_REVOTE
        request = VoteRequest(self.group, term, is_pre_vote, last.term, last.position, transfer_from)
        self.ballot = Ballot(stage, term, self.membership)
        self.deadline_ms = now_ms + self._random.uniform(0.5, 1.0) * self._timings.election_timeout_min_ms
        for peer in self.membership.others(self.node_id):
            if peer in self.membership.voters:
                self._send(peer, request)
        self._record_vote(self.node_id, VoteResult.ACCEPT, now_ms)

    def _record_vote(self, voter: NodeId, result: VoteResult, now_ms: float) -> None:
        ballot = self.ballot
        assert ballot is not None
        if voter not in self.doubted:
            ballot.record(voter, result)
        if ballot.passed:
            if ballot.stage is VoteStage.WAIT_TO_REVOTE:
                self._campaign(VoteStage.WAIT_TO_VOTE_NEXT, now_ms)
            else:
                self._lead(now_ms)
        elif ballot.lost:
            self.ballot = None
            self.deadline_ms = self._retry_deadline(now_ms)

    def _lead(self, now_ms: float) -> None:
        invariants.check_became_leader(self._last_led, self.term)
        self._last_led = self.term
        self.leadership = Leadership(
            group=self.group,
            term=self.term,
            node_id=self.node_id,
            membership=self.membership,
            last=self._log.last.position,
            now_ms=now_ms,
            timings=self._timings,
            limits=self._limits,
        )
        self.deadline_ms = now_ms + self._timings.heartbeat_interval_ms
        for peer in self.doubted:
            self.doubt(peer)
        self._become(Role.LEADER, self.node_id, now_ms)
        self._end_transfer(NOBODY)
        self.leadership.broadcast_heartbeat(self._send, self.commit_position)

    def on_vote_request(self, candidate: NodeId, request: VoteRequest, now_ms: float) -> None:
        """Judged in this order: identity → stickiness → term (adopted, persisted) → log → vote."""
        result = self._judge(candidate, request, now_ms)
        if result is VoteResult.ACCEPT and not request.is_pre_vote:
            if self.vote != candidate:
                self._set_hard_state(self.term, candidate)
            self.deadline_ms = self._election_deadline(now_ms)
        answer = VoteResponse(self.group, self.term, request.is_pre_vote, request.term, result)
        self._send(candidate, answer)

    def _judge(self, candidate: NodeId, request: VoteRequest, now_ms: float) -> VoteResult:
        if candidate in self.doubted:
            return VoteResult.UNKNOWN_LEADER
        result = judge_membership(self.node_id, candidate, self.membership)
        if result is not VoteResult.ACCEPT:
            return result
        if self._is_sticky(request, now_ms):
            return VoteResult.ALREADY_HAS_LEADER
        if request.term < self.term or (request.is_pre_vote and request.term == self.term):
            return VoteResult.EXPIRED_VOTE_TERM
        if request.term > self.term and not request.is_pre_vote:
            self._adopt_term(request.term, now_ms)
        if not self.is_voter:
            return VoteResult.NOT_A_VOTER
        result = judge_log(request, self._log.last)
        if result is not VoteResult.ACCEPT or request.is_pre_vote:
            return result
        return judge_vote(self.vote, candidate)

    def _is_sticky(self, request: VoteRequest, now_ms: float) -> bool:
        """A node that hears its leader refuses others, unless that leader itself hands over in its own term."""
        if self.leader_id == NOBODY or request.term < self.term:
            return False
        if request.transfer_leader_id == self.leader_id and request.term == self.term + 1:
            return False
        if self.leadership is not None:
            return self.leadership.hears_quorum(now_ms)
        heard = self._heard_leader_ms
        return heard is not None and now_ms < heard + self._timings.election_timeout_min_ms

    def on_vote_response(self, voter: NodeId, answer: VoteResponse, now_ms: float) -> None:
        if answer.term > self.term and answer.result is not VoteResult.ACCEPT:
            self._adopt_term(answer.term, now_ms)
            return
        ballot = self.ballot
        if ballot is None or answer.request_term != ballot.term:
            return
        if answer.is_pre_vote != (ballot.stage is VoteStage.WAIT_TO_REVOTE):
            return
        self._record_vote(voter, answer.result, now_ms)

    def on_take_leadership(self, leader: NodeId, message: TakeLeadership, now_ms: float) -> None:
        """The leader hands over: stand at once, without asking first whether it pays."""
        from_my_leader = leader == self.leader_id and message.term == self.term
        if from_my_leader and self.is_voter and self._log.last.position >= message.position:
            self._campaign(VoteStage.WAIT_TO_VOTE_NEXT, now_ms, transfer_from=leader)

    # A leader's word, and answers to it --------------------------------------------------------------------------

    def hear_leader(self, sender: NodeId, term: Term, now_ms: float) -> bool:
        """Any message of a leader. False when it is not (any more) to be obeyed: answer it with our own term."""
        if term < self.term or sender == self.node_id:
            return False
        if term > self.term:
            self._adopt_term(term, now_ms)
        assert self.leadership is None, f"{sender} leads term {term}, and so do I"
        assert self.leader_id in (NOBODY, sender), f"{sender} and {self.leader_id} lead term {term}"
        self._heard_leader_ms = now_ms
        if self.leader_id != sender:
            self._become(Role.FOLLOWER, sender, now_ms)
            self._end_transfer(sender)
        self.deadline_ms = self._election_deadline(now_ms)
        self._forgave_lateness = False
        return True

    def _end_transfer(self, new_leader_id: NodeId) -> None:
        if self._awaits_successor:
            self._awaits_successor = False
            self._effects.append(TransferEnded(new_leader_id))

    def on_heartbeat(self, sender: NodeId, message: Heartbeat, now_ms: float) -> None:
        if self.hear_leader(sender, message.term, now_ms):
            self.follow_commit(message.commit_position)
        self._send(sender, HeartbeatResponse(self.group, self.term, message.round))

    def hear_follower(self, sender: NodeId, term: Term, now_ms: float) -> Leadership | None:
        """Any answer to a leader's message. The leadership, when the answer belongs to it."""
        if term > self.term:
            self._adopt_term(term, now_ms)
            return None
        leadership = self.leadership
        if leadership is None or term != self.term or sender not in leadership.followers:
            return None
        leadership.followers[sender].contact_ms = now_ms
        return leadership

    def on_heartbeat_response(self, sender: NodeId, answer: HeartbeatResponse, now_ms: float) -> None:
        leadership = self.hear_follower(sender, answer.term, now_ms)
        if leadership is not None and leadership.on_round(sender, answer.round):
            self._effects.append(ReadsConfirmed(leadership.confirmed_round))

    def on_peer_disconnected(self, peer: NodeId, now_ms: float) -> None:
        """A closed connection from the leader is a hint: ask soon whether it is gone, and let others ask us."""
        if peer == self.leader_id and self.leadership is None:
            self._heard_leader_ms = None
            if self.is_voter:
                soon_ms = now_ms + self._random.uniform(0, self._timings.heartbeat_interval_ms)
                self.deadline_ms = min(self.deadline_ms, soon_ms)

    # Commit ------------------------------------------------------------------------------------------------------

    def follow_commit(self, leader_commit: Position) -> None:
        """A follower commits what its leader has committed, as far as its own log is known to equal the leader's."""
        self._commit(min(leader_commit, self.matched_position))

    def on_matched(self, position: Position) -> None:
        """The follower's log was just found, or made, equal to the leader's up to ``position``."""
        self.matched_position = max(self.matched_position, position)

    def advance(self, durable_position: Position, now_ms: float) -> None:
        """A leader's own durable position, or a follower's match, may have grown: is more committed?"""
        leadership = self.leadership
        if leadership is None:
            return
        position = leadership.quorum_position(durable_position)
        if position > self.commit_position and position >= leadership.term_start:
            invariants.check_leader_commit(position, leadership.term_start)
            self._commit(position)
        if leadership.transfer_is_due(self._log.last.position):
            assert leadership.transfer is not None
            target = leadership.transfer.target
            leadership.transfer.is_sent = True
            self._send(target, TakeLeadership(self.group, self.term, self._log.last.position))

    def _commit(self, position: Position) -> None:
        if position > self.commit_position:
            invariants.check_commit(self.commit_position, position, self._log.last)
            self.commit_position = position
            self._effects.append(Committed(position))

    # What the shell asks of a leader -----------------------------------------------------------------------------

    @property
    def is_ready(self) -> bool:
        """Whether the leader's own term has committed something: before, it may not know all that is committed."""
        return self.leadership is not None and self.commit_position >= self.leadership.term_start

    def begin_read_round(self) -> int:
        """Asks a quorum whether this node still leads. ``ReadsConfirmed`` with at least this round answers."""
        assert self.leadership is not None
        round_number = self.leadership.next_round()
        self.leadership.broadcast_heartbeat(self._send, self.commit_position)
        if self.leadership.on_round(self.node_id, round_number):
            self._effects.append(ReadsConfirmed(self.leadership.confirmed_round))
        return round_number

    def begin_transfer(self, target: NodeId, durable_position: Position, now_ms: float) -> None:
        """Stops taking appends, waits for the target to be level, says TAKE. ``TransferEnded`` tells the end."""
        assert self.leadership is not None
        self.leadership.begin_transfer(target, now_ms + self._timings.election_timeout_max_ms)
        self.deadline_ms = min(self.deadline_ms, now_ms + self._timings.heartbeat_interval_ms)
        self.advance(durable_position, now_ms)

    def abort_transfer(self) -> None:
        """The target cannot take the leadership any more: appends are taken again."""
        if self.leadership is not None and self.leadership.transfer is not None:
            self.leadership.transfer = None
            self._effects.append(TransferEnded(NOBODY))

    def _send(self, to: NodeId, message: Message) -> None:
        self._effects.append(Send(to, message))
