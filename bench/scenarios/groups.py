"""Many groups that have nothing to do: what they cost, and whether one in bulk, or a node's death, disturbs them."""

from __future__ import annotations

import time
from pathlib import Path

import click

from bench.processes import core_seconds, resident_bytes, wait_until
from bench.results import save, show
from bench.scenarios.cluster import Cluster, cluster
from bench.scenarios.flags import SECONDS
from dledger.client import BlockingCluster, connect_cluster_blocking
from dledger.common.errors import DLedgerError

NODES = 5
SETTLE_S = 5.0
LONGEST_S = 120.0
BULK_S = 20.0


@click.command()
@click.option("--groups", default=200, show_default=True, type=click.IntRange(1, 200))
@click.option("--duration", default=20.0, show_default=True, type=SECONDS, help="Seconds of idling.")
def groups(*, groups: int, duration: float) -> None:
    """Five nodes with many idle groups: processor time, memory, disk, starts, and elections that nobody wanted."""
    with cluster(NODES) as running, connect_cluster_blocking(running.endpoints) as many:
        before = _resident(running)
        files_before = _taken(running)
        names = [f"idle-{number}" for number in range(groups)]
        for name in names:
            many.groups.create(name)
        _wait_led(many, names)
        row: dict[str, object] = {"groups": groups, "idle_percent_a_node": _idle_percent(running, duration)}
        row["memory_kb_a_group"] = round(
            max(b - a for a, b in zip(before, _resident(running), strict=True)) / groups / 1e3
        )
        row["disk_kib_a_group"] = round(
            max(b - a for a, b in zip(files_before, _taken(running), strict=True)) / groups / 1024
        )
        row["start_s"] = _restart_all(running)
        _wait_led(many, names)
        row["idle_percent_after_restarts"] = _idle_percent(running, duration)
        terms = _terms(many, names)
        running.bench("append", inflight=8, batch=1000, duration=BULK_S)
        row["elections_by_bulk"] = sum(_terms(many, names)[name] != term for name, term in terms.items())
        row["led_again_s"] = _kill_one(running, many, names)
    show([row])
    save("groups", row, [row])


def _idle_percent(running: Cluster, duration: float) -> float:
    """Of a core, for the busiest node."""
    time.sleep(SETTLE_S)
    used = [core_seconds([node.pid]) for node in running.nodes]
    time.sleep(duration)
    shares = [core_seconds([node.pid]) - before for node, before in zip(running.nodes, used, strict=True)]
    return round(max(shares) / duration * 100, 1)


def _most_more(before: list[int], after: list[int]) -> int:
    """By how much the node that grew most has grown."""
    return max(now - then for then, now in zip(before, after, strict=True))


def _resident(running: Cluster) -> list[int]:
    return [resident_bytes(node.pid) for node in running.nodes]


def _taken(running: Cluster) -> list[int]:
    """Bytes of disk under each node's groups."""
    return [
        sum(file.stat().st_blocks * 512 for file in _groups_of(running, number).rglob("*"))
        for number in range(len(running.nodes))
    ]


def _groups_of(running: Cluster, number: int) -> Path:
    return running.data_folder(number) / "groups"


def _restart_all(running: Cluster) -> float:
    """All are stopped, and started one after the other; seconds until the first serves, which finds nobody."""
    for number in range(NODES):
        running.end(number)
    seconds = [running.start(number) for number in range(NODES)]
    return round(seconds[0], 2)


def _terms(many: BlockingCluster, names: list[str]) -> dict[str, int]:
    return {name: many.log(name).metadata().term for name in names}


def _wait_led(many: BlockingCluster, names: list[str]) -> None:
    left = list(names)

    def led() -> bool:
        left[:] = [name for name in left if not _is_led(many, name)]
        return not left

    wait_until(led, "every group has a leader", children=[], timeout_s=LONGEST_S)


def _is_led(many: BlockingCluster, name: str) -> bool:
    try:
        return bool(many.log(name).metadata().leader_id)
    except DLedgerError:
        return False


def _kill_one(running: Cluster, many: BlockingCluster, names: list[str]) -> float:
    """kill -9 of the node that leads most; seconds until the last of its groups takes an append."""
    leaders = {name: many.log(name).metadata().leader_id for name in names}
    victim = max(set(leaders.values()), key=list(leaders.values()).count)
    orphans = [name for name, leader in leaders.items() if leader == victim]
    click.echo(f"{victim} leads {len(orphans)} groups, and is killed", err=True)
    began = time.perf_counter()
    running.end(int(str(victim).removeprefix("n")), kill=True)
    for name in orphans:
        many.log(name).append(b"the first behind the kill")
    return round(time.perf_counter() - began, 2)
