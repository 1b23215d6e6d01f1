"""Appends under a name through a log that misbehaves: made again by others, they are in the log once."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from functools import partial

import pytest

from dledger import client
from dledger.client import named_producer
from dledger.client.client_options import DEFAULT_BATCHES_IN_FLIGHT
from dledger.common.batch import build_body
from dledger.common.config import MIB, Limits
from dledger.common.errors import (
    Code,
    InvalidRequest,
    NotLeader,
    OutcomeUnknown,
    SequenceError,
    Unavailable,
    Unsupported,
)
from tests.unit.client.fake_server import FakeCluster


def numbered(count: int, start: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(start, start + count)]


async def append_all(log: client.Log, records: list[bytes], *, epoch: int = 0, batch: int = 10) -> None:
    async with log.producer("job", epoch=epoch) as producer:
        for start in range(0, len(records), batch):
            await producer.enqueue_many(records[start : start + batch])


async def test_what_was_appended_under_a_name_is_not_appended_again(cluster: FakeCluster, log: client.Log) -> None:
    records = numbered(95)
    await append_all(log, records)
    await append_all(log, records)
    assert cluster.records() == records


async def test_another_process_appends_what_the_first_did_not_get_to(cluster: FakeCluster, log: client.Log) -> None:
    records = numbered(95)
    await append_all(log, records[:40])
    async with client.connect(cluster.endpoints) as other:
        await append_all(other, records)
    assert cluster.records() == records


async def test_a_higher_epoch_begins_anew_and_ends_the_lower(cluster: FakeCluster, log: client.Log) -> None:
    await append_all(log, [b"one"])
    await append_all(log, [b"two"], epoch=1)
    with pytest.raises(SequenceError) as fenced:
        await append_all(log, [b"late"])
    assert fenced.value.code is Code.PRODUCER_FENCED
    assert cluster.records() == [b"one", b"two"]


async def test_each_outcome_says_where_the_batch_is(log: client.Log) -> None:
    async with log.producer("job") as producer:
        [first] = await producer.enqueue_many(numbered(3))
        [second] = await producer.enqueue_many(numbered(2))
    assert (first.result().first_index, second.result().first_index) == (0, 3)


@pytest.mark.parametrize("seed", range(5))
async def test_whatever_goes_wrong_each_record_is_there_once_and_in_order(seed: int) -> None:
    cluster = FakeCluster()
    for _ in range(3):
        await cluster.add_node()
    cluster.lead(cluster.nodes[0])
    cluster.faults.chaos = random.Random(seed)
    records = numbered(400)
    async with client.connect(cluster.endpoints, rng=random.Random(seed)) as log:
        await append_all(log, records)
    assert cluster.records() == records
    for node in cluster.nodes:
        await node.stop()


async def test_other_records_under_the_same_sequence_are_refused(cluster: FakeCluster, log: client.Log) -> None:
    await append_all(log, [b"one"])
    with pytest.raises(SequenceError) as conflict:
        await append_all(log, [b"another"])
    assert conflict.value.code is Code.SEQUENCE_CONFLICT
    assert cluster.records() == [b"one"]


async def test_a_batch_whose_place_is_forgotten_is_in_the_log(cluster: FakeCluster, log: client.Log) -> None:
    cluster.faults.refuse_appends = [Code.REPEATED_REQUEST]
    async with log.producer("job") as producer:
        [known] = await producer.enqueue_many([b"long ago"])
        await producer.flush()
        assert known.result().first_index == client.FORGOTTEN_INDEX


async def test_what_was_sent_and_never_answered_is_of_unknown_outcome(cluster: FakeCluster) -> None:
    cluster.faults.drop_answers = 1_000_000
    async with client.connect(cluster.endpoints, timeout_ms=300) as log:
        with pytest.raises(OutcomeUnknown, match="got nowhere"):
            await append_all(log, [b"x"])


async def test_what_grpc_itself_refuses_does_not_say_what_became_of_the_batches_before(cluster: FakeCluster) -> None:
    cluster.faults.keeps_answers = True
    limits = Limits(max_record_bytes=6 * MIB, max_batch_bytes=6 * MIB)
    async with client.connect(cluster.endpoints, limits=limits) as log:
        producer = await log.producer("job").__aenter__()
        [first] = await producer.enqueue_many([b"first"])
        await cluster.holds(1)
        [large] = await producer.enqueue_many([bytes(5 * MIB)])  # the fake nodes have gRPC's usual limit
        for batch in (first, large):
            with pytest.raises(OutcomeUnknown, match="larger than max"):
                await batch
    assert cluster.records() == [b"first"]


async def test_a_batch_that_no_server_takes_is_refused_before_anything_is_sent(cluster: FakeCluster) -> None:
    limits = Limits(max_record_bytes=8 * MIB, max_batch_bytes=8 * MIB)
    large = bytes(8 * MIB)
    async with client.connect(cluster.endpoints, limits=limits) as log, log.producer("job") as producer:
        for call in (producer.enqueue_body(build_body([large]), 1), producer.enqueue_many([b"before it", large])):
            with pytest.raises(InvalidRequest, match="no server takes more") as refusal:
                await call
            assert refusal.value.code is Code.BATCH_TOO_LARGE
        await producer.enqueue_many([b"x"])
    assert cluster.records() == [b"x"]


async def test_a_bug_leaves_unknown_what_was_sent(log: client.Log, monkeypatch: pytest.MonkeyPatch) -> None:
    producer = await log.producer("job").__aenter__()
    with monkeypatch.context() as bug:
        bug.setattr(named_producer, "encode_append", None)
        [sent] = await producer.enqueue_many([b"met a bug"])
        with pytest.raises(OutcomeUnknown, match="met a bug"):
            await sent
    with pytest.raises(OutcomeUnknown):
        await producer.flush()


async def test_an_answer_that_does_not_fit_settles_nothing(cluster: FakeCluster, log: client.Log) -> None:
    cluster.faults.miscounts = 1
    async with log.producer("job") as producer:
        [batch] = await producer.enqueue_many(numbered(3))
        assert (await batch).count == 3
    assert len(cluster.nodes[0].append_messages) == 2, "it was not asked for again"
    assert cluster.records() == numbered(3)


async def test_a_producer_that_had_nothing_to_append_for_long_goes_on_after_a_change_of_leader(
    cluster: FakeCluster, log: client.Log, leap: Callable[[float], None]
) -> None:
    async with log.producer("job") as producer:
        await producer.enqueue_many([b"before"])
        await producer.flush()
        leap(60)
        cluster.lead(cluster.nodes[1])
        await cluster.nodes[0].stop()
        await asyncio.sleep(0.05)  # it hears of that with nothing to append
        await producer.enqueue_many([b"behind"])
    assert cluster.records() == [b"before", b"behind"]


async def test_what_was_sent_when_the_producer_is_closed_is_of_unknown_outcome(
    cluster: FakeCluster, log: client.Log
) -> None:
    cluster.faults.hold = asyncio.Event()
    producer = log.producer("job")
    await producer.__aenter__()
    [sent] = await producer.enqueue_many([b"x"])
    async with cluster.nodes[0].received:
        await cluster.nodes[0].received.wait_for(lambda: cluster.nodes[0].append_messages)
    await producer.__aexit__(RuntimeError, RuntimeError(), None)
    with pytest.raises(OutcomeUnknown, match="it may be in the log"):
        await sent


async def test_what_was_never_sent_when_the_producer_is_closed_was_not_appended(
    cluster: FakeCluster, log: client.Log
) -> None:
    producer = log.producer("job")
    await producer.__aenter__()
    cluster.lead(None)
    [unsent] = await producer.enqueue_many([b"x"])
    await producer.__aexit__(RuntimeError, RuntimeError(), None)
    with pytest.raises(Unavailable, match="was closed"):
        await unsent
    assert cluster.records() == []


async def test_a_fence_does_not_say_what_became_of_a_batch_whose_answer_was_lost(
    cluster: FakeCluster, log: client.Log
) -> None:
    cluster.faults.drop_answers = 1
    cluster.faults.refuse_after_drop = Code.PRODUCER_FENCED
    producer = log.producer("job")
    await producer.__aenter__()
    [batch] = await producer.enqueue_many([b"x"])
    with pytest.raises(OutcomeUnknown, match="it may be in the log"):
        await batch
    with pytest.raises(OutcomeUnknown):
        await producer.flush()
    with pytest.raises(SequenceError):
        await producer.enqueue_many([b"y"])
    with pytest.raises(OutcomeUnknown):
        await producer.__aexit__(None, None, None)
    assert cluster.records() == [b"x"]


async def test_the_window_bounds_what_waits(cluster: FakeCluster, log: client.Log) -> None:
    cluster.faults.hold = asyncio.Event()
    async with log.producer("job") as producer:
        for number in range(DEFAULT_BATCHES_IN_FLIGHT):
            await producer.enqueue_many([b"%d" % number])
        one_more = asyncio.ensure_future(producer.enqueue_many([b"more"]))
        done, _ = await asyncio.wait({one_more}, timeout=0.05)
        assert not done
        cluster.faults.hold.set()
        await one_more


@pytest.mark.parametrize(("name", "epoch"), [("", 0), ("job", -1), ("job", 1 << 32)])
async def test_a_name_and_an_epoch_are_needed(log: client.Log, name: str, epoch: int) -> None:
    with pytest.raises(InvalidRequest, match="give a name"):
        async with log.producer(name, epoch=epoch):
            pass


async def test_after_a_failure_nothing_more_is_appended(cluster: FakeCluster, log: client.Log) -> None:
    cluster.faults.refuse_appends = [Code.SEQUENCE_CONFLICT]
    producer = log.producer("job")
    await producer.__aenter__()
    await producer.enqueue_many([b"refused"])
    for call in (producer.flush, partial(producer.append_many, [b"behind it"])):
        with pytest.raises(SequenceError):
            await call()
    with pytest.raises(SequenceError):
        await producer.__aexit__(None, None, None)
    assert cluster.records() == []


def test_the_blocking_one_does_the_same() -> None:
    records = numbered(30)
    cluster = FakeCluster()

    async def start() -> None:
        await cluster.add_node()
        cluster.lead(cluster.nodes[0])

    with asyncio.Runner() as runner:
        runner.run(start())

        def append() -> None:
            for _ in range(2):
                with client.connect_blocking(cluster.endpoints) as log, log.producer("job") as producer:
                    producer.enqueue_many(records)

        async def both() -> None:
            await asyncio.to_thread(append)
            await cluster.nodes[0].stop()

        runner.run(both())
    assert cluster.records() == records


async def test_another_goes_on_behind_what_the_first_appended(cluster: FakeCluster, log: client.Log) -> None:
    await append_all(log, numbered(30))
    for _ in range(2):
        async with log.producer("job", sequence=30) as producer:
            await producer.enqueue_many([b"the rest"])
    assert cluster.records() == [*numbered(30), b"the rest"]


@pytest.mark.parametrize(("epoch", "expected"), [(0, 30), (1, 0)])
async def test_a_sequence_that_is_too_high_is_refused_soon_with_the_one_that_is_expected(
    cluster: FakeCluster, log: client.Log, epoch: int, expected: int
) -> None:
    await append_all(log, numbered(30))
    producer = await log.producer("job", epoch=epoch, sequence=40).__aenter__()
    [beyond] = await producer.enqueue_many([b"x"])
    with pytest.raises(SequenceError, match=rf"sequence=40.* {expected} is expected next") as gap:
        await asyncio.wait_for(beyond, timeout=2)
    assert (gap.value.code, gap.value.metadata) == (Code.OUT_OF_ORDER, {"expected_sequence": str(expected)})
    assert cluster.records() == numbered(30)


async def test_a_leader_that_does_not_know_the_newest_yet_makes_no_gap(cluster: FakeCluster, log: client.Log) -> None:
    await append_all(log, numbered(30))
    cluster.faults.refuse_appends = [Code.OUT_OF_ORDER]
    async with log.producer("job", sequence=30) as producer:
        await producer.enqueue_many([b"x"])
    assert cluster.records() == [*numbered(30), b"x"]


async def test_who_is_not_confirmed_as_the_leader_is_not_believed_that_there_is_a_gap(
    cluster: FakeCluster, log: client.Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that was deposed, and has not noticed."""

    async def unconfirmed(*_: object) -> None:
        raise NotLeader("it was deposed")

    monkeypatch.setattr("dledger.client.named_producer.ask_bounds", unconfirmed)
    await append_all(log, numbered(30))
    cluster.faults.refuse_appends = [Code.OUT_OF_ORDER] * 4
    async with log.producer("job", sequence=30) as producer:
        await producer.enqueue_many([b"x"])
    assert cluster.records() == [*numbered(30), b"x"]


async def test_a_server_that_knows_no_names_is_refused_before_anything_is_appended(
    cluster: FakeCluster, log: client.Log
) -> None:
    cluster.faults.knows_no_names = True
    with pytest.raises(Unsupported, match="does not know producers by name"):
        await append_all(log, [b"x"])
    assert cluster.records() == []


async def test_an_append_under_a_name_tells_where_its_records_are(cluster: FakeCluster, log: client.Log) -> None:
    async with log.producer("job", epoch=1) as producer:
        assert (await producer.append(b"first")).index == 0
        acks = await producer.append_many([b"a", b"b"])
        assert [ack.index for ack in acks] == [1, 2]
    assert cluster.records() == [b"first", b"a", b"b"]
