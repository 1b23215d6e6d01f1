"""Progress: COMPARE → TRUNCATE → APPEND, as the leader sees one follower."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dledger.common.types import Position, Term
from dledger.raft.messages import AppendResponse, CompareResponse, PushResult, ResetResponse, TruncateResponse
from dledger.raft.replication import Progress, PushState
from tests.unit.raft.harness import GROUP, START_MS

LAST = Position(20)


def make_progress(last: int = LAST, *, window_frames: int = 4, window_bytes: int = 1000) -> Progress:
    return Progress(Position(last), START_MS, window_frames=window_frames, window_bytes=window_bytes)


def compared(
    progress: Progress, result: PushResult, position: int, *, match_in_terms: int = 0, request_id: int | None = None
) -> Position | None:
    asked = progress.request_id if request_id is None else request_id
    answer = CompareResponse(GROUP, Term(1), result, Position(position), Term(1), asked)
    return progress.on_compare(answer, Position(match_in_terms))


def acked(
    progress: Progress,
    position: int,
    result: PushResult = PushResult.SUCCESS,
    last: int = LAST,
    now_ms: float = START_MS,
) -> bool:
    return progress.on_append(AppendResponse(GROUP, Term(1), result, Position(position)), Position(last), now_ms)


def truncated(progress: Progress, result: PushResult = PushResult.SUCCESS) -> None:
    progress.on_truncate(TruncateResponse(GROUP, Term(1), result, progress.request_id), LAST)


def appending(last: int = LAST) -> Progress:
    """A follower found level up to ``last``."""
    progress = make_progress(last)
    progress.asked(START_MS)
    compared(progress, PushResult.SUCCESS, last)
    assert progress.state is PushState.APPEND
    return progress


def test_a_follower_is_compared_from_the_leaders_end() -> None:
    progress = make_progress()
    assert (progress.state, progress.compare_at, progress.match) == (PushState.COMPARE, LAST, 0)


def test_equal_at_the_end_goes_straight_to_append() -> None:
    progress = make_progress()
    progress.asked(START_MS)
    compared(progress, PushResult.SUCCESS, LAST)
    assert (progress.state, progress.next) == (PushState.APPEND, LAST + 1)


def test_a_match_found_is_no_match_acknowledged() -> None:
    """What is equal may not be durable yet: only an acknowledgement counts."""
    assert appending().match == 0


def test_a_follower_that_goes_on_behind_the_match_is_truncated_first() -> None:
    progress = make_progress()
    progress.asked(START_MS)
    compared(progress, PushResult.SUCCESS, LAST + 5)
    assert (progress.state, progress.next) == (PushState.TRUNCATE, LAST + 1)
    progress.asked(START_MS)
    truncated(progress)
    assert progress.state is PushState.APPEND


def test_nothing_is_cut_where_the_leader_has_frames_by_now_that_it_had_not_when_it_asked() -> None:
    """A follower that lost its tail fetched it from the others while the question was on its way."""
    progress = make_progress()
    progress.asked(START_MS)
    compared(progress, PushResult.SUCCESS, LAST + 10, match_in_terms=LAST + 8)
    assert (progress.state, progress.compare_at) == (PushState.COMPARE, LAST + 8)
    progress.asked(START_MS)
    compared(progress, PushResult.SUCCESS, LAST + 10, match_in_terms=LAST + 8)
    assert (progress.state, progress.next) == (PushState.TRUNCATE, LAST + 9)


def test_a_truncation_that_does_not_fit_compares_again() -> None:
    progress = make_progress()
    progress.asked(START_MS)
    compared(progress, PushResult.SUCCESS, LAST + 5)
    progress.asked(START_MS)
    truncated(progress, PushResult.INCONSISTENT_STATE)
    assert (progress.state, progress.compare_at) == (PushState.COMPARE, LAST)


def test_a_difference_moves_the_question_down_to_where_the_terms_allow_a_match() -> None:
    progress = make_progress()
    progress.asked(START_MS)
    compared(progress, PushResult.INCONSISTENT_STATE, 15, match_in_terms=9)
    assert (progress.state, progress.compare_at, progress.waiting_since_ms) == (PushState.COMPARE, 9, None)


def test_an_answer_that_makes_no_sense_moves_the_question_down_all_the_same() -> None:
    """What a peer says never stops the leader, and no question is asked for ever."""
    progress = make_progress()
    progress.asked(START_MS)
    compared(progress, PushResult.INCONSISTENT_STATE, 20, match_in_terms=20)
    assert (progress.state, progress.compare_at) == (PushState.COMPARE, 19)


def test_answers_to_older_questions_are_dropped() -> None:
    progress = make_progress()
    old = progress.asked(START_MS)
    progress.asked(START_MS + 1)
    assert compared(progress, PushResult.SUCCESS, LAST, request_id=old) is None
    assert (progress.state, progress.waiting_since_ms) == (PushState.COMPARE, START_MS + 1)


def test_an_answer_that_comes_twice_is_taken_once() -> None:
    progress = make_progress()
    progress.asked(START_MS)
    compared(progress, PushResult.INCONSISTENT_STATE, 15, match_in_terms=9)
    compared(progress, PushResult.INCONSISTENT_STATE, 15, match_in_terms=9)
    assert progress.compare_at == 9
    compared(progress, PushResult.SUCCESS, LAST)
    assert progress.state is PushState.COMPARE, "nothing was asked at 9 yet"


def test_an_answer_to_a_question_that_was_given_up_changes_nothing() -> None:
    progress = make_progress()
    progress.asked(START_MS)
    progress.restart(Position(30))
    compared(progress, PushResult.SUCCESS, LAST)
    assert (progress.state, progress.compare_at) == (PushState.COMPARE, 30)


def test_an_old_truncation_that_answers_late_changes_nothing() -> None:
    progress = make_progress()
    progress.asked(START_MS)
    compared(progress, PushResult.SUCCESS, LAST + 5)
    old = TruncateResponse(GROUP, Term(1), PushResult.SUCCESS, progress.asked(START_MS))
    progress.restart(LAST)
    progress.on_truncate(old, LAST)
    assert progress.state is PushState.COMPARE


def test_who_holds_committed_frames_that_this_log_has_not_is_left_alone() -> None:
    progress = make_progress()
    progress.asked(START_MS)
    compared(progress, PushResult.SUCCESS, LAST + 5)
    progress.asked(START_MS)
    truncated(progress, PushResult.DIVERGED)
    assert progress.paused_until_ms == float("inf")


def test_pushes_are_pipelined_up_to_a_window_of_frames() -> None:
    progress = appending()
    for at in range(4):
        assert progress.window_open
        progress.sent(Position(LAST + 1 + at), 10, START_MS)
    assert not progress.window_open
    assert progress.next == LAST + 5


def test_pushes_are_pipelined_up_to_a_window_of_bytes() -> None:
    progress = appending()
    progress.sent(Position(LAST + 1), 999, START_MS)
    assert progress.window_open
    progress.sent(Position(LAST + 2), 1, START_MS)
    assert not progress.window_open


def test_an_acknowledgement_is_cumulative_and_opens_the_window() -> None:
    progress = appending()
    for at in range(4):
        progress.sent(Position(LAST + 1 + at), 10, START_MS)
    assert acked(progress, LAST + 3, last=LAST + 4)
    assert (progress.match, len(progress.in_flight), progress.in_flight_bytes) == (LAST + 3, 1, 10)


def test_an_acknowledgement_in_the_middle_of_a_push_leaves_it_in_flight() -> None:
    progress = appending()
    progress.sent(Position(LAST + 4), 40, START_MS)
    assert acked(progress, LAST + 2, last=LAST + 4)
    assert (progress.match, len(progress.in_flight)) == (LAST + 2, 1)


def test_an_acknowledgement_told_twice_counts_once() -> None:
    progress = appending()
    assert acked(progress, LAST)
    assert not acked(progress, LAST)
    assert not acked(progress, LAST - 5)
    assert progress.match == LAST


def test_nobody_acknowledges_what_the_leader_does_not_have() -> None:
    progress = appending()
    with pytest.raises(AssertionError, match="never sent"):
        acked(progress, LAST + 1)


def test_a_push_that_does_not_fit_compares_again_and_forgets_what_is_in_flight() -> None:
    progress = appending()
    progress.sent(Position(LAST + 2), 10, START_MS)
    assert not acked(progress, 0, PushResult.INCONSISTENT_STATE, last=LAST + 2)
    assert (progress.state, progress.compare_at) == (PushState.COMPARE, LAST + 2)
    assert (len(progress.in_flight), progress.in_flight_bytes) == (0, 0)


def test_a_full_disk_moves_nothing() -> None:
    progress = appending()
    progress.sent(Position(LAST + 1), 10, START_MS)
    assert not acked(progress, 0, PushResult.DISK_FULL, last=LAST + 1)
    assert (progress.state, progress.match) == (PushState.APPEND, 0)


def test_a_follower_that_lost_what_it_acknowledged_is_told_and_its_mark_falls() -> None:
    """H10: DLedger's marks never fall, so a wiped follower goes on counting."""
    progress = appending()
    acked(progress, LAST)
    progress.restart(LAST)
    progress.asked(START_MS)
    assert compared(progress, PushResult.INCONSISTENT_STATE, 7, match_in_terms=7) == LAST
    assert (progress.match, progress.compare_at) == (7, 7)


def test_an_answer_that_comes_behind_a_later_acknowledgement_is_no_loss() -> None:
    """The follower was behind when it answered, took pushes that were under way, and acknowledged those first, as far
    as this leader heard. It is sent again what the answer does not speak of, and acknowledges it again."""
    progress = make_progress()
    progress.asked(START_MS)
    compared(progress, PushResult.INCONSISTENT_STATE, 7, match_in_terms=7)
    compared(progress, PushResult.SUCCESS, 7, request_id=progress.asked(START_MS))
    progress.restart(Position(7))
    progress.asked(START_MS)
    acked(progress, 9)
    assert compared(progress, PushResult.SUCCESS, 7) is None
    assert (progress.state, progress.match) == (PushState.APPEND, 7)
    assert acked(progress, 9)


def test_the_oldest_unanswered_push_says_since_when_an_answer_is_overdue() -> None:
    progress = make_progress()
    assert progress.overdue_ms() is None
    progress.asked(START_MS + 1)
    assert progress.overdue_ms() == START_MS + 1
    compared(progress, PushResult.SUCCESS, LAST)
    acked(progress, LAST)
    assert progress.overdue_ms() is None
    progress.sent(Position(LAST + 1), 1, START_MS + 2)
    progress.sent(Position(LAST + 2), 1, START_MS + 3)
    assert progress.overdue_ms() == START_MS + 2
    acked(progress, LAST + 1, last=LAST + 2)
    assert progress.overdue_ms() == START_MS + 3


def test_a_follower_that_is_slow_and_gets_on_is_not_overdue() -> None:
    progress = make_progress()
    progress.asked(START_MS)
    compared(progress, PushResult.SUCCESS, LAST)
    for number in range(1, 4):
        progress.sent(Position(LAST + number), 1, START_MS)
    acked(progress, LAST + 1, last=LAST + 3, now_ms=START_MS + 900)
    assert progress.overdue_ms() == START_MS + 900
    acked(progress, LAST + 1, last=LAST + 3, now_ms=START_MS + 1800)
    assert progress.overdue_ms() == START_MS + 900, "the same again is no progress"


def test_the_window_counts_frames_however_many_a_push_holds() -> None:
    progress = make_progress(window_frames=4)
    progress.asked(START_MS)
    compared(progress, PushResult.SUCCESS, LAST)
    progress.sent(Position(LAST + 3), 1, START_MS)
    assert progress.window_open
    progress.sent(Position(LAST + 5), 1, START_MS)
    assert not progress.window_open
    acked(progress, LAST + 3, last=LAST + 5)
    assert (progress.window_open, progress.in_flight_frames) == (True, 2)


def test_what_was_found_equal_and_is_not_acknowledged_is_overdue_too() -> None:
    """Its acknowledgement was lost, and nothing else is under way that would bring it again."""
    progress = make_progress()
    progress.asked(START_MS + 1)
    compared(progress, PushResult.SUCCESS, LAST)
    assert progress.overdue_ms() == START_MS + 1
    acked(progress, LAST - 1)
    assert progress.overdue_ms() == START_MS + 1
    acked(progress, LAST)
    assert progress.overdue_ms() is None


# A log that begins, or a follower's that ends, behind the other's -----------------------------------------------------


def start_at(progress: Progress, result: PushResult, position: int, match_in_terms: int, start: int) -> None:
    answer = CompareResponse(GROUP, Term(1), result, Position(position), Term(1), progress.request_id)
    progress.on_compare(answer, Position(match_in_terms), Position(start))


def resetting() -> Progress:
    """A follower whose log ends at 7, where this one begins behind 10."""
    progress = make_progress()
    progress.asked(START_MS)
    start_at(progress, PushResult.INCONSISTENT_STATE, 7, 7, start=10)
    assert progress.state is PushState.RESET
    return progress


def test_a_follower_that_ends_before_the_log_begins_is_reset_and_compared_again() -> None:
    progress = resetting()
    assert (progress.waiting_since_ms, progress.match) == (None, 0)
    asked = progress.asked(START_MS)
    progress.on_reset(ResetResponse(GROUP, Term(1), PushResult.SUCCESS, asked), LAST)
    assert (progress.state, progress.compare_at) == (PushState.COMPARE, LAST)
    progress.asked(START_MS)
    start_at(progress, PushResult.INCONSISTENT_STATE, 10, 10, start=10)
    progress.asked(START_MS)
    start_at(progress, PushResult.SUCCESS, 10, 10, start=10)
    assert (progress.state, progress.next) == (PushState.APPEND, 11)


def test_a_follower_that_refuses_to_be_reset_is_compared_again() -> None:
    progress = resetting()
    asked = progress.asked(START_MS)
    progress.on_reset(ResetResponse(GROUP, Term(1), PushResult.INCONSISTENT_STATE, asked), LAST)
    assert (progress.state, progress.compare_at) == (PushState.COMPARE, LAST)


def test_an_old_answer_to_a_reset_changes_nothing() -> None:
    progress = resetting()
    old = ResetResponse(GROUP, Term(1), PushResult.SUCCESS, progress.asked(START_MS))
    progress.asked(START_MS)
    progress.on_reset(old, LAST)
    assert progress.state is PushState.RESET


def test_a_reset_without_an_answer_is_overdue() -> None:
    progress = resetting()
    progress.asked(START_MS + 5)
    assert progress.overdue_ms() == START_MS + 5


def test_a_tail_of_an_old_leader_that_differs_where_the_log_begins_is_reset() -> None:
    progress = make_progress()
    progress.asked(START_MS)
    start_at(progress, PushResult.INCONSISTENT_STATE, 15, 10, start=10)
    assert (progress.state, progress.compare_at) == (PushState.COMPARE, 10)
    progress.asked(START_MS)
    start_at(progress, PushResult.INCONSISTENT_STATE, 10, 10, start=10)
    assert progress.state is PushState.RESET


def test_a_follower_whose_log_begins_above_the_question_is_asked_there() -> None:
    """It has trimmed already, and this leader not yet."""
    progress = make_progress()
    progress.asked(START_MS)
    compared(progress, PushResult.INCONSISTENT_STATE, 5, match_in_terms=5)
    progress.asked(START_MS)
    compared(progress, PushResult.INCONSISTENT_STATE, 12, match_in_terms=12)
    assert (progress.state, progress.compare_at) == (PushState.COMPARE, 12)


def test_a_follower_whose_log_begins_where_this_one_has_nothing_like_it_is_left_alone() -> None:
    progress = make_progress()
    progress.asked(START_MS)
    compared(progress, PushResult.INCONSISTENT_STATE, LAST + 5, match_in_terms=LAST)
    assert progress.paused_until_ms == float("inf")


def test_nothing_is_acknowledged_before_a_comparison() -> None:
    """What arrives before was acknowledged by the disk that was there before."""
    progress = make_progress()
    assert not acked(progress, 10)
    assert progress.match == 0


# Two whole logs, as lists of terms -----------------------------------------------------------------------------------


@st.composite
def two_logs(draw: st.DrawFn) -> tuple[list[int], list[int]]:
    """A leader's and a follower's, as Raft can make them: equal up to somewhere, then frames of other terms.

    Frames are told apart by term alone here, so behind the shared part the leader has even terms, the follower odd.
    """
    shared = sorted(draw(st.lists(st.integers(1, 4), max_size=8)))
    floor = max(shared, default=0)
    tails = [sorted(draw(st.lists(st.integers(floor + 1, floor + 8), max_size=10))) for _ in range(2)]
    mine = [term for term in tails[0] if term % 2 == 0]
    theirs = [term for term in tails[1] if term % 2]
    return shared + mine, shared + theirs


def highest_in_terms(log: Sequence[int], position: int, term: int) -> int:
    """The highest position at or below ``position`` whose term does not exceed ``term``."""
    position = min(position, len(log))
    while position and log[position - 1] > term:
        position -= 1
    return position


def term_at(log: Sequence[int], position: int) -> int:
    return log[position - 1] if position else 0


@given(two_logs(), st.integers(0, 6))
@example(([2, 4], [1, 1, 3]), 0)
def test_compare_finds_the_last_shared_frame_in_at_most_one_question_a_term(
    logs: tuple[list[int], list[int]], grown: int
) -> None:
    """Also where the leader's log has ``grown`` since it asked first."""
    leader, follower = logs
    shared = next((at for at, (a, b) in enumerate(zip(leader, follower, strict=False)) if a != b), None)
    shared = min(len(leader), len(follower)) if shared is None else shared
    progress = make_progress(max(len(leader) - grown, 0))
    asked = []
    while progress.state is PushState.COMPARE:
        at = progress.compare_at
        asked.append(at)
        progress.asked(START_MS)
        if at <= len(follower) and leader[:at] == follower[:at]:
            here = highest_in_terms(leader, len(follower), term_at(follower, len(follower)))
            compared(progress, PushResult.SUCCESS, len(follower), match_in_terms=here)
            continue
        there = highest_in_terms(follower, at, term_at(leader, at)) if at <= len(follower) else len(follower)
        here = highest_in_terms(leader, there, term_at(follower, there))
        compared(progress, PushResult.INCONSISTENT_STATE, there, match_in_terms=here)
    assert progress.next == shared + 1
    assert (progress.state is PushState.TRUNCATE) == (len(follower) > shared)
    rises = [low for high, low in pairwise(asked) if low >= high]
    assert len(rises) <= min(grown, 1)
    assert len(asked) <= len(set(leader)) + len(set(follower)) + 2 + len(rises)
