"""Deduplication, as a table: what the log knows of a producer, what comes next, what is said."""

from __future__ import annotations

import pytest

from dledger.common.errors import Code, DLedgerError, ProducersFull
from dledger.log.frame.control import producer_body
from dledger.log.frame.frame import ControlKind
from dledger.log.frame.log_snapshot import LogSnapshot
from dledger.log.frame.producers import MAX_ANONYMOUS, MAX_NAMED, PRODUCER_EXPIRY_MS, RANGES_KEPT, KnownRange
from tests.unit.log.harness import control_frame, data_frame

PRODUCER = 1
OTHER_CRC = 12345


def append(state: LogSnapshot, sequence: int, count: int = 2, *, epoch: int = 0, producer: int = PRODUCER) -> int:
    records = [b"r%d" % (sequence + each) for each in range(count)]
    frame = data_frame(
        state.last,
        state.next_index,
        records,
        producer_id=producer,
        base_sequence=sequence,
        producer_epoch=epoch,
        timestamp_ms=max(state.last_timestamp_ms, 1000),
    )
    state.apply(frame)
    return frame.header.body_crc


def check(
    state: LogSnapshot, sequence: int, count: int = 2, *, crc: int = 0, epoch: int = 0, producer: int = PRODUCER
) -> KnownRange | None:
    return state.producers.check(producer, epoch, sequence, count, crc)


@pytest.fixture
def state() -> LogSnapshot:
    """A log whose producer 1 is registered and wrote sequences 0–1, 2–3 and 4–5 in epoch 0."""
    state = LogSnapshot("default")
    state.apply(control_frame(state.last, 0, ControlKind.PRODUCER))
    for sequence in (0, 2, 4):
        append(state, sequence)
    return state


def test_the_next_sequence_is_a_new_batch(state: LogSnapshot) -> None:
    assert check(state, 6) is None


def test_the_same_batch_again_is_known_with_its_place(state: LogSnapshot) -> None:
    crc = append(state, 6)
    known = check(state, 6, crc=crc)
    assert known is not None
    assert (known.base_index, known.position, known.count) == (6, 5, 2)


@pytest.mark.parametrize(
    ("sequence", "count", "epoch", "producer", "code"),
    [
        pytest.param(7, 2, 0, 1, Code.OUT_OF_ORDER, id="a gap"),
        pytest.param(2, 2, 0, 1, Code.SEQUENCE_CONFLICT, id="other bytes"),
        pytest.param(2, 4, 0, 1, Code.SEQUENCE_CONFLICT, id="two batches as one"),
        pytest.param(3, 1, 0, 1, Code.SEQUENCE_CONFLICT, id="half of a batch"),
        pytest.param(5, 2, 0, 1, Code.SEQUENCE_CONFLICT, id="half known, half new"),
        pytest.param(5, 1, 1, 1, Code.OUT_OF_ORDER, id="a new epoch that does not begin at 0"),
        pytest.param(3, 1, 0, 2, Code.UNKNOWN_PRODUCER, id="an unknown producer in the middle"),
        pytest.param(0, 1, 0, 3, Code.UNKNOWN_PRODUCER, id="the position of a batch"),
        pytest.param(0, 1, 0, 5, Code.UNKNOWN_PRODUCER, id="an id beyond the end"),
    ],
)
def test_what_does_not_fit_is_refused(  # noqa: PLR0917 -- one row of the table
    state: LogSnapshot, sequence: int, count: int, epoch: int, producer: int, code: Code
) -> None:
    with pytest.raises(DLedgerError) as refused:
        check(state, sequence, count, crc=OTHER_CRC, epoch=epoch, producer=producer)
    assert refused.value.code is code


def test_a_refusal_names_the_producer_as_its_user_did() -> None:
    state = LogSnapshot("default")
    state.apply(control_frame(state.last, 0, ControlKind.PRODUCER, producer_body("account/7")))
    append(state, 0)
    with pytest.raises(DLedgerError, match="sequences 0 to 1 of producer 'account/7' were appended with other bytes"):
        check(state, 0, crc=OTHER_CRC)


def test_a_higher_epoch_begins_at_zero_and_fences_the_lower(state: LogSnapshot) -> None:
    assert check(state, 0, epoch=1) is None
    append(state, 0, epoch=1)
    with pytest.raises(DLedgerError) as refused:
        check(state, 6, epoch=0)
    assert refused.value.code is Code.PRODUCER_FENCED


def test_an_id_that_the_log_handed_out_begins_at_zero(state: LogSnapshot) -> None:
    state.apply(control_frame(state.last, state.next_index, ControlKind.PRODUCER))
    assert check(state, 0, producer=state.last.position) is None


def test_batches_older_than_the_ranges_kept_are_repeated_requests(state: LogSnapshot) -> None:
    for sequence in range(6, 6 + 2 * RANGES_KEPT, 2):
        append(state, sequence)
    with pytest.raises(DLedgerError) as refused:
        check(state, 4)
    assert refused.value.code is Code.REPEATED_REQUEST


def test_the_oldest_range_kept_is_still_known(state: LogSnapshot) -> None:
    crc = append(state, 6)
    for sequence in range(8, 8 + 2 * (RANGES_KEPT - 1), 2):
        append(state, sequence)
    assert check(state, 6, crc=crc) is not None


def test_a_producer_that_writes_nothing_for_long_is_forgotten_by_the_logs_time(state: LogSnapshot) -> None:
    late = state.last_timestamp_ms + PRODUCER_EXPIRY_MS
    state.apply(data_frame(state.last, state.next_index, timestamp_ms=late))
    assert PRODUCER not in state.producers


def test_a_forgotten_producer_does_not_begin_again(state: LogSnapshot) -> None:
    late = state.last_timestamp_ms + PRODUCER_EXPIRY_MS
    state.apply(data_frame(state.last, state.next_index, timestamp_ms=late))
    with pytest.raises(DLedgerError) as refused:
        check(state, 0)
    assert refused.value.code is Code.UNKNOWN_PRODUCER


def test_the_least_recently_used_producer_goes_when_there_are_too_many(state: LogSnapshot) -> None:
    for _ in range(MAX_ANONYMOUS - 1):
        state.apply(control_frame(state.last, state.next_index, ControlKind.PRODUCER))
    append(state, 6)
    state.apply(control_frame(state.last, state.next_index, ControlKind.PRODUCER))
    assert PRODUCER in state.producers
    assert 5 not in state.producers


def test_a_name_is_kept_however_many_producers_without_one_come(state: LogSnapshot) -> None:
    register(state, "job")
    named = state.producers.named("job")
    for _ in range(MAX_ANONYMOUS + 1):
        state.apply(control_frame(state.last, state.next_index, ControlKind.PRODUCER))
    assert state.producers.named("job") == named
    assert len(state.producers) == MAX_ANONYMOUS + 1


def test_a_name_beyond_those_that_are_kept_is_refused_and_none_is_forgotten(state: LogSnapshot) -> None:
    for number in range(MAX_NAMED):
        state.producers.check_room(f"job/{number}")
        register(state, f"job/{number}")
    state.producers.check_room("job/0")
    with pytest.raises(ProducersFull) as refused:
        state.producers.check_room("another")
    assert refused.value.code is Code.PRODUCERS_FULL
    assert state.producers.named_count == MAX_NAMED


def test_what_is_known_survives_encoding(state: LogSnapshot) -> None:
    crc = append(state, 6)
    decoded = LogSnapshot.decode(state.encode())
    assert check(decoded, 6, crc=crc) == check(state, 6, crc=crc)
    assert decoded.encode() == state.encode()


def test_a_state_is_encoded_later_as_it_was_when_that_was_asked_for(state: LogSnapshot) -> None:
    for sequence in range(6, 6 * RANGES_KEPT, 2):
        then, later = state.encode(), state.encoder()
        append(state, sequence)
        state.apply(control_frame(state.last, state.next_index, ControlKind.PRODUCER))
        append(state, 0, producer=state.last.position)
        assert later() == later() == then


def test_a_state_goes_on_as_if_it_had_never_been_asked_for(state: LogSnapshot) -> None:
    other = state.copy()
    for sequence in range(6, 6 * RANGES_KEPT, 2):
        state.encoder()
        append(state, sequence)
        append(other, sequence)
    assert state.encode() == other.encode()


def register(state: LogSnapshot, name: str) -> int:
    """A frame that hands out a producer id under a name; its position."""
    state.apply(control_frame(state.last, state.next_index, ControlKind.PRODUCER, producer_body(name)))
    return state.last.position


def test_a_name_stands_for_its_producer_and_the_epoch_it_wrote_last_in(state: LogSnapshot) -> None:
    producer = register(state, "job")
    append(state, 0, epoch=7, producer=producer)
    assert state.producers.named("job") == (producer, 7)
    assert state.producers.named("another") is None


def test_the_first_to_ask_for_a_name_keeps_it(state: LogSnapshot) -> None:
    first, second = register(state, "job"), register(state, "job")
    assert state.producers.named("job") == (first, 0)
    assert second not in state.producers


def test_a_name_goes_with_its_producer(state: LogSnapshot) -> None:
    first = register(state, "job")
    late = state.last_timestamp_ms + PRODUCER_EXPIRY_MS
    state.apply(data_frame(state.last, state.next_index, timestamp_ms=late))
    assert state.producers.named("job") is None
    assert register(state, "job") > first


def test_a_producer_that_writes_at_the_last_moment_is_not_forgotten_by_that_write(state: LogSnapshot) -> None:
    producer = register(state, "job")
    late = state.last_timestamp_ms + PRODUCER_EXPIRY_MS
    state.apply(data_frame(state.last, state.next_index, [b"x"], producer_id=producer, timestamp_ms=late))
    assert state.producers.named("job") == (producer, 0)


def test_names_survive_encoding(state: LogSnapshot) -> None:
    producer = register(state, "job")
    assert LogSnapshot.decode(state.encode()).producers.named("job") == (producer, 0)
