"""How far a streaming query is behind a steady load: a micro-batch a second, into Parquet."""

from __future__ import annotations

import asyncio
import json
import time
from bisect import bisect_left
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from bench.results import save, show
from bench.scenarios.cluster import Cluster, cluster
from bench.scenarios.flags import LONGEST_S, NODES
from bench.scenarios.spark_session import spark_session
from bench.work import MeasurementFailed
from dledger.cli.options import Number
from dledger.client import connect
from dledger.common.config import Limits

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

TURNS_A_SECOND = 50
"""So often a batch is appended."""
WARM_UP_S = 20.0
"""Micro-batches that began sooner do not count: the JVM compiles what it runs."""
MOST_IN_FLIGHT = 100
OFFSET_BYTES = 4
"""What a batch adds to each of its records, and once more."""


class Turn(NamedTuple):
    """One appended batch: one past its last record, and when it was acknowledged."""

    end_index: int
    acked_s: float


class Load(NamedTuple):
    """What is appended, and how it is read."""

    rate: int
    record_bytes: int
    seconds: float
    trigger_ms: int


class MicroBatch(NamedTuple):
    """When it was done, its first record and one past its last."""

    done_s: float
    start: int
    end: int


@click.command("spark-lag")
@click.option("--rate", default=50_000, show_default=True, type=click.IntRange(TURNS_A_SECOND), help="Records / s.")
@click.option("--record-bytes", default=128, show_default=True, type=click.IntRange(1))
@click.option("--seconds", default=40.0, show_default=True, type=Number(5, LONGEST_S), help="Behind the warm-up.")
@click.option("--trigger", "trigger_ms", default=1_000, show_default=True, type=click.IntRange(0), help="In ms.")
@click.option("--nodes", default=3, show_default=True, type=NODES)
@click.option("--master", default="local[2,3]", show_default=True)
def spark_lag(*, rate: int, record_bytes: int, seconds: float, trigger_ms: int, nodes: int, master: str) -> None:
    """How far a query with a trigger of a second is behind: when a micro-batch is done, and at worst before."""
    if rate // TURNS_A_SECOND * (record_bytes + OFFSET_BYTES) + OFFSET_BYTES > Limits().max_batch_bytes:
        raise click.UsageError(f"a {TURNS_A_SECOND}th of {rate} records of {record_bytes} B is more than a batch holds")
    load = Load(rate, record_bytes, seconds, trigger_ms)
    with spark_session(master) as session, cluster(nodes) as running:
        row = asyncio.run(_measure(session, running, load))
    show([row])
    save("spark-lag", row, [row])


async def _measure(session: SparkSession, running: Cluster, load: Load) -> dict[str, Any]:
    out = running.data_folder().with_name("spark")
    query = await asyncio.to_thread(_start, session, running.endpoints, out, load.trigger_ms)
    began_s = time.time()
    turns = await _feed(running.endpoints, load)
    micro_batches = await asyncio.to_thread(_progress, query)
    await asyncio.to_thread(query.stop)
    done = [each for each in micro_batches if each.done_s > began_s + WARM_UP_S and each.end > each.start]
    if not done:
        raise MeasurementFailed("no micro-batch was done behind the warm-up")
    return {"rate": load.rate, "achieved_rate": _rate(turns), "micro_batches": len(done), **_lags(turns, done)}


def _start(session: SparkSession, endpoints: str, out: Path, trigger_ms: int) -> StreamingQuery:
    records = session.readStream.format("dledger").option("dledger.endpoints", endpoints)
    writer = records.option("startingOffsets", "earliest").load().writeStream.format("parquet")
    writer = writer.option("path", str(out / "records")).option("checkpointLocation", str(out / "checkpoint"))
    return writer.trigger(processingTime=f"{trigger_ms} milliseconds").start()


async def _feed(endpoints: str, load: Load) -> list[Turn]:
    """Appends at an even rate whatever the acks do. Raises MeasurementFailed where it cannot keep up."""
    turns: list[Turn] = []
    in_flight: set[asyncio.Task[None]] = set()
    batch = [b"x" * load.record_bytes] * (load.rate // TURNS_A_SECOND)
    loop = asyncio.get_running_loop()
    async with connect(endpoints) as log:

        async def append() -> None:
            acks = await log.append_many(batch)
            turns.append(Turn(acks.last_index + 1, time.time()))

        began = loop.time()
        for number in range(int((WARM_UP_S + load.seconds) * TURNS_A_SECOND)):
            await asyncio.sleep(max(0.0, began + number / TURNS_A_SECOND - loop.time()))
            if len(in_flight) >= MOST_IN_FLIGHT:
                raise MeasurementFailed(f"the cluster does not take {load.rate} records a second")
            task = asyncio.create_task(append())
            in_flight.add(task)
            task.add_done_callback(in_flight.discard)
        await asyncio.gather(*in_flight)
    return sorted(turns)


def _progress(query: StreamingQuery) -> list[MicroBatch]:
    """Those that Spark still tells of."""
    done = []
    for each in query.recentProgress:
        progress = json.loads(each.json)
        source = progress["sources"][0]
        began_s = datetime.fromisoformat(progress["timestamp"]).timestamp()
        done_s = began_s + progress["durationMs"]["triggerExecution"] / 1000
        done.append(MicroBatch(done_s, _index(source["startOffset"]), _index(source["endOffset"])))
    return done


def _index(offset: dict[str, Any] | None) -> int:
    return int(offset["index"]) if offset else 0


def _rate(turns: list[Turn]) -> int:
    return round((turns[-1].end_index - turns[0].end_index) / (turns[-1].acked_s - turns[0].acked_s))


def _lags(turns: list[Turn], done: list[MicroBatch]) -> dict[str, float]:
    """When a micro-batch is done: how old its newest record is by then (the lag), and how old its oldest one."""
    ends = [turn.end_index for turn in turns]
    newest = [done_s - turns[bisect_left(ends, end)].acked_s for done_s, _, end in done]
    oldest = [done_s - turns[bisect_left(ends, start + 1)].acked_s for done_s, start, _ in done]
    return {
        "lag_s": round(median(newest), 2),
        "longest_lag_s": round(max(newest), 2),
        "oldest_record_s": round(median(oldest), 2),
        "longest_oldest_record_s": round(max(oldest), 2),
    }
