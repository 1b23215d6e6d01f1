"""The two big stories, told small."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest


def run(*arguments: str) -> tuple[dict[str, Any], str]:
    done = subprocess.run(
        [sys.executable, "-m", *arguments], capture_output=True, text=True, timeout=100, check=False
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1]), done.stderr


@pytest.mark.timeout(120)
def test_the_demo_kills_the_leader_half_way_and_loses_nothing(tmp_path: Path) -> None:
    source = tmp_path / "lines"
    source.write_bytes(b"".join(b"line %d\n\n" % number for number in range(20_000)) + b"the last one has no newline")
    result, story = run("dledger", "demo", "--nodes", "3", "--file", str(source), "-o", "json")
    assert result["records"] == 40_001
    assert (result["lost"], result["duplicated"], result["out_of_order"]) == (0, 0, 0)
    events = ["kill -9 of the leader", "after the kill", "is started again", "n0 holds", "n1 holds", "n2 holds"]
    places = [story.index(event) for event in events]
    assert places == sorted(places)


@pytest.mark.timeout(120)
def test_a_short_soak_loses_nothing() -> None:
    result, story = run("tests.soak", "--minutes", "0.1", "--kill-every", "2", "--nodes", "3", "--rate", "500")
    assert result["ok"] is True
    assert result["acknowledged"] > 1_000
    assert result["lost"] == result["duplicated"] == result["out_of_order"] == result["foreign"] == 0
    assert story.count("kill -9") >= 2
