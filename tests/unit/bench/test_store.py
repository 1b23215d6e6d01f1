"""What the benchmarks of the store make of what they measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from bench.h2load import _check_answers
from bench.store import restarts, works
from bench.store.beside import as_markdown, store
from bench.store.checkpoints import Checkpoints, Span
from bench.store.loading import Window, share_during
from bench.store.report import ETCD, OURS, sdk_times, times
from bench.store.size import FIGURES, PARTS, as_rows, figure, store_size
from bench.store.works import ONE_PUT, OWN_PUTS_256, PUTS_64, PUTS_256, WORKS, StoreWork
from bench.targets import TARGETS
from bench.work import MeasurementFailed

MACHINE = dict.fromkeys(("cores", "processor", "kernel", "file_system", "python", "program", "started"), 1)


def sample(number: int, system: str, work: StoreWork, rate: float, p50_ms: float = 1.0) -> dict[str, Any]:
    return {
        "round": number,
        "system": system,
        "work": work.name,
        "records": 100,
        "records_per_s": rate,
        "p50_ms": p50_ms,
        "server_core_s": 0.01,
        "largest_server_mb": 50.0,
    }


def result(*samples: dict[str, Any]) -> dict[str, Any]:
    return {"samples": list(samples)}


def test_a_ratio_is_of_one_round() -> None:
    found = times(PUTS_64)(
        result(
            *(sample(number, OURS, PUTS_64, rate) for number, rate in enumerate((100, 400, 900))),
            *(sample(number, ETCD, PUTS_64, rate) for number, rate in enumerate((100, 200, 300))),
        )
    )
    assert (found.middle, found.low, found.high) == (2, 1, 3)


def test_with_one_put_in_flight_the_latency_counts() -> None:
    found = times(ONE_PUT)(result(sample(0, OURS, ONE_PUT, 10, p50_ms=2), sample(0, ETCD, ONE_PUT, 99, p50_ms=4)))
    assert found.middle == 2


@pytest.mark.parametrize(("by_c", "by_go", "expected"), [(100, 50, 3), (50, 100, 3), (100, None, 3)])
def test_the_sdk_stands_beside_the_best_of_etcds_clients(by_c: float, by_go: float | None, expected: float) -> None:
    theirs = [sample(0, ETCD, PUTS_256, by_c)]
    theirs += [sample(0, ETCD, OWN_PUTS_256, by_go)] if by_go else []
    assert sdk_times(result(sample(0, OURS, OWN_PUTS_256, 300), *theirs)).middle == expected


def test_where_a_side_is_missing_there_is_no_ratio() -> None:
    with pytest.raises(LookupError):
        times(PUTS_64)(result(sample(0, OURS, PUTS_64, 1), sample(1, ETCD, PUTS_64, 1)))


def test_a_report_has_a_row_a_work_and_tells_what_failed() -> None:
    systems = {name: {"title": name, "version": "1", "client": "some"} for name in (OURS, ETCD)}
    about = {"machine": {**MACHINE, "load_before": 0.0}, "plan": {"rounds": 1, "duration_s": 1}, "systems": systems}
    told = as_markdown({**about, **result(sample(0, OURS, PUTS_64, 1)), "failures": ["etcd was lost"]})
    assert all(f"| {work.name} |" in told for work in WORKS)
    assert "- etcd was lost" in told


def test_gets_are_refused_as_a_measurement_if_answers_had_no_value() -> None:
    said = "traffic: 4.38MB (4592410) total, 2.1MB (2200000) headers (space savings 1%), 1.3MB (1360000) data"
    _check_answers(said, 10_000, works.VALUE_BYTES)
    with pytest.raises(MeasurementFailed, match="20000 answers"):
        _check_answers(said, 20_000, works.VALUE_BYTES)


def test_checkpoints_are_found_in_the_nodes_logs(tmp_path: Path) -> None:
    at = "2026-11-28T10:04:{}Z info  dledger.statemachine.keeper: a checkpoint {} group={}"
    lines = {
        "n0": [
            at.format("41.000", "begins", "meta"),
            at.format("42.500", "is complete", "meta") + " checkpoint=7",
            at.format("43.000", "begins", "other"),
        ],
        "n1": [at.format("50.000", "begins", "meta"), at.format("51.000", "was not completed", "meta") + " why=lost"],
    }
    for name, said in lines.items():
        (tmp_path / name).write_text("\n".join(said))
    checkpoints = Checkpoints([tmp_path / name for name in lines])
    first, second = checkpoints.spans()
    assert (first.ended_s - first.began_s, first.is_complete, second.is_complete) == (1.5, True, False)
    assert checkpoints.has("begins", second.began_s)
    assert not checkpoints.has("begins", second.ended_s)


def test_a_checkpoint_is_compared_with_the_puts_around_it() -> None:
    windows = [Window(at, at + 1, 50 if 10 <= at < 12 else 5 if at >= 13 else 100, 0, 0) for at in range(8, 20)]
    span, next_one = Span(10, 12, is_complete=True), Span(13, 20, is_complete=True)
    assert share_during(span, windows, [span, next_one]) == 0.5
    assert share_during(span, windows[2:4], [span]) is None


def test_a_restart_waits_for_a_checkpoint_that_began_behind_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restarts, "LONGEST_LOAD_S", 0)
    with pytest.raises(MeasurementFailed, match="no checkpoint"):
        restarts._next_checkpoint(None, None, 0.0, lambda _: None)  # type: ignore[arg-type]


def test_only_what_was_measured_is_told() -> None:
    measured = {"filled": {"keys": 7, "state_mb": 1.5, "memory": {"now_mb": [1.0, 2.0], "most_mb": [1.0, 2.0]}}}
    rows = as_rows(measured)
    assert [row["figure"] for row in rows] == ["7", "1.5 MB", "1.0 / 2.0 MB", "1.0 / 2.0 MB"]
    with pytest.raises(LookupError):
        figure(measured, "puts", "elections")


def test_every_part_has_a_figure_and_every_target_of_it_is_one() -> None:
    assert {path[0] for _, path, _ in FIGURES} == {"filled", *PARTS}
    assert sum(each.scenario == "store-size" for each in TARGETS) == 9


@pytest.mark.parametrize(
    ("command", "flags"),
    [(store, "--rounds 0"), (store, "--duration 0"), (store_size, "--keys 0"), (store_size, "--parts nothing")],
)
def test_what_cannot_be_measured_is_a_wrong_flag(command: Any, flags: str) -> None:
    assert CliRunner().invoke(command, flags.split()).exit_code == 2
