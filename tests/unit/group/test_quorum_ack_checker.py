"""Pending appends: completed in order, answered once, and never said to have failed."""

from __future__ import annotations

import asyncio

import pytest

from dledger.common.config import Limits, Timings
from dledger.common.errors import Code, OutcomeUnknown, PendingFull, error
from dledger.common.types import Position
from dledger.group.leader.quorum_ack_checker import AppendResult, QuorumAckChecker, Waiter
from dledger.log.frame.frame import Frame
from dledger.log.frame.producers import KnownRange
from tests.support.virtual_time import virtual_time
from tests.unit.group.pushes import make_frames

Future = asyncio.Future[AppendResult]
TIMEOUT_S = 2.0


def make_checker(**limits: int) -> QuorumAckChecker:
    timings = Timings(quorum_ack_timeout_ms=int(TIMEOUT_S * 1000))
    return QuorumAckChecker(Limits(**limits), timings, lambda _seconds: None)


def new_future() -> Future:
    return asyncio.get_running_loop().create_future()


def add(checker: QuorumAckChecker, frame: Frame, accepted_s: float = 0.0) -> Future:
    future = new_future()
    checker.add(frame.header, accepted_s, [Waiter(future, frame.header.base_index, 1)])
    return future


def known(frame: Frame) -> KnownRange:
    header = frame.header
    return KnownRange(0, 1, header.base_index, header.position, header.term, header.timestamp_ms, header.body_crc)


def code_of(future: Future) -> Code | None:
    failure = future.exception() if future.done() else None
    return failure.code if isinstance(failure, OutcomeUnknown) else None


@virtual_time
async def test_everything_up_to_the_commit_is_answered_and_nothing_behind_it() -> None:
    checker = make_checker()
    futures = [add(checker, frame) for frame in make_frames(5)]
    assert checker.on_commit(Position(3), now_s=0.1) == 3
    assert [future.done() for future in futures] == [True, True, True, False, False]
    assert futures[2].result() == AppendResult(base_index=2, count=1, term=1, timestamp_ms=1)
    assert len(checker) == 2


@virtual_time
async def test_callers_that_share_a_frame_are_each_told_their_own_records() -> None:
    checker = make_checker()
    [frame] = make_frames(1)
    first, second = new_future(), new_future()
    checker.add(frame.header, 0.0, [Waiter(first, 10, 2), Waiter(second, 12, 1)])
    checker.on_commit(Position(1), now_s=0.1)
    assert (first.result().base_index, first.result().count) == (10, 2)
    assert (second.result().base_index, second.result().count) == (12, 1)


@virtual_time
async def test_a_caller_that_went_away_is_passed_over() -> None:
    checker = make_checker()
    gone, stays = (add(checker, frame) for frame in make_frames(2))
    gone.cancel()
    checker.on_commit(Position(2), now_s=0.1)
    assert stays.done()


@virtual_time
async def test_room_is_counted_in_batches_and_in_bytes_with_what_is_queued() -> None:
    checker = make_checker(max_pending_batches=3)
    frames = make_frames(3)
    add(checker, frames[0])
    checker.check_room(1, 0)
    with pytest.raises(PendingFull):
        checker.check_room(2, 0)
    checker = make_checker(max_pending_bytes=2 * frames[0].header.frame_len)
    add(checker, frames[0])
    checker.check_room(0, 0)
    with pytest.raises(PendingFull):
        checker.check_room(0, frames[0].header.frame_len)


@virtual_time
async def test_room_comes_back_with_commits_and_with_the_end_of_the_term() -> None:
    checker = make_checker()
    futures = [add(checker, frame) for frame in make_frames(2)]
    checker.on_commit(Position(1), now_s=0.1)
    assert (len(checker), checker.pending_bytes) == (1, make_frames(1)[0].header.frame_len)
    checker.fail_all(error(Code.TERM_CHANGED, "lost"))
    assert (len(checker), checker.pending_bytes) == (0, 0)
    assert code_of(futures[1]) is Code.TERM_CHANGED


@virtual_time
async def test_who_waits_too_long_is_told_that_nobody_knows_and_keeps_his_place() -> None:
    checker = make_checker()
    early, late = make_frames(2)
    first, second = add(checker, early, accepted_s=0.0), add(checker, late, accepted_s=1.0)
    assert checker.expire(now_s=TIMEOUT_S) == 1
    assert code_of(first) is Code.WAIT_QUORUM_ACK_TIMEOUT
    assert not second.done()
    assert len(checker) == 2, "what is written still takes its room"
    checker.on_commit(Position(2), now_s=3.0)
    assert second.done()


@virtual_time
async def test_a_duplicate_waits_for_the_commit_of_the_first() -> None:
    checker = make_checker()
    frames = make_frames(3)
    originals = [add(checker, frame) for frame in frames]
    duplicate = new_future()
    checker.join(known(frames[1]), duplicate, now_s=0.5)
    checker.on_commit(Position(1), now_s=1.0)
    assert not duplicate.done()
    checker.on_commit(Position(2), now_s=1.0)
    assert duplicate.result() == originals[1].result()


@virtual_time
async def test_a_duplicate_of_an_earlier_terms_frame_waits_for_this_terms_first_commit() -> None:
    checker = make_checker()
    frames = make_frames(3)
    add(checker, frames[2])
    duplicate = new_future()
    checker.join(known(frames[0]), duplicate, now_s=0.5)
    assert not duplicate.done()
    checker.on_commit(Position(3), now_s=1.0)
    assert duplicate.result().base_index == 0


@virtual_time
async def test_a_young_duplicate_keeps_nobody_else_from_being_told() -> None:
    checker = make_checker()
    frames = make_frames(2)
    old = add(checker, frames[1], accepted_s=0.0)
    young = new_future()
    checker.join(known(frames[0]), young, now_s=TIMEOUT_S - 0.1)
    checker.expire(now_s=TIMEOUT_S)
    assert code_of(old) is Code.WAIT_QUORUM_ACK_TIMEOUT
    assert not young.done()
    checker.expire(now_s=2 * TIMEOUT_S)
    assert code_of(young) is Code.WAIT_QUORUM_ACK_TIMEOUT


@virtual_time
async def test_a_duplicate_of_an_append_that_timed_out_has_its_own_time() -> None:
    checker = make_checker()
    [frame] = make_frames(1)
    original = add(checker, frame, accepted_s=0.0)
    checker.expire(now_s=TIMEOUT_S)
    assert code_of(original) is Code.WAIT_QUORUM_ACK_TIMEOUT
    retry = new_future()
    checker.join(known(frame), retry, now_s=TIMEOUT_S)
    checker.expire(now_s=TIMEOUT_S + 0.1)
    assert not retry.done()
    checker.expire(now_s=2 * TIMEOUT_S)
    assert code_of(retry) is Code.WAIT_QUORUM_ACK_TIMEOUT


@virtual_time
async def test_frames_are_added_in_the_order_of_the_log() -> None:
    checker = make_checker()
    first, second = make_frames(2)
    add(checker, second)
    with pytest.raises(AssertionError):
        add(checker, first)
