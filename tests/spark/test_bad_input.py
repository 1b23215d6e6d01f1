"""What cannot be read or written is told in the driver, in one sentence, without anybody's stack."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from dledger.common.errors import OutOfRange
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


def write(spark: SparkSession, **options: Any) -> None:
    rows = spark.range(3).selectExpr("cast(id as string) as value")
    rows.write.format("dledger").options(**options).mode("append").save()


def follow(spark: SparkSession, checkpoint: Path, **options: Any) -> None:
    """A stream of what is there, until it ends or fails."""
    rows = spark.readStream.format("dledger").options(**{"startingOffsets": "earliest", **options}).load()
    writer = rows.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
    writer.trigger(availableNow=True).start().awaitTermination()


def told_of_stream(work: Callable[[], object]) -> str:
    """What a stream's driver is told: our sentence, and Spark's own words around it."""
    with pytest.raises(Exception, match=r"dledger\.common\.errors") as failure:
        work()
    assert "Traceback" not in str(failure.value)
    refusal = sentence_of(failure.value)
    assert refusal is not None
    return str(refusal)


def test_an_unknown_option(spark: SparkSession) -> None:
    assert "did you mean startingOffsets?" in told(
        lambda: count(spark, **{"dledger.endpoints": "127.0.0.1:1", "startingOffset": "3"})
    )


def test_an_unknown_option_of_a_sink_and_of_a_stream(spark: SparkSession, tmp_path: Path) -> None:
    misspelt = {"dledger.endpoints": "127.0.0.1:1", "timeoutMS_": "3"}
    assert "did you mean timeoutMs?" in told(lambda: write(spark, **misspelt))
    assert "did you mean timeoutMs?" in told(lambda: follow(spark, tmp_path, **misspelt))


def test_what_only_a_stream_refuses(spark: SparkSession, tmp_path: Path) -> None:
    here = {"dledger.endpoints": "127.0.0.1:1"}
    assert "a stream has no end" in told_of_stream(lambda: follow(spark, tmp_path / "end", **here, endingOffsets="5"))
    rows = spark.readStream.format("dledger").schema("value string").options(**here).load()
    writer = rows.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "schema"))
    assert "leave schema() out" in told_of_stream(lambda: writer.start().awaitTermination())


NOBODY = {"dledger.endpoints": "127.0.0.1:1", "timeoutMs": "500"}


def test_endpoints_that_nobody_listens_at(spark: SparkSession, tmp_path: Path) -> None:
    assert "no node answers" in told(lambda: count(spark, **NOBODY))
    assert "no node answers" in told(lambda: write(spark, **NOBODY))
    assert "no node answers" in told_of_stream(lambda: follow(spark, tmp_path, **NOBODY))


def test_a_server_that_does_not_know_the_protocol(spark: SparkSession, stranger: str, tmp_path: Path) -> None:
    options = {"dledger.endpoints": stranger}
    earlier = "runs an earlier version, or is no dledger node"
    assert earlier in told(lambda: count(spark, **options))
    assert earlier in told(lambda: write(spark, **options))
    assert earlier in told_of_stream(lambda: follow(spark, tmp_path, **options))


@pytest.mark.parametrize("schema", ["value string", "index bigint, value binary", "key binary, value binary"])
def test_a_schema_that_the_rows_do_not_have(spark: SparkSession, trimmed: tuple[Cluster, int], schema: str) -> None:
    cluster, kept = trimmed
    reader = spark.read.format("dledger").schema(schema).option("dledger.endpoints", cluster.endpoints)
    assert "leave schema() out" in told(lambda: reader.option("startingOffsets", str(kept)).load().count())


@pytest.mark.parametrize("option", ["startingOffsets", "endingOffsets"])
def test_an_offset_beyond_the_log(spark: SparkSession, trimmed: tuple[Cluster, int], option: str) -> None:
    cluster, _ = trimmed
    options = {"dledger.endpoints": cluster.endpoints, option: str(RECORDS + 1)}
    assert told(lambda: count(spark, **options)).startswith(
        f"{option} is {RECORDS + 1}, but the last committed record is {RECORDS - 1}"
    )


def test_a_stream_whose_beginning_was_trimmed(
    spark: SparkSession, trimmed: tuple[Cluster, int], tmp_path: Path
) -> None:
    cluster, kept = trimmed
    options = {"dledger.endpoints": cluster.endpoints, "startingOffsets": "0"}
    assert f"the log begins at {kept}" in told_of_stream(lambda: follow(spark, tmp_path, **options))


def test_a_range_that_was_trimmed_and_what_is_left_of_it(spark: SparkSession, trimmed: tuple[Cluster, int]) -> None:
    cluster, kept = trimmed
    options = {"dledger.endpoints": cluster.endpoints, "startingOffsets": "0"}
    assert f"the log begins at {kept}: the records before were trimmed" in told(lambda: count(spark, **options))
    assert count(spark, **options, failOnDataLoss="false") == RECORDS - kept


def test_the_files_of_another_group(spark: SparkSession, trimmed: tuple[Cluster, int]) -> None:
    files = spark.read.format("dledger").option("group", "orders").load(str(trimmed[0].data_dir("n0")))
    assert "holds no group 'orders': name one of " in told(files.count)


def test_a_log_cannot_be_overwritten(spark: SparkSession, trimmed: tuple[Cluster, int]) -> None:
    cluster, _ = trimmed
    rows = spark.range(3).selectExpr("cast(id as string) as value")
    writer = rows.write.format("dledger").option("dledger.endpoints", cluster.endpoints).mode("overwrite")
    assert "a log cannot be overwritten" in told(writer.save)


def test_our_sentence_is_found_in_what_spark_makes_of_it() -> None:
    failure = Exception("[STREAM_FAILED] … dledger.common.errors.OutOfRange: the log begins at 7\n SQLSTATE: 38000")
    refusal = sentence_of(failure)
    assert isinstance(refusal, OutOfRange)
    assert str(refusal) == "the log begins at 7"
    assert sentence_of(Exception("something else")) is None
