"""Many groups that have nothing to do: what they cost, and whether one in bulk, or a node's death, disturbs them."""

from __future__ import annotations

import asyncio
import time
import urllib.request
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from statistics import median
from typing import Self

import click
import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from bench.processes import ANSWER_S, DIRECT, core_seconds, resident_bytes, wait_until
from bench.results import save, show
from bench.scenarios.cluster import Cluster, cluster
from bench.scenarios.flags import SECONDS
from dledger.client import BlockingCluster, Log, connect_cluster, connect_cluster_blocking
from dledger.common.config import GRPC_PORT_OFFSET, HTTP_PORT_OFFSET, split_address
from dledger.common.errors import DLedgerError

NODES = 5
SETTLE_S = 5.0
LONGEST_S = 120.0
BULK_S = 20.0
SCRAPES = 9
SCRAPE_REST_S = 0.5


@click.command()
@click.option("--groups", default=200, show_default=True, type=click.IntRange(1, 200))
@click.option("--duration", default=20.0, show_default=True, type=SECONDS, help="Seconds of idling.")
def groups(*, groups: int, duration: float) -> None:
    """Five nodes with many idle groups: processor time, memory, disk, starts, scrapes, and elections that nobody
    wanted."""
    with cluster(NODES) as running:
        names = [f"idle-{number}" for number in range(groups)]
        row: dict[str, object] = {"groups": groups, **_made(running, names)}
        row["idle_percent_a_node"] = _idle_percent(running, duration)
        row |= _scraped(running)
        row["start_s"] = _restart_all(running)
        with connect_cluster_blocking(running.endpoints) as many:
            _wait_led(many, names)
        row["idle_percent_after_restarts"] = _idle_percent(running, duration)
        with connect_cluster_blocking(running.endpoints) as many:
            terms = _terms(many, names)
            running.bench("append", inflight=8, batch=1000, duration=BULK_S)
            after = _terms(many, names)
            row["elections_by_bulk"] = sum(after[name] != term for name, term in terms.items())
            leaders = {name: str(many.log(name).metadata().leader_id) for name in names}
        row |= _kill_one(running, leaders)
    show([row])
    save("groups", row, [row])


def _made(running: Cluster, names: list[str]) -> dict[str, object]:
    """What the groups take, once all are led."""
    resident, taken = _resident(running), _taken(running)
    with connect_cluster_blocking(running.endpoints) as many:
        for name in names:
            many.groups.create(name)
        _wait_led(many, names)
        led = Counter(str(many.log(name).metadata().leader_id) for name in names)
        return {
            "led_by_one_node": f"{min(led.values())}-{max(led.values())}",
            "memory_kb_a_group": round(_most_more(resident, _resident(running)) / len(names) / 1e3),
            "disk_kib_a_group": round(_most_more(taken, _taken(running)) / len(names) / 1024),
        }


def _idle_percent(running: Cluster, duration: float) -> float:
    """Of a core, for the busiest node. No client is connected: theirs ask now and then who leads."""
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


def _kill_one(running: Cluster, leaders: dict[str, str]) -> dict[str, object]:
    """kill -9 of the node that leads most; seconds until the last of its groups takes an append. A client of each is
    connected before, and all ask at once."""
    victim, led = Counter(leaders.values()).most_common(1)[0]
    click.echo(f"{victim} leads {led} groups, and is killed", err=True)
    orphans = [name for name, leader in leaders.items() if leader == victim]
    seconds = asyncio.run(_appended(running, int(victim.removeprefix("n")), orphans))
    return {"led_by_the_killed": led, "led_again_s": round(max(seconds), 2)}


async def _appended(running: Cluster, victim: int, orphans: list[str]) -> list[float]:
    async with connect_cluster(running.endpoints) as many:
        logs = [many.log(name) for name in orphans]
        await asyncio.gather(*(log.append(b"the last before the kill") for log in logs))
        began = time.perf_counter()
        running.end(victim, kill=True)

        async def append(log: Log) -> float:
            await log.append(b"the first behind the kill")
            return time.perf_counter() - began

        return await asyncio.gather(*map(append, logs))


def _scraped(running: Cluster) -> dict[str, object]:
    """How long a scrape of one node takes, and for how long its event loop answers nobody meanwhile: what a health
    check, which waits for the loop alone, takes longer than at other times. The median of several, as others disturb
    each."""
    endpoint = running.endpoints.split(",")[0]
    host, port = split_address(endpoint)
    url = f"http://{host}:{port + HTTP_PORT_OFFSET - GRPC_PORT_OFFSET}/metrics"
    with Probe(endpoint) as probe:
        calm_ms = [probe.longest_ms(partial(time.sleep, SCRAPE_REST_S)) for _ in range(SCRAPES)]
        scrape_ms, held_ms = [], []
        for _ in range(SCRAPES):
            began = time.perf_counter()
            held_ms.append(probe.longest_ms(partial(_get, url)))
            scrape_ms.append((time.perf_counter() - began) * 1e3)
            time.sleep(SCRAPE_REST_S)
    return {
        "scrape_ms": round(median(scrape_ms)),
        "scrape_holds_ms": round(max(0.0, median(held_ms) - median(calm_ms)), 1),
    }


def _get(url: str) -> None:
    with urllib.request.urlopen(url) as answer:
        answer.read()


class Probe:
    """Asks a node whether it serves, again and again."""

    def __init__(self, endpoint: str) -> None:
        self._channel = grpc.insecure_channel(endpoint, options=DIRECT)
        self._stub = health_pb2_grpc.HealthStub(self._channel)

    def __enter__(self) -> Self:
        self._ask()
        return self

    def __exit__(self, *_: object) -> None:
        self._channel.close()

    def _ask(self) -> float:
        began = time.perf_counter()
        self._stub.Check(health_pb2.HealthCheckRequest(), timeout=ANSWER_S)
        return (time.perf_counter() - began) * 1e3

    def longest_ms(self, work: Callable[[], None]) -> float:
        """Of the calls while ``work`` is done in a thread."""
        with ThreadPoolExecutor(1) as threads:
            running, longest_ms = threads.submit(work), self._ask()
            while not running.done():
                longest_ms = max(longest_ms, self._ask())
            running.result()
        return longest_ms
