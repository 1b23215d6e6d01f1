"""Child processes of a benchmark: they are heard in time, and none is left behind."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from bench.processes import Child, end_all, free_ports, serves_grpc, wait_for, wait_until
from bench.work import MeasurementFailed


def child(folder: Path, program: str, name: str = "child") -> Child:
    """Its log is not its stdout: ``program`` may talk."""
    return Child([sys.executable, "-c", program], folder / f"{name}.log", talks=True)


def test_lines_are_heard_one_at_a_time_however_they_arrive(tmp_path: Path) -> None:
    talker = child(
        tmp_path,
        "import sys, time\n"
        "for piece in ('one\\ntw', 'o\\n'):\n"
        "    sys.stdout.write(piece); sys.stdout.flush(); time.sleep(0.1)\n",
    )
    assert [talker.hear(), talker.hear()] == ["one", "two"]
    talker.end()


def test_silence_is_a_failure_in_time(tmp_path: Path) -> None:
    silent = child(tmp_path, "input()")
    with pytest.raises(MeasurementFailed, match=r"child did not answer within 0 s"):
        silent.hear(timeout_s=0.2)
    silent.end()


def test_one_that_has_ended_is_a_failure_with_its_last_words(tmp_path: Path) -> None:
    ended = child(tmp_path, "import sys; sys.exit('no disk')")
    with pytest.raises(MeasurementFailed, match="child ended: no disk"):
        ended.hear()
    ended.end()


def test_one_that_was_told_in_vain_is_ended_nevertheless(tmp_path: Path) -> None:
    ended = child(tmp_path, "pass")
    ended.process.wait()
    with pytest.raises(MeasurementFailed):
        ended.tell("role")
    ended.end()
    assert ended.process.stdin is not None
    assert ended.process.stdin.closed


def test_all_are_ended_where_one_raises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, third = (child(tmp_path, "input()", name) for name in "abc")

    def refuse() -> None:
        raise OSError("not this one")

    with monkeypatch.context() as patched:
        patched.setattr(second, "end", refuse)
        with pytest.raises(OSError, match="not this one"):
            end_all([first, second, third])
    assert first.process.returncode is not None
    assert third.process.returncode is not None
    second.end()


def test_ports_are_none_that_a_connection_may_be_given() -> None:
    ports = free_ports(20)
    assert len(set(ports)) == 20
    assert all(10_000 <= port < 32_000 for port in ports)


def test_a_port_that_answers_nothing_serves_no_grpc() -> None:
    (port,) = free_ports(1)
    assert not serves_grpc(port)


def test_what_is_waited_for_is_what_was_found() -> None:
    found = iter([None, None, 7])
    assert wait_for(lambda: next(found), "a number") == 7


def test_waiting_ends_in_time() -> None:
    with pytest.raises(MeasurementFailed, match="the sky falls: not within"):
        wait_until(lambda: False, "the sky falls", timeout_s=0.1)


def test_waiting_ends_with_a_child(tmp_path: Path) -> None:
    ended = child(tmp_path, "import sys; sys.exit('no disk')")
    ended.process.wait()
    with pytest.raises(MeasurementFailed, match="no disk"):
        wait_until(lambda: False, "the sky falls", children=[ended])
    ended.end()
