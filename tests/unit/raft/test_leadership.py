"""What a leader counts: match positions, contacts, read rounds, and whom a handover goes to."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger.common.config import Limits
from dledger.common.types import GroupSettings, NodeId, Position, PreferredLeader, Term
from dledger.raft.fitness import Need
from dledger.raft.leadership import MAX_REPORT_AGE_MS, Leadership
from dledger.raft.membership import Membership
from dledger.raft.messages import Heartbeat, MachineReport, Message
from dledger.raft.quorum import majority
from dledger.raft.replication import MachineProgress
from tests.unit.raft.harness import GROUP, N0, N1, N2, N3, N4, START_MS, TIMINGS, members

LEARNER = NodeId("l0")
TIMEOUT_MS = TIMINGS.election_timeout_min_ms


def make_leadership(membership: Membership | None = None, last: int = 10, away: Sequence[NodeId] = ()) -> Leadership:
    return Leadership(
        group=GROUP,
        term=Term(3),
        node_id=N0,
        membership=membership or members(5),
        last=Position(last),
        now_ms=START_MS,
        timings=TIMINGS,
        limits=Limits(max_transfer_lag_frames=5),
        is_connected=lambda peer: peer not in away,
    )


def matched(leadership: Leadership, **matches: int) -> Leadership:
    """Compared, up to there."""
    for peer, match in matches.items():
        progress = leadership.followers[NodeId(peer)]
        progress.match, progress.is_compared = Position(match), True
    return leadership


# Match positions -----------------------------------------------------------------------------------------------------


def test_a_term_begins_behind_the_log_it_found() -> None:
    assert make_leadership(last=10).term_start == 11


def test_a_majority_holds_what_the_third_of_five_holds() -> None:
    leadership = matched(make_leadership(), n1=12, n2=11, n3=4)
    assert leadership.quorum_position(Position(12)) == 11


def test_the_leaders_own_copy_counts_when_it_is_durable_only() -> None:
    leadership = matched(make_leadership(), n1=12, n2=12)
    assert leadership.quorum_position(Position(9)) == 9
    assert leadership.quorum_position(Position(12)) == 12


def test_followers_can_outnumber_a_slow_disk_of_the_leader() -> None:
    leadership = matched(make_leadership(), n1=12, n2=12, n3=12)
    assert leadership.quorum_position(Position(9)) == 12


def test_learners_and_doubted_nodes_are_no_part_of_a_majority() -> None:
    leadership = matched(make_leadership(members(3, learners=[LEARNER])), n1=12, l0=12)
    leadership.followers[N1].counts = False
    assert leadership.quorum_position(Position(12)) == 0


def test_a_leader_that_is_no_voter_does_not_count_itself() -> None:
    others = Membership([member for member in members(4).members.values() if member.id != N0])
    leadership = make_leadership(others)
    assert matched(leadership, n1=12, n2=11).quorum_position(Position(99)) == 11


@given(st.lists(st.integers(0, 30), min_size=4, max_size=4), st.integers(0, 30))
def test_the_quorum_position_is_held_by_a_majority_and_the_next_one_is_not(matches: list[int], own: int) -> None:
    leadership = make_leadership()
    for peer, match in zip((N1, N2, N3, N4), matches, strict=True):
        leadership.followers[peer].match = Position(match)
    position = leadership.quorum_position(Position(own))
    held = [own, *matches]
    assert sum(each >= position for each in held) >= majority(5)
    assert sum(each > position for each in held) < majority(5)


# Check-quorum --------------------------------------------------------------------------------------------------------


def test_a_new_leader_has_an_election_timeout_to_be_heard() -> None:
    leadership = make_leadership()
    assert leadership.hears_quorum(START_MS + TIMEOUT_MS - 1)
    assert not leadership.hears_quorum(START_MS + TIMEOUT_MS)


def test_half_of_the_others_is_a_quorum_with_oneself() -> None:
    leadership = make_leadership()
    later_ms = START_MS + TIMEOUT_MS + 1
    leadership.followers[N1].contact_ms = later_ms
    assert not leadership.hears_quorum(later_ms)
    leadership.followers[N2].contact_ms = later_ms
    assert leadership.hears_quorum(later_ms)


def test_no_quorum_is_heard_in_learners_and_doubted_nodes() -> None:
    leadership = make_leadership(members(3, learners=[LEARNER]))
    leadership.followers[N1].counts = False
    later_ms = START_MS + TIMEOUT_MS + 1
    leadership.followers[N1].contact_ms = leadership.followers[LEARNER].contact_ms = later_ms
    assert not leadership.hears_quorum(later_ms)


def tell_clocks(leadership: Leadership, **clocks_ms: int) -> None:
    """As if said now, at START_MS."""
    for peer, clock_ms in clocks_ms.items():
        leadership.followers[NodeId(peer)].clock_offset_ms = clock_ms - START_MS


@pytest.mark.parametrize(
    ("own_ms", "clocks_ms", "agreed_ms"),
    [
        (1_000, {"n1": 1_001, "n2": 999}, 1_000),
        (9_000, {"n1": 1_001, "n2": 999}, 1_001),
        (1_000, {"n1": 9_000, "n2": 1_001}, 1_000),
        (9_000, {"n1": 1_000}, 1_000),
        (1_000, {"n1": 9_000}, 1_000),
        (1_000, {}, 0),
        (5, {"n1": 1_001, "n2": 999}, 5),
    ],
)
def test_no_single_wrong_clock_of_three_moves_the_agreed_one_ahead(
    own_ms: int, clocks_ms: dict[str, int], agreed_ms: int
) -> None:
    leadership = make_leadership(members(3))
    tell_clocks(leadership, **clocks_ms)
    assert leadership.agreed_clock_ms(own_ms, START_MS) == agreed_ms


def test_the_agreed_clock_goes_on_with_time_and_ends_with_the_majority() -> None:
    leadership = make_leadership(members(3))
    tell_clocks(leadership, n1=1_000, n2=1_000)
    assert leadership.agreed_clock_ms(9_000, START_MS + 100) == 1_100
    assert leadership.agreed_clock_ms(9_000, START_MS + TIMEOUT_MS) == 0


def test_standing_still_is_not_held_against_the_followers() -> None:
    leadership = make_leadership()
    leadership.forgive(300, START_MS + 300)
    assert leadership.hears_quorum(START_MS + 300 + TIMEOUT_MS - 1)
    assert not leadership.hears_quorum(START_MS + 300 + TIMEOUT_MS)


def test_who_was_heard_after_standing_still_is_not_forgiven_what_came_before() -> None:
    leadership = make_leadership()
    for follower in leadership.followers.values():
        follower.contact_ms = START_MS + 5_000
    leadership.forgive(5_000, START_MS + 5_000)
    assert leadership.hears_quorum(START_MS + 5_000 + TIMEOUT_MS - 1)
    assert not leadership.hears_quorum(START_MS + 5_000 + TIMEOUT_MS)


# Read rounds ---------------------------------------------------------------------------------------------------------


def test_a_round_is_confirmed_by_a_majority_once() -> None:
    leadership = make_leadership()
    number = leadership.next_round(START_MS)
    assert not leadership.on_round(N0, number)
    assert not leadership.on_round(N1, number)
    assert leadership.on_round(N2, number)
    assert not leadership.on_round(N3, number)
    assert leadership.confirmed_round == number


def test_a_later_rounds_answers_confirm_the_earlier_rounds_too() -> None:
    leadership = make_leadership()
    first, second = leadership.next_round(START_MS), leadership.next_round(START_MS)
    leadership.on_round(N0, second)
    leadership.on_round(N1, first)
    assert leadership.on_round(N2, second)
    assert leadership.confirmed_round == first
    assert leadership.on_round(N1, second)
    assert leadership.confirmed_round == second


def test_answers_to_an_earlier_round_confirm_no_later_one() -> None:
    """What a follower said before a read came proves nothing about the leadership at the read."""
    leadership = make_leadership(members(3))
    first = leadership.next_round(START_MS)
    leadership.on_round(N0, first)
    second = leadership.next_round(START_MS)
    leadership.on_round(N0, second)
    leadership.on_round(N1, first)
    assert leadership.confirmed_round == first


def test_no_round_rests_on_learners_or_doubted_nodes() -> None:
    leadership = make_leadership(members(3, learners=[LEARNER]))
    leadership.followers[N1].counts = False
    number = leadership.next_round(START_MS)
    assert not any(leadership.on_round(peer, number) for peer in (N0, LEARNER, N1))
    assert leadership.on_round(N2, number)


def test_a_heartbeat_tells_everyone_how_far_the_leader_has_committed() -> None:
    leadership = matched(make_leadership(members(3)), n1=7)
    sent: list[tuple[NodeId, Message]] = []
    leadership.broadcast_heartbeat(lambda to, message: sent.append((to, message)), Position(9))
    assert sent == [
        (N1, Heartbeat(GROUP, Term(3), Position(9), 0)),
        (N2, Heartbeat(GROUP, Term(3), Position(9), 0)),
    ]


# Transfer and members ------------------------------------------------------------------------------------------------


def test_a_handover_is_due_once_the_target_is_level() -> None:
    leadership = matched(make_leadership(), n1=9)
    leadership.begin_transfer(N1, START_MS + 100)
    assert leadership.take_transfer(Position(10)) is None
    assert matched(leadership, n1=10).take_transfer(Position(10)) == N1
    assert leadership.take_transfer(Position(10)) is None, "it was told"


def test_only_a_voter_that_is_fit_may_take_over() -> None:
    leadership = matched(make_leadership(members(5, learners=[LEARNER]), away=[N4]), n1=5, n2=20, n3=20, n4=20, l0=20)
    leadership.followers[N3].counts = False
    lacks = leadership.lacks(Position(20), START_MS)
    assert {peer: lack and lack.need for peer, lack in lacks.items()} == {
        N1: Need.CATCH_UP,
        N2: None,
        N3: Need.IDENTITY,
        N4: Need.CONNECTION,
    }
    assert leadership.fit(Position(20), START_MS) == [N2]


def reported(leadership: Leadership, peer: NodeId, behind: int, heard_ms: float = START_MS) -> None:
    report = MachineReport(GROUP, Term(3), next_index=7, version=1, checkpoint_id=0, digest=b"")
    leadership.followers[peer].machine = MachineProgress(report, behind, heard_ms)


def test_where_there_is_a_state_machine_only_who_has_its_state_is_fit_to_lead() -> None:
    leadership = matched(make_leadership(members(4)), n1=20, n2=20, n3=20)
    leadership.needs_machine = True
    reported(leadership, N1, behind=5)
    reported(leadership, N2, behind=6)
    lacks = leadership.lacks_to_lead(Position(20), START_MS)
    assert {peer: lack and lack.need for peer, lack in lacks.items()} == {N1: None, N2: Need.MACHINE, N3: Need.MACHINE}
    assert leadership.fit(Position(20), START_MS) == [N1]
    assert leadership.fit_quorum(Position(20), START_MS), "what is written is committed by logs alone"


def test_a_report_of_long_ago_says_nothing() -> None:
    leadership = matched(make_leadership(members(3)), n1=20, n2=20)
    leadership.needs_machine = True
    reported(leadership, N1, behind=0, heard_ms=START_MS - MAX_REPORT_AGE_MS - 1)
    lack = leadership.lacks_to_lead(Position(20), START_MS)[N1]
    assert lack is not None
    assert lack.need is Need.MACHINE


def test_the_reports_of_voters_that_count_are_told() -> None:
    leadership = make_leadership(members(5, learners=[LEARNER]))
    for peer in (N1, N2, LEARNER):
        reported(leadership, peer, behind=0)
    leadership.followers[N2].counts = False
    assert list(leadership.machine_reports()) == [N1]


def test_who_was_not_heard_lately_is_not_fit_though_it_is_connected() -> None:
    leadership = matched(make_leadership(members(3)), n1=20, n2=20)
    later_ms = START_MS + TIMEOUT_MS
    leadership.followers[N2].contact_ms = later_ms
    assert leadership.fit(Position(20), later_ms - 1) == [N1, N2]
    assert leadership.fit(Position(20), later_ms) == [N2]


def test_who_was_not_compared_yet_is_behind_by_nobody_knows_how_much() -> None:
    leadership = make_leadership(members(3), last=1)
    assert leadership.fit(Position(2), START_MS) == []


def test_few_frames_behind_is_far_behind_when_they_were_written_long_ago() -> None:
    """Frames may be large: who lacks them still, after that long, takes as long again."""
    leadership = matched(make_leadership(members(3)), n1=10, n2=12)
    for at_ms, end in [(100, 12), (200, 13), (300, 14)]:
        leadership.note_end(Position(end), START_MS + at_ms)
    most_ms = TIMINGS.election_timeout_max_ms
    for peer in (N1, N2):
        leadership.followers[peer].contact_ms = START_MS + 10 * most_ms
    assert leadership.fit(Position(14), START_MS + 100 + most_ms) == [N1, N2]
    assert leadership.fit(Position(14), START_MS + 101 + most_ms) == [N2]
    lack = leadership.lacks(Position(14), START_MS + 101 + most_ms)[N1]
    assert lack is not None
    assert lack.need is Need.CATCH_UP
    assert lack.why == f"is 4 frames behind, some of them written more than {most_ms / 1000:g} s ago"
    assert leadership.fit(Position(14), START_MS + 201 + most_ms) == []
    assert matched(leadership, n1=14).fit(Position(14), START_MS + 201 + most_ms) == [N1]


def test_who_has_all_but_what_was_written_a_moment_ago_is_close_however_long_nothing_was() -> None:
    leadership = matched(make_leadership(members(3)), n1=10, n2=10)
    later_ms = START_MS + 3_600_000.0
    for at_ms in range(0, 3_600_001, 100_000):
        leadership.note_end(Position(10), START_MS + at_ms)
    for peer in (N1, N2):
        leadership.followers[peer].contact_ms = later_ms
    assert leadership.fit(Position(11), later_ms + 1) == [N1, N2]


def test_the_closest_has_the_smallest_lag() -> None:
    leadership = matched(make_leadership(), n1=8, n2=9)
    assert leadership.closest([N1, N2]) == N2
    assert leadership.closest([]) is None


def test_a_write_may_be_committed_while_a_majority_follows_however_far_behind() -> None:
    leadership = make_leadership()
    later_ms = START_MS + TIMEOUT_MS
    leadership.followers[N1].contact_ms = later_ms
    assert not leadership.follows_quorum(Position(99), later_ms)
    leadership.followers[N2].contact_ms = later_ms
    assert leadership.follows_quorum(Position(99), later_ms)
    leadership.followers[N2].counts = False
    assert not leadership.follows_quorum(Position(99), later_ms)


def test_a_change_of_members_keeps_what_is_known_of_those_who_stay() -> None:
    leadership = matched(make_leadership(members(3)), n1=9)
    leadership.set_membership(members(4), Position(12), START_MS + 5)
    assert set(leadership.followers) == {N1, N2, N3}
    assert leadership.followers[N1].match == 9
    assert (leadership.followers[N3].match, leadership.followers[N3].compare_at) == (0, 12)
    assert leadership.quorum_position(Position(12)) == 0


# Preferred leaders ---------------------------------------------------------------------------------------------------


def preferred(**priorities: int) -> GroupSettings:
    return GroupSettings(tuple(PreferredLeader(NodeId(peer), priority) for peer, priority in priorities.items()))


def target(leadership: Leadership, settings: GroupSettings, among: Sequence[NodeId] = (N1, N2, N3, N4)) -> str:
    return leadership.preferred(among, settings) or "-"


def test_the_highest_priority_above_the_leaders_own_should_lead() -> None:
    leadership = matched(make_leadership(), n1=20, n2=20, n3=20)
    assert target(leadership, preferred(n1=5, n2=10)) == "n2"
    assert target(leadership, preferred(n0=7, n1=5, n2=10)) == "n2"
    assert target(leadership, preferred(n0=10, n1=5, n2=10)) == "-"
    assert target(leadership, preferred()) == "-"
    assert target(leadership, preferred(n1=5, n2=10), [N1, N3]) == "n1"


def test_anybody_should_lead_instead_of_a_learner() -> None:
    leadership = matched(make_leadership(members(5, learners=[N0])), n1=19, n2=20, n3=19)
    assert target(leadership, preferred()) == "n2"
    assert target(leadership, preferred(n1=5)) == "n1"
    assert target(leadership, preferred(), []) == "-"


def test_of_two_preferred_alike_the_closer_one_leads() -> None:
    leadership = matched(make_leadership(), n1=19, n2=20)
    assert target(leadership, preferred(n1=5, n2=5)) == "n2"
