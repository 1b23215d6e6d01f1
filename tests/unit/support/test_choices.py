"""An empty choice of what to prove is a mistake."""

from __future__ import annotations

import subprocess
import sys
from argparse import ArgumentTypeError
from pathlib import Path

import pytest

from tests.support.choices import positive, span, writable
from tests.support.sources import ROOT

USAGE_ERROR = 2


def test_a_span_of_seeds_ends_before_its_end() -> None:
    assert span("5:7") == range(5, 7)


@pytest.mark.parametrize("text", ["5", "", ":", "a:b", "-1:3"])
def test_what_is_no_span_of_seeds_is_refused(text: str) -> None:
    with pytest.raises(ArgumentTypeError, match="not FIRST:END"):
        span(text)


@pytest.mark.parametrize("text", ["0:0", "5:5", "7:5"])
def test_a_span_without_a_seed_is_refused(text: str) -> None:
    with pytest.raises(ArgumentTypeError, match=f"none in '{text}': END is not included"):
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
    ("arguments", "why"),
    [
        ("simulation --seeds 5", "'5' is not FIRST:END"),
        ("simulation --seeds -3:-1", "nothing here is below zero"),
        ("simulation --seed 1 --seeds 0:2", "--seeds: not allowed with argument --seed"),
        ("simulation --of-commit 0", "'0' is not a number of one and more"),
        ("simulation --of-commit 1 --seeds 0:2", "--seeds: not allowed with argument --of-commit"),
        ("simulation --until-failure 5:5", "END is not included"),
        ("simulation --mutants nosuch", "there is no planted bug nosuch"),
        ("simulation --mutants --max-seeds 0", "'0' is not a number of one and more"),
        ("simulation --summary /nosuch/summary.json", "cannot be written"),
        ("liveness --graph 1024", "there is no graph 1024"),
        ("liveness --graph 64 --directed", "there is no graph 64"),
        ("liveness --directed", "say which with --graph"),
        ("fuzz --count 0", "'0' is not a number of one and more"),
        ("fuzz --of-commit --seed 1", "--seed: not allowed with argument --of-commit"),
        ("fuzz --summary /nosuch/summary.json", "cannot be written"),
        ("corruption --summary /nosuch/summary.json", "cannot be written"),
        ("crashes nosuch", "there is no scenario nosuch"),
        ("proof nosuch", "there is no family nosuch"),
    ],
)
def test_a_command_that_is_to_prove_nothing_or_keep_it_nowhere_says_so(arguments: str, why: str) -> None:
    command = [sys.executable, "-m", *f"tests.{arguments}".split()]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == USAGE_ERROR
    (said,) = [line for line in done.stderr.splitlines() if "error: " in line]
    assert why in said
    assert "Traceback" not in done.stderr
