"""Files of real nodes that rot while they are stopped, and while they run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import pytest_asyncio

from dledger.log.frame.frame import parse_header
from dledger.log.segment.segment import FIRST_PAGE_BYTES
from dledger.log.verify import verify
from dledger.raft.state import VoteBlocker
from tests.integration.nodes import Nodes, eventually, running
from tests.simulation.truth import FRAME_MAGIC

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


class Place(NamedTuple):
    """Where a frame lies."""

    path: Path
    offset: int
    size_bytes: int


def places(nodes: Nodes, node_id: str) -> Iterator[Place]:
    """Of all frames, in the order of the log."""
    for path in sorted(data_dir(nodes, node_id).glob("groups/default/*.log")):
        content, offset = path.read_bytes(), FIRST_PAGE_BYTES
        while content.startswith(FRAME_MAGIC, offset):
            size_bytes = parse_header(content, offset).stored_bytes
            yield Place(path, offset, size_bytes)
            offset += size_bytes


def rot(nodes: Nodes, node_id: str, *which: int) -> None:
    found = list(places(nodes, node_id))
    for path, offset, size_bytes in (found[at] for at in which):
        with path.open("r+b") as file:
            file.seek(offset + size_bytes // 2)
            file.write(b"\xa5\x5a\xa5")


def frames(nodes: Nodes, node_id: str) -> list[bytes]:
    return [path.read_bytes()[offset : offset + size_bytes] for path, offset, size_bytes in places(nodes, node_id)]


def data_dir(nodes: Nodes, node_id: str) -> Path:
    return nodes.cluster.nodes[node_id].data_dir


async def is_whole(nodes: Nodes) -> bool:
    statuses = await nodes.statuses()
    return len(statuses) == 3 and not any(status.damaged_frames or status.role == "recovering" for status in statuses)


async def says(nodes: Nodes, vote_blocker: VoteBlocker) -> bool:
    return any(vote_blocker.value in status.vote_blockers for status in await nodes.statuses())


async def test_other_rot_in_every_stopped_node_heals_and_all_are_equal(nodes: Nodes) -> None:
    await nodes.settled()
    good = frames(nodes, nodes.ids[0])
    await nodes.terminate(*nodes.ids)
    for at, node_id in enumerate(nodes.ids):
        rot(nodes, node_id, 2 + at, len(good) // 2 + at, len(good) - 1 - at)
        assert not verify(data_dir(nodes, node_id)).ok
    first, *others = nodes.ids
    await nodes.cluster.restart(first)
    await eventually(lambda: says(nodes, VoteBlocker.DAMAGED_LOG), "the node alone says what keeps it from standing")
    await asyncio.gather(*(nodes.cluster.restart(node_id) for node_id in others))
    await nodes.settled()

    async def is_as_before() -> bool:
        return all(frames(nodes, node_id)[: len(good)] == good for node_id in nodes.ids)

    await eventually(is_as_before, "what a start reads is repaired, and the scrub has found the rest")
    await eventually(lambda: is_whole(nodes), "nothing is said to be damaged")
    for node_id in nodes.ids:
        assert verify(data_dir(nodes, node_id)).ok


async def test_rot_under_a_running_node_is_found_by_the_scrub_and_repaired(nodes: Nodes) -> None:
    await nodes.settled()
    follower = (await nodes.followers())[0]
    repaired = nodes.log_of(follower).count(REPAIRED)
    rot(nodes, follower, 7, 8)

    async def is_repaired() -> bool:
        return nodes.log_of(follower).count(REPAIRED) > repaired and verify(data_dir(nodes, follower)).ok

    await eventually(is_repaired, "the scrub has found it")


async def test_appends_go_on_and_nothing_is_lost(nodes: Nodes) -> None:
    leader = await nodes.leader()
    answer = await nodes[leader].append(b"after it all")
    assert (await nodes[leader].get(answer.base_index)).entry.value == b"after it all"
    values = {(await nodes[leader].get(index)).entry.value for index in range(300)}
    assert len(values) == 300
