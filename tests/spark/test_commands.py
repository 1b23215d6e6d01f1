"""``dledger spark COMMAND --engine``: both say the same, and end the same."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from dledger.cli.runtime import EXIT_BAD, EXIT_OK, EXIT_USAGE
from dledger.cli.spark import spark as spark_commands
from dledger.cli.spark_session import LOCAL_MASTER, session
from dledger.common.errors import ConfigError
from tests.spark.clusters import Cluster, first_segment, running
from tests.unit.kernels.histories import Row, append, batch_of, final, unknown, value

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    Told = Callable[..., tuple[object, str]]


MS = 1_000_000


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
    segment = first_segment(copies[1])
    content = bytearray(segment.read_bytes())
    content[5_000] ^= 1
    segment.write_bytes(content)
    code, text = told("audit", *copies)
    assert code == EXIT_BAD
    assert '"rot":1' in text


@pytest.mark.parametrize("engine", ["spark", "local"])
def test_a_directory_without_a_log_is_refused_before_spark_is_started(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, filled: Cluster, engine: str
) -> None:
    monkeypatch.setattr("dledger.spark.session.local_session", None)
    command = ["audit", str(filled.data_dir("n0")), str(tmp_path), "--engine", engine]
    ended = CliRunner().invoke(spark_commands, command, standalone_mode=False)
    assert isinstance(ended.exception, ConfigError)
    assert str(ended.exception) == f"{tmp_path} holds no log: name a node's data directory"
    assert ended.exception.exit_code == EXIT_USAGE


def test_numbers_of_a_log(told: Told, filled: Cluster) -> None:
    _, text = told("stats", "--endpoints", filled.endpoints)
    assert '"records":5000' in text


@pytest.fixture(params=["history.parquet", "appends.jsonl"])
def run_dir(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A fault test's directory: five seconds, of which one was without acknowledgements, and one append was never heard
    of again. Of a run that was killed the lines are there alone, the last one torn."""
    rows = [append(1, n, (n * 100 * MS, (n * 100 + 7) * MS), index=n) for n in range(50) if not 20 <= n < 30]
    rows.append(unknown(2, 0, (4_900 * MS, 4_900 * MS), count=3))
    file = tmp_path / request.param
    if file.suffix == ".parquet":
        pq.write_table(pa.Table.from_batches([batch_of(rows)]), file)
        pq.write_table(pa.table({"slot": [1]}), tmp_path / "rates.parquet")  # no part of the history
    else:
        file.write_text("".join(map(lines_of, rows)) + '{"type":"invoke","process":3', encoding="ascii")
    return tmp_path


def test_latency_and_availability_of_a_history(told: Told, run_dir: Path) -> None:
    _, text = told("stats", "--history", run_dir)
    found = json.loads(text)
    assert (found["calls"], found["calls_unknown"], found["records"]) == (41, 1, 40)
    assert found["p50_ms"] == found["max_ms"] == pytest.approx(7, rel=0.05)
    assert (found["available"], found["longest_gap_ms"]) == (0.8, 1_090)


def test_a_picture_of_a_history_has_its_numbers_beside_it(told: Told, run_dir: Path, tmp_path: Path) -> None:
    _, text = told("plot", tmp_path / "report", "--history", run_dir)
    found = json.loads(text)
    assert Path(found["png"]).read_bytes().startswith(b"\x89PNG")
    page = Path(found["html"]).read_text()
    assert "<td>available<td>0.8" in page
    assert f"<td>p99_ms<td>{found['p99_ms']}" in page


@pytest.mark.parametrize("command", [["stats"], ["plot", "report"]])
@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (["--history", "gone"], "holds no history"),
        (["--history", "torn.parquet"], "is no history"),
        (["--history", ".", "--archive", "."], "name one"),
    ],
)
def test_what_is_no_history_is_refused_before_spark_is_started(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: list[str], flags: list[str], complaint: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("dledger.spark.session.local_session", None)
    (tmp_path / "torn.parquet").write_bytes(b"PAR1")
    ended = CliRunner().invoke(spark_commands, [*command, *flags], standalone_mode=False)
    assert isinstance(ended.exception, ConfigError)
    assert complaint in str(ended.exception)


def lines_of(row: Row) -> str:
    """As a fault test records it: before, and after unless nobody heard."""
    what = {"process": row.process, "call": row.invoked_ns, "value": row.first_value, "count": row.count}
    lines = [{"type": "invoke", "ns": row.invoked_ns, **what}]
    if row.completed_ns > row.invoked_ns:
        lines.append({"type": row.outcome, "ns": row.completed_ns, "invoked": row.invoked_ns, **what})
    return "".join(json.dumps(line) + "\n" for line in lines)


@pytest.mark.usefixtures("told")
def test_a_jvm_that_ends_in_the_middle_is_told_of_in_a_sentence() -> None:
    with pytest.raises(ConfigError, match="SPARK_DRIVER_MEMORY"), session("check", LOCAL_MASTER):
        raise ConnectionRefusedError(111, "Connection refused")  # what Py4J says of it


@pytest.mark.parametrize(("found", "code"), [(200, EXIT_OK), (199, EXIT_BAD)])
def test_a_verdict_on_a_history(told: Told, tmp_path: Path, found: int, code: int) -> None:
    appends = [append(1, number, (10 * number, 10 * number + 5), index=number) for number in range(200)]
    reads = final([value(1, number) for number in range(found)], at=(5_000, 5_001))
    pq.write_table(pa.Table.from_batches([batch_of([*appends, *reads])]), tmp_path / "history.parquet")
    assert told("check", tmp_path)[0] == code
