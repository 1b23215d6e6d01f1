"""What is not said to be good counts as bad, so that a judge that breaks down never looks like one that is content."""

from __future__ import annotations

import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from tests.conformance import tools
from tests.conformance.api import judges
from tests.conformance.h2spec import case_in
from tests.conformance.judging import Case, Unavailable, case_of, run


def failures(cases: list[Case]) -> dict[str, str]:
    return {case.name: case.failure for case in cases if case.failure}


async def said(*lines: str) -> dict[str, str]:
    """The failures among a program's checks that writes these lines."""
    program = [sys.executable, "-c", "import sys; print('\\n'.join(sys.argv[1:]))", *lines]
    return failures(await judges.judged("x", program))


async def test_a_program_that_calls_every_check_good_has_no_failure() -> None:
    assert not await said(*[f"ok {name}" for name in judges.CHECKS])


async def test_a_check_that_a_program_says_nothing_of_has_failed() -> None:
    found = await said(*[f"ok {name}" for name in judges.CHECKS[1:]])
    assert list(found) == [f"x, {judges.CHECKS[0]}"]


async def test_a_failure_is_told_in_the_programs_words() -> None:
    found = await said(*[f"ok {name}" for name in judges.CHECKS[1:]], f"failed {judges.CHECKS[0]}: it is: so")
    assert found == {f"x, {judges.CHECKS[0]}": "it is: so"}


async def test_a_program_that_takes_too_long_is_killed() -> None:
    ended = await run([sys.executable, "-c", "import signal; signal.pause()"], within_s=0.2)
    assert ended.code == -9


async def test_a_check_of_our_own_fails_with_what_it_raises() -> None:
    async def check() -> None:
        raise ValueError("so it is")

    assert (await case_of("x", check())).failure == "ValueError: so it is"


@pytest.mark.parametrize(
    ("inside", "is_failed", "is_skipped"),
    [
        ("", False, False),
        ("<failure>why</failure>", True, False),
        ("<error/>", True, False),
        ("<skipped/>", False, True),
    ],
)
def test_a_case_of_h2spec_is_good_bad_or_skipped(inside: str, *, is_failed: bool, is_skipped: bool) -> None:
    case = case_in("", ET.fromstring(f'<testcase package="http2/4.2" classname="a frame">{inside}</testcase>'))
    assert (bool(case.failure), bool(case.skipped)) == (is_failed, is_skipped)


async def test_a_tool_that_cannot_be_had_is_no_success(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools, "CACHE", tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Unavailable):
        await tools.go_tool("example.org/no/such/tool")
