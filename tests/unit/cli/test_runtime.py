"""How a command ends: one line, one code."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest

from dledger.cli.runtime import exit_code_of, run
from dledger.common.errors import CODES, Code, error


def raising(failure: BaseException) -> int:
    def command() -> None:
        raise failure

    return exit_code_of(command)


@pytest.mark.parametrize("code", list(Code))
def test_a_typed_error_is_one_line_and_its_own_code(code: Code, capsys: pytest.CaptureFixture[str]) -> None:
    assert raising(error(code, "what is wrong:\nwhat to do")) == CODES[code].exit_code
    assert capsys.readouterr().err == "dledger: what is wrong: what to do\n"


def test_ctrl_c_is_130_without_a_word(capsys: pytest.CaptureFixture[str]) -> None:
    assert raising(KeyboardInterrupt()) == 130
    assert capsys.readouterr().err == ""


def test_a_file_that_is_not_there_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert raising(FileNotFoundError(2, "No such file or directory", "x.toml")) == 2
    assert capsys.readouterr().err == "dledger: x.toml: No such file or directory\n"


def test_a_bug_is_told_in_full(capsys: pytest.CaptureFixture[str]) -> None:
    assert raising(ZeroDivisionError("oh")) == 5
    assert "Traceback" in capsys.readouterr().err


def test_the_first_failure_of_a_task_group_is_the_commands() -> None:
    async def command() -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(fail())

    async def fail() -> None:
        raise error(Code.DISK_FULL, "full")

    assert exit_code_of(lambda: run(command())) == 5


def test_a_reader_that_has_had_enough_is_no_failure() -> None:
    program = (
        "import sys\nfrom dledger.cli.runtime import exit_code_of\n"
        "def command():\n    while True: print('line' * 1000)\n"
        "sys.exit(exit_code_of(command))"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(10) == 0
