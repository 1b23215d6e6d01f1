"""Real nodes on real file systems that run full, or hang: a small ext4 image each, loop-mounted. Needs root."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from pathlib import Path

import grpc
import pytest

from dledger.common.batch import records_of
from dledger.common.config import MIB
from dledger.v1 import log_pb2
from tests.integration.nodes import CALL_TIMEOUT_S, Nodes, eventually, refusal_in, running
from tests.support.lacking import cannot

pytestmark = pytest.mark.root

IMAGE_BYTES = 160 * MIB
RECORD = bytes(256 * 1024)
MOST_APPENDS = 400


@contextmanager
def small_disk(directory: Path) -> Iterator[None]:
    """A file system of ``IMAGE_BYTES`` of its own at ``directory``."""
    image = directory.with_suffix(".img")
    directory.mkdir(parents=True)
    with image.open("wb") as file:
        file.truncate(IMAGE_BYTES)
    subprocess.run(["mkfs.ext4", "-q", "-m", "0", image], check=True)
    mounted = subprocess.run(["mount", "-o", "loop", image, directory], check=False, capture_output=True, text=True)
    if mounted.returncode:
        cannot(f"no loop mounts here: {mounted.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", directory], check=True)


@asynccontextmanager
async def on_small_disks(data: Path, *, refuse_free_bytes: int) -> AsyncIterator[Nodes]:
    """Three nodes, each on a disk of its own, that refuse appends with less room than ``refuse_free_bytes``."""
    config = data / "limits.toml"
    config.write_text(
        f"[limits]\ndisk_refuse_free_bytes = {refuse_free_bytes}\ndisk_warn_free_bytes = {refuse_free_bytes + 1}\n"
        f"segment_max_bytes = {4 * MIB}\n"
    )
    async with AsyncExitStack() as stack:
        for node_id in ("n0", "n1", "n2"):
            stack.enter_context(small_disk(data / node_id))
        yield await stack.enter_async_context(running(data, serve_flags=["--config", str(config)]))


@contextmanager
def ballast(data: Path, node_id: str, *, leave_bytes: int) -> Iterator[Callable[[], None]]:
    """Fills a node's disk up to ``leave_bytes``; what is yielded, or the end, empties it again."""
    file = data / node_id / "ballast"
    found = os.statvfs(file.parent)
    with file.open("wb") as opened:
        os.posix_fallocate(opened.fileno(), 0, found.f_bavail * found.f_frsize - leave_bytes)
    try:
        yield lambda: file.unlink(missing_ok=True)
    finally:
        file.unlink(missing_ok=True)


async def refused(nodes: Nodes, node_id: str) -> str:
    """The reason that an append is refused with; empty when it is taken."""
    try:
        await nodes[node_id].append(RECORD)
    except grpc.aio.AioRpcError as failure:
        return refusal_in(failure).reason
    return ""


async def takes_appends(nodes: Nodes, node_id: str = "") -> bool:
    """That node, or whoever leads."""
    return not await refused(nodes, node_id or await nodes.leader())


async def append_until_refused(nodes: Nodes, leader: str) -> tuple[int, str]:
    """How many were acknowledged, and the reason of the refusal that ended it."""
    for acked in range(MOST_APPENDS):
        reason = await refused(nodes, leader)
        if reason:
            return acked, reason
    return MOST_APPENDS, ""


async def disk_state(nodes: Nodes, node_id: str) -> str:
    return (await nodes[node_id].status()).disk.state


async def read_all(nodes: Nodes, node_id: str) -> list[bytes]:
    """Every record that the node knows to be committed."""
    request = log_pb2.ReadRequest(consistency=log_pb2.CONSISTENCY_COMMITTED)
    found: list[bytes] = []
    async for response in nodes[node_id].log.Read(request, timeout=CALL_TIMEOUT_S):
        for batch in response.batches:
            found += records_of(batch.body, batch.count)
    return found


async def records_everywhere(nodes: Nodes) -> int:
    """How many records all logs hold once they are equal; every one is what was appended."""
    last_index, _, _, _ = await nodes.settled()
    for node_id in nodes.ids:
        found = await read_all(nodes, node_id)
        assert len(found) == last_index + 1
        assert set(found) == {RECORD}
    return last_index + 1


async def test_below_the_watermark_the_leader_refuses_reads_go_on_and_so_do_appends_when_there_is_room(
    tmp_path: Path,
) -> None:
    async with on_small_disks(tmp_path, refuse_free_bytes=16 * MIB) as nodes:
        leader = await nodes.leader()
        for _ in range(5):
            await nodes[leader].append(RECORD)
        with ExitStack() as filled:
            for node_id in nodes.ids:
                filled.enter_context(ballast(tmp_path, node_id, leave_bytes=12 * MIB))

            async def are_full() -> bool:
                return all([await disk_state(nodes, node_id) == "full" for node_id in nodes.ids])

            await eventually(are_full, "the nodes see that there is little room")
            assert await append_until_refused(nodes, leader) == (0, "DISK_FULL")
            assert (await nodes[leader].get(0)).entry.value == RECORD
            await asyncio.sleep(1.5)
            assert await nodes.leader() == leader, "where nobody has room, nobody leads instead"
        await eventually(lambda: takes_appends(nodes, leader), "appends are taken again")
        assert await disk_state(nodes, leader) == "ok"
        assert await records_everywhere(nodes) == 6


async def test_a_leader_without_room_hands_over_to_one_that_has_some(tmp_path: Path) -> None:
    async with on_small_disks(tmp_path, refuse_free_bytes=16 * MIB) as nodes:
        leader = await nodes.leader()
        with ballast(tmp_path, leader, leave_bytes=12 * MIB):

            async def leads_another() -> bool:
                return await nodes.leader() != leader

            await eventually(leads_another, "another leads")
            assert await takes_appends(nodes)


async def test_what_the_device_itself_refuses_is_refused_and_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    async with on_small_disks(tmp_path, refuse_free_bytes=1) as nodes:
        leader = await nodes.leader()
        await nodes[leader].append(RECORD)
        with ballast(tmp_path, leader, leave_bytes=2 * MIB) as empty:
            acked, reason = await append_until_refused(nodes, leader)
            assert reason == "DISK_FULL"
            assert (await nodes[leader].get(0)).entry.value == RECORD
            empty()
            await eventually(lambda: takes_appends(nodes), "appends are taken again")
        assert await records_everywhere(nodes) == acked + 2


async def test_a_follower_without_room_falls_behind_and_catches_up(tmp_path: Path) -> None:
    async with on_small_disks(tmp_path, refuse_free_bytes=1) as nodes:
        leader = await nodes.leader()
        follower = (await nodes.followers())[0]
        with ballast(tmp_path, follower, leave_bytes=2 * MIB):
            for _ in range(100):
                await nodes[leader].append(RECORD)
            behind = await nodes[follower].status()
            assert behind.last_index < 99
            assert behind.role == "follower"
        assert await records_everywhere(nodes) == 100


async def test_a_node_whose_disk_is_full_restarts_and_goes_on_when_there_is_room(tmp_path: Path) -> None:
    async with on_small_disks(tmp_path, refuse_free_bytes=1) as nodes:
        leader = await nodes.leader()
        with ballast(tmp_path, leader, leave_bytes=2 * MIB) as empty:
            acked, reason = await append_until_refused(nodes, leader)
            assert reason == "DISK_FULL"
            await nodes.cluster.kill(leader)
            await nodes.restart(leader)
            new_leader = await nodes.leader()
            empty()
            await eventually(lambda: takes_appends(nodes, new_leader), "appends are taken again")
        assert await records_everywhere(nodes) == acked + 1


@contextmanager
def frozen(data: Path, node_id: str) -> Iterator[None]:
    """No write to the node's disk comes back before the end."""
    subprocess.run(["fsfreeze", "--freeze", data / node_id], check=True)
    try:
        yield
    finally:
        subprocess.run(["fsfreeze", "--unfreeze", data / node_id], check=True)


async def test_a_leader_whose_disk_hangs_is_replaced_and_is_equal_again_when_it_comes_back(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A frozen file system holds the write itself, so the whole process stands still: its peers notice."""
    async with on_small_disks(tmp_path, refuse_free_bytes=1) as nodes:
        old = await nodes.leader()
        others = [node_id for node_id in nodes.ids if node_id != old]
        await nodes[old].append(RECORD)
        with frozen(tmp_path, old):
            began_s = time.monotonic()
            pending = asyncio.ensure_future(refused(nodes, old))

            async def replaced() -> bool:
                return bool({(await nodes[node_id].status()).leader_id for node_id in others} & set(others))

            await eventually(replaced, "another leads", deadline_s=3)
            took_ms = (time.monotonic() - began_s) * 1000
            with capsys.disabled():
                sys.stdout.write(f"\nthe leader's disk hung: another led after {took_ms:.0f} ms\n")
            new = next(iter({(await nodes[node_id].status()).leader_id for node_id in others} & set(others)))
            await eventually(lambda: takes_appends(nodes, new), "appends are taken")
        await pending
        assert await records_everywhere(nodes) >= 2
