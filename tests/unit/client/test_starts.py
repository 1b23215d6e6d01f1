"""Where a read begins: at an index, before the end, with what comes, or at a time."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from dledger import client
from dledger.client.starts import find_start, place_of
from dledger.common.errors import Code, InvalidRequest, OutOfRange, error
from dledger.common.places import THE_END, Bounds, Kind, Place
from dledger.common.types import MAX_INDEX, Consistency
from tests.unit.client.fake_server import TIMESTAMP_MS, FakeCluster


@pytest.fixture
async def filled(cluster: FakeCluster) -> FakeCluster:
    """Ten batches of ten records, 0 … 99, a second apart."""
    for batch in range(10):
        cluster.clock_ms = TIMESTAMP_MS + 1_000 * batch
        await cluster.fill([b"%d" % (10 * batch + number) for number in range(10)])
    return cluster


async def read(log: client.Log, *start: Any, **how: Any) -> list[int]:
    return [entry.index async for entry in log.read(*start, **how)]


@pytest.mark.usefixtures("filled")
@pytest.mark.parametrize("consistency", list(Consistency))
async def test_a_negative_start_counts_from_the_end(log: client.Log, consistency: Consistency) -> None:
    assert await read(log, -5, consistency=consistency) == [95, 96, 97, 98, 99]
    assert await read(log, -1, consistency=consistency) == [99]
    assert await read(log, -5, 97, consistency=consistency) == [95, 96]
    assert await read(log, -5, 20, consistency=consistency) == []


async def test_a_negative_start_reaches_back_to_the_first_record_that_is_left(
    filled: FakeCluster, log: client.Log
) -> None:
    assert await read(log, -1_000) == list(range(100))
    filled.first_index = 98
    assert await read(log, -MAX_INDEX) == [98, 99]


@pytest.mark.usefixtures("cluster")
async def test_an_empty_log_has_no_last_records(log: client.Log) -> None:
    assert await read(log, -5) == []
    assert await read(log, since=0) == []


async def test_latest_gives_only_what_comes(filled: FakeCluster, log: client.Log) -> None:
    entries = log.read("latest", follow=True)
    upcoming = asyncio.ensure_future(anext(entries))
    await filled.heard("Read")
    await log.append(b"new")
    assert (await upcoming).value == b"new"
    await entries.aclose()


@pytest.mark.usefixtures("filled")
async def test_latest_gives_nothing_without_follow_and_says_so(log: client.Log) -> None:
    with pytest.raises(InvalidRequest, match="give follow=True for the records that come, or start=-1"):
        await read(log, "latest")


@pytest.mark.usefixtures("filled")
@pytest.mark.parametrize(
    ("since_ms", "first"),
    [(0, 0), (TIMESTAMP_MS, 0), (TIMESTAMP_MS + 1, 10), (TIMESTAMP_MS + 4_999.5, 50), (TIMESTAMP_MS + 9_000, 90)],
)
async def test_a_read_since_a_time_begins_at_its_first_record(log: client.Log, since_ms: float, first: int) -> None:
    assert await read(log, since=since_ms) == list(range(first, 100))
    moment = datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=since_ms)
    assert await read(log, since=moment) == list(range(first, 100))
    assert await read(log, since=since_ms, end=20) == list(range(first, 20))


async def test_a_read_since_a_time_that_has_yet_to_come_leaves_out_what_is_older(
    filled: FakeCluster, log: client.Log
) -> None:
    assert await read(log, since=TIMESTAMP_MS + 60_000) == []
    entries = log.read(since=TIMESTAMP_MS + 60_000, follow=True)
    upcoming = asyncio.ensure_future(anext(entries))
    await filled.heard("Read")
    await filled.fill([b"too early"])
    filled.clock_ms = TIMESTAMP_MS + 60_000
    await filled.fill([b"in time"])
    assert (await upcoming).value == b"in time"
    await entries.aclose()


async def test_a_committed_read_asks_the_node_that_it_reads(filled: FakeCluster, log: client.Log) -> None:
    filled.lead(None)
    assert await read(log, -2, consistency=Consistency.COMMITTED, node="n1") == [98, 99]
    since_ms = TIMESTAMP_MS + 8_500
    assert await read(log, since=since_ms, consistency=Consistency.COMMITTED, node="n1") == list(range(90, 100))


async def test_a_start_that_is_trimmed_while_it_is_looked_for_begins_with_what_is_left(
    filled: FakeCluster, log: client.Log
) -> None:
    filled.on_called["Read"] = lambda: setattr(filled, "first_index", 30)
    assert await read(log, since=TIMESTAMP_MS + 1_000) == list(range(30, 100))


async def test_what_was_trimmed_behind_latest_is_told(filled: FakeCluster, log: client.Log) -> None:
    """Records that came after the call are gone: to go on with the next ones would lose them silently."""

    async def come_and_go() -> None:
        await filled.fill([b"came, and went"])
        filled.first_index = 101

    entries = log.read("latest", follow=True)
    filled.on_called["Read"] = come_and_go
    with pytest.raises(OutOfRange):
        await anext(entries)


async def test_a_search_by_time_survives_a_trim_and_a_node_that_is_behind() -> None:
    async def timestamp_of(index: int) -> int:
        if index < 10:
            raise error(Code.INDEX_LESS_THAN_LOCAL_BEGIN, "trimmed")
        if index > 50:
            raise error(Code.INDEX_OUT_OF_RANGE, "not there yet")
        return index

    assert await find_start(Place(Kind.TIME, 5), Bounds(0, 100), timestamp_of) == (10, 100)
    assert await find_start(Place(Kind.TIME, 40), Bounds(0, 100), timestamp_of) == (40, 100)
    assert await find_start(Place(Kind.TIME, 60), Bounds(0, 100), timestamp_of) == (51, 100)


@pytest.mark.parametrize(
    ("start", "place"),
    [
        (0, Place(Kind.INDEX, 0)),
        (MAX_INDEX, Place(Kind.INDEX, MAX_INDEX)),
        (-1, Place(Kind.BEFORE_END, 1)),
        ("latest", THE_END),
    ],
)
def test_a_start_is_a_place_in_the_log(start: Any, place: Place) -> None:
    assert place_of(start, None) == place


@pytest.mark.parametrize(
    ("start", "since", "said"),
    [
        (1.5, None, 'start is 1.5: give an index, -5 for the last five records, or "latest" for those that come'),
        ("newest", None, "start is 'newest': give an index"),
        (None, None, "start is None: give an index"),
        (True, None, "start is True: give an index"),
        (1 << 63, None, f"indexes end at {MAX_INDEX}: there is no record {1 << 63}"),
        (-1 << 63, None, f"start is {-1 << 63}: a log holds {MAX_INDEX} records at most"),
        (datetime(2026, 11, 21, tzinfo=UTC), None, "a time is given as since, as in read(since=…)"),
        (5, 0, "start is 5 and since is 0: a read has one beginning, leave one out"),
        ("latest", 0, "start is 'latest' and since is 0: a read has one beginning, leave one out"),
        (0, datetime(2026, 11, 21), "in no time zone: give one, as in datetime.now(UTC)"),  # noqa: DTZ001
        (0, "2026-11-21", "since is '2026-11-21': give a datetime with a time zone, or milliseconds since the epoch"),
        (0, -1, "since is -1: give a datetime"),
        (0, True, "since is True: give a datetime"),
        (0, float("nan"), "since is nan: give a datetime"),
    ],
)
async def test_a_bad_start_is_refused_in_one_sentence(start: Any, since: Any, said: str, log: client.Log) -> None:
    with pytest.raises(InvalidRequest) as refused:
        await read(log, start, since=since)
    assert said in str(refused.value)


def test_a_time_before_all_records_can_be_is_the_first_one() -> None:
    assert place_of(0, datetime(1960, 1, 1, tzinfo=UTC)) == Place(Kind.TIME, 0)
