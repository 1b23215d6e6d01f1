"""Real nodes whose system calls fail, or whose process ends in one, by strace's injection. Needs root."""

from __future__ import annotations

import asyncio
import shutil
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import pytest

from dledger.cli.cluster import LocalCluster, last_words
from dledger.client import connect
from tests.power.cuts import NODES, SERVE, Report, Round, volumes_with_nodes
from tests.power.volume import CannotMountError, Volume
from tests.support.lacking import cannot

pytestmark = [pytest.mark.root, pytest.mark.timeout(120)]

DEADLINE_S = 20.0
EXIT_REFUSED = 5
TO_A_THREAD = "io_submit:error=EAGAIN"
"""A group commit goes to the kernel's AIO, whose completions no injection reaches: refused, it goes to fdatasync."""


@asynccontextmanager
async def three_nodes(data: Path) -> AsyncIterator[tuple[LocalCluster, dict[str, Volume]]]:
    if shutil.which("strace") is None:
        cannot("strace is not installed")
    try:
        async with volumes_with_nodes(data, "ext4", SERVE) as started:
            yield started
    except CannotMountError as reason:
        cannot(str(reason))


async def injected(pid: int, *faults: str) -> asyncio.subprocess.Process:
    """strace, from when it has taken hold of all threads of ``pid``."""
    calls = ",".join(fault.partition(":")[0] for fault in faults)
    flags = [part for fault in faults for part in ("-e", f"inject={fault}")]
    tracer = await asyncio.create_subprocess_exec(
        "strace", "-f", "-p", str(pid), "-e", f"trace={calls}", *flags, stderr=asyncio.subprocess.PIPE
    )
    assert tracer.stderr is not None
    said = await asyncio.wait_for(tracer.stderr.readline(), DEADLINE_S)
    assert b"attached" in said, said.decode()
    tracer.drain = asyncio.create_task(tracer.stderr.read())  # type: ignore[attr-defined]
    return tracer


@pytest.mark.parametrize(
    ("faults", "code"),
    [
        ((TO_A_THREAD, "fdatasync:error=EIO:when=1"), EXIT_REFUSED),
        (("pwritev,pwritev2:signal=KILL:when=5",), -signal.SIGKILL),
    ],
    ids=["EIO at the first fdatasync", "SIGKILL at the fifth write"],
)
async def test_a_node_that_ends_in_a_system_call_comes_back_and_survives_a_power_cut_then(
    tmp_path: Path, faults: tuple[str, ...], code: int
) -> None:
    """What was never synced is gone with the power: a restart that took what it reads for durable would lose it. (An
    injected EIO leaves the pages dirty. That a real one leaves them looking clean is the simulated disk's part.)"""
    report, chance = Report(), Random(1)
    async with three_nodes(tmp_path / "nodes") as (cluster, volumes):
        round_ = Round(tmp_path, cluster, volumes, report)
        async with connect(cluster.endpoints, timeout_ms=60_000) as log:
            victim = (await log.status()).leader
            assert victim is not None
            partner, absent = sorted(set(NODES) - {victim})

            async def end_in_a_call() -> None:
                await cluster.kill(absent)
                node = cluster.nodes[victim]
                assert node.process is not None
                node.expected_to_end = True
                tracer = await injected(node.process.pid, *faults)
                assert await asyncio.wait_for(node.process.wait(), DEADLINE_S) == code, last_words(node.log_file)
                await tracer.wait()
                await cluster.restart(victim)
                await round_.append(log)

            await round_.appending_while(log, end_in_a_call())
            await cluster.kill(partner)
            await round_.cut([victim], chance)
            await cluster.restart(absent)  # it has nothing of this: all that was acknowledged rests on the victim
            await round_.append(log)
            await round_.judge(log, [victim, absent])
            assert report.is_clean, str(report)
            await cluster.restart(partner)
            await round_.appending_through(log, NODES, chance)
            await round_.judge(log)
    assert report.is_clean, str(report)
    assert round_.acknowledged > 100
