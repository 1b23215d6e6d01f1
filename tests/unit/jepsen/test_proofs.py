"""What a fault takes for the proof that it bit."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from signal import Signals
from types import SimpleNamespace
from typing import Any

import pytest

from jepsen.hosts.api import Ability, Host
from jepsen.nemesis.api import World
from jepsen.nemesis.clocks import LIBRARY, runs_on_fake_time
from jepsen.nemesis.processes import RollingRestart
from jepsen.nemesis.storage import PAGE, ensure_runs, rot
from jepsen.run import settle

Start = Callable[[dict[str, str]], int]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts a process with more in its environment, which runs until the test's end."""
    running: list[subprocess.Popen[bytes]] = []

    def started(environment: dict[str, str]) -> int:
        command = [sys.executable, "-c", "import sys; print(flush=True); sys.stdin.read()"]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        process = subprocess.Popen(command, env=os.environ | environment, **pipes)  # type: ignore[call-overload]
        running.append(process)
        process.stdout.readline()
        return int(process.pid)

    yield started
    for process in running:
        process.communicate()


def test_a_clock_drifts_only_where_the_library_is_really_loaded(start: Start) -> None:
    told = {"FAKETIME": "+0 x1.1"}
    assert not runs_on_fake_time(start(told | {"LD_PRELOAD": "/nowhere/libfaketime.so.1"}))
    assert not runs_on_fake_time(None)


@pytest.mark.skipif(not LIBRARY.exists(), reason="libfaketime is needed")
def test_a_clock_drifts_with_the_library(start: Start) -> None:
    assert runs_on_fake_time(start({"FAKETIME": "+0 x1.1", "LD_PRELOAD": str(LIBRARY)}))
    assert not runs_on_fake_time(start({"LD_PRELOAD": str(LIBRARY)}))


@pytest.mark.parametrize("seed", range(10))
def test_bytes_rot_in_a_segment_that_holds_some_never_in_one_made_ahead(tmp_path: Path, seed: int) -> None:
    group = tmp_path / "groups" / "default"
    group.mkdir(parents=True)
    before = bytes(PAGE) + b"x" * 3 * PAGE
    (group / "1.log").write_bytes(before)
    for ahead in ("2.log", "3.log"):
        (group / ahead).write_bytes(b"head" + bytes(4 * PAGE))
    world: Any = SimpleNamespace(chance=Random(seed))
    assert len(rot(tmp_path, world)) == 1
    after = (group / "1.log").read_bytes()
    assert sum(one != other for one, other in zip(before, after, strict=True)) == 16


class LeavingHosts:
    """All nodes run; whoever is restarted first is the only member then."""

    def __init__(self) -> None:
        self.members = ["n0", "n1", "n2"]
        self.started: list[str] = []

    @property
    def all(self) -> tuple[Host, ...]:
        return tuple(Host(name, "") for name in self.members)

    def pid(self, host: str) -> int | None:
        return 1

    async def signal(self, host: str, number: Signals) -> None: ...

    async def ended(self, host: str, within_s: float) -> int | None:
        return 0

    async def start(self, host: str) -> int:
        self.started.append(host)
        self.members = [host]
        return 2


async def test_a_rolling_restart_passes_over_who_was_removed_meanwhile() -> None:
    hosts: Any = LeavingHosts()
    observer: Any = SimpleNamespace(wait_for_caught_up=lambda *_: asyncio.sleep(0))
    nothing: Any = None
    world = World(hosts, nothing, observer, nothing, nothing, Random(0), nothing)
    fault = RollingRestart()
    await fault.begin(world)
    proof = await fault.end(world)
    assert (proof.bit, len(hosts.started)) == (True, 1)


class CrashingHosts:
    """One node, which ends at every start as long as it has files."""

    abilities = frozenset({Ability.FILES})
    all = (Host("n0", ""),)

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        (data_dir / "file").touch()
        self.starts = 0

    def data_dir(self, host: str) -> Path:
        return self._data_dir

    def pid(self, host: str) -> int | None:
        return None if self._data_dir.exists() or not self.starts else 1

    async def ended(self, host: str, within_s: float) -> int | None:
        return 1

    async def start(self, host: str) -> int:
        self.starts += 1
        return 1


@pytest.mark.parametrize(("rotten", "unrecovered"), [(set(), ["n0"]), ({"n0"}, [])])
async def test_a_node_that_ends_again_had_rotten_files_or_did_not_recover(
    tmp_path: Path, rotten: set[str], unrecovered: list[str]
) -> None:
    async def never(*_: object) -> bool:
        await asyncio.Event().wait()
        return False

    async def done(*_: object, **__: object) -> None: ...

    hosts: Any = CrashingHosts(tmp_path)
    observer: Any = SimpleNamespace(wait_for_caught_up=never)
    admin: Any = SimpleNamespace(readmit=done, promote=done)
    nothing: Any = None
    world = World(hosts, nothing, observer, admin, admin, Random(0), nothing, rotten=rotten)
    assert await ensure_runs(world, "n0") == "its directory was wiped, and it was re-admitted"
    assert (world.unrecovered, world.rotten) == (unrecovered, set())


@pytest.mark.parametrize(
    ("runs", "rotten", "unrecovered"), [(True, set(), []), (False, set(), ["n0"]), (False, {"n0"}, [])]
)
async def test_who_does_not_run_when_all_faults_are_over_has_ended_by_itself(
    tmp_path: Path, runs: bool, rotten: set[str], unrecovered: list[str]
) -> None:
    class HostsAtTheEnd(CrashingHosts):
        def pid(self, host: str) -> int | None:
            return 1 if runs or self.starts else None

        async def ended(self, host: str, within_s: float) -> int | None:
            if within_s:
                await asyncio.Event().wait()
            return None

    async def yes(*_: object) -> bool:
        return True

    hosts: Any = HostsAtTheEnd(tmp_path)
    observer: Any = SimpleNamespace(wait_for_caught_up=yes, wait_for_leader=yes)
    nothing: Any = None
    world = World(hosts, nothing, observer, nothing, nothing, Random(0), nothing, rotten=rotten)
    await settle(world)
    assert world.unrecovered == unrecovered
