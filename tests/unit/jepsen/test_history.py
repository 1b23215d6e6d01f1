"""What the recorder writes is what the checks read, also after the harness was killed in the middle."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dledger.common.batch import build_body
from dledger.common.errors import ConfigError
from dledger.kernels.checks import check_history, verdict
from dledger.kernels.history import FINAL
from jepsen.history import read_history, to_parquet
from jepsen.recorder import ReadRows, Recorder
from jepsen.records import FOREIGN, record_of, records_of, runs_in, value_in, values_in
from jepsen.verdicts import Acknowledged, Failed, SurelyNot, Unknown
from tests.unit.kernels.histories import value

SIZE = 16


def record_some(run_dir: Path, *, finish: bool) -> None:
    with Recorder(run_dir) as recorder:
        first = recorder.invoke(1, 0, value(1, 0), 2)
        recorder.complete(first, Acknowledged(0, 1))
        recorder.complete(recorder.invoke(2, 0, value(2, 0), 1), Unknown("TERM_CHANGED"))
        recorder.complete(recorder.invoke(3, 0, value(3, 0), 1), Failed(SurelyNot.NOT_LEADER))
        recorder.invoke(1, 1, value(1, 2), 2)
        if finish:
            rows = ReadRows(1000, 0, FINAL, start=0, invoked_ns=recorder.now_ns())
            values = np.array([value(1, 0), value(1, 1), value(2, 0)], dtype=np.int64)
            rows.add(0, 1, values, *runs_in(values))
            recorder.found(rows)


def test_a_recorded_history_is_judged_alike_as_recorded_and_as_parquet(tmp_path: Path) -> None:
    record_some(tmp_path, finish=True)
    as_recorded = verdict(check_history(lambda: read_history(tmp_path)))
    to_parquet(tmp_path)
    assert not (tmp_path / "appends.jsonl").exists()
    assert verdict(check_history(lambda: read_history(tmp_path))) == as_recorded
    assert as_recorded["valid"]
    assert (as_recorded["attempts"], as_recorded["acknowledged"], as_recorded["recovered"]) == (6, 2, 1)


def test_an_append_that_was_never_heard_of_again_is_of_unknown_outcome(tmp_path: Path) -> None:
    record_some(tmp_path, finish=True)
    told = verdict(check_history(lambda: read_history(tmp_path)))
    assert (told["unknown"], told["failed"]) == (3, 1)


def test_without_its_final_read_a_history_is_not_valid(tmp_path: Path) -> None:
    record_some(tmp_path, finish=False)
    assert not verdict(check_history(lambda: read_history(tmp_path)))["valid"]


def test_what_is_no_history_is_refused_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "history.parquet").write_text("no")
    with pytest.raises(ConfigError, match="is not a history"):
        list(read_history(tmp_path))


def test_values_come_back_from_records_and_other_bytes_are_foreign() -> None:
    records = [*records_of(value(7, 300), 3, SIZE), b"x" * (SIZE - 1) + b"y"]
    assert values_in(build_body(records), 4, SIZE).tolist() == [value(7, n) for n in (300, 301, 302)] + [FOREIGN]
    assert value_in(record_of(value(7, 300), SIZE), SIZE) == value(7, 300)
    assert value_in(b"x" * (SIZE - 1) + b"y", SIZE) == FOREIGN
    assert values_in(build_body([b"short"]), 1, SIZE).tolist() == [FOREIGN]


def test_batches_of_one_and_of_several_stand_in_the_order_of_their_indexes() -> None:
    rows = ReadRows(1000, 0, FINAL, start=0, invoked_ns=0)
    rows.add_one(0, 1, value(1, 0))
    several = np.array([value(2, 0), value(2, 1)], dtype=np.int64)
    rows.add(1, 1, several, *runs_in(several))
    rows.add_one(3, 2, value(1, 1))
    batch = rows.batch(5)
    assert batch.column("first_index").to_pylist() == [0, 1, 3]
    assert batch.column("count").to_pylist() == [1, 2, 1]
    assert batch.column("term").to_pylist() == [1, 1, 2]
    assert rows.end == 4


def test_runs_are_told_by_where_they_begin_and_how_long_they_are() -> None:
    begins, counts = runs_in(np.array([5, 6, 7, 1, 9, 10], dtype=np.int64))
    assert (begins.tolist(), counts.tolist()) == ([0, 3, 4], [3, 1, 2])


@pytest.mark.parametrize("cut", [1, 30, 60])
def test_a_line_that_was_cut_short_as_the_harness_was_killed_is_left_out(tmp_path: Path, cut: int) -> None:
    record_some(tmp_path, finish=True)
    appends = tmp_path / "appends.jsonl"
    appends.write_bytes(appends.read_bytes()[:-cut])
    told = verdict(check_history(lambda: read_history(tmp_path)))
    assert (told["acknowledged"], told["attempts"]) == (2, 4)


def test_an_acknowledgement_whose_line_was_cut_short_is_of_unknown_outcome(tmp_path: Path) -> None:
    with Recorder(tmp_path) as recorder:
        recorder.complete(recorder.invoke(1, 0, value(1, 0), 1), Acknowledged(0, 1))
    appends = tmp_path / "appends.jsonl"
    appends.write_bytes(appends.read_bytes()[:-5])
    told = verdict(check_history(lambda: read_history(tmp_path)))
    assert (told["acknowledged"], told["unknown"]) == (0, 1)


@pytest.mark.parametrize(
    ("was", "instead"),
    [
        pytest.param('"type":"ok"', '"type":"OK"', id="an outcome that is none"),
        pytest.param('"type":"ok",', "", id="no outcome"),
        pytest.param('"process":1,', "", id="no process"),
        pytest.param('"value"', '"valve"', id="another field"),
        pytest.param('"index":0,', "", id="an acknowledgement without an index"),
        pytest.param('"count":2,"index"', '"count":0,"index"', id="an append of nothing"),
        pytest.param('{"type":"ok"', "torn", id="no JSON"),
    ],
)
def test_a_line_that_no_check_could_read_is_refused(tmp_path: Path, was: str, instead: str) -> None:
    record_some(tmp_path, finish=True)
    appends = tmp_path / "appends.jsonl"
    appends.write_text(appends.read_text().replace(was, instead, 1))
    with pytest.raises(ConfigError, match="is not a history"):
        list(read_history(tmp_path))
