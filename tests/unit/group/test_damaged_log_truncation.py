"""What a leader's word may take from a damaged log, where two of its words come at once."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

from dledger.common.types import LogPoint, NodeId, Position, Term
from dledger.group.repair.damaged_log_truncation import DamagedLogTruncation
from dledger.log.log_api import DamagedRange

LEADER = NodeId("leader")


class CutAtOnce:
    """A damaged log of which a cut takes all that is damaged."""

    group = "g"
    last = LogPoint(Position(20), Term(1), 0)

    def __init__(self) -> None:
        self.ranges = [DamagedRange(Position(5), Position(5), LogPoint(Position(4), Term(1), 0))]
        self.cuts: list[Position] = []

    def damaged(self) -> list[DamagedRange]:
        return self.ranges

    async def cut(self, after: Position) -> None:
        self.cuts.append(after)
        self.ranges = []


async def test_that_the_leader_has_trimmed_what_was_cut_meanwhile_changes_nothing() -> None:
    log, failed = CutAtOnce(), list[BaseException]()

    def watch(task: asyncio.Task[None]) -> None:
        if (failure := task.exception()) is not None:
            failed.append(failure)

    overruling = DamagedLogTruncation(
        log,  # type: ignore[arg-type]
        SimpleNamespace(leader_id=LEADER),  # type: ignore[arg-type]
        send=lambda *_: True,
        owe_catch_up=lambda: asyncio.sleep(0),
        on_cut=lambda: None,
        watch_task=watch,
    )
    (damaged,) = log.damaged()
    overruling.on_trimmed(LEADER, damaged)
    await overruling.stop()
    overruling.on_trimmed(LEADER, damaged)  # of the range that is gone
    await overruling.stop()
    assert log.cuts == [damaged.previous.position]
    assert not failed
