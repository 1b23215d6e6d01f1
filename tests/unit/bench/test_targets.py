"""What is to be reached stands beside what the results say, and a figure that nobody measured meets no target."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import pytest

from bench.report import Spread
from bench.results import RESULTS
from bench.targets import FILE, TARGETS, Target, as_markdown

AWAITED = {"store", "store-size"}
"""Scenarios that nobody has run on a quiet machine so far. The table says "not measured" of their targets."""


def target(bound: float, *, at_most: bool = False) -> Target:
    return Target("speed", "some", bound, " MB/s", lambda result: result["speed"], at_most=at_most)


@pytest.mark.parametrize(
    ("speed", "at_most", "is_met"),
    [
        (10, False, True),
        (9.99, False, False),
        (11, False, True),
        (10, True, True),
        (10.01, True, False),
        (9, True, True),
    ],
)
def test_a_target_is_met_at_its_bound_and_on_its_good_side(speed: float, at_most: bool, is_met: bool) -> None:
    assert target(10, at_most=at_most).row({"speed": speed})[-1] == ("yes" if is_met else "**no**")


def test_of_rounds_the_median_counts_and_the_range_is_told() -> None:
    assert target(10).row({"speed": Spread(11, 7, 1234)}) == ("speed", "at least 10 MB/s", "11 MB/s (7 – 1,234)", "yes")


@pytest.mark.parametrize("result", [{}, {"speed": None}, {"speed": "missing"}])
@pytest.mark.parametrize("at_most", [False, True])
def test_what_was_not_measured_is_not_met(result: dict[str, Any], at_most: bool) -> None:
    assert target(10, at_most=at_most).row(result)[2:] == ("not measured", "**no**")


def test_a_cost_that_rises_somewhere_is_not_flat(tmp_path: Path) -> None:
    rows = [{"append_core_us": cost} for cost in (1.0, 3.0, 1.0)]
    (tmp_path / "growth-1.json").write_text(json.dumps({"rows": rows}))
    line = next(
        line for line in as_markdown(tmp_path).splitlines() if line.startswith("| an append's cost from 1 MB to 20")
    )
    assert "3 × | **no**" in line


def test_a_damaged_result_is_told_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "idle.json").write_text('{"cores_per')
    with pytest.raises(click.ClickException, match=r"idle.json is damaged"):
        as_markdown(tmp_path)


def test_gets_count_where_the_log_is_largest(tmp_path: Path) -> None:
    (tmp_path / "growth-1.json").write_text(json.dumps({"rows": [{"get_per_s": 70_000}, {"get_per_s": 16_258}]}))
    [line] = [line for line in as_markdown(tmp_path).splitlines() if line.startswith("| the same of 20 GB")]
    assert "16,258 /s | **no**" in line


def test_each_row_says_when_its_result_was_measured_and_of_which_program(tmp_path: Path) -> None:
    machine = {"started": "2026-11-24 10:00:00 +0000", "program": "0123456789ab+01020304"}
    (tmp_path / "idle.json").write_text(json.dumps({"machine": machine, "cores_percent": 3}))
    lines = as_markdown(tmp_path).splitlines()
    assert [line.split(" | ")[-1] for line in lines if "five idle nodes" in line] == ["2026-11-24, 01234567+ |"]
    assert [line.split(" | ")[-1] for line in lines if "the longest of them" in line] == ["– |"]


def test_what_was_not_warm_is_said_to_be() -> None:
    assert target(10).row({"speed": Spread(11, 7, 12, is_steady=False)})[2] == "11 MB/s (7 – 12) · not steady"


def test_the_published_table_is_what_the_published_results_say() -> None:
    assert (RESULTS / FILE).read_text() == as_markdown(RESULTS)


def test_every_target_has_a_scenario_that_is_published() -> None:
    missing = {each.scenario for each in TARGETS if not (RESULTS / f"{each.scenario}.md").exists()}
    assert missing <= AWAITED
