"""What the peers' adapters refuse, and when those that are compiled while they run are warmed up."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.driver import MOST_WINDOWS, WINDOW_S, Driver
from bench.peers import go, java
from bench.peers.api import Peer
from bench.peers.dledger_java import DLedgerJava
from bench.peers.pysyncobj import PySyncObj
from bench.work import SINGLE_WORKS, MeasurementFailed, Outcome, PeerMissing, Work

ONE, SOME, MANY = SINGLE_WORKS


class Noted(Driver):
    """Notes what it is asked for, in order."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Work]] = []

    def warm_up(self, work: Work) -> bool:
        self.asked.append(("warm", work))
        return work != SOME

    def measure(self, work: Work, *, warmup_s: float, duration_s: float) -> Outcome:
        self.asked.append(("measure", work))
        return Outcome(1, 0, duration_s, 1.0, 2.0, 0.0, 0.0)


class Compiled(Peer):
    """With nothing behind it."""

    name = "compiled"
    just_in_time = True

    def install(self) -> str:
        return "1"

    def start(self, data: Path) -> None:
        self.noted = Noted()
        self._drivers = {"": self.noted}


class Interpreted(Compiled):
    just_in_time = False


def program(folder: Path, name: str, script: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def test_each_work_is_warmed_up_once_behind_each_start(tmp_path: Path) -> None:
    peer = Compiled()
    for _ in range(2):
        peer.start(tmp_path)
        peer.warm_up()
        for work in (ONE, MANY, ONE):
            peer.load(work, 1.0)
        assert peer.noted.asked == [
            ("warm", MANY),
            ("warm", ONE),
            ("measure", ONE),
            ("measure", MANY),
            ("measure", ONE),
        ]
        peer.stop()


def test_a_work_that_does_not_become_steady_is_measured_and_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    peer = Compiled()
    peer.start(tmp_path)
    peer.load(SOME, 1.0)
    assert peer.noted.asked[-1] == ("measure", SOME)
    assert f"64 in flight: not steady within {MOST_WINDOWS * WINDOW_S:.0f} s" in capsys.readouterr().err


def test_what_did_not_become_steady_is_told_with_what_was_measured(tmp_path: Path) -> None:
    peer = Compiled()
    peer.start(tmp_path)
    assert not peer.load(SOME, 1.0).is_steady
    assert peer.load(ONE, 1.0).is_steady


def test_a_work_may_have_a_client_of_its_own(tmp_path: Path) -> None:
    peer = Interpreted()
    peer.start(tmp_path)
    own = peer._drivers[MANY.name] = Noted()
    for work in (ONE, MANY):
        peer.load(work, 1.0)
    assert (peer.noted.asked, own.asked) == ([("measure", ONE)], [("measure", MANY)])


def test_what_is_not_compiled_while_it_runs_is_measured_at_once(tmp_path: Path) -> None:
    peer = Interpreted()
    peer.start(tmp_path)
    peer.warm_up()
    peer.load(ONE, 1.0)
    assert peer.noted.asked == [("measure", ONE)]


def test_pysyncobj_is_started_anew_in_the_mode_that_a_work_wants(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[str] = []

    def start(peer: PySyncObj, mode: str) -> None:
        started.append(mode)
        peer._mode, peer._drivers = mode, {"": Noted()}

    monkeypatch.setattr(PySyncObj, "_start_in", start)
    peer = PySyncObj()
    peer.start(Path())
    peer.warm_up()
    for work in (ONE, SOME, MANY, PySyncObj.bulk):
        peer.load(work, 1.0)
    assert started == ["batching", "at-once", "batching", "bulk"]


def test_dledgers_batches_need_a_leader() -> None:
    with pytest.raises(MeasurementFailed, match="no leader"):
        DLedgerJava().load(DLedgerJava.bulk, 1.0)


@pytest.mark.parametrize("said", ["go1.19.8", "go1.23.12", ""])
def test_an_old_go_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str) -> None:
    program(tmp_path, "go", f"echo '{said}'")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(PeerMissing, match=rf"Go 1\.24 or newer is needed, and .* is {said or 'none'} "):
        go.build_go("nats")


def test_a_newer_go_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path, "go", 'test "$1" = build || echo go1.100.1')
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert go.build_go("nats").name == "nats"


def test_jars_of_another_version_leave_the_class_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("javac", "mvn"):
        program(tmp_path, name, "exit 0")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(java, "JAVA", tmp_path / "java")
    old = tmp_path / "java" / "kafka" / "lib" / "kafka_2.13-3.9.1.jar"
    old.parent.mkdir(parents=True)
    old.touch()
    assert java.build_java("kafka").endswith("/kafka/lib/*")
    assert not old.exists()


def test_a_compiler_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.peers.api.shutil.which", lambda *_, **__: None)
    with pytest.raises(PeerMissing, match=r"javac is not installed .*openjdk-17-jdk-headless"):
        java.build_java("kafka")
