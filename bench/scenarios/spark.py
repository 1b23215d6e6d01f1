"""Spark over the log beside Spark over Parquet: the same records, session and machine, in turns."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import click

from bench.results import save, show
from bench.scenarios.cluster import Cluster, cluster
from bench.scenarios.flags import NODES, ROUNDS
from bench.scenarios.spark_session import spark_session
from dledger.client import connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MB = 1_000_000
BATCH_RECORDS = 1_000
MOST_RECORD_BYTES = 4_096
"""Of which a batch is still taken."""
IN_FLIGHT = 8
WARM_UP_TURNS = 2
"""While the JVM compiles what it runs, which costs more than running it."""
TEN_RECORDS = "source, ten records"
"""What a query costs whatever it reads: plans, processes, connections."""
SUM = "coalesce(sum(length(value)), 0) AS size_bytes"
JIFFIES_PER_S = os.sysconf("SC_CLK_TCK")


@click.command()
@click.option("--rounds", default=3, show_default=True, type=ROUNDS)
@click.option("--records", default=4_000_000, show_default=True, type=click.IntRange(10_000))
@click.option("--record-bytes", default=128, show_default=True, type=click.IntRange(1, MOST_RECORD_BYTES))
@click.option("--nodes", default=1, show_default=True, type=NODES)
@click.option("--master", default="local[2,3]", show_default=True)
def spark(*, rounds: int, records: int, record_bytes: int, nodes: int, master: str) -> None:
    """Payload a second, and CPU seconds of all processes a gigabyte: source, copied files, sink, Parquet scan."""
    with spark_session(master) as session, cluster(nodes) as running:
        asyncio.run(_fill(running.endpoints, records, record_bytes))
        rows = _measure(session, running, records, rounds=rounds, payload_bytes=records * record_bytes)
    show(rows)
    save(
        "spark",
        {"rows": rows, "records": records, "record_bytes": record_bytes, "nodes": nodes, "master": master},
        rows,
    )


async def _fill(endpoints: str, records: int, record_bytes: int) -> None:
    sizes = [min(BATCH_RECORDS, records - at) for at in range(0, records, BATCH_RECORDS)]
    async with connect(endpoints) as log:
        for at in range(0, len(sizes), IN_FLIGHT):
            batches = [_distinct(size, record_bytes) for size in sizes[at : at + IN_FLIGHT]]
            await asyncio.gather(*map(log.append_many, batches))


def _distinct(records: int, record_bytes: int) -> list[bytes]:
    """A batch of records that are like no other: of equal ones Parquet would keep one, and count the rest."""
    raw = os.urandom(records * record_bytes // 2 + 1).hex().encode()
    return [raw[start : start + record_bytes] for start in range(0, records * record_bytes, record_bytes)]


def _measure(
    session: SparkSession, running: Cluster, end: int, *, rounds: int, payload_bytes: int
) -> list[dict[str, object]]:
    """``end``: the index behind the last record."""
    # The sink appends to the same log, behind what the others read.
    until = {"endingOffsets": str(end)}
    log = {"dledger.endpoints": running.endpoints, **until}
    files = str(running.data_folder())
    parquet = f"{files}.parquet"
    session.read.format("dledger").options(**log).load().write.parquet(parquet)
    works: dict[str, Callable[[], object]] = {
        "Parquet scan": lambda: session.read.parquet(parquet).selectExpr(SUM).collect(),
        "source, value alone": lambda: _scan(session, {**log, "columns": "value"}),
        "source, all columns": lambda: _scan(session, log),
        TEN_RECORDS: lambda: _scan(session, {**log, "endingOffsets": "10"}),
        "a node's files": lambda: _scan(session, {"path": files, "columns": "value", **until}),
        "sink": lambda: _write(session, parquet, running.endpoints),
    }
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in works}
    for turn in range(WARM_UP_TURNS + rounds):
        for name, work in works.items():
            measured = _timed(work)
            if turn >= WARM_UP_TURNS:
                taken[name].append(measured)
    return [_row(name, times, payload_bytes, taken["Parquet scan"]) for name, times in taken.items()]


def _scan(session: SparkSession, options: dict[str, str]) -> object:
    return session.read.format("dledger").options(minPartitions="2", **options).load().selectExpr(SUM).collect()


def _write(session: SparkSession, parquet: str, endpoints: str) -> None:
    rows = session.read.parquet(parquet).select("value").coalesce(2)
    rows.write.format("dledger").option("dledger.endpoints", endpoints).mode("append").save()


def _timed(work: Callable[[], object]) -> tuple[float, float]:
    """Seconds, and CPU seconds of all processes that this one started: nodes, JVM and workers."""
    cpu, began = _family_cpu_s(), time.perf_counter()
    work()
    return time.perf_counter() - began, _family_cpu_s() - cpu


def _family_cpu_s() -> float:
    """This process, its descendants, and those of them that have ended and were waited for."""
    stats = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has just ended: its parent counts it
            fields = path.read_text().rpartition(")")[2].split()
            stats[int(path.parent.name)] = int(fields[1]), sum(map(int, fields[11:15]))
    family = {os.getpid()}
    while more := {pid for pid, (parent, _) in stats.items() if parent in family} - family:
        family |= more
    return sum(stats[pid][1] for pid in family) / JIFFIES_PER_S


def _row(
    name: str, times: list[tuple[float, float]], payload_bytes: int, base: list[tuple[float, float]]
) -> dict[str, object]:
    seconds, cpu_s = median(each[0] for each in times), median(each[1] for each in times)
    rates: dict[str, object] = {
        "mb_per_s": round(payload_bytes / seconds / MB),
        "mb_per_cpu_s": round(payload_bytes / cpu_s / MB),
        "cpu_s_per_gb": round(cpu_s / payload_bytes * 1000 * MB, 2),
        "cpu_beside_parquet": round(cpu_s / median(each[1] for each in base), 2),
        "time_beside_parquet": round(seconds / median(each[0] for each in base), 2),
    }
    if name == TEN_RECORDS:
        rates = dict.fromkeys(rates, "–")
    return {"work": name, "seconds": round(seconds, 2), "cpu_s": round(cpu_s, 2), **rates}
