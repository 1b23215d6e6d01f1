"""``dledger spark COMMAND --engine``: both say the same, and end the same."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from dledger.cli.runtime import EXIT_BAD, EXIT_OK
from dledger.cli.spark import spark as spark_commands
from tests.spark.clusters import Cluster, running
from tests.unit.kernels.histories import append, batch_of, final, value

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    Told = Callable[..., tuple[object, str]]


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running(tmp_path_factory.mktemp("commands"), nodes=3) as cluster:
        cluster.append([b"record %d" % number for number in range(5_000)])
        yield cluster


@pytest.fixture
def told(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Told:
    """Runs a command with either engine; what both returned and printed, which must be the same. The session is the
    tests'."""
    monkeypatch.setattr("dledger.spark.session.local_session", lambda *_, **__: spark)
    monkeypatch.setattr("dledger.spark.session.ended_quietly", lambda _: None)

    def run(*arguments: str | Path) -> tuple[object, str]:
        outcomes = []
        for engine in ("spark", "local"):
            command = [*map(str, arguments), "--engine", engine, "-o", "json"]
            ended = CliRunner().invoke(spark_commands, command, standalone_mode=False)
            assert ended.exception is None, ended.output
            outcomes.append((ended.return_value, ended.stdout))
        assert outcomes[0] == outcomes[1]
        return outcomes[0]

    return run


def test_an_audit(told: Told, filled: Cluster, tmp_path: Path) -> None:
    copies = [tmp_path / node_id for node_id in filled.nodes.nodes]
    for copy in copies:
        shutil.copytree(filled.data_dir(copy.name), copy)
    code, text = told("audit", *copies)
    assert code == EXIT_OK
    assert '"ok":true' in text
    segment = max(copies[1].rglob("*.log"), key=lambda path: path.stat().st_size)
    content = bytearray(segment.read_bytes())
    content[5_000] ^= 1
    segment.write_bytes(content)
    code, text = told("audit", *copies)
    assert code == EXIT_BAD
    assert '"rot":1' in text


def test_numbers_of_a_log(told: Told, filled: Cluster) -> None:
    _, text = told("stats", "--endpoints", filled.endpoints)
    assert '"records":5000' in text


@pytest.mark.parametrize(("found", "code"), [(200, EXIT_OK), (199, EXIT_BAD)])
def test_a_verdict_on_a_history(told: Told, tmp_path: Path, found: int, code: int) -> None:
    appends = [append(1, number, (10 * number, 10 * number + 5), index=number) for number in range(200)]
    reads = final([value(1, number) for number in range(found)], at=(5_000, 5_001))
    pq.write_table(pa.Table.from_batches([batch_of([*appends, *reads])]), tmp_path / "history.parquet")
    assert told("check", tmp_path)[0] == code
