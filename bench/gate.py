"""Whether we are still as near to the machine's limits as we were: ratios within one run, each of two bests.

A noisy machine makes a measurement worse and never better, ours and the limit's. So a figure is the best of ours over
the best of the limit, of at most ``ROUNDS`` rounds, and the gate ends as soon as every figure is good. Most of them are
processor time: neighbours disturb rates more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import click

from bench.h2load import WORK as UNARY
from bench.limits import EMPTY_GRPC, FSYNC, PING_PONG, THREE_COPIES
from bench.machine import data_folder
from bench.peers.dledger_python import DLedgerPython
from bench.report import table
from bench.unary import measure
from bench.work import BULK, SINGLE_WORKS, MeasurementFailed, Outcome

ROUNDS = 5
LIMIT_S = 1.0
WORK_S = 1.5

ONE, _, MANY = SINGLE_WORKS
Round = dict[str, Outcome]


Cost = Callable[[Round], float]
"""What one round took of something: less is better."""


@dataclass(frozen=True, slots=True)
class Figure:
    """``ours`` over ``limit``. ``most``: what it may be; it stands above what a quiet machine gives, ``usual``, by what
    a noisy one adds."""

    name: str
    ours: Cost
    limit: Cost
    usual: float
    most: float

    def of(self, rounds: Sequence[Round]) -> float:
        return min(map(self.ours, rounds)) / min(map(self.limit, rounds))


def _core_s(name: str) -> Cost:
    """Seconds of processor time a record, servers and client."""
    return lambda measured: (measured[name].server_core_s + measured[name].client_core_s) / measured[name].records


def _seconds(name: str) -> Cost:
    return lambda measured: 1 / measured[name].records_per_s


def _one_append(measured: Round) -> float:
    return measured[ONE.name].p50_ms


def _one_sync(measured: Round) -> float:
    """What one append cannot do without: an fdatasync, and two hops there and back, to the leader and to a follower."""
    return measured[FSYNC.name].p50_ms + 2 * measured[PING_PONG.name].p50_ms


FIGURES = (
    Figure("1 in flight: p50 / (fdatasync + 2 ping-pongs)", _one_append, _one_sync, usual=3.5, most=7),
    Figure(
        "256 in flight: core-seconds a record / a call of an empty gRPC service",
        _core_s(MANY.name),
        _core_s(EMPTY_GRPC.name),
        usual=0.05,
        most=0.12,
    ),
    Figure(
        "bulk: core-seconds a record / those of three synced copies",
        _core_s(BULK),
        _core_s(THREE_COPIES.name),
        usual=4,
        most=6.5,
    ),
    Figure("bulk: rate of three synced copies / ours", _seconds(BULK), _seconds(THREE_COPIES.name), usual=4.1, most=7),
    Figure(
        "unary gRPC: core-seconds a call / those of an empty service",
        _core_s(UNARY),
        _core_s(EMPTY_GRPC.name),
        usual=1.4,
        most=2.8,
    ),
)


@click.command()
def gate() -> None:
    """Fails when dledger has become slower, measured against the limits of the machine in the same run."""
    rounds: list[Round] = []
    bad = list(FIGURES)
    failed = 0
    while bad and len(rounds) + failed < ROUNDS:
        if rounds:
            names = ", ".join(figure.name.partition(":")[0] for figure in bad)
            click.echo(f"round {len(rounds)} of {ROUNDS}: not good yet: {names}", err=True)
        try:
            rounds.append(_round())
        except MeasurementFailed as failure:
            failed += 1
            click.echo(f"a round is none: {failure}", err=True)
            continue
        bad = [figure for figure in FIGURES if figure.of(rounds) > figure.most]
    if not rounds:
        raise MeasurementFailed("no round could be measured")
    rows = [(each.name, f"{each.of(rounds):.2f}", f"{each.usual:g}", f"{each.most:g}") for each in FIGURES]
    click.echo(table(("figure", "best", "usual", "at most"), rows))
    for figure in bad:
        click.echo(f"slower than it was: {figure.name}", err=True)
    raise click.exceptions.Exit(1 if bad else 0)


def _round() -> Round:
    measured: Round = {}
    ours = DLedgerPython()
    with data_folder() as data:
        for limit in (FSYNC, PING_PONG, THREE_COPIES, EMPTY_GRPC):
            measured[limit.name] = limit.measure(data, LIMIT_S)
        try:
            ours.install()
            ours.start(data)
            for work in (ONE, MANY, ours.bulk):
                measured[work.name] = ours.load(work, WORK_S)
            measured[UNARY] = measure(ours, UNARY, LIMIT_S)
        finally:
            ours.stop()
    if failed := sum(outcome.errors for outcome in measured.values()):
        raise MeasurementFailed(f"{failed} calls failed")
    return measured
