"""Files of real nodes that rot while they are stopped, and while they run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from dledger.log.frame.frame import HEADER_BYTES, parse_header
from dledger.log.segment.segment import FIRST_PAGE_BYTES
from dledger.log.verify import verify
from dledger.raft.state import VoteBlocker
from tests.integration.nodes import Nodes, eventually, running

pytestmark = pytest.mark.asyncio(loop_scope="module")

REPAIRED = "damaged frames were repaired"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def nodes(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Nodes]:
    data = tmp_path_factory.mktemp("rot")
    config = data / "scrub.toml"
    config.write_text("[timings]\nscrub_period_s = 2\n")
    async with running(data, serve_flags=["--config", str(config)]) as started:
        leader = await started.leader()
        for first in range(0, 300, 20):  # each round is a frame at least
            await asyncio.gather(*(started[leader].append(b"%04d" % at * 50) for at in range(first, first + 20)))
        yield started


def segment(nodes: Nodes, node_id: str) -> Path:
    return min(nodes.cluster.nodes[node_id].data_dir.glob("groups/default/*.log"))


def places(path: Path) -> Iterator[tuple[int, int]]:
    """Offset and size of each frame."""
    content, offset = path.read_bytes(), FIRST_PAGE_BYTES
    while any(content[offset : offset + HEADER_BYTES]):
        size_bytes = parse_header(content, offset).stored_bytes
        yield offset, size_bytes
        offset += size_bytes


def rot(path: Path, *which: int) -> None:
    found = list(places(path))
    with path.open("r+b") as file:
        for at in which:
            offset, size_bytes = found[at]
            file.seek(offset + size_bytes // 2)
            file.write(b"\xa5\x5a\xa5")


def frames(path: Path) -> list[bytes]:
    content = path.read_bytes()
    return [content[offset : offset + size_bytes] for offset, size_bytes in places(path)]


def data_dir(nodes: Nodes, node_id: str) -> Path:
    return nodes.cluster.nodes[node_id].data_dir


async def is_whole(nodes: Nodes) -> bool:
    statuses = await nodes.statuses()
    return len(statuses) == 3 and not any(status.damaged_frames or status.role == "recovering" for status in statuses)


async def says(nodes: Nodes, vote_blocker: VoteBlocker) -> bool:
    return any(vote_blocker.value in status.vote_blockers for status in await nodes.statuses())


async def test_other_rot_in_every_stopped_node_heals_and_all_are_equal(nodes: Nodes) -> None:
    await nodes.settled()
    good = frames(segment(nodes, nodes.ids[0]))
    await nodes.terminate(*nodes.ids)
    for at, node_id in enumerate(nodes.ids):
        rot(segment(nodes, node_id), 2 + at, len(good) // 2 + at, len(good) - 1 - at)
        assert not verify(data_dir(nodes, node_id)).ok
    first, *others = nodes.ids
    await nodes.cluster.restart(first)
    await eventually(lambda: says(nodes, VoteBlocker.DAMAGED_LOG), "the node alone says what keeps it from standing")
    await asyncio.gather(*(nodes.cluster.restart(node_id) for node_id in others))
    await nodes.settled()
    await eventually(lambda: is_whole(nodes), "everything is repaired")
    for node_id in nodes.ids:
        assert frames(segment(nodes, node_id))[: len(good)] == good
        assert verify(data_dir(nodes, node_id)).ok


async def test_rot_under_a_running_node_is_found_by_the_scrub_and_repaired(nodes: Nodes) -> None:
    await nodes.settled()
    follower = (await nodes.followers())[0]
    repaired = nodes.log_of(follower).count(REPAIRED)
    rot(segment(nodes, follower), 7, 8)

    async def is_repaired() -> bool:
        return nodes.log_of(follower).count(REPAIRED) > repaired and verify(data_dir(nodes, follower)).ok

    await eventually(is_repaired, "the scrub has found it")


async def test_appends_go_on_and_nothing_is_lost(nodes: Nodes) -> None:
    leader = await nodes.leader()
    answer = await nodes[leader].append(b"after it all")
    assert (await nodes[leader].get(answer.base_index)).entry.value == b"after it all"
    values = {(await nodes[leader].get(index)).entry.value for index in range(300)}
    assert len(values) == 300
