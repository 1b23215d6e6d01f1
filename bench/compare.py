"""Every system does the same work in turn, round after round; what each measurement gave is kept as it comes.

A run that was interrupted goes on where it was: its samples lie in ``.bench/run.jsonl``, a line each, behind a line
that says what the run is. One turn is one system in one round: it starts, warms up, does every work, and ends.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import click

from bench.limits import LIMITS
from bench.peers import PEERS
from bench.peers.api import BUILT, Peer
from bench.unary import unary
from bench.work import SINGLE_WORKS, MeasurementFailed, Outcome, PeerMissing

RUN_FILE = BUILT / "run.jsonl"
LIMITS_TURN = "limits"


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run is. Another plan is another run."""

    rounds: int
    duration_s: float
    peers: tuple[str, ...]


@dataclass(slots=True)
class Run:
    """A run's samples so far. ``about`` is what is said of each system; ``missing`` says why one is not there."""

    plan: Plan
    machine: dict[str, Any]
    about: dict[str, dict[str, Any]] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    samples: list[dict[str, Any]] = field(default_factory=list)
    turns: set[tuple[int, str]] = field(default_factory=set)

    def as_dict(self) -> dict[str, Any]:
        return {
            "plan": asdict(self.plan),
            "machine": self.machine,
            "systems": self.about,
            "missing": self.missing,
            "samples": self.samples,
        }


def compare(plan: Plan, *, fresh: bool) -> Run:
    """Does what is left of the run."""
    peers, about, missing = _installed(plan)
    run = Run(plan, _machine(), about, missing)
    if fresh:
        RUN_FILE.unlink(missing_ok=True)
    _resume(run)
    for number in range(plan.rounds):
        for name in (LIMITS_TURN, *peers):
            if (number, name) in run.turns:
                continue
            click.echo(f"round {number + 1} of {plan.rounds}: {name}", err=True)
            _turn(run, number, name, peers.get(name))
    RUN_FILE.unlink(missing_ok=True)
    return run


def _installed(plan: Plan) -> tuple[dict[str, Peer], dict[str, dict[str, Any]], dict[str, str]]:
    peers: dict[str, Peer] = {}
    about: dict[str, dict[str, Any]] = {}
    missing: dict[str, str] = {}
    for name in plan.peers:
        peer = PEERS[name]()
        try:
            version = peer.install()
        except PeerMissing as reason:
            click.echo(f"{name} is missing: {reason}", err=True)
            missing[name] = str(reason)
            continue
        peers[name] = peer
        said = {"title": peer.title, "client": peer.client, "promise": peer.promise, "syncs": peer.syncs}
        about[name] = {**said, "bulk": peer.bulk_note, "version": version}
    return peers, about, missing


def _turn(run: Run, number: int, name: str, peer: Peer | None) -> None:
    """A system that fails is told of, and the others go on; its turn is done again when the run is resumed."""
    lines: list[dict[str, Any]] = []
    with data_folder() as data:
        measurements = _limits(data, run.plan.duration_s) if peer is None else _works(peer, data, run.plan.duration_s)
        try:
            for work, measure in measurements:
                try:
                    outcome = measure()
                except PeerMissing as reason:
                    run.missing[work] = str(reason)
                    continue
                lines.append({"round": number, "system": name, "work": work, **outcome.as_dict()})
                click.echo(f"  {work}: {outcome.records_per_s:,.0f}/s  p50 {outcome.p50_ms:.2f} ms", err=True)
        except MeasurementFailed as failure:
            click.echo(f"  {name} failed: {failure}", err=True)
            lines.append({"round": number, "system": name, "failure": str(failure)})
        finally:
            if peer is not None:
                peer.stop()
    run.samples += lines
    run.turns.add((number, name))
    _keep(run, lines)


Measurements = Iterator[tuple[str, Callable[[], Outcome]]]


def _limits(data: Path, duration_s: float) -> Measurements:
    for limit in LIMITS:
        yield limit.name, lambda limit=limit: limit.measure(data, duration_s)  # type: ignore[misc]


def _works(peer: Peer, data: Path, duration_s: float) -> Measurements:
    peer.start(data)
    peer.warm_up()
    works = [*SINGLE_WORKS, *([peer.bulk] if peer.bulk else [])]
    for work in works:
        yield work.name, lambda work=work: peer.load(work, duration_s)  # type: ignore[misc]
    yield from unary(peer, duration_s)


@contextmanager
def data_folder() -> Iterator[Path]:
    """A folder for one turn's data, removed behind it. TMPDIR says where; it should be a disk."""
    path = Path(tempfile.mkdtemp(prefix="dledger-bench-"))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def _machine() -> dict[str, Any]:
    models = {
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    }
    return {
        "cores": os.cpu_count(),
        "processor": ", ".join(sorted(models)),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "started": time.strftime("%Y-%m-%d %H:%M:%S %z"),
        "load_before": os.getloadavg()[0],
    }


def _keep(run: Run, lines: list[dict[str, Any]]) -> None:
    RUN_FILE.parent.mkdir(exist_ok=True)
    with RUN_FILE.open("a") as kept:
        if not kept.tell():
            kept.write(json.dumps({"plan": asdict(run.plan), "machine": run.machine}) + "\n")
        kept.writelines(json.dumps(line) + "\n" for line in lines)


def _resume(run: Run) -> None:
    """Takes what an interrupted run of the same plan has measured; a run of another plan is given up."""
    if not RUN_FILE.exists():
        return
    head, *lines = map(json.loads, RUN_FILE.read_text().splitlines())
    if head["plan"] != json.loads(json.dumps(asdict(run.plan))):
        click.echo("an interrupted run had another plan: it is given up", err=True)
        RUN_FILE.unlink()
        return
    run.machine = head["machine"]
    failed = {(line["round"], line["system"]) for line in lines if "failure" in line}
    run.samples = [line for line in lines if (line["round"], line["system"]) not in failed]
    run.turns = {(line["round"], line["system"]) for line in run.samples}
    click.echo(f"going on with the run of {run.machine['started']}: {len(run.turns)} turns are done", err=True)
