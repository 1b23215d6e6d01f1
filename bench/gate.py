"""Whether we are still as near to the machine's limits as we were: ratios within one run, the best of several rounds.

A noisy machine makes a round worse and never better. So each figure needs one good round of at most ``ROUNDS``, and
the gate ends as soon as every figure has had one. Most of them are processor time: neighbours disturb rates more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import click

from bench.compare import data_folder
from bench.h2load import WORK as UNARY
from bench.limits import EMPTY_GRPC, FSYNC, PING_PONG, THREE_COPIES, Limit
from bench.peers.dledger_python import DLedgerPython
from bench.report import table
from bench.unary import unary
from bench.work import BULK, SINGLE_WORKS, Outcome

ROUNDS = 5
LIMIT_S = 1.0
WORK_S = 1.5

ONE, _, MANY = SINGLE_WORKS
Round = dict[str, Outcome]


@dataclass(frozen=True, slots=True)
class Figure:
    """``most``: what it may be. It stands well above what a quiet machine gives, which is ``usual``."""

    name: str
    of: Callable[[Round], float]
    usual: float
    most: float


def _core_s(outcome: Outcome) -> float:
    return (outcome.server_core_s + outcome.client_core_s) / outcome.records


def _cost(work: str, limit: Limit) -> Callable[[Round], float]:
    return lambda measured: _core_s(measured[work]) / _core_s(measured[limit.name])


def _latency(measured: Round) -> float:
    """One append is an fdatasync, and two hops there and back: client to leader, leader to follower."""
    return measured[ONE.name].p50_ms / (measured[FSYNC.name].p50_ms + 2 * measured[PING_PONG.name].p50_ms)


def _slowness(measured: Round) -> float:
    return measured[THREE_COPIES.name].records_per_s / measured[BULK].records_per_s


FIGURES = (
    Figure("1 in flight: p50 / (fdatasync + 2 ping-pongs)", _latency, usual=6.5, most=12),
    Figure(
        "256 in flight: core-seconds a record / a call of an empty gRPC service",
        _cost(MANY.name, EMPTY_GRPC),
        0.05,
        0.15,
    ),
    Figure("bulk: core-seconds a record / those of three synced copies", _cost(BULK, THREE_COPIES), 6.5, 13),
    Figure("bulk: rate of three synced copies / ours", _slowness, 5, 12),
    Figure("unary gRPC: core-seconds a call / those of an empty service", _cost(UNARY, EMPTY_GRPC), 2, 4),
)


@click.command()
def gate() -> None:
    """Fails when dledger has become slower, measured against the limits of the machine in the same run."""
    best: dict[str, float] = {}
    for number in range(ROUNDS):
        measured = _round()
        for figure in FIGURES:
            value = figure.of(measured)
            best[figure.name] = min(value, best.get(figure.name, value))
        if all(best[figure.name] <= figure.most for figure in FIGURES):
            break
        click.echo(f"round {number + 1} of {ROUNDS}: not every figure has had a good round", err=True)
    rows = [(each.name, f"{best[each.name]:.2f}", f"{each.usual:g}", f"{each.most:g}") for each in FIGURES]
    click.echo(table(("figure", "best", "usual", "at most"), rows))
    bad = [figure.name for figure in FIGURES if best[figure.name] > figure.most]
    for name in bad:
        click.echo(f"slower than it was: {name}", err=True)
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
            measured.update((name, measure()) for name, measure in unary(ours, LIMIT_S))
        finally:
            ours.stop()
    return measured
