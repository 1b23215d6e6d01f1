"""Standard streams that are closed, full, or read by somebody who has had enough."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
WITH_A_FAKE_LOG = """
import sys
from dledger.cli import main, options
from tests.unit.cli.fake_log import FakeLog
options.Target.connect = lambda *_, **__: FakeLog([b"line" * 100] * 5_000)
main.main(sys.argv[1:])
"""


def shell(command: str) -> subprocess.CompletedProcess[str]:
    """``command`` in bash, with ``dledger`` in front of a log in memory."""
    program = shlex.join([sys.executable, "-c", WITH_A_FAKE_LOG])
    script = f'set -o pipefail; dledger() {{ {program} "$@"; }}; {command}'
    return subprocess.run(["bash", "-c", script], cwd=ROOT, capture_output=True, text=True, check=False, timeout=30)


@pytest.mark.parametrize("command", ["append -d x", "get 0:", "status", "--version"])
def test_a_closed_stdout_is_said_before_anything_is_done(command: str) -> None:
    done = shell(f"dledger {command} >&-")
    assert done.returncode == 2
    assert done.stderr.startswith("dledger: stdout is closed, nothing was done: ")
    assert done.stderr.count("\n") == 1


def test_a_closed_stdin_is_not_taken_for_an_empty_one() -> None:
    done = shell("dledger append <&-")
    assert done.returncode == 2
    assert done.stderr == "dledger: stdin is closed: give the records there, with --file or with -d\n"


def test_what_needs_no_stdin_does_without() -> None:
    assert shell("dledger append -d x <&-").returncode == 0


def test_a_closed_stderr_changes_nothing_else() -> None:
    assert shell("dledger get 0:1 2>&-").stdout == "line" * 100 + "\n"
    assert shell("dledger get 99999 2>&-").returncode == 5


def test_all_three_may_be_closed() -> None:
    assert shell("dledger append <&- >&- 2>&-").returncode == 2


@pytest.mark.parametrize("command", ["get 0:", "get 0: -o json", "tail -n 5000"])
def test_a_reader_that_has_had_enough_is_no_failure(command: str) -> None:
    done = shell(f"dledger {command} | head -1")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("output", ["json", "text"])
def test_an_append_that_cannot_tell_of_it_says_that_the_records_are_appended(output: str) -> None:
    done = shell(f"dledger append -d x -o {output} >/dev/full")
    assert done.returncode == 6
    expected = "dledger: records appended: 1, 5000 to 5000; but stdout cannot be written: No space left on device\n"
    assert done.stderr == expected


@pytest.mark.parametrize(
    "command", ["get 0:", "tail -o json", "status", "health", "admin preferred", "--version", "-h"]
)
def test_output_that_cannot_be_written_is_an_error_of_its_own(command: str) -> None:
    done = shell(f"dledger {command} >/dev/full")
    assert done.returncode == 6
    assert done.stderr.startswith("dledger: stdout cannot be written: No space left on device; ")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(("command", "code"), [("get 99999", 5), ("get", 2), ("get 0:1", 0), ("append -d x", 0)])
def test_a_full_stderr_does_not_change_the_exit_code(command: str, code: int) -> None:
    assert shell(f"dledger {command} 2>/dev/full").returncode == code
