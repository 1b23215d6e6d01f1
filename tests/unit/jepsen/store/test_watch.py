"""Clients that watch, at nodes in this process: a right store is valid, and one that loses events is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.support.local_store import LocalBackend
from tests.unit.jepsen.store.nodes import LaggingBackend, plan_of, run_at, serving


async def test_a_right_store_keeps_the_guarantees_of_watches(tmp_path: Path) -> None:
    first = LocalBackend()
    second = LaggingBackend(first, 0)
    async with serving(first) as one, serving(second) as two:
        told = await run_at({"n0": one, "n1": two}, tmp_path, plan_of("watch", nodes=2, seconds=1.5))
    assert told["valid"], (told["reasons"], told["examples"])
    assert told["histories"] == 2
    assert told["watches"] > 4
    assert told["watch_events"]


class LosingBackend(LaggingBackend):
    """Now and then its watchers are not told of what was applied."""

    def _apply(self, command: bytes) -> Any:
        hub, pairs = self.watches, self.store.pairs
        answer = self.store.decode_answer(self.store.apply(command))
        if pairs.revision % 40 == 0:
            hub.next_change, hub.revision = pairs.changes.end, pairs.revision
        else:
            hub.take_in(pairs)
        return answer


async def test_a_node_that_loses_events_is_found(tmp_path: Path) -> None:
    first = LocalBackend()
    second = LosingBackend(first, 0)
    async with serving(first) as one, serving(second) as two:
        told = await run_at({"n0": one, "n1": two}, tmp_path, plan_of("watch", nodes=2, seconds=1.5))
    assert told["watch_reliable"]
    assert not told["missing_revisions"]
    assert not told["lost_events"]
