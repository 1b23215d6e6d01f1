"""What a node has promised: its term and its vote. Durable in two slots before anything that depends on it is sent."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from dledger.common.errors import Code, error
from dledger.common.types import NodeId, Term
from dledger.disk.disk import Disk, make_directories
from dledger.disk.record import READMIT, RecordKind
from dledger.disk.two_slot import TwoSlotFile, unwritable
from dledger.v1.storage_pb2 import HardStateRecord


class HardState(NamedTuple):
    """``vote`` is empty while the node has not voted in ``term``."""

    term: Term = Term(0)
    vote: NodeId = NodeId("")


class HardStateStore:
    """``state`` is the last one saved."""

    def __init__(self, slots: TwoSlotFile, state: HardState) -> None:
        self._slots = slots
        self.state = state

    @classmethod
    async def open(cls, disk: Disk, directory: Path, *, must_exist: bool = False) -> HardStateStore:
        """The hard state of the group in ``directory``, made when the directory is new. Must come before the log.

        Raises CORRUPT_LOG when both copies are bad. Raises it too when there is none although it ``must_exist`` or
        there is a log. Nobody knows any more what the node has promised, so it must not vote. Raises DISK_FULL or
        DISK_ERROR when it cannot be made.
        """
        if must_exist and not disk.exists(str(directory / "hard_state")):
            raise error(
                Code.CORRUPT_LOG,
                f"{directory} had a hard_state, and has none: this node's promises are lost; {READMIT}",
            )
        try:
            make_directories(disk, directory)
        except OSError as reason:
            raise unwritable(str(directory), reason) from reason
        slots = TwoSlotFile(disk, str(directory / "hard_state"), RecordKind.HARD_STATE)
        if await slots.load():
            record = HardStateRecord.FromString(slots.payload)
            return cls(slots, HardState(Term(record.term), NodeId(record.vote)))
        if any(name.endswith(".log") for name in disk.listdir(str(directory))):
            raise error(
                Code.CORRUPT_LOG,
                f"{directory} has a log but no hard_state: this node's promises are lost; {READMIT}",
            )
        await slots.create(_encode(HardState()))
        return cls(slots, HardState())

    async def save(self, state: HardState) -> None:
        """Durable in both slots when it returns. Raises DISK_FULL or DISK_ERROR; the node must not go on then."""
        assert state.term >= self.state.term, f"the term fell from {self.state.term} to {state.term}"
        await self._slots.save(_encode(state))
        self.state = state


def _encode(state: HardState) -> bytes:
    return HardStateRecord(term=state.term, vote=state.vote).SerializeToString(deterministic=True)
