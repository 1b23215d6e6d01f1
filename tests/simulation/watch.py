"""What must never happen, asked at every step: one place that knows what all nodes said and hold.

Each check names the invariant in its ``Violation``. What a node holds is asked of its platter (truth.py), what logs say
of each other of the chronicle. A step is whatever a node does that others could rely on: a message it sends, a frame it
writes, cuts or commits, a term it leads; and besides, everybody is looked at every few milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from dledger.common.batch import record_at
from dledger.common.types import DEFAULT_GROUP, GENESIS, LogPoint, Member, NodeId, Position, Role, Term, TrimPoint
from dledger.log.frame.frame import ControlKind, Frame
from dledger.raft.messages import (
    Append,
    AppendResponse,
    Compare,
    CompareResponse,
    Message,
    PushResult,
    Reset,
    ResetResponse,
    TakeLeadership,
    Truncate,
    TruncateResponse,
    VoteRequest,
    VoteResponse,
    VoteResult,
)
from dledger.raft.quorum import majority, quorum_value
from tests.simulation.chronicle import Chronicle, Fact, holds
from tests.simulation.debts import Debts
from tests.simulation.deletion import Deletion
from tests.simulation.violation import Violation

if TYPE_CHECKING:
    from tests.simulation.life import GroupLife
    from tests.simulation.seat import Seat

Hit = Callable[..., None]

DEPOSED_MS = 2_000
"""Twice an election timeout. A leader that heard no majority for so long, and is seen to lead for as long again, would
lead for ever."""
FORGOTTEN_MS = 5_000
"""Whom a leader hears, and who lacks something, is sent something, or asked, within it."""
HUNG_MS = 1_300
"""Nothing of a leader became durable for so long, while the others went on: it has given up its leadership before."""
STANDSTILL_MS = 300
"""A majority of the others that lacks something, and makes nothing durable for so long, does not go on."""
SLOW_DISK_S = 1.0
"""A leader that reads so slowly may be late."""


class Watch:
    """The judge of one group. Remembers over all lives of all nodes. What it holds against a node is keyed by the
    node's disk."""

    def __init__(self, group: str = DEFAULT_GROUP, hit: Hit = lambda *_: None) -> None:
        self.group = group
        self.leaders: dict[Term, NodeId] = {}
        self.chronicle = Chronicle()
        self.deletion = Deletion(self.chronicle)
        self.debts = Debts(self.chronicle)
        self._disks: dict[NodeId, set[bytes]] = {}
        """The disks of each node that the members named, or of which the first one counted for a leader."""
        self._founding_disks: dict[NodeId, bytes] | None = None
        """Those that the group's record names; None for the founding group."""
        self._tag = f"@{group}|".encode()
        self._commits: dict[Term, Position] = {}
        """By term: how far its leader committed, where nobody had before."""
        self._hit = hit
        self._votes: dict[tuple[str, Term], NodeId] = {}
        self._voters: dict[Term, dict[NodeId, NodeId]] = {}
        """By term: whom each node voted for."""
        self._terms: dict[str, Term] = {}
        self.members: dict[NodeId, bool] = {}
        """Of the last committed change: who votes. Empty before the first."""
        self.changes: list[tuple[Position, frozenset[NodeId]]] = []
        """The committed changes: where, and who the members are."""
        self._acks_of_disks: dict[tuple[Term, str], Position] = {}
        """By term: how far each disk acknowledged."""

    def begun_by(self, founders: Sequence[Member]) -> None:
        """The record of the group names them, with their disks."""
        self._founding_disks = {each.id: each.node_uuid for each in founders}
        self._disks = {each.id: {each.node_uuid} for each in founders}

    @property
    def elections(self) -> int:
        return len(self.leaders)

    # Elections ---------------------------------------------------------------------------------------------------

    def leads(self, node: NodeId, term: Term) -> None:
        known = self.leaders.setdefault(term, node)
        if known != node:
            raise Violation("election safety", f"{known} and {node} lead term {term}")

    def elected(self, seat: Seat, others: Sequence[Seat]) -> None:
        """``seat`` has just become a leader."""
        core, log = seat.replica.core, seat.replica.log
        self.leads(seat.id, core.term)
        voters = [member.id for member in log.state.members if member.voter]
        ballots = self._voters.get(core.term, {})
        given = sum(ballots.get(voter) == seat.id for voter in voters if voter != seat.id) + (seat.id in voters)
        if given < majority(len(voters)):
            raise Violation("a majority elects", f"{seat.id} leads term {core.term} by {given} votes of {voters}")
        # A candidate that stood still may count its votes when leaders of later terms have come, and committed.
        committed = max((position for term, position in self._commits.items() if term < core.term), default=0)
        if committed and not holds(seat.replica, self.chronicle.committed[committed - 1]):
            raise Violation("leader completeness", f"{seat.id} leads term {core.term} without committed {committed}")
        for other in others:
            if other is not seat and other.term < core.term and other.has_lease:
                raise Violation("one lease", f"{other.id} reads by its lease, {seat.id} leads term {core.term}")

    def voted(self, disk: str, term: Term, node: NodeId, candidate: NodeId) -> None:
        known = self._votes.setdefault((disk, term), candidate)
        if known != candidate:
            raise Violation("one vote a term", f"the disk {disk} voted for {known} and {candidate} in term {term}")
        self._voters.setdefault(term, {})[node] = candidate

    # What a node says --------------------------------------------------------------------------------------------

    def said(self, seat: Seat, peer: NodeId, message: Message) -> None:
        """``seat`` puts ``message`` on the wire: it binds its disk from now on."""
        life = seat.life
        if isinstance(message, VoteRequest | VoteResponse):
            self._ballot(seat, peer, message)
        if not (isinstance(message, VoteRequest | VoteResponse) and message.is_pre_vote):
            self._terms[seat.disk_name] = max(self._terms.get(seat.disk_name, Term(0)), message.term)
            if message.term > life.proven_term:
                present = life.present
                assert present is not None
                life.proven_term = max(life.promises().term, present.log.last.term)
                if message.term > life.proven_term:
                    raise Violation("persist before send", f"{seat.id} speaks of term {message.term}, unsaved")
        match message:
            case AppendResponse():
                self._hit(f"branch push {message.result.name}")
                if message.result is PushResult.SUCCESS:
                    self._acknowledged(seat, message)
            case CompareResponse() | TruncateResponse() | ResetResponse():
                kind = type(message).__name__.removesuffix("Response").lower()
                self._hit(f"branch {kind} {message.result.name}")
                if message.result is PushResult.DIVERGED:
                    raise Violation("no two logs diverge", f"{seat.id} answers {message} to {peer}")
            case TakeLeadership():
                self._hit("branch take")
            case Append() | Compare() | Truncate() | Reset():
                life.asked_ms[peer] = life.process.time() * 1000

    def _ballot(self, seat: Seat, peer: NodeId, message: VoteRequest | VoteResponse) -> None:
        stage = "WAIT_TO_REVOTE" if message.is_pre_vote else "WAIT_TO_VOTE_NEXT"
        if isinstance(message, VoteRequest):
            self._hit(f"branch {stage}")
        else:
            self._hit(f"branch {stage} {message.result.name}")
        if isinstance(message, VoteRequest):
            self._check_own_disk(seat)
            term, candidate = message.term, seat.id
        elif message.result is VoteResult.ACCEPT:
            term, candidate = message.request_term, peer
        else:
            return
        self.debts.check_vote(seat, seat.cluster.hosts[candidate].seat(self.group))  # nor does it promise one
        self._check_founder(seat, seat.cluster.hosts[candidate].seat(self.group))
        if message.is_pre_vote:
            return
        self.voted(seat.disk_name, term, seat.id, candidate)
        kept = seat.life.promises()
        if (kept.term, kept.vote) != (term, candidate) and kept.term <= term:
            raise Violation("persist before send", f"{seat.id} votes for {candidate} in term {term}, and saved {kept}")

    def _check_own_disk(self, seat: Seat) -> None:
        """Whose log names another disk under its id does not stand: it may lack what that one acknowledged."""
        present = seat.life.present
        members = present.log.state.members if present is not None else ()
        named = next((member.node_uuid for member in members if member.id == seat.id), b"")
        if named and named != seat.life.disk_uuid:
            raise Violation("another disk does not stand", f"{seat.name} does, and its log names another one")

    def _check_founder(self, seat: Seat, candidate: Seat) -> None:
        """Who votes for an empty log takes part in founding the group: with the disk that its record names alone."""
        present = candidate.life.present if not candidate.is_down else None
        if self._founding_disks is None or present is None or present.log.last != GENESIS:
            return
        if self._founding_disks.get(seat.id) != seat.life.disk_uuid:
            raise Violation("only disks that are named found a group", f"{seat.name} votes for {candidate.name}")

    def _acknowledged(self, seat: Seat, message: AppendResponse) -> None:
        position, term = message.position, message.term
        if not seat.life.truth.holds(position):
            raise Violation("persist before send", f"{seat.id} acknowledged {position}, which a power cut would take")
        of_disk = term, seat.disk_name
        self._acks_of_disks[of_disk] = max(position, self._acks_of_disks.get(of_disk, Position(0)))

    def check_ack(self, seat: Seat, leader: Seat, message: AppendResponse) -> None:
        """What is acknowledged equals the leader's own."""
        if not leader.leads or leader.term != message.term:
            return
        position, mine, theirs = message.position, seat.replica.log, leader.replica.log
        if position <= max(mine.state.start.position, theirs.state.start.position):
            return
        if position > theirs.last.position or mine.term_at(position) != theirs.term_at(position):
            raise Violation("an ack is of the leader's log", f"{seat.id} acknowledged {position} of another log")

    # What a node writes ------------------------------------------------------------------------------------------

    def trying(self, seat: Seat, frames: Sequence[Frame]) -> list[Fact]:
        previous, facts = seat.replica.log.last, []
        for frame in frames:
            self._check_tag(seat, frame)
            if seat.group.truth is not None:
                seat.group.truth.written(frame)
            facts.append(self.chronicle.trying(frame, previous))
            previous = facts[-1].point
        return facts

    def _check_tag(self, seat: Seat, frame: Frame) -> None:
        """The clients say in every record which group it is for."""
        header = frame.header
        record = record_at(frame.body, header.count, 0) if header.count else b""
        if record.startswith(b"@") and not record.startswith(self._tag):
            raise Violation("a record stays in its group", f"{seat.name} is about to write {record!r}")

    def appended(
        self, seat: Seat, facts: Sequence[Fact], members_before: tuple[Member, ...], changed: Position
    ) -> None:
        """``changed``: where the members were changed last, before these."""
        replica = seat.replica
        for fact in facts:
            self.chronicle.appended(seat.id, fact)
            if fact.header.term != replica.core.term or not seat.leads:
                continue
            trim = self.chronicle.trim(fact.point)
            if trim is not None and seat.group.truth is not None:
                seat.group.truth.check_trim(seat.name, trim)
            elif trim is not None:
                self._hit(f"branch trim {self.deletion.check(seat, seat.group.voters_of(replica), trim)}")
            members = self.chronicle.members(fact.point)
            if members is None:
                continue
            self._hit("branch members changed")
            self._name_disks(members)
            before, after = ({each.id for each in some if each.voter} for some in (members_before, members))
            if len(before ^ after) > 1:
                raise Violation("one voter at a time", f"{seat.id} goes from {sorted(before)} to {sorted(after)}")
            if changed > self.chronicle.commit_position or not replica.core.is_ready:
                raise Violation("one change at a time", f"{seat.id} changes the members behind {changed}, uncommitted")

    def _name_disks(self, members: Sequence[Member]) -> None:
        """Whoever is added again is added with whatever disk it has then."""
        self._disks = {each.id: self._disks[each.id] for each in members if each.id in self._disks}
        for each in members:
            if each.node_uuid:
                self._disks.setdefault(each.id, set()).add(each.node_uuid)

    def refused(self, facts: Sequence[Fact]) -> None:
        for fact in facts:
            self.chronicle.refused(fact)

    def truncating(self, seat: Seat, after: Position) -> None:
        replica, committed = seat.replica, self.chronicle.commit_position
        first_cut = Position(after + 1)
        if first_cut <= committed and replica.log.term_at(first_cut) == self.chronicle.committed[after].term:
            if not any(each.first <= first_cut <= each.last for each in replica.log.damaged()):
                raise Violation("nothing committed is cut", f"{seat.id} cuts behind {after}, {committed} is committed")
            self.debts.cutting(seat, after)
        acked = self._acks_of_disks.get((replica.core.term, seat.disk_name), Position(0))
        if after < acked:
            raise Violation("nothing acknowledged is cut", f"{seat.id} cuts behind {after}, it acknowledged {acked}")

    def cutting_damaged(self, seat: Seat, after: Position) -> None:
        """As ``truncating``, of a log that cannot be opened."""
        self._hit("branch damaged log cut", seat.id, after)
        self.debts.cutting(seat, after)

    def trimming(self, seat: Seat, to: TrimPoint) -> None:
        if to not in self.chronicle.committed_trims:
            raise Violation("a trim is committed first", f"{seat.id} trims to {to}, which no committed frame says")
        machine = seat.life.machine
        if machine is not None and machine.runner.checkpoints.confirmed_id < to.first_index:
            raise Violation("a node trims what its checkpoint replaces", f"{seat.name} trims to {to}")

    def restated(self, seat: Seat) -> None:
        """After a start, a truncation or a reset: the small state is that of the log's own frames."""
        log = seat.replica.log
        start = log.state.start.position
        producers = log.state.producers
        for producer in (*producers._named.values(), *producers._anonymous.values()):
            for position, term in zip(producer.ranges[3::7], producer.ranges[4::7], strict=True):
                is_known = position <= log.last.position
                if not is_known or (position > start and log.term_at(Position(position)) != term):
                    raise Violation(
                        "the small state is the log's", f"{seat.id} knows frame {position} of term {term} of a producer"
                    )

    # Commit ------------------------------------------------------------------------------------------------------

    def committed(self, seat: Seat) -> None:
        """``seat`` has just raised its commit position."""
        replica = seat.replica
        core, log = replica.core, replica.log
        position = core.commit_position
        point = self.chronicle.point(position, log.term_at(position))
        if position > self.chronicle.commit_position:
            self._check_quorum(seat, position)
            self._commits[core.term] = position
        for fact in self.chronicle.commit(seat.id, point):
            self._count_commit(fact)
            if seat.group.truth is not None:
                seat.group.truth.committed(fact.point, fact.header.base_index, fact.header.term)

    def _check_quorum(self, seat: Seat, position: Position) -> None:
        replica = seat.replica
        core, log = replica.core, replica.log
        if core.leadership is None:
            raise Violation("a leader commits first", f"{seat.id} committed {position}, which no leader did")
        if log.term_at(position) != core.term:
            raise Violation("commit in the own term", f"{seat.id} of term {core.term} counted {position} of another")
        voters = [member.id for member in log.state.members if member.voter]
        held = [voter for voter in voters if voter != seat.id and self._acked(core.term, seat, voter) >= position]
        if seat.id in voters and seat.life.truth.holds(position):
            held.append(seat.id)
        if len(held) < majority(len(voters)):
            raise Violation("a majority holds it", f"{seat.id} committed {position}, which {held} of {voters} hold")

    def _acked(self, term: Term, leader: Seat, voter: NodeId) -> Position:
        """How far the disk of ``voter`` did; those before too, until ``leader`` has met the present one: what it takes
        before that was sent by them, however late it takes it."""
        other = leader.cluster.hosts[voter]
        has_met = leader.life.met.get(voter) == other.disk_name
        seat = other.seat(leader.group.name)
        disks = [seat.disk_name] if has_met else seat.disk_names
        return max(self._acks_of_disks.get((term, disk), Position(0)) for disk in disks)

    def _count_commit(self, fact: Fact) -> None:
        header = fact.header
        if not header.count:
            self._hit(f"branch committed {ControlKind(header.attributes).name}")
        members = self.chronicle.members(fact.point)
        if members is not None:
            before, self.members = self.members, {member.id: member.voter for member in members}
            self.changes.append((fact.point.position, frozenset(self.members)))
            for each in sorted(before.keys() - self.members.keys()):
                self._hit("branch member removed", each)
            for each, votes in sorted(self.members.items()):
                if before.get(each, votes) != votes:
                    self._hit(f"branch member {'promoted' if votes else 'demoted'}", each)

    def may_drop(self, seat: Seat) -> bool:
        """Whether ``seat`` may drop its replica: a committed change has removed it, and no committed one that its log
        holds has added it since."""
        log = seat.replica.log
        at = log.state.members_position
        known = at if self.chronicle.is_committed(at, log.term_at(max(at, log.state.start.position))) else 0
        return any(at >= known and seat.id not in members for at, members in self.changes)

    # Lives -------------------------------------------------------------------------------------------------------

    def restarted(self, seat: Seat, promised: LogPoint) -> None:
        """After a crash: what the node said was durable, and what it promised, is still there."""
        replica, disk = seat.replica, seat.disk_name
        log = replica.log
        if replica.core.term < self._terms.get(disk, Term(0)):
            raise Violation("promises survive", f"{seat.id} spoke of {self._terms[disk]}, now of {replica.core.term}")
        is_there = log.last.position >= promised.position and holds(replica, promised)
        if not is_there and not self.debts.is_admitted(seat, promised):
            raise Violation("durable survives", f"{seat.id} had {promised} durable and came back with {log.last}")
        if log.last != GENESIS:
            self.chronicle.found(seat.id, log.last)
        if not seat.life.truth.is_all_there(seat.host.rotten_paths):
            raise Violation(
                "what a start finds is durable", f"{seat.id} came back with {log.last}, not all on the disk"
            )
        self.restated(seat)

    def looked_at(self, life: GroupLife, now_ms: float) -> None:
        """Between two steps: what must hold at all times."""
        replica = life.replica
        if replica._is_shut:
            return  # it leads nobody, whatever its core was; and its end may have come in the middle of a cut
        core, state = replica.core, replica.log.state
        self._check_heard(life, now_ms)
        self._check_asked(life, now_ms)
        self._check_disk(life, now_ms)
        if replica._effect_runner.is_holding:
            return  # the log may be being cut
        is_news = life.seen_members is not state.members or life.seen_membership is not core.membership
        if is_news and core.membership.members != {member.id: member for member in state.members}:
            raise Violation("the members are the log's", f"{core.node_id} goes by {sorted(core.membership.members)}")
        life.seen_members, life.seen_membership = state.members, core.membership
        if core.role is not Role.LEADER and core.deadline_ms > now_ms + 5_000:
            raise Violation("nobody waits for ever", f"{core.node_id} will not look before {core.deadline_ms}")
        if state.start.position > core.commit_position:
            raise Violation("a trim is committed first", f"{core.node_id} begins at {state.start}, uncommitted")

    def _check_heard(self, life: GroupLife, now_ms: float) -> None:
        core = life.replica.core
        if core.leadership is None or life.process.is_paused:
            life.unheard_since_ms = None
            return
        heard = [node for node, at_ms in life.heard_ms.items() if at_ms > now_ms - DEPOSED_MS]
        if core.membership.is_quorum([*heard, core.node_id]):
            life.unheard_since_ms = None
        elif life.unheard_since_ms is None:
            life.unheard_since_ms = now_ms
        elif now_ms > life.unheard_since_ms + DEPOSED_MS:
            raise Violation("a leader hears a majority", f"{core.node_id} leads term {core.term}, and hears {heard}")

    def _check_disk(self, life: GroupLife, now_ms: float) -> None:
        log = life.replica.log
        durable = log.durable_position
        if life.replica.core.leadership is None or life.process.is_paused or durable == log.last.position:
            life.stands_since, life.others_moved_ms = None, now_ms
        elif not self._others_go_on(life, now_ms):
            life.stands_since = None
        elif life.stands_since is None or life.stands_since[0] != durable:
            life.stands_since = durable, now_ms
        elif now_ms > life.stands_since[1] + HUNG_MS:
            raise Violation(
                "a leader's disk answers", f"{life.seat.id} leads, and nothing behind {durable} becomes durable"
            )

    def _others_go_on(self, life: GroupLife, now_ms: float) -> bool:
        """Whether a majority without this leader holds more and more of the log, or all of it."""
        core = life.replica.core
        assert core.leadership is not None
        voters, followers = core.membership.voters, core.leadership.followers
        matches = [progress.match for peer, progress in followers.items() if progress.counts and peer in voters]
        before, life.others_held = life.others_held, quorum_value(matches, len(voters))
        if life.others_held > before or life.others_held >= life.replica.log.last.position:
            life.others_moved_ms = now_ms
        return now_ms < life.others_moved_ms + STANDSTILL_MS

    def _check_match(self, life: GroupLife, term: Term, peer: NodeId, match: Position) -> None:
        """What a leader counts was acknowledged to it in this term, by a disk of that node."""
        if match <= life.matched.get((term, peer), 0):
            return
        disks = life.seat.cluster.hosts[peer].seat(life.group).disk_names
        said = (self._acks_of_disks.get((term, disk), 0) for disk in disks)
        if match > max(said):
            raise Violation(
                "what counts was acknowledged", f"{life.seat.id} has {peer} at {match}, which it never said"
            )
        life.matched[term, peer] = match

    def _check_disk_of(self, life: GroupLife, peer: NodeId) -> None:
        """A disk counts in the groups whose members admitted it, whatever others did."""
        start = life.node.start_of(peer)
        if start is not None and start.node_uuid not in self._disks.setdefault(peer, {start.node_uuid}):
            raise Violation(
                "a disk counts where it was admitted", f"{life.seat.name} counts {peer}, with a disk that nobody named"
            )

    def _check_asked(self, life: GroupLife, now_ms: float) -> None:
        core, last, mood = life.replica.core, life.replica.log.last.position, life.seat.host.mood
        before, life.lagging_since_ms = life.lagging_since_ms, {}
        if core.leadership is None or life.process.is_paused or mood.is_hung or mood.sync_s[1] > SLOW_DISK_S:
            return
        for peer, progress in core.leadership.followers.items():
            self._check_match(life, core.term, peer, progress.match)
            if progress.counts and progress.match:
                self._check_disk_of(life, peer)
            is_level = progress.is_compared and progress.match >= last
            if is_level or not life.transport.is_connected(peer):
                continue
            since_ms = life.lagging_since_ms[peer] = before.get(peer, now_ms)
            if now_ms > max(since_ms, life.asked_ms.get(peer, since_ms)) + FORGOTTEN_MS:
                raise Violation(
                    "nobody is forgotten", f"{core.node_id} leads term {core.term}, and sends nothing to {peer}"
                )
