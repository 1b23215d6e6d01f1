"""What dledger is to reach, beside what the published results say that it does.

A target is met when the figure that is reached is as good as its bound: the median where there are rounds, the worst of
all rows where a bound is for all of them. ``bench/results/targets.md`` is made from the other results, never by hand.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from bench.h2load import MANY_WORK as UNARY_MANY
from bench.h2load import WORK as UNARY
from bench.limits import EMPTY_GRPC
from bench.peers import OURS
from bench.report import NONE, ONE, Figures, Spread, table
from bench.results import RESULTS, replace
from bench.scenarios.bulk import SUMMARY
from bench.store.report import sdk_times, times
from bench.store.size import figure
from bench.store.works import GETS_64, GETS_256, ONE_PUT, PUTS_64, PUTS_256
from bench.work import SINGLE_WORKS

MANY = SINGLE_WORKS[-1].name
FILE = "targets.md"
PROGRAM_DIGITS = 8

Result = dict[str, Any]
Reached = Callable[[Result], float | Spread]


@dataclass(frozen=True, slots=True)
class Target:
    """``reached`` is to be ``bound`` or more, with ``at_most`` or less. It is taken from the result of ``scenario``;
    raises LookupError, TypeError or ValueError where that does not say it."""

    what: str
    scenario: str
    bound: float
    unit: str
    reached: Reached
    at_most: bool = False

    def row(self, result: Result) -> tuple[str, str, str, str]:
        wanted = f"{'at most' if self.at_most else 'at least'} {_number(self.bound)}{self.unit}"
        try:
            found = self.reached(result)
            middle = found.middle if isinstance(found, Spread) else float(found)
        except (LookupError, TypeError, ValueError):
            return self.what, wanted, "not measured", "**no**"
        told = f"{_number(middle)}{self.unit}"
        if isinstance(found, Spread):
            told += f" ({_number(found.low)} – {_number(found.high)}){found.remark}"
        is_met = middle <= self.bound if self.at_most else middle >= self.bound
        return self.what, wanted, told, "yes" if is_met else "**no**"


def _ratio(system: str, work: str) -> Reached:
    return lambda result: _known(Figures(result).ratio(system, work))


def _sdk_beside_etcd_in_c(result: Result) -> Spread:
    """etcd's own client takes processor time that etcd lacks here."""
    return _known(Figures(result).ratio("etcd", UNARY_MANY, our_work=MANY))


def _known(spread: Spread | None) -> Spread:
    if spread is None:
        raise LookupError
    return spread


def _share_of_empty_service(result: Result) -> Spread:
    return _known(Figures(result).share(UNARY, EMPTY_GRPC.name))


def _most_memory(result: Result) -> float:
    return float(max(each["largest_server_mb"] for each in result["samples"] if each["system"] == OURS))


def _of_bulk(value: str, factor: float = 1) -> Reached:
    return _of_row("round", SUMMARY, value, factor)


def _of_row(key: str, name: str, value: str, factor: float = 1) -> Reached:
    """``value`` of the row whose ``key`` is ``name``."""
    return lambda result: _row(result, key, name)[value] * factor


def _row(result: Result, key: str, name: str) -> dict[str, Any]:
    rows: list[dict[str, Any]] = result["rows"]
    for row in rows:
        if row[key] == name:
            return row
    raise LookupError


def _last(key: str) -> Reached:
    return lambda result: float(result["rows"][-1][key])


def _rise(key: str) -> Reached:
    """How many times the least of a column its most is."""
    return lambda result: max(row[key] for row in result["rows"]) / min(row[key] for row in result["rows"])


def _most(*keys: str) -> Reached:
    return lambda result: max(row[key] for row in result["rows"] for key in keys)


def _fewer_with_five(result: Result) -> float:
    """By how many times the rate falls with five nodes, at most."""
    return float(max(row["three_per_s"] / row["five_per_s"] for row in result["rows"]))


def _of_size(*path: str) -> Reached:
    """The figure of ``store-size``; of several nodes that of the worst."""

    def found(result: Result) -> float:
        value = figure(result, *path)
        return float(max(value) if isinstance(value, list) else value)

    return found


FLAT = 1.5
"""What costs no more than so many times its least counts as flat."""

TARGETS = (
    Target("256 in flight, beside etcd", "compare", 10, " ×", _ratio("etcd", MANY)),
    Target("the same, etcd loaded by a client in C", "compare", 10, " ×", _sdk_beside_etcd_in_c),
    Target("256 in flight, beside DLedger (Java)", "compare", 15, " ×", _ratio("dledger-java", MANY)),
    Target(
        "256 in flight, beside NATS JetStream (nats.go), which syncs nothing",
        "compare",
        2.5,
        " ×",
        _ratio("nats", MANY),
    ),
    Target("the same, as we would like it", "compare", 3, " ×", _ratio("nats", MANY)),
    Target("1 in flight: etcd's p50 over ours", "compare", 1, " ×", _ratio("etcd", ONE)),
    Target("unary gRPC from a C client, of an empty grpc.aio service", "compare", 80, " %", _share_of_empty_service),
    Target("memory of a node under these loads", "compare", 300, " MB", _most_memory, at_most=True),
    Target("bulk for half a minute, records/s", "bulk", 2e6, "", _of_bulk("records_per_s")),
    Target("the same, of three synced copies", "bulk", 70, " %", _of_bulk("share_of_copies", 100)),
    Target("the same, beside Kafka", "bulk", 1, " ×", _of_bulk("times_kafka")),
    Target("memory of a node in bulk", "bulk", 300, " MB", _most("largest_node_mb"), at_most=True),
    Target("one reader's stream, records/s", "reads", 1e6, "", _of_row("work", "read", "records_per_s")),
    Target(
        "gets at random of a log that the page cache has come to hold, 256 in flight",
        "reads",
        4e4,
        " /s",
        _of_row("work", "get, 256 in flight", "records_per_s"),
    ),
    Target("the same of 20 GB, one node, most of it on the disk alone", "growth-1", 4e4, " /s", _last("get_per_s")),
    Target("the same of 5 GB, three nodes, half of it on the disk alone", "growth-3", 4e4, " /s", _last("get_per_s")),
    Target(
        "an append's cost from 1 MB to 20 GB, one node", "growth-1", FLAT, " ×", _rise("append_core_us"), at_most=True
    ),
    Target("a get's cost from 1 MB to 20 GB, one node", "growth-1", FLAT, " ×", _rise("get_core_us"), at_most=True),
    Target("the same, of records that were read before", "growth-1", FLAT, " ×", _rise("again_core_us"), at_most=True),
    Target(
        "start of 20 GB, also after kill -9", "growth-1", 1, " s", _most("start_s", "start_after_kill_s"), at_most=True
    ),
    Target("memory of a node meanwhile", "growth-1", 300, " MB", _most("memory_mb"), at_most=True),
    Target(
        "an append's cost from 1 MB to 5 GB, three nodes", "growth-3", FLAT, " ×", _rise("append_core_us"), at_most=True
    ),
    Target("a get's cost from 1 MB to 5 GB, three nodes", "growth-3", FLAT, " ×", _rise("get_core_us"), at_most=True),
    Target("the same, of records that were read before", "growth-3", FLAT, " ×", _rise("again_core_us"), at_most=True),
    Target("memory of a node meanwhile, of three", "growth-3", 300, " MB", _most("memory_mb"), at_most=True),
    Target("three nodes' rate over five nodes'", "members", 2, " ×", _fewer_with_five, at_most=True),
    Target(
        "the same of a record's processor time",
        "members",
        2,
        " ×",
        _most("cost_times"),
        at_most=True,
    ),
    Target(
        "a follower that was away catches up", "catchup", 200, " MB/s", _of_row("round", "median", "catch_up_mb_per_s")
    ),
    Target("appends meanwhile, of their rate before", "catchup", 70, " %", _of_row("round", "median", "share", 100)),
    Target("five idle nodes, of one core", "idle", 5, " %", lambda result: result["cores_percent"], at_most=True),
    Target("failover after kill -9, median of 50", "failover", 800, " ms", lambda r: r["median_ms"], at_most=True),
    Target("the longest of them", "failover", 1500, " ms", lambda result: result["worst_ms"], at_most=True),
    Target("elections by load alone", "failover", 0, "", lambda result: result["elections_by_load"], at_most=True),
    Target("the same, in bulk", "bulk", 0, "", _most("elections"), at_most=True),
    Target("the same, while a follower catches up", "catchup", 0, "", _most("elections"), at_most=True),
    Target(
        "memory of a node while a follower catches up", "catchup", 300, " MB", _most("largest_node_mb"), at_most=True
    ),
    Target("puts of the store by h2load, 64 streams, beside etcd", "store", 1.2, " ×", times(PUTS_64)),
    Target("the same, 256 streams", "store", 1.2, " ×", times(PUTS_256)),
    Target("1 put in flight: etcd's p50 over ours", "store", 1, " ×", times(ONE_PUT)),
    Target("linearizable gets by h2load, 64 streams, beside etcd", "store", 1, " ×", times(GETS_64)),
    Target("the same, 256 streams", "store", 1, " ×", times(GETS_256)),
    Target("the SDK's puts, 256 in flight, beside etcd's best", "store", 3, " ×", sdk_times),
    Target(
        "memory of a node with a million keys of 100 B",
        "store-size",
        1000,
        " MB",
        _of_size("filled", "memory", "most_mb"),
        at_most=True,
    ),
    Target(
        "its restart right after a checkpoint",
        "store-size",
        10,
        " s",
        _of_size("restart", "right_after_a_checkpoint", "applied_s"),
        at_most=True,
    ),
    Target(
        "its restart with the log at its longest",
        "store-size",
        30,
        " s",
        _of_size("restart", "log_at_its_longest", "applied_s"),
        at_most=True,
    ),
    Target(
        "puts lost while a checkpoint is written",
        "store-size",
        20,
        " %",
        _of_size("puts", "lost_percent"),
        at_most=True,
    ),
    Target("elections meanwhile", "store-size", 0, "", _of_size("puts", "elections"), at_most=True),
    Target(
        "the store's log beyond 128 MiB, over its state",
        "store-size",
        3,
        " ×",
        _of_size("puts", "most_times_state"),
        at_most=True,
    ),
    Target(
        "10,000 leases that expire together are gone within",
        "store-size",
        2,
        " s",
        _of_size("leases", "gone_s"),
        at_most=True,
    ),
    Target("watches of one node that all told of a put", "store-size", 10_000, "", _of_size("watches", "watches")),
    Target(
        "kill -9 of the store's leader to the next put, the longest",
        "store-size",
        1000,
        " ms",
        _of_size("failover", "worst_ms"),
        at_most=True,
    ),
)


def as_markdown(folder: Path) -> str:
    """The table, of the results in ``folder``."""
    read = {each.scenario: _load(folder / f"{each.scenario}.json") for each in TARGETS}
    rows = [
        (*each.row(read[each.scenario]), f"[{each.scenario}]({each.scenario}.md)", _of(read[each.scenario]))
        for each in TARGETS
    ]
    met = sum(row[3] == "yes" for row in rows)
    head = f"{met} of {len(rows)} are met. Medians of the rounds (lowest – highest).\n\n"
    return head + table(("", "target", "reached", "met", "result", "of"), rows)


def _of(result: Result) -> str:
    """When the result was measured, and the program that it is of."""
    machine = result.get("machine")
    if machine is None:
        return NONE
    when = machine.get("started") or machine["ended"]
    program = machine.get("program", NONE)
    changed = "+" if "+" in program else ""
    return f"{when.partition(' ')[0]}, {program[:PROGRAM_DIGITS]}{changed}"


def _load(path: Path) -> Result:
    try:
        return json.loads(path.read_text()) if path.exists() else {}
    except ValueError:
        raise click.ClickException(f"{path} is damaged: take it from the repository, or measure it again") from None


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


@click.command()
def targets() -> None:
    """What we are to reach, beside what the results in bench/results say."""
    text = as_markdown(RESULTS)
    click.echo(text)
    replace(RESULTS / FILE, text)
