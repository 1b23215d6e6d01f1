"""An empty choice of what to prove is a mistake."""

from __future__ import annotations

import subprocess
import sys
from argparse import ArgumentTypeError
from pathlib import Path

import pytest

from tests.support.choices import positive, span, writable
from tests.support.fingerprint import ROOT

USAGE_ERROR = 2


def test_a_span_of_seeds_ends_before_its_end() -> None:
    assert span("5:7") == range(5, 7)


@pytest.mark.parametrize("text", ["5", "5:5", "7:5", "", ":", "a:b", "-1:3"])
def test_a_span_without_a_seed_is_refused(text: str) -> None:
    with pytest.raises(ArgumentTypeError, match="FIRST below END"):
        span(text)


@pytest.mark.parametrize("text", ["0", "-1", "", "many"])
def test_a_count_of_nothing_is_refused(text: str) -> None:
    with pytest.raises(ArgumentTypeError):
        positive(text)


def test_a_file_that_is_to_be_written_is_left_as_it_is(tmp_path: Path) -> None:
    new, old = tmp_path / "new", tmp_path / "old"
    old.write_text("kept")
    assert (writable(str(new)), writable(str(old))) == (new, old)
    assert (new.exists(), old.read_text()) == (False, "kept")


def test_a_file_that_cannot_be_written_is_refused_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ArgumentTypeError, match="cannot be written: Is a directory"):
        writable(str(tmp_path))
    with pytest.raises(ArgumentTypeError, match="cannot be written: No such file or directory"):
        writable(str(tmp_path / "nosuch" / "file"))


@pytest.mark.parametrize(
    "arguments",
    [
        "simulation --seeds 5",
        "simulation --until-failure 5:5",
        "simulation --mutants nosuch",
        "simulation --mutants --max-seeds 0",
        "liveness --graph 1024",
        "liveness --graph 64 --directed",
        "fuzz --count 0",
        "simulation --summary /nosuch/summary.json",
        "corruption --summary /nosuch/summary.json",
        "fuzz --summary /nosuch/summary.json",
        "fuzz --results /nosuch/results.jsonl",
        "liveness --results /nosuch/results.jsonl",
        "crashes nosuch",
        "proof nosuch",
    ],
)
def test_a_command_that_is_to_prove_nothing_or_keep_it_nowhere_says_so(arguments: str) -> None:
    command = [sys.executable, "-m", *f"tests.{arguments}".split()]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == USAGE_ERROR
    assert "error: " in done.stderr
    assert "Traceback" not in done.stderr
