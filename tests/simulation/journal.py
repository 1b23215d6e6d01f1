"""What all clients know together, and what it says of the log."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.simulation.violation import Violation


@dataclass
class Journal:
    acknowledged: dict[int, bytes] = field(default_factory=dict)
    """By index."""
    values: dict[int, bytes] = field(default_factory=dict)
    """By index, whatever was acknowledged, or read by anybody."""
    appends: int = 0
    """That were acknowledged, whatever number of records each had."""
    attempted: set[bytes] = field(default_factory=set)
    refused: set[bytes] = field(default_factory=set)
    """Surely not appended."""
    reads: int = 0
    highest: int = -1
    """The highest index that was acknowledged."""
    read_up_to: int = -1
    """The highest index that a linearizable read was told of."""

    @property
    def least_read(self) -> int:
        """What a linearizable read that begins now must reach, at least."""
        return max(self.highest, self.read_up_to)

    def acknowledge(self, base_index: int, records: list[bytes], highest_before: int = -1) -> None:
        """``highest_before``: the highest index acknowledged to anyone before ``records`` were first sent."""
        if base_index <= highest_before:
            raise Violation("real time", f"{records[0]!r} got {base_index}, {highest_before} was acknowledged before")
        self.appends += 1
        for index, record in enumerate(records, base_index):
            self._know(index, record, "it was acknowledged")
            self.acknowledged[index] = record
        self.highest = max(self.highest, base_index + len(records) - 1)

    def saw(self, index: int, value: bytes, *, who: str) -> None:
        """A committed read."""
        if value in self.refused:
            raise Violation("what failed is not there", f"{who} read {value!r}, which was refused")
        if value not in self.attempted:
            raise Violation("what is read was appended", f"{who} read {value!r} at {index}, which nobody appended")
        self._know(index, value, f"{who} read it")

    def _know(self, index: int, value: bytes, why: str) -> None:
        known = self.values.setdefault(index, value)
        if known != value:
            raise Violation("one value an index", f"index {index} has {value!r}, {why}; it had {known!r} before")

    def check(self, committed: list[bytes], first_index: int, *, who: str) -> None:
        """Nothing acknowledged is lost or moved, nothing that failed is there, nothing is there twice."""
        for index, record in self.acknowledged.items():
            if index < first_index:
                continue
            at = index - first_index
            if at >= len(committed) or committed[at] != record:
                there = committed[at] if at < len(committed) else "nothing"
                raise Violation("no acknowledged loss", f"{who} has {there!r} at {index}, {record!r} was acknowledged")
        if len(set(committed)) != len(committed):
            raise Violation("no duplicates", f"a record is twice in the log of {who}")
        for index, record in enumerate(committed, first_index):
            self.saw(index, record, who=who)


class MachineJournal(Journal):
    """Of a group whose records are a state machine's: what is in them is for the machine's own judge (machines.py). A
    retried command is there twice."""

    def saw(self, index: int, value: bytes, *, who: str) -> None:
        self._know(index, value, f"{who} read it")

    def check(self, committed: list[bytes], first_index: int, *, who: str) -> None:
        for index, record in enumerate(committed, first_index):
            self.saw(index, record, who=who)
