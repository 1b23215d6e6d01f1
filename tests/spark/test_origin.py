"""What a task reads is all that was planned, whoever it asks: a range that ends early is filled up, or is an error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import pytest

from dledger.client import Batch
from dledger.common.batch import build_body
from dledger.common.errors import Code, OutOfRange, Unavailable, error
from dledger.common.types import Consistency
from dledger.spark import batch_reader
from dledger.spark.batch_reader import read_split
from dledger.spark.origin import ClusterOrigin, Origin, opened
from dledger.spark.plan import Split
from dledger.spark.source_options import Place, ReadOptions
from tests.spark.clusters import Cluster, running

if TYPE_CHECKING:
    from dledger.client import BlockingLog

HERE = {"dledger.endpoints": "127.0.0.1:20912"}
COMMITTED = 100


def batch(start: int, end: int) -> Batch:
    return Batch(start, end - start, 1, 1_000, build_body([b"x"] * (end - start)), 0, 0, 0)


class LaggingLog:
    """A log of ``COMMITTED`` records; who is not asked as the leader knows of ``known`` of them only."""

    def __init__(self, known: int) -> None:
        self._known = known

    def read_batches(
        self, start: int, end: int, *, consistency: Consistency, node: str | None = None
    ) -> Iterator[Batch]:
        assert (consistency is Consistency.COMMITTED) or node is None
        known = COMMITTED if consistency is Consistency.LINEARIZABLE else self._known
        if start >= known:
            raise OutOfRange(f"no committed record at {start}")
        for at in range(start, min(end, known), 10):
            yield batch(at, min(at + 10, end, known))


def origin(known: int, read_from: str) -> ClusterOrigin:
    return ClusterOrigin(cast("BlockingLog", LaggingLog(known)), Place(("127.0.0.1:1",), read_from=read_from))


def indexes(records: Any) -> list[int]:
    return [index for each in records for index in range(each.base_index, each.base_index + each.count)]


@pytest.mark.parametrize("known", [0, 25, 60, COMMITTED])
def test_what_any_node_does_not_know_to_be_committed_yet_comes_from_the_leader(known: int) -> None:
    assert indexes(origin(known, "any").read(20, 90)) == list(range(20, 90))


@pytest.mark.parametrize("known", [0, 60])
def test_a_node_that_was_named_and_knows_less_than_when_it_was_asked_is_an_error(known: int) -> None:
    with pytest.raises(Unavailable, match=f"n2 knew that records {max(20, known)} to 89 are committed"):
        indexes(origin(known, "n2").read(20, 90))


class TrimmingOrigin:
    """Gives ten records, then says that what follows was trimmed; asked where it begins, another node answers, which
    has not trimmed yet."""

    def __init__(self) -> None:
        self.reads = 0

    def bounds(self) -> tuple[int, int]:
        return 0, COMMITTED

    def read(self, start: int, end: int) -> Iterator[Batch]:
        self.reads += 1
        if self.reads > 1:
            yield batch(start, end)
            return
        yield replace(batch(start, start + 10), body=build_body([b"x" * (1 << 20)] * 10))
        raise error(Code.INDEX_LESS_THAN_LOCAL_BEGIN, "trimmed")


def test_a_range_that_is_trimmed_while_it_is_read_is_not_read_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    trimming = TrimmingOrigin()

    @contextmanager
    def opened_(_: Place) -> Iterator[Origin]:
        yield cast("Origin", trimming)

    monkeypatch.setattr(batch_reader, "opened", opened_)
    options = ReadOptions.parse({**HERE, "failOnDataLoss": "false", "columns": "index"})
    rows = [index for each in read_split(options, Split(20, 90)) for index in each.column("index").to_pylist()]
    assert rows == list(range(20, 90))


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running(tmp_path_factory.mktemp("three"), nodes=3) as cluster:
        cluster.append([b"x"] * 10)
        with cluster.log() as log:
            for node in cluster.nodes.nodes:  # until each has heard that they are committed
                assert indexes(log.read_batches(0, 10, follow=True, consistency=Consistency.COMMITTED, node=node))
        yield cluster


def test_a_node_is_named_by_its_id_or_by_its_address(three: Cluster) -> None:
    endpoints = three.endpoints.split(",")
    for node in ("n1", endpoints[1]):
        with opened(Place((endpoints[0],), read_from=node)) as named:
            assert indexes(named.read(0, 10)) == list(range(10))
            assert named.bounds() == (0, 10)
