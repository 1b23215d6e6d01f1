"""How a node comes to lead: it asks for votes, judges the candidates that ask for its own, and hears how the election
ended.

How one request is judged, and how answers are counted, is in election.py, without a node around it.
"""

from __future__ import annotations

from collections.abc import Sequence

from dledger.common.types import NodeId, Role, Term
from dledger.raft.effects import FetchTail, RoleChanged
from dledger.raft.election import BY_LOG, Ballot, VoteStage, is_ahead, judge_log, judge_membership, judge_vote
from dledger.raft.messages import NOBODY, TakeLeadership, VoteRequest, VoteResponse, VoteResult
from dledger.raft.state import NodeState, VoteBlocker

ROUNDS_BEFORE_FETCH = 2
"""After so many pre-votes without a leader, a candidate asks for the frames missing in its log."""


class Elections(NodeState):
    # Asking for votes --------------------------------------------------------------------------------------------

    def _campaign(self, stage: VoteStage, now_ms: float, transfer_from: NodeId = NOBODY) -> None:
        """Asks everyone: whether they would vote (WAIT_TO_REVOTE), or for their vote (WAIT_TO_VOTE_NEXT)."""
        self._become(Role.CANDIDATE, NOBODY, now_ms)
        term = Term(self.term + 1)
        if stage is VoteStage.WAIT_TO_VOTE_NEXT:
            self._set_hard_state(term, self.node_id)
            self._effects.append(RoleChanged(self.role, self.term, NOBODY))
        last = self._log.last
        is_pre_vote = stage is VoteStage.WAIT_TO_REVOTE
        self._rounds_alone += is_pre_vote
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
        if voter in self.doubted:
            ballot.record_in_doubt(voter, result)
        else:
            ballot.record(voter, result)
        if ballot.passed:
            if ballot.stage is VoteStage.WAIT_TO_REVOTE:
                self._campaign(VoteStage.WAIT_TO_VOTE_NEXT, now_ms)
            else:
                self._lead(now_ms)
            return
        if self._rounds_alone >= ROUNDS_BEFORE_FETCH and (ahead := ballot.wants_for_log):
            self._rounds_alone = 0
            self._effects.append(FetchTail(self._source(ahead)))
        if ballot.lost and not self.is_voter:
            self._give_up(now_ms)
        elif ballot.lost:
            self.ballot = None
            self.deadline_ms = self._retry_deadline(now_ms)

    def _source(self, ahead: Sequence[NodeId]) -> NodeId:
        """The member to fetch missing frames from.

        ``ahead`` are the voters that refused for the end of this log. They are asked in turn, as the frames may be
        damaged at one of them. Every third time another member is asked. A voter may have refused for an end that it
        only heard of (``min_candidate_end``), and not hold the frames itself.
        """
        thirds, step = divmod(self._fetches, 3)
        self._fetches += 1
        others = [peer for peer in self.membership.others(self.node_id) if peer not in ahead]
        if step == 2 and others:
            return others[thirds % len(others)]
        return ahead[(2 * thirds + step) % len(ahead)]

    def _give_up(self, now_ms: float) -> None:
        """A learner that stood in vain, or unheard, waits until it is called again."""
        self._calls = 0
        self._become(Role.FOLLOWER, NOBODY, now_ms)

    @property
    def takes_tail(self) -> bool:
        """Whether frames of another node, behind the end of this log, may be appended to it without a leader.

        A candidate with an incomplete log fetches the missing frames, once others had their chance. It may be the only
        node with links to a majority, and then nobody else can ever be elected (Omni-Paxos calls this a constrained
        election).

        This is safe. Some leader wrote these frames, so the log stays one that Raft allows. They count neither as
        committed nor as acknowledged (``matched_position`` stays). A leader may cut them like any other tail. No frame
        is taken of a term that this node has not heard of.
        """
        return self._may_stand and self.leadership is None and self.leader_id == NOBODY

    def on_vote_response(self, voter: NodeId, answer: VoteResponse, now_ms: float) -> None:
        if voter not in self.membership.voters:
            return
        if answer.term > self.term and answer.result is not VoteResult.ACCEPT:
            self._adopt_term(answer.term, now_ms)
            return
        ballot = self.ballot
        if ballot is None or answer.request_term != ballot.term:
            return
        if answer.is_pre_vote != (ballot.stage is VoteStage.WAIT_TO_REVOTE):
            return
        if answer.wall_clock_ms:
            ballot.clock_offsets_ms[voter] = answer.wall_clock_ms - now_ms
        self._record_vote(voter, answer.result, now_ms)

    # Giving votes ------------------------------------------------------------------------------------------------

    def on_vote_request(self, candidate: NodeId, request: VoteRequest, now_ms: float, wall_clock_ms: int = 0) -> None:
        """Judged in this order: identity → stickiness → term (adopted, persisted) → log → vote. ``wall_clock_ms``: this
        node's, for the answer."""
        result = self._judge(candidate, request, now_ms)
        if result is VoteResult.ACCEPT and not request.is_pre_vote:
            if self.vote != candidate:
                self._set_hard_state(self.term, candidate)
            self.deadline_ms = self._election_deadline(now_ms)
        elif request.is_pre_vote and result in BY_LOG:
            self._stand_instead(now_ms)
        answer = VoteResponse(self.group, self.term, request.is_pre_vote, request.term, result, wall_clock_ms)
        self._send(candidate, answer)

    def _stand_instead(self, now_ms: float) -> None:
        """A candidate is refused for the end of its log: this one goes on behind it. So this node asks soon itself,
        where nobody leads; it need not wait for its turn."""
        if self.leader_id == NOBODY and self.ballot is None and self._may_stand:
            soon_ms = now_ms + self._random.uniform(0, self._timings.heartbeat_interval_ms / 2)
            self.deadline_ms = min(self.deadline_ms, soon_ms)

    def _judge(self, candidate: NodeId, request: VoteRequest, now_ms: float) -> VoteResult:
        candidate_is_ahead = is_ahead(request, self._log.last)
        if candidate in self.doubted:
            # The log that is ahead may admit that disk, and promote this node: called, it stands, and fetches that.
            return self._call(VoteResult.UNKNOWN_LEADER) if candidate_is_ahead else VoteResult.UNKNOWN_LEADER
        by_log = judge_log(request, self.min_candidate_end if self.lacks_end else self._log.last)
        is_behind = by_log is not VoteResult.ACCEPT
        result = judge_membership(
            self.node_id, candidate, self.membership, is_ahead=candidate_is_ahead, is_behind=is_behind
        )
        if result is not VoteResult.ACCEPT:
            return result
        if self._is_sticky(request, now_ms):
            return VoteResult.ALREADY_HAS_LEADER
        if request.term < self.term or (request.is_pre_vote and request.term == self.term):
            return VoteResult.EXPIRED_VOTE_TERM
        if request.term > self.term and not request.is_pre_vote:
            self._adopt_term(request.term, now_ms)
        if not self._votes_for(candidate_is_ahead=candidate_is_ahead):
            lacks_committed = request.last_position < self.commit_position
            says_why = self.may_vote or (self.keeps_promises and lacks_committed)
            return self._call(by_log) if says_why else VoteResult.NOT_A_VOTER
        if request.last_position == self._log.last.position == 0 and not self.may_found:
            return VoteResult.NOT_FOUNDED
        if is_behind or request.is_pre_vote:
            return by_log
        return judge_vote(self.vote, candidate)

    def _votes_for(self, *, candidate_is_ahead: bool) -> bool:
        """Whether this node may give its vote to a candidate. What ``_judge`` answers then::

            candidate's log     ahead          level          behind
            voter               votes          votes          refuses for the log
            learner             votes          NOT_A_VOTER    refuses for the log (``_call``)
            another disk        votes          NOT_A_VOTER    refuses for the log if a committed frame is missing there,
                                                              else NOT_A_VOTER
            owes a catch-up     NOT_A_VOTER    NOT_A_VOTER    NOT_A_VOTER

        A log that is ahead may have promoted this learner, or admitted this disk, so the vote may be needed. If that
        log did neither, the candidate does not count the vote.

        A candidate that is refused for its log may fetch the missing frames (``takes_tail``). A learner refuses for the
        log because the shorter log may still have it as a voter. Then it may need the frames that made it a learner.
        Another disk refuses for the log only if committed frames are missing, which every leader must have. For other
        frames the candidate must not expect a vote. It would fetch frames that bind it, and get no vote when it is
        level.
        """
        return self.keeps_promises if candidate_is_ahead else self.is_voter

    def _call(self, result: VoteResult) -> VoteResult:
        """Counts a call: a vote request that this learner refuses for the log alone. Returns the answer to it.

        The candidate fetches what it lacks. It gets nothing if its log ends with *other* frames, and then nobody might
        ever be elected:

        1. Leader A promoted this learner in frames that only one voter got. A went away.
        2. Leader B was elected without these frames. It wrote to this learner alone, and is gone for good.
        3. The voters that are left count this learner as one of four voters, and need three. It votes for none of them,
           as its log is the furthest. By its own log it is a learner, so it would not stand.

        So it stands after some calls. The voters that its own log names elect it, itself not among them. Raft's proofs
        ask no more than such a majority, and the candidate's log. In Ongaro's dissertation, §4.2.2, a server outside
        the members stands for the same reason. It leads without counting itself, and hands over to a voter
        (group/leader/preferred.py).
        """
        if result is VoteResult.ACCEPT:
            return VoteResult.NOT_A_VOTER
        self._calls += 1
        return result

    def _is_sticky(self, request: VoteRequest, now_ms: float) -> bool:
        """A node that hears its leader refuses other candidates, unless that leader itself hands over in its own term.
        With leases it keeps its promise even if it has lost its leader since. It also keeps a promise that it may have
        given before it started."""
        if request.term < self.term:
            return False
        if self.leader_id and request.transfer_leader_id == self.leader_id and request.term == self.term + 1:
            return False
        if self.leadership is not None:
            return self.leadership.hears_quorum(now_ms)
        heard_ms = self._heard_leader_ms
        if self._lease_reads:
            heard_ms = self._started_ms if heard_ms is None else heard_ms
        elif self.leader_id == NOBODY:
            return False
        return heard_ms is not None and now_ms < heard_ms + self._timings.election_timeout_min_ms

    # Handing over ------------------------------------------------------------------------------------------------

    def on_take_leadership(self, leader: NodeId, message: TakeLeadership, now_ms: float) -> None:
        """The leader hands over: stand at once, without asking first whether it pays. A node does not stand if its disk
        would take no appends, even if the leader did not know of it."""
        from_my_leader = leader == self.leader_id and message.term == self.term
        if (
            from_my_leader
            and self._may_stand
            and self.disk.takes_appends
            and self._log.last.position >= message.position
        ):
            self._campaign(VoteStage.WAIT_TO_VOTE_NEXT, now_ms, transfer_from=leader)

    def set_may_lead(self, may_lead: bool, now_ms: float, why: VoteBlocker = VoteBlocker.SLOW_DISK) -> None:
        """``may_lead`` is False while ``why`` keeps this node from leading. A leader then steps down at once, and tells
        the closest of the fit voters to take over. The node does not stand until no such reason is left; meanwhile it
        follows and votes."""
        before = self.may_lead
        self._hinder(why, hinders=not may_lead)
        may_lead = self.may_lead
        if may_lead == before:
            return
        leadership, term = self.leadership, self.term
        if may_lead:
            if self.leadership is None:
                self.deadline_ms = self._election_deadline(now_ms)
        elif leadership is not None or self.role is Role.CANDIDATE:
            self._become(Role.FOLLOWER, NOBODY, now_ms)
        if leadership is None:
            return
        successor = leadership.closest(leadership.fit(self._log.last.position, now_ms))
        if successor is not None:
            self._send(successor, TakeLeadership(self.group, term, leadership.followers[successor].match))
