"""One node's decisions in one group: terms, votes, leadership, commit. No IO, no clock, no randomness of its own.

Inputs are messages, the passing of time and the growth of the durable log. ``take_effects`` returns the effects to be
carried out, in order. Time is the caller's monotonic clock in milliseconds. It stands on two others: the state of a
node (state.py), and how it comes to lead (elections.py). The leader's own knowledge is in leadership.py.
"""

from __future__ import annotations

from collections.abc import Collection

from dledger.common.errors import Code, error
from dledger.common.types import LogPoint, NodeId, Position, Role, Term
from dledger.raft import invariants
from dledger.raft.effects import Committed
from dledger.raft.election import VoteStage
from dledger.raft.elections import Elections
from dledger.raft.leadership import Leadership
from dledger.raft.messages import NOBODY, Heartbeat, HeartbeatResponse, TakeLeadership
from dledger.raft.rendezvous import ranked

TURN_HEARTBEATS = 2
"""For so many heartbeat intervals a node that is to lead is left alone, before the next one in order asks as well."""


class RaftNode(Elections):
    """Time, the leader's word, commit, and what the shell asks of a leader."""

    # Time --------------------------------------------------------------------------------------------------------

    def tick(self, now_ms: float) -> None:
        """Must be called at ``deadline_ms`` or after; early calls do nothing."""
        if now_ms < self.deadline_ms:
            return
        if self._forgive_lateness(now_ms):
            return
        if self.leadership is not None:
            self._leader_tick(self.leadership, now_ms)
        elif self.ballot is not None and not self.is_voter:
            self._give_up(now_ms)
        elif self._may_stand:
            self._campaign(VoteStage.WAIT_TO_REVOTE, now_ms)
        elif self.leader_id:
            # One that does not stand has no leader either that it has not heard for so long.
            self._become(Role.FOLLOWER, NOBODY, now_ms)
        else:
            self.deadline_ms = self._election_deadline(now_ms)

    def _forgive_lateness(self, now_ms: float) -> bool:
        """A timer that fires late shows that this process stood still, not that the leader is gone. So the messages
        that arrived meanwhile are taken first, and the timer is armed once more. Load alone never elects."""
        late_ms = now_ms - self.deadline_ms
        if late_ms < self._timings.heartbeat_interval_ms / 2 or self._forgave_lateness:
            self._forgave_lateness = False
            return False
        self._forgave_lateness = True
        if self.leadership is not None:
            self.leadership.forgive(late_ms, now_ms)
            self._heartbeat(self.leadership, now_ms)
            self.deadline_ms = self._next_heartbeat_ms(now_ms)
        else:
            self.deadline_ms = self._election_deadline(now_ms)
        return True

    def _leader_tick(self, leadership: Leadership, now_ms: float) -> None:
        if leadership.transfer is not None and now_ms >= leadership.transfer.deadline_ms:
            self.abort_transfer()
        if not leadership.hears_quorum(now_ms):
            # Check-quorum: candidate in the same term, so that clients stop asking a leader that cannot commit.
            self._become(Role.CANDIDATE, NOBODY, now_ms)
            return
        self._heartbeat(leadership, now_ms)
        self.deadline_ms = self._next_heartbeat_ms(now_ms)

    # A leader's word, and answers to it --------------------------------------------------------------------------

    def hear_leader(self, sender: NodeId, term: Term, now_ms: float) -> bool:
        """Any message of a leader. False when it is not (any more) to be obeyed: answer it with our own term.

        A leader need not be among the members known here: it may be the newer one. The vote of its term is given to it
        if it was not given yet. Nobody else can win the term. So a disk that forgot its vote, and was admitted anew by
        this leader, cannot vote a second time.
        """
        if term < self.term or sender == self.node_id:
            return False
        if term > self.term:
            self._adopt_term(term, now_ms, vote=sender)
        assert self.leadership is None, f"{sender} leads term {term}, and so do I"
        assert self.leader_id in (NOBODY, sender), f"{sender} and {self.leader_id} lead term {term}"
        if self.vote == NOBODY:
            self._set_hard_state(term, sender)
        self._note_leader(sender, now_ms)
        return True

    def _note_leader(self, sender: NodeId, now_ms: float) -> None:
        """The term's leader was heard: this node does not stand, or vote for another, for a while."""
        self._heard_leader_ms = now_ms
        self._calls = 0
        if self.leader_id != sender:
            self._become(Role.FOLLOWER, sender, now_ms)
            self._end_transfer(sender)
        self.deadline_ms = self._election_deadline(now_ms)
        self._forgave_lateness = False

    def on_heartbeat(self, sender: NodeId, message: Heartbeat, now_ms: float, wall_clock_ms: int = 0) -> None:
        """``wall_clock_ms``: this node's, for the answer."""
        is_obeyed = self.hear_leader(sender, message.term, now_ms)
        if is_obeyed:
            self.follow_commit(message.commit_position)
        keeps_lease = is_obeyed and self._lease_reads
        may_vote = self.has_all_acknowledged
        self._send(sender, self._answer(message, keeps_lease=keeps_lease, may_vote=may_vote, now_wall_ms=wall_clock_ms))

    def answer_if_steady(
        self, sender: NodeId, message: Heartbeat, now_ms: float, wall_clock_ms: int
    ) -> HeartbeatResponse | None:
        """The answer to a heartbeat that changes only the time at which the leader was last heard. None: it may change
        more, nothing was done, and it is for ``on_heartbeat``.

        The answer equals that of ``on_heartbeat``, without an effect. Term, vote, leader and commit position stay, so
        nothing must become durable before the answer leaves.
        """
        is_steady = (
            sender == self.leader_id
            and message.term == self.term
            and self.leadership is None
            and self.vote != NOBODY
            and min(message.commit_position, self.matched_position) <= self.commit_position
            and self.has_all_acknowledged
            and not self._effects
        )
        if not is_steady:
            return None
        self._note_leader(sender, now_ms)
        return self._answer(message, keeps_lease=self._lease_reads, may_vote=True, now_wall_ms=wall_clock_ms)

    def _answer(self, message: Heartbeat, *, keeps_lease: bool, may_vote: bool, now_wall_ms: int) -> HeartbeatResponse:
        return HeartbeatResponse(self.group, self.term, message.round, keeps_lease, self.disk, now_wall_ms, may_vote)

    def hear_follower(self, sender: NodeId, term: Term, now_ms: float) -> Leadership | None:
        """Any answer to a leader's message. The leadership, when the answer belongs to it. An answer of a node that is
        no member (any more) changes nothing."""
        if sender not in self.membership.members:
            return None
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
        if leadership is not None:
            leadership.followers[sender].heard(answer, now_ms)
            self._take_round(leadership, sender, answer.round, keeps_lease=answer.keeps_lease)

    def take_if_steady(self, sender: NodeId, answer: HeartbeatResponse, now_ms: float) -> bool:
        """Takes an answer in this leader's term if the follower had already confirmed its round, and its lease. False:
        nothing was done, and it is for ``on_heartbeat_response``."""
        leadership = self.leadership
        if leadership is None or answer.term != self.term:
            return False
        progress = leadership.followers.get(sender)
        if progress is None or answer.round > (progress.lease_round if answer.keeps_lease else progress.round):
            return False
        progress.heard(answer, now_ms)
        return True

    def on_peer_disconnected(self, peer: NodeId, now_ms: float) -> None:
        """A closed connection from the leader is a hint: ask soon whether it is gone, and let others ask us. With
        leases the leader may go on answering reads behind it, and nobody asks before the time that was promised.

        The others see it at the same instant, and in all groups that it led. So they ask one after the other, in an
        order that each group has for itself. As a rule the first one has won before the next one asks.
        """
        if peer != self.leader_id or self.leadership is not None or self._lease_reads:
            return
        self._heard_leader_ms = None
        if self._may_stand:
            self._stand_in_turn(self.membership.voters - {peer}, now_ms)

    def found_in_turn(self, now_ms: float) -> None:
        """The group is new, and its founders open it about now: the first of its order stands when they have, unless
        the log has something."""
        if self._may_stand and self._log.last.position == 0:
            self._stand_in_turn(self.membership.voters, now_ms + self._timings.heartbeat_interval_ms)

    def _stand_in_turn(self, voters: Collection[NodeId], now_ms: float) -> None:
        """One of ``voters`` after the other stands, in the group's order, from ``now_ms`` on; a learner comes last."""
        order, heartbeat_ms = ranked(self.group, voters), self._timings.heartbeat_interval_ms
        place = order.index(self.node_id) if self.node_id in order else len(order)
        turn_ms = place * TURN_HEARTBEATS * heartbeat_ms + self._random.uniform(0, heartbeat_ms / 2)
        self.deadline_ms = min(self.deadline_ms, now_ms + turn_ms)

    # Commit ------------------------------------------------------------------------------------------------------

    def follow_commit(self, leader_commit: Position) -> None:
        """A follower commits what its leader has committed, as far as its own log is known to equal the leader's."""
        self._commit(min(leader_commit, self.matched_position))

    def on_matched(self, position: Position) -> None:
        """The follower's log was just found, or made, equal to the leader's up to ``position``."""
        self.matched_position = max(self.matched_position, position)
        self.is_compared = True

    def on_reset(self, point: LogPoint) -> None:
        """The follower's log was replaced by an empty one behind ``point``, at which its leader's log begins. So
        ``point`` is committed."""
        assert self._log.last == point, f"the log was reset to {point} and ends at {self._log.last}"
        self.on_matched(point.position)
        self._commit(point.position)

    def advance(self, durable_position: Position, now_ms: float) -> None:
        """A leader's own durable position, or a follower's match, may have grown: is more committed?"""
        leadership = self.leadership
        if leadership is None:
            return
        position = leadership.quorum_position(durable_position)
        if position > self.commit_position and position >= leadership.term_start:
            invariants.check_leader_commit(position, leadership.term_start)
            self._commit(position)
        target = leadership.take_transfer(self._log.last.position)
        if target is not None:
            self._send(target, TakeLeadership(self.group, self.term, self._log.last.position))

    def _commit(self, position: Position) -> None:
        if position > self.commit_position:
            invariants.check_commit(position, self._log.last)
            self.commit_position = position
            self._effects.append(Committed(position))

    # What the shell asks of a leader -----------------------------------------------------------------------------

    @property
    def is_ready(self) -> bool:
        """Whether the leader's own term has committed something: before, it may not know all that is committed."""
        return self.leadership is not None and self.commit_position >= self.leadership.term_start

    def check_change(self, members_position: Position) -> None:
        """Raises LEADER_NOT_READY or CHANGE_PENDING unless a leader may append a MEMBERSHIP frame now; the last one is
        at ``members_position``.

        One change at a time: a majority of the members before a change and one of those after it share a voter. Across
        two changes that does not hold. And not before something of this term is committed. Another leader may have
        changed the same members, unknown to this one. Two changes that each differ by one voter from the same members
        may have majorities without a common voter (Ongaro's erratum to single-server changes, 2015). With a frame of
        this term committed by a majority no such other change can be committed any more.
        """
        if not self.is_ready:
            raise error(
                Code.LEADER_NOT_READY, "the leader has not committed anything in its term yet; try again after a moment"
            )
        if members_position > self.commit_position:
            raise error(Code.CHANGE_PENDING, "another change of members is not committed yet; try again after a moment")

    def has_lease(self, now_ms: float) -> bool:
        """Whether this node surely leads alone at ``now_ms``. Then a linearizable read needs no round: the commit
        position covers everything that was acknowledged to anyone. Never without ``lease_reads``."""
        leadership = self.leadership
        return leadership is not None and self.is_ready and now_ms < leadership.lease_until_ms

    def begin_read_round(self, now_ms: float) -> int:
        """Asks a quorum whether this node still leads. ``ReadsConfirmed`` with at least this round answers."""
        assert self.leadership is not None
        return self._begin_round(self.leadership, now_ms)

    def begin_transfer(self, target: NodeId, durable_position: Position, now_ms: float) -> None:
        """Stops taking appends, waits for the target to be level, says TAKE. ``TransferEnded`` tells the end."""
        assert self.leadership is not None
        self.leadership.begin_transfer(target, now_ms + self._timings.election_timeout_max_ms)
        self.deadline_ms = min(self.deadline_ms, now_ms + self._timings.heartbeat_interval_ms)
        self.advance(durable_position, now_ms)
