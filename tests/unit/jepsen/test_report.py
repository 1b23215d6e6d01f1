"""The verdict on a run's directory, and the page that tells it."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from dledger.common.errors import ConfigError
from dledger.kernels.checks import CHECKS, found_by
from dledger.kernels.history import HISTORY_SCHEMA
from jepsen.analysis import VIOLATIONS, availability, judge
from jepsen.nemesis.schedule import Window
from jepsen.plan import Plan
from jepsen.probe import Probe, Seen
from jepsen.report.figures import bars_of, read_roles
from jepsen.report.page import write_report
from jepsen.report.server import index_page
from tests.unit.kernels.histories import Row, append, batch_of, final, value

SECOND_NS = 1_000_000_000


def window(began_s: float, ended_s: float, *, majority: bool = True, bit: bool = True) -> Window:
    evidence = {"packets_dropped": 7}
    down = () if majority else ("n0", "n1", "n2")
    at = (int(began_s * 1e9), int(ended_s * 1e9))
    return Window("bridge", "cut", ["n0"], *at, majority, bit, evidence, down=down)


def a_run(
    directory: Path,
    rows: list[Row],
    windows: list[Window],
    nemeses: tuple[str, ...] = ("bridge",),
    workload: str = "set",
) -> Path:
    plan = Plan(workload, nemeses, clients=2, time_limit_s=4, on_s=1, off_s=1, nodes=3)
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
        pytest.param([window(1, 2)], ("bridge", "loss"), id="one of two nemeses that never struck"),
        pytest.param([window(1, 2)], ("every",), id="not every nemesis struck"),
        pytest.param([], ("all",), id="nothing of all struck"),
    ],
)
def test_a_run_whose_faults_prove_nothing_is_not_valid(
    tmp_path: Path, windows: list[Window], nemeses: tuple[str, ...]
) -> None:
    rows = [*acks(0.5), *every_copy([value(1, 0)])]
    told = judge(a_run(tmp_path, rows, windows, nemeses))
    assert not told["valid"]
    assert told["reasons"]


def test_a_run_with_members_that_come_and_go_is_not_valid_when_none_came(tmp_path: Path) -> None:
    rows = [*acks(0.5), *every_copy([value(1, 0)])]
    told = judge(a_run(tmp_path, rows, [window(1, 2)], workload="membership"))
    assert (told["valid"], told["nemeses_that_never_struck"]) == (False, ["churn"])


def test_chance_may_leave_some_of_all_nemeses_out(tmp_path: Path) -> None:
    rows = [*acks(0.5), *every_copy([value(1, 0)])]
    assert judge(a_run(tmp_path, rows, [window(1, 2)], ("all",)))["valid"]


def test_a_run_says_why_it_is_not_valid(tmp_path: Path) -> None:
    rows = [*acks(0.5, 1.5), *every_copy([value(1, 0)])]
    told = judge(a_run(tmp_path, rows, [window(1, 2, bit=False)]))
    assert told["reasons"] == ["lost: 4", "stale: 1", "bridge did not bite"]
    assert "bridge did not bite" in write_report(tmp_path).read_text()


def test_whatever_makes_a_history_invalid_is_among_the_reasons() -> None:
    findings = found_by([] for _ in CHECKS)
    assert {name for found in findings.values() for name in found.violations} <= set(VIOLATIONS)


def test_a_run_without_an_acknowledgement_has_its_verdict_and_its_page(tmp_path: Path) -> None:
    told = judge(a_run(tmp_path, every_copy([]), [window(1, 2)]))
    assert (told["valid"], told["reasons"]) == (False, ["nothing was acknowledged"])
    assert "nothing was acknowledged" in write_report(tmp_path).read_text()


def test_the_history_of_a_run_is_judged_with_its_faults_and_copies(tmp_path: Path) -> None:
    rows = [*acks(0.5), *final([value(1, 0)], (5 * SECOND_NS, 6 * SECOND_NS))]
    a_run(tmp_path, rows, [window(1, 2, bit=False)])
    assert judge(tmp_path / "history.parquet") == judge(tmp_path)


def test_a_history_alone_is_judged_by_what_it_holds(tmp_path: Path) -> None:
    rows = [*acks(0.5), *final([value(1, 0)], (5 * SECOND_NS, 6 * SECOND_NS))]
    a_run(tmp_path, rows, []).joinpath("history.parquet").rename(tmp_path / "alone.parquet")
    assert judge(tmp_path / "alone.parquet")["valid"]


def test_the_line_of_a_fault_that_was_cut_short_is_left_out(tmp_path: Path) -> None:
    rows = [*acks(0.5), *every_copy([value(1, 0)])]
    with (a_run(tmp_path, rows, [window(1, 2)]) / "faults.jsonl").open("a") as faults:
        faults.write('{"fault":"loss","wh')
    assert judge(tmp_path)["faults"] == 1


@pytest.mark.parametrize("name", ["plan.json", "faults.jsonl", "end.json"])
def test_a_damaged_file_of_a_run_is_named(tmp_path: Path, name: str) -> None:
    a_run(tmp_path, acks(0.5), [])
    (tmp_path / name).write_text("{\n")
    with pytest.raises(ConfigError, match=f"{name} is damaged"):
        judge(tmp_path)


def test_the_page_links_the_log_of_every_node_that_there_ever_was(tmp_path: Path) -> None:
    judge(a_run(tmp_path, acks(0.5), []))
    for name in ("n0.log", "n10.log", "n9.log"):
        (tmp_path / name).touch()
    page = write_report(tmp_path).read_text()
    assert page.index('href="n0.log"') < page.index('href="n9.log"') < page.index('href="n10.log"')


def test_a_copy_that_could_not_be_read_at_the_end_makes_a_run_invalid(tmp_path: Path) -> None:
    rows = [*acks(0.5), *final([value(1, 0)], (5 * SECOND_NS, 6 * SECOND_NS))]
    told = judge(a_run(tmp_path, rows, [window(1, 2)]))
    assert (told["valid"], told["copies_unread"]) == (False, 3)


def test_the_copy_of_a_member_that_joined_must_be_read_too(tmp_path: Path) -> None:
    rows = [*acks(0.5), *every_copy([value(1, 0)])]
    end = {"copies": ["n0", "n1", "n2", "n3"], "unrecovered": []}
    (a_run(tmp_path, rows, [window(1, 2)]) / "end.json").write_text(json.dumps(end))
    assert judge(tmp_path)["copies_unread"] == 1


def test_a_node_that_would_not_run_with_files_that_nobody_changed_makes_a_run_invalid(tmp_path: Path) -> None:
    rows = [*acks(0.5), *every_copy([value(1, 0)])]
    end = {"copies": ["n0", "n1", "n2"], "unrecovered": ["n1"]}
    (a_run(tmp_path, rows, [window(1, 2)]) / "end.json").write_text(json.dumps(end))
    assert judge(tmp_path)["reasons"] == ["unrecovered: 1"]


def test_who_makes_a_majority_is_told_of_the_members_there_were() -> None:
    newcomers = ("n5", "n6", "n7")
    gone = replace(window(2, 3), down=("n5", "n6"), members=newcomers)
    slots = np.array([50, 150, 750], dtype=np.int64)
    assert availability(slots, [gone], 8, 3)["seconds_with_majority"] == 3


def test_availability_counts_the_seconds_in_which_a_majority_was_connected() -> None:
    slots = np.array([50, 150, 750], dtype=np.int64)
    told = availability(slots, [window(2, 3, majority=False)], 8, 5)
    assert (told["seconds_with_majority"], told["seconds_with_acks"]) == (3, 3)


def test_a_fault_beside_one_that_left_no_majority_is_not_held_to_availability() -> None:
    slots = np.array([150, 750], dtype=np.int64)
    kept, lost = window(2.1, 3), replace(window(2, 3, majority=False), fault="kill-majority")
    told = availability(slots, [lost, kept], 8)
    assert told["unavailability_s"]["bridge@2s"] == 5.4
    assert told["longest_unavailability_s"] == 0


def test_the_longest_time_without_acknowledgements_is_told_for_each_fault() -> None:
    slots = np.array([100, 350, 360, 700], dtype=np.int64)
    told = availability(slots, [window(1, 4)], 8)
    assert told["unavailability_s"] == {"bridge@1s": 3.4}
    assert told["longest_unavailability_s"] == 3.4


async def test_who_led_is_told_from_the_begin_on_not_from_when_the_nodes_were_first_asked(tmp_path: Path) -> None:
    clock_ns = iter([SECOND_NS, 2 * SECOND_NS, 0, 3 * SECOND_NS])
    probe = Probe({}, tmp_path / "probe.jsonl", lambda: next(clock_ns))
    probe.seen["n0"] = Seen()
    probe.note("n0", Seen("follower", 0))
    probe.note("n0", Seen("leader", 1))
    probe.begin()
    probe.note("n0", Seen("follower", 2))
    await probe.close()
    told = read_roles(tmp_path / "probe.jsonl")["n0"]
    assert [bar[:3] for bar in bars_of(told, 4)] == [(0, 3, "leader"), (3, 4, "follower")]
