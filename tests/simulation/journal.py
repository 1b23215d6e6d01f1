"""What all clients know together, and what it says of the log."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.simulation.violation import Violation


@dataclass
class Journal:
    acknowledged: dict[int, bytes] = field(default_factory=dict)
    """By index."""
    appends: int = 0
    """That were acknowledged, whatever number of records each had."""
    attempted: set[bytes] = field(default_factory=set)
    refused: set[bytes] = field(default_factory=set)
    """Surely not appended."""
    reads: int = 0
    highest: int = -1
    """The highest index that was acknowledged."""

    def acknowledge(self, base_index: int, records: list[bytes], highest_before: int = -1) -> None:
        """``highest_before``: the highest index acknowledged to anyone before ``records`` were first sent."""
        if base_index <= highest_before:
            raise Violation("real time", f"{records[0]!r} got {base_index}, {highest_before} was acknowledged before")
        self.appends += 1
        for index, record in enumerate(records, base_index):
            known = self.acknowledged.setdefault(index, record)
            if known != record:
                raise Violation("one value an index", f"index {index} was acknowledged to {known!r} and {record!r}")
        self.highest = max(self.highest, base_index + len(records) - 1)

    def saw(self, index: int, value: bytes, *, who: str) -> None:
        """A committed read."""
        known = self.acknowledged.get(index)
        if known is not None and known != value:
            raise Violation("reads are what was acknowledged", f"{who} read {value!r} at {index}, not {known!r}")
        if value in self.refused:
            raise Violation("what failed is not there", f"{who} read {value!r}, which was refused")
        if value not in self.attempted:
            raise Violation("what is read was appended", f"{who} read {value!r} at {index}, which nobody appended")

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
