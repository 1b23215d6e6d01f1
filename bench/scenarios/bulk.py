"""Bulk for as long as one likes: every byte is kept, and no file is written twice."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

import click

from bench.limits.three_copies import Kept, three_copies
from bench.machine import check_space, data_folder, measure_alone
from bench.peers import PEERS
from bench.peers.api import Peer
from bench.results import UNPUBLISHED, save, show
from bench.scenarios.cluster import cluster
from bench.scenarios.flags import ROUNDS, SECONDS, names_in
from bench.scenarios.rounds import combined
from bench.work import MeasurementFailed, Outcome, PeerMissing

OURS, COPIES = "dledger", "copies"
SUMMARY = "ours: median, others: best"
"""The last row."""
MISSING, FAILED = "missing", "failed"
WRITES_GB_A_S, COPIES_WRITE_GB_A_S = 1.2, 2.2
"""All three nodes, on a fast machine."""

Row = dict[str, Any]
Turn = Callable[[], Row]


@click.command()
@click.option("--rounds", default=3, show_default=True, type=ROUNDS)
@click.option(
    "--duration",
    default=30.0,
    show_default=True,
    type=SECONDS,
    help="Seconds of each; up to 2 GB are written in one, and removed.",
)
@click.option("--peers", default="kafka", show_default=True, help="Beside them, comma-separated; '' for none.")
def bulk(*, rounds: int, duration: float, peers: str) -> None:
    """Records a second of 128 B in batches, in turns with three synced copies that are kept as well, and with peers.

    Another one begins each round: what comes behind another finds the disk as that one left it. The last row has the
    median of our rounds beside the best of each other's, and the shares of these.
    """
    measure_alone()
    names = names_in(peers)
    turns: dict[str, Turn] = {OURS: lambda: _ours(duration), COPIES: lambda: _copies(duration)}
    missing: dict[str, str] = {}
    for name in names:
        try:
            turns[name] = partial(_peer, _installed(name), duration)
        except PeerMissing as reason:
            click.echo(f"{name} is missing: {reason}", err=True)
            turns[name] = partial(_without_rate, name, MISSING)
            missing[name] = str(reason)
    check_space(COPIES_WRITE_GB_A_S * duration)
    rows = []
    for number in range(rounds):
        rows.append(_round(number, turns))
        show(rows[-1:])
    table = [*rows, _summary(rows, names)]
    promises = {name: PEERS[name].promise for name in names}
    result = {"rows": table, "duration_s": duration, "promises": promises, "missing": missing}
    failed = [name for row in rows for name in turns if row[_rate(name)] == FAILED]
    save("bulk", result, table, folder=UNPUBLISHED if failed else None, is_whole=not missing)
    if failed:
        raise MeasurementFailed(f"{len(failed)} measurements failed: of {', '.join(sorted(set(failed)))}")


def _installed(name: str) -> Peer:
    """Raises UsageError and PeerMissing."""
    able = [each for each, peer in PEERS.items() if each != OURS and peer.bulk is not None]
    if name not in able:
        raise click.UsageError(f"there is no peer {name!r} with a bulk of its own: there are {', '.join(able)}")
    peer = PEERS[name]()
    peer.install()
    return peer


def _round(number: int, turns: dict[str, Turn]) -> Row:
    names = list(turns)
    first = number % len(names)
    measured = {}
    for name in [*names[first:], *names[:first]]:
        click.echo(f"round {number + 1}: {name}", err=True)
        measured[name] = turns[name]()
    row: Row = {"round": number + 1, "first": names[first]}
    for name in names:
        row |= measured[name]
        if name != OURS:
            row[_beside(name)] = _share(row, name)
    return row


def _share(row: Row, name: str) -> float | str:
    """Our rate as a share of the other's; what stands there in place of a rate."""
    theirs = row[_rate(name)]
    return theirs if isinstance(theirs, str) else round(row[_rate(OURS)] / theirs, 2)


def _rate(name: str) -> str:
    return "records_per_s" if name == OURS else f"{name}_records_per_s"


def _beside(name: str) -> str:
    return "share_of_copies" if name == COPIES else f"times_{name}"


def _summary(rows: list[Row], peers: list[str]) -> Row:
    row, best = combined(rows, SUMMARY, median), combined(rows, "", max)
    for name in (COPIES, *peers):
        row[_rate(name)] = best[_rate(name)]
        row[_beside(name)] = _share(row, name)
    return row


def _ours(duration_s: float) -> Row:
    work = PEERS[OURS].bulk
    assert work is not None
    with cluster(3, needed_gb=WRITES_GB_A_S * duration_s) as running:
        term = running.term()
        result = running.bench("append", inflight=work.inflight, batch=work.batch, duration=duration_s)
        written_bytes, peak_mb, elections = running.data_bytes, running.peak_mb(), running.elections_since(term)
    return {
        _rate(OURS): round(result["records_per_s"]),
        "mb_per_s": result["mb_per_s"],
        "p99_ms": result["p99_ms"],
        "each_node_keeps_gb": round(written_bytes / 1e9, 1),
        "largest_node_mb": round(peak_mb),
        "elections": elections,
    }


def _copies(duration_s: float) -> Row:
    def outcome() -> Outcome:
        with data_folder(COPIES_WRITE_GB_A_S * duration_s) as data:
            return three_copies(data, duration_s, Kept)

    return _measured(COPIES, outcome)


def _peer(peer: Peer, duration_s: float) -> Row:
    def outcome() -> Outcome:
        assert peer.bulk is not None
        with data_folder(WRITES_GB_A_S * duration_s) as data:
            try:
                peer.start(data)
                return peer.load(peer.bulk, duration_s).without_errors()
            finally:
                peer.stop()

    return _measured(peer.name, outcome)


def _measured(name: str, measure: Callable[[], Outcome]) -> Row:
    """One that fails is told of, and the others go on."""
    try:
        outcome = measure()
    except MeasurementFailed as failure:
        click.echo(f"{name} failed: {failure}", err=True)
        return _without_rate(name, FAILED)
    return {_rate(name): round(outcome.records_per_s)}


def _without_rate(name: str, why: str) -> Row:
    return {_rate(name): why}
