"""The verdict on a run's directory, and the page that tells it."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from dledger.kernels.history import HISTORY_SCHEMA
from jepsen.analysis import availability, judge
from jepsen.nemesis.schedule import Window
from jepsen.report.page import write_report
from jepsen.report.server import index_page
from jepsen.run import Plan
from tests.unit.kernels.histories import Row, append, batch_of, final, value

SECOND_NS = 1_000_000_000


def window(began_s: float, ended_s: float, *, majority: bool = True, bit: bool = True) -> Window:
    evidence = {"packets_dropped": 7}
    down = () if majority else ("n0", "n1", "n2")
    at = (int(began_s * 1e9), int(ended_s * 1e9))
    return Window("bridge", "cut", ["n0"], *at, majority, bit, evidence, down=down)


def a_run(directory: Path, rows: list[Row], windows: list[Window], nemeses: tuple[str, ...] = ("bridge",)) -> Path:
    plan = Plan("set", nemeses, clients=2, time_limit_s=4, on_s=1, off_s=1, nodes=3)
    (directory / "plan.json").write_text(json.dumps(asdict(plan)))
    (directory / "faults.jsonl").write_text("".join(json.dumps(asdict(each)) + "\n" for each in windows))
    probe = [
        {"ns": 0, "node": "n0", "role": "leader", "term": 1},
        {"ns": SECOND_NS, "node": "n0", "role": "", "term": 1},
    ]
    (directory / "probe.jsonl").write_text("".join(json.dumps(each) + "\n" for each in probe))
    pa.parquet.write_table(pa.Table.from_batches([batch_of(rows)], HISTORY_SCHEMA), directory / "history.parquet")
    return directory


def every_copy(values: list[int]) -> list[Row]:
    """Read at the end: of the leader, and of three nodes."""
    return [row for reader in range(4) for row in final(values, (5 * SECOND_NS, 6 * SECOND_NS), process=1000 + reader)]


def acks(*seconds: float) -> list[Row]:
    return [append(1, number, (int(at * 1e9) - 1000, int(at * 1e9)), index=number) for number, at in enumerate(seconds)]


def test_a_run_is_judged_told_and_listed(tmp_path: Path) -> None:
    rows = [*acks(0.5, 1.5, 2.5, 3.5), *every_copy([value(1, n) for n in range(4)])]
    (run := tmp_path / "run").mkdir()
    told = judge(a_run(run, rows, [window(1, 2)]))
    page = write_report(run).read_text()
    assert told["valid"]
    assert told["availability"] == 1.0
    assert all(word in page for word in ("valid", "packets_dropped 7", "<svg", "bridge"))
    assert "http" not in page.replace("http://www.w3.org", "").replace("http://purl.org", "").replace(
        "http://creativecommons.org", ""
    ).replace("https://matplotlib.org", "")
    assert 'href="run/report.html"' in index_page(tmp_path)


@pytest.mark.parametrize(
    ("windows", "nemeses"),
    [
        pytest.param([window(1, 2, bit=False)], ("bridge",), id="a fault that did not bite"),
        pytest.param([], ("bridge",), id="a nemesis that never struck"),
    ],
)
def test_a_run_whose_faults_prove_nothing_is_not_valid(
    tmp_path: Path, windows: list[Window], nemeses: tuple[str, ...]
) -> None:
    rows = [*acks(0.5), *every_copy([value(1, 0)])]
    assert not judge(a_run(tmp_path, rows, windows, nemeses))["valid"]


def test_a_copy_that_could_not_be_read_at_the_end_makes_a_run_invalid(tmp_path: Path) -> None:
    rows = [*acks(0.5), *final([value(1, 0)], (5 * SECOND_NS, 6 * SECOND_NS))]
    told = judge(a_run(tmp_path, rows, [window(1, 2)]))
    assert (told["valid"], told["copies_unread"]) == (False, 3)


def test_availability_counts_the_seconds_in_which_a_majority_was_connected() -> None:
    slots = np.array([50, 150, 750], dtype=np.int64)
    told = availability(slots, [window(2, 3, majority=False)], 8, 5)
    assert (told["seconds_with_majority"], told["seconds_with_acks"]) == (3, 3)


def test_the_longest_time_without_acknowledgements_is_told_for_each_fault() -> None:
    slots = np.array([100, 350, 360, 700], dtype=np.int64)
    told = availability(slots, [window(1, 4)], 8)
    assert told["unavailability_s"] == {"bridge@1s": 3.4}
    assert told["longest_unavailability_s"] == 3.4
