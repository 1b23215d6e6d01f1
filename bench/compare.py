"""Every system does the same work in turn, round after round; what each measurement gave is kept as it comes.

A run that was interrupted goes on where it was: its samples lie in a file under ``.bench/runs``, a line each, behind a
line that says what the run is, and of which machine and program; a run of another one is given up. One turn is one
system in one round: it starts, warms up, does every work, and ends. Each round begins with another system.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any

import click

from bench.limits import LIMITS, LIMITS_TURN
from bench.machine import (
    check_data_folder,
    data_folder,
    describe,
    measure_alone,
    now,
    require_same_program,
    wait_quiet,
)
from bench.peers import PEERS
from bench.peers.api import BUILT, Peer
from bench.results import replace
from bench.unary import unary
from bench.work import SINGLE_WORKS, MeasurementFailed, Outcome, PeerMissing

RUNS = BUILT / "runs"
ROUNDS, DURATION_S = 3, 3.0
PASSING = ("started", "load_before", "busy_before")
"""What is said of a machine and may be another when a run goes on."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run is. Another plan is another run."""

    rounds: int
    duration_s: float
    peers: tuple[str, ...]

    @property
    def is_whole(self) -> bool:
        """Whether it says enough to be published, if nothing is missing."""
        return self.rounds >= ROUNDS and self.duration_s >= DURATION_S and set(self.peers) == set(PEERS)

    @property
    def file(self) -> Path:
        name = blake2b(json.dumps(asdict(self)).encode(), digest_size=6).hexdigest()
        return RUNS / f"{name}.jsonl"

    def order(self, number: int, turns: Sequence[str]) -> Sequence[str]:
        """Who comes when in round ``number``: another begins each, and every second one goes the other way round, so
        that nobody always follows the same one."""
        first = number * len(turns) // self.rounds
        order = [*turns[first:], *turns[:first]]
        return [order[0], *reversed(order[1:])] if number % 2 else order


@dataclass(slots=True)
class Run:
    """A run's samples so far. ``about`` is what is said of each system; ``missing`` says why one is not there."""

    plan: Plan
    machine: dict[str, Any]
    about: dict[str, dict[str, Any]] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    samples: list[dict[str, Any]] = field(default_factory=list)
    turns: set[tuple[int, str]] = field(default_factory=set)

    @property
    def failures(self) -> list[dict[str, Any]]:
        """Of turns that gave nothing, or not all."""
        return [sample for sample in self.samples if _has_failed(sample)]

    @property
    def is_whole(self) -> bool:
        """Whether it is to be published."""
        return self.plan.is_whole and not self.missing and not self.failures

    def as_dict(self) -> dict[str, Any]:
        return {
            "plan": asdict(self.plan),
            "machine": self.machine,
            "systems": self.about,
            "missing": self.missing,
            "samples": self.samples,
        }


def compare(plan: Plan, *, fresh: bool) -> Run:
    """Does what is left of the run, whose samples are kept until ``finished``. Raises MeasurementFailed."""
    measure_alone()
    check_data_folder()
    peers, about, missing = _installed(plan)
    busy = wait_quiet() if plan.is_whole else None  # builds leave their servers and their writing behind
    machine = {**describe(), "started": now(), "load_before": os.getloadavg()[0], "busy_before": busy}
    run = Run(plan, machine, about, missing)
    if fresh:
        finished(plan)
    _resume(run)
    for number in range(plan.rounds):
        for name in plan.order(number, [LIMITS_TURN, *peers]):
            if (number, name) in run.turns:
                continue
            require_same_program()
            click.echo(f"round {number + 1} of {plan.rounds}: {name}", err=True)
            _turn(run, number, name, peers.get(name))
    return run


def finished(plan: Plan) -> None:
    """The run's samples need not be kept."""
    plan.file.unlink(missing_ok=True)


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
    missing: dict[str, str] = {}
    try:
        with data_folder() as data, _ended(peer):
            for work, measure in _measurements(peer, data, run.plan.duration_s):
                try:
                    outcome = measure()
                except PeerMissing as reason:
                    missing[work] = str(reason)
                    continue
                line = {"round": number, "system": name, "work": work, **outcome.as_dict()}
                lines.append(line if peer is None else {**line, "largest_server_mb": peer.largest_server_mb()})
                click.echo(f"  {work}: {outcome.records_per_s:,.0f}/s  p50 {outcome.p50_ms:.2f} ms", err=True)
            for line in lines:
                if line["errors"]:
                    raise MeasurementFailed(f"{line['errors']} calls failed in {line['work']} (see {data}/client.log)")
    except Exception as failure:  # noqa: BLE001  # whatever it is: the other systems' samples are worth minutes
        said = str(failure) if isinstance(failure, MeasurementFailed) else _in_full(failure)
        click.echo(f"  {name} failed: {said}", err=True)
        lines.append({"round": number, "system": name, "failure": said})
    run.samples += lines
    run.missing |= missing
    run.turns.add((number, name))
    lines += [{"round": number, "system": name, "work": work, "missing": missing[work]} for work in missing]
    _keep(run, lines)


def _in_full(failure: Exception) -> str:
    return "; ".join([repr(failure), *getattr(failure, "__notes__", ())])


@contextmanager
def _ended(peer: Peer | None) -> Iterator[None]:
    """Behind the block nothing of it runs."""
    try:
        yield
    finally:
        if peer is not None:
            peer.stop()


Measurements = Iterator[tuple[str, Callable[[], Outcome]]]


def _measurements(peer: Peer | None, data: Path, duration_s: float) -> Measurements:
    return _limits(data, duration_s) if peer is None else _works(peer, data, duration_s)


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


def _keep(run: Run, lines: list[dict[str, Any]]) -> None:
    RUNS.mkdir(parents=True, exist_ok=True)
    with run.plan.file.open("a") as kept:
        if not kept.tell():
            kept.write(json.dumps({"machine": run.machine, "systems": run.about}) + "\n")
        kept.writelines(json.dumps(line) + "\n" for line in lines)


def _resume(run: Run) -> None:
    """Takes what an interrupted run of the same plan has measured; one of another machine or program is given up."""
    kept = _kept(run.plan.file)
    if not kept:
        finished(run.plan)
        return
    head, *lines = kept
    before, present = _conditions(head), _conditions(run.as_dict())
    if changed := sorted(key for key in before | present if before.get(key) != present.get(key)):
        click.echo(f"an interrupted run is given up: of another {', '.join(changed)}", err=True)
        finished(run.plan)
        return
    run.machine = head["machine"]
    failed = {_turn_of(line) for line in lines if _has_failed(line) or "missing" in line}  # it may be there now
    good = [line for line in lines if _turn_of(line) not in failed]
    # Else what failed once would cost the turn's later try, too, when the run is resumed again.
    replace(run.plan.file, "".join(json.dumps(line) + "\n" for line in (head, *good)))
    run.turns = {_turn_of(line) for line in good}
    run.samples = good
    click.echo(f"going on with the run of {run.machine['started']}: {len(run.turns)} turns are done", err=True)


def _turn_of(line: dict[str, Any]) -> tuple[int, str]:
    return line["round"], line["system"]


def _has_failed(line: dict[str, Any]) -> bool:
    return "failure" in line or bool(line.get("errors"))


def _conditions(run: dict[str, Any]) -> dict[str, Any]:
    """What may not change within a run."""
    machine = {key: value for key, value in run["machine"].items() if key not in PASSING}
    return machine | {name: about["version"] for name, about in run["systems"].items()}


def _kept(path: Path) -> list[dict[str, Any]]:
    """The lines; one that was being written when the run ended is none."""
    if not path.exists():
        return []
    text = path.read_text()
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]
