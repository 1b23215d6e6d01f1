"""The one interface behind which every system is measured, ours too."""

from __future__ import annotations

import os
import shutil
import subprocess
from abc import ABC, abstractmethod
from dataclasses import replace
from pathlib import Path

import click

from bench.driver import MOST_WINDOWS, WINDOW_S, Driver
from bench.machine import ROOT
from bench.processes import Child, end_all, largest_mb
from bench.work import SINGLE_WORKS, Outcome, PeerMissing, Work

BENCH = Path(__file__).parent.parent
BUILT = ROOT / ".bench"
"""What is built and fetched for the peers. Nothing of it is committed."""
BUILD_WITHIN_S = 900.0


class Peer(ABC):
    """Three nodes of one system, and the client that loads them. install → (start → load … → stop) …"""

    name: str
    """As ``--peers`` takes it."""
    title: str
    client: str
    """What loads it."""
    promise: str
    """What an acknowledgement says."""
    syncs: bool
    """Whether a majority has synced the record to its disks before it is acknowledged."""
    bulk: Work | None
    """Its own best way for many records, if it has one."""
    bulk_note = ""
    warmup_s = 1.0
    """Before each measurement."""
    just_in_time = False
    """Whether it is compiled while it runs. Behind each start each work is then done until its rate is steady, once."""

    def __init__(self) -> None:
        self.servers: list[Child] = []
        self._clients: list[Child] = []
        self._drivers: dict[str, Driver] = {}
        """By the name of the work; "" is for all that have none of their own."""
        self._warm: dict[Work, bool] = {}
        """What was warmed up, and whether its rate became steady."""

    @abstractmethod
    def install(self) -> str:
        """Makes it ready to be started; returns its version. Raises PeerMissing."""

    @abstractmethod
    def start(self, data: Path) -> None:
        """Three nodes with their data in ``data``, and the client. Raises MeasurementFailed."""

    def load(self, work: Work, duration_s: float) -> Outcome:
        """Does the work. Raises MeasurementFailed."""
        driver = self._driver_for(work)
        self._warm_up(driver, work)
        outcome = driver.measure(work, warmup_s=self.warmup_s, duration_s=duration_s)
        return replace(outcome, is_steady=self._warm.get(work, True))

    def warm_up(self) -> None:
        """Called once behind ``start``. Where most is in flight most is compiled: the first work finds it done."""
        work = SINGLE_WORKS[-1]
        self._warm_up(self._driver_for(work), work)

    def _warm_up(self, driver: Driver, work: Work) -> None:
        if not self.just_in_time or work in self._warm:
            return
        self._warm[work] = driver.warm_up(work)
        if not self._warm[work]:
            click.echo(f"  {work.name}: not steady within {MOST_WINDOWS * WINDOW_S:.0f} s of warming up", err=True)

    def _driver_for(self, work: Work) -> Driver:
        """What gives the work to the system. Raises MeasurementFailed."""
        assert self._drivers, "start() comes first"
        return self._drivers.get(work.name, self._drivers[""])

    def largest_server_mb(self) -> float:
        """What the server that has the most memory has of it."""
        return largest_mb(self.servers)

    def stop(self) -> None:
        """Ends every process; does no harm when nothing runs."""
        clients = [client for client in self._clients if client not in self.servers]
        children = [*clients, *self.servers]
        self.servers, self._clients, self._drivers = [], [], {}
        self._warm.clear()
        end_all(children)

    def _driven_by(self, client: Child, work_name: str = "") -> None:
        """``client`` gives the work of that name; without one all that has no other client."""
        self._clients.append(client)
        self._drivers[work_name] = Driver(client, self.servers)


def require(program: str, package: str) -> str:
    """The program's path. Raises PeerMissing."""
    found = shutil.which(program, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
    if found is None:
        raise PeerMissing(f"{program} is not installed (Debian, Ubuntu: apt install {package})")
    return found


def build(command: list[str], folder: Path, what: str, timeout_s: float = BUILD_WITHIN_S) -> None:
    """Runs a build tool in ``folder``. Raises PeerMissing with what it said last."""
    try:
        ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=timeout_s, check=False)
    except subprocess.TimeoutExpired:
        raise PeerMissing(f"{what} was not built within {timeout_s:.0f} s") from None
    if ended.returncode:
        said = [line for line in (ended.stdout + ended.stderr).splitlines() if line.strip()]
        raise PeerMissing(f"{what} could not be built: {said[-1] if said else f'exit code {ended.returncode}'}")


def version_of(command: list[str]) -> str:
    """The first line that it prints. Raises PeerMissing."""
    try:
        ended = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30)
    except (OSError, subprocess.SubprocessError) as failure:
        raise PeerMissing(f"{command[0]} does not tell its version: {failure}") from failure
    return (ended.stdout or ended.stderr).splitlines()[0].strip()
