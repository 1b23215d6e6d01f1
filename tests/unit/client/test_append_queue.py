"""The queue behind the producer, without a network: bounds, checks, order, and what each failure does to it."""

from __future__ import annotations

import asyncio

import pytest

from dledger.client.append_queue import AppendQueue
from dledger.client.pending import PendingBatch
from dledger.client.waits import OnWait, Waits
from dledger.common.batch import records_of
from dledger.common.config import Limits
from dledger.common.errors import Code, DLedgerError, InvalidRequest, OutcomeUnknown, PendingFull, SequenceError, error


def queue(
    *,
    window: int = 4,
    max_pending_bytes: int = 1 << 20,
    timeout_ms: float = 1_000,
    limits: Limits | None = None,
    on_wait: OnWait | None = None,
) -> AppendQueue:
    limits = limits or Limits(max_record_bytes=1_000, max_batch_bytes=4_000)
    waits = Waits(on_wait)
    return AppendQueue(limits, window=window, max_pending_bytes=max_pending_bytes, timeout_ms=timeout_ms, waits=waits)


def take(source: AppendQueue) -> PendingBatch:
    batch = source.take()
    assert batch is not None
    return batch


def code_of(future: asyncio.Future[object]) -> Code:
    failure = future.exception()
    assert isinstance(failure, DLedgerError)
    return failure.code


async def test_sequences_follow_the_records_without_a_gap() -> None:
    source = queue()
    taken = []
    for size in (3, 1, 5):
        source.append_many([b"x"] * size)
        taken.append(take(source).base_sequence)
    assert taken == [0, 3, 4]


async def test_no_more_than_the_window_is_in_flight() -> None:
    source = queue(window=2)
    for _ in range(2):
        source.append_many([b"x"])
        take(source)
    source.append_many([b"x"])
    assert source.take() is None
    source.acknowledge(0, 1, 1, 0)
    assert take(source).base_sequence == 2


async def test_a_batch_holds_the_records_as_they_were_at_the_call() -> None:
    source = queue()
    record = bytearray(b"before")
    source.append(record)  # type: ignore[arg-type]
    source.append_many([memoryview(record)])
    record[:] = b"after!"
    assert [records_of(take(source).body, 1) for _ in range(2)] == [[b"before"], [b"before"]]


async def test_a_gathering_batch_is_sealed_at_its_limit() -> None:
    source = queue(limits=Limits(max_record_bytes=1_000, max_batch_bytes=2_000))
    for _ in range(5):
        source.append(bytes(900))
    assert [take(source).count for _ in range(3)] == [2, 2, 1]


@pytest.mark.parametrize("record", ["text", None, 7, [b"x"]])
async def test_what_is_not_bytes_is_refused_before_anything_is_queued(record: object) -> None:
    source = queue()
    with pytest.raises(InvalidRequest):
        source.append(record)  # type: ignore[arg-type]
    with pytest.raises(InvalidRequest):
        source.append_many([b"fine", record])  # type: ignore[list-item]
    assert not source.busy


async def test_a_view_of_wider_items_counts_in_bytes() -> None:
    source = queue()
    source.append_many([memoryview(b"12345678").cast("i"), b"x"])
    assert records_of(take(source).body, 2) == [b"12345678", b"x"]


async def test_limits_are_checked_before_anything_is_queued() -> None:
    source = queue()
    for call in (lambda: source.append(bytes(1_001)), lambda: source.append_many([b"x", bytes(1_001)])):
        with pytest.raises(InvalidRequest) as refusal:
            call()
        assert refusal.value.code is Code.RECORD_TOO_LARGE
    with pytest.raises(InvalidRequest) as refusal:
        source.append_many([])
    assert refusal.value.code is Code.REQUEST_WITH_EMPTY_BODYS
    assert not source.busy


async def test_an_empty_record_is_legal() -> None:
    source = queue()
    ack = source.append(b"")
    take(source)
    source.acknowledge(7, 1, 2, 3)
    assert (await ack) == (7, 2, 3)


async def test_too_much_pending_is_refused_and_taken_again_once_some_is_settled() -> None:
    source = queue(max_pending_bytes=2_000)
    source.append(bytes(1_000))
    source.append(bytes(900))
    with pytest.raises(PendingFull):
        source.append(bytes(100))
    with pytest.raises(PendingFull):
        source.append_many([bytes(100)])
    take(source)
    source.acknowledge(0, 2, 1, 0)
    source.append(bytes(1_000))


async def test_a_call_that_can_never_pass_is_not_told_to_wait() -> None:
    source = queue(max_pending_bytes=2_000)
    with pytest.raises(InvalidRequest, match="it can never pass") as refusal:
        source.append_many([bytes(1_000)] * 2)
    assert refusal.value.code is Code.BATCH_TOO_LARGE
    assert not source.busy


async def test_an_answer_that_does_not_fit_settles_nothing() -> None:
    source = queue()
    pending = source.append_many([b"x", b"y"])
    take(source)
    with pytest.raises(DLedgerError):
        source.acknowledge(0, 3, 1, 0)
    assert not pending.done()
    source.acknowledge(0, 2, 1, 0)
    assert len(await pending) == 2


async def test_renewing_starts_the_sequences_over_and_loses_nothing() -> None:
    source = queue()
    source.append_many([b"0"])
    take(source)
    source.acknowledge(0, 1, 1, 0)
    ahead, behind = source.append(b"1"), source.append_many([b"2", b"3"])
    take(source), take(source)
    source.renew()
    assert [take(source).base_sequence for _ in range(2)] == [0, 1]
    source.acknowledge(1, 1, 1, 0)
    source.acknowledge(2, 2, 1, 0)
    assert (await ahead).index == 1
    assert (await behind).first_index == 2


# Calls that share a batch ---------------------------------------------------------------------------------------------


async def test_calls_that_wait_together_travel_together_and_each_hears_of_its_own() -> None:
    source = queue()
    calls = [source.append_many([b"%d" % number] * size) for number, size in enumerate((3, 1, 5))]
    batch = take(source)
    assert (batch.base_sequence, batch.count) == (0, 9)
    assert records_of(batch.body, 9) == [b"0"] * 3 + [b"1"] + [b"2"] * 5
    assert source.take() is None
    source.acknowledge(100, 9, 7, 8)
    assert [((await call).first_index, len(await call)) for call in calls] == [(100, 3), (103, 1), (104, 5)]
    source.append(b"next")
    assert take(source).base_sequence == 9


async def test_what_is_too_much_for_one_batch_goes_with_the_next() -> None:
    source = queue()
    for _ in range(5):
        source.append_many([bytes(900)] * 2)
    assert [take(source).count for _ in range(3)] == [4, 4, 2]


async def test_single_records_and_calls_keep_their_order_and_do_not_mix() -> None:
    source = queue(window=8)
    source.append(b"0"), source.append_many([b"1", b"2"]), source.append_many([b"3"]), source.append(b"4")
    assert [records_of((batch := take(source)).body, batch.count) for _ in range(3)] == [
        [b"0"],
        [b"1", b"2", b"3"],
        [b"4"],
    ]


async def test_with_several_under_way_a_call_waits_for_more_to_go_with_or_for_an_answer() -> None:
    source = queue(window=8)
    for _ in range(4):
        source.append_many([b"x"])
        take(source)
    waiting = source.append_many([bytes(900)])
    assert source.take() is None
    source.append_many([bytes(900)] * 4)
    assert take(source).count == 1, "the next one does not fit"
    source.acknowledge(0, 1, 1, 0)
    assert take(source).count == 4
    for index, count in ((1, 1), (2, 1), (3, 1), (4, 1)):
        source.acknowledge(index, count, 1, 0)
    assert (await waiting).first_index == 4


async def test_a_call_that_was_cancelled_does_not_travel() -> None:
    source = queue()
    calls = [source.append_many([b"%d" % number]) for number in range(3)]
    calls[1].cancel()
    await asyncio.sleep(0)
    batch = take(source)
    assert records_of(batch.body, batch.count) == [b"0", b"2"]
    source.acknowledge(0, 2, 1, 0)
    assert [(await calls[number]).first_index for number in (0, 2)] == [0, 1]
    assert not source.busy


async def test_each_call_in_a_batch_has_a_time_of_its_own() -> None:
    source = queue(timeout_ms=60)
    hasty = source.append_many([b"hasty"])
    await asyncio.sleep(0.04)
    patient = source.append_many([b"patient"])
    assert take(source).count == 2
    with pytest.raises(OutcomeUnknown):
        await hasty
    assert not patient.done()
    source.acknowledge(0, 2, 1, 0)
    assert (await patient).first_index == 1
    await asyncio.wait_for(source.drain(1), 1)


async def test_of_a_batch_that_is_refused_the_first_call_fails_and_the_others_go_on() -> None:
    source = queue()
    calls = [source.append_many([b"%d" % number] * 2) for number in range(3)]
    take(source)
    source.refuse_head(error(Code.CORRUPT_BATCH, "no"))
    source.renew()
    batch = take(source)
    assert records_of(batch.body, batch.count) == [b"1", b"1", b"2", b"2"]
    assert batch.base_sequence == 0
    source.acknowledge(0, 4, 1, 0)
    await asyncio.sleep(0)
    assert isinstance(calls[0].exception(), InvalidRequest)
    assert [(await call).first_index for call in calls[1:]] == [0, 2]


async def test_a_batch_in_doubt_is_in_doubt_for_all_its_calls_and_frees_its_room() -> None:
    source = queue(max_pending_bytes=4_000)
    calls = [source.append_many([bytes(900)]) for _ in range(4)]
    take(source).doubtful = True
    source.abandon(error(Code.PRODUCER_FENCED, "fenced"))
    await asyncio.sleep(0)
    assert all(isinstance(call.exception(), OutcomeUnknown) for call in calls)
    source.append_many([bytes(900)] * 4)


async def test_abandoning_leaves_unknown_what_was_sent_and_keeps_what_was_not() -> None:
    source = queue(window=2)
    first = source.append_many([b"0"])
    take(source)
    second = source.append_many([b"1"])
    take(source)
    unsent = source.append_many([b"2"])
    source.abandon(error(Code.SEQUENCE_CONFLICT, "other bytes"))
    await asyncio.sleep(0)
    assert isinstance(first.exception(), SequenceError)
    assert isinstance(second.exception(), OutcomeUnknown)
    assert not unsent.done()
    assert take(source).base_sequence == 0


async def test_a_split_call_that_is_partly_appended_says_how_much() -> None:
    source = queue(limits=Limits(max_record_bytes=1_000, max_batch_bytes=2_000))
    whole = source.append_many([bytes(900)] * 4)
    take(source), take(source)
    source.acknowledge(0, 2, 1, 0)
    source.refuse_head(error(Code.DISK_FULL, "no room"))
    with pytest.raises(OutcomeUnknown) as failure:
        await whole
    assert failure.value.metadata["acknowledged"] == "2"


async def test_every_waiting_call_gets_an_exception_of_its_own() -> None:
    source = queue()
    first, second = source.append(b"0"), source.append(b"1")
    source.refuse_queued(error(Code.UNKNOWN_GROUP, "no such group"))
    assert code_of(first) is code_of(second) is Code.UNKNOWN_GROUP  # type: ignore[arg-type]
    assert first.exception() is not second.exception()
    assert not source.busy
