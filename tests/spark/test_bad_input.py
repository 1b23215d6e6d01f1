"""What cannot be read or written is told in the driver, in one sentence, without anybody's stack."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from dledger.errors import OutOfRange
from dledger.spark.session import sentence_of
from tests.spark.clusters import Cluster, running

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RECORD = b"x" * 4_000
RECORDS = 2_000
TRIM_BEFORE = 1_200


@pytest.fixture(scope="module")
def trimmed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Cluster, int]]:
    """A log whose beginning is gone, and where it begins now."""
    with running(tmp_path_factory.mktemp("trimmed")) as cluster:
        cluster.append([RECORD] * RECORDS, batch=50)
        with cluster.log() as log:
            kept = log.admin.trim(TRIM_BEFORE).first_index
        assert 0 < kept <= TRIM_BEFORE
        yield cluster, kept


@pytest.fixture
def stranger() -> Iterator[str]:
    """The address of a gRPC server that is no dledger node."""
    server = grpc.server(ThreadPoolExecutor(1))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"127.0.0.1:{port}"
    server.stop(None).wait()


def told(work: Callable[[], object]) -> str:
    """What the driver is told: our sentence alone."""
    with pytest.raises(Exception, match="PYTHON_DATA_SOURCE_ERROR") as failure:
        work()
    text = str(failure.value)
    assert "Traceback" not in text
    assert len(text.splitlines()) <= 3
    refusal = sentence_of(failure.value)
    assert refusal is not None
    return str(refusal)


def count(spark: SparkSession, **options: Any) -> int:
    rows: int = spark.read.format("dledger").options(**options).load().count()
    return rows


def test_an_unknown_option(spark: SparkSession) -> None:
    assert "did you mean startingOffsets?" in told(
        lambda: count(spark, **{"dledger.endpoints": "127.0.0.1:1", "startingOffset": "3"})
    )


def test_endpoints_that_nobody_listens_at(spark: SparkSession) -> None:
    options = {"dledger.endpoints": "127.0.0.1:1", "timeoutMs": "500"}
    assert "no endpoint answers" in told(lambda: count(spark, **options))


def test_a_server_that_does_not_know_the_protocol(spark: SparkSession, stranger: str) -> None:
    assert "runs an earlier version, or is no dledger node" in told(
        lambda: count(spark, **{"dledger.endpoints": stranger})
    )


@pytest.mark.parametrize("option", ["startingOffsets", "endingOffsets"])
def test_an_offset_beyond_the_log(spark: SparkSession, trimmed: tuple[Cluster, int], option: str) -> None:
    cluster, _ = trimmed
    options = {"dledger.endpoints": cluster.endpoints, option: str(RECORDS + 1)}
    assert told(lambda: count(spark, **options)).startswith(
        f"{option} is {RECORDS + 1}, but the last committed record is {RECORDS - 1}"
    )


def test_a_range_that_was_trimmed_and_what_is_left_of_it(spark: SparkSession, trimmed: tuple[Cluster, int]) -> None:
    cluster, kept = trimmed
    options = {"dledger.endpoints": cluster.endpoints, "startingOffsets": "0"}
    assert f"the log begins at {kept}: the records before were trimmed" in told(lambda: count(spark, **options))
    assert count(spark, **options, failOnDataLoss="false") == RECORDS - kept


def test_a_log_cannot_be_overwritten(spark: SparkSession, trimmed: tuple[Cluster, int]) -> None:
    cluster, _ = trimmed
    rows = spark.range(3).selectExpr("cast(id as string) as value")
    writer = rows.write.format("dledger").option("dledger.endpoints", cluster.endpoints).mode("overwrite")
    assert "a log cannot be overwritten" in told(writer.save)


def test_our_sentence_is_found_in_what_spark_makes_of_it() -> None:
    failure = Exception("[STREAM_FAILED] … dledger.errors.OutOfRange: the log begins at 7\n SQLSTATE: 38000")
    refusal = sentence_of(failure)
    assert isinstance(refusal, OutOfRange)
    assert str(refusal) == "the log begins at 7"
    assert sentence_of(Exception("something else")) is None
