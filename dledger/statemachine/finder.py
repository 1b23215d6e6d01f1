"""Which checkpoint a log that was trimmed is to be restored from. No IO.

The log is passed over from its beginning. The first checkpoint counts whose END is there, and all of whose parts stand
between its BEGIN and that END. What stands before its BEGIN is part of its state. Everybody ignores incomplete ones.
"""

from __future__ import annotations

from typing import NamedTuple

from dledger.statemachine.records import Begin, End, Part, decode


class Checkpoint(NamedTuple):
    """A complete checkpoint in the log: its BEGIN is the record ``id``."""

    id: int
    end_index: int
    parts: int
    digest: bytes


class CheckpointFinder:
    def __init__(self) -> None:
        self._parts: dict[int, int] = {}
        """Of checkpoints whose BEGIN was seen: how many parts followed, in order."""

    def feed(self, index: int, value: bytes) -> Checkpoint | None:
        """The checkpoint that the record at ``index`` completes. Raises as ``decode``."""
        match decode(index, value):
            case Begin():
                self._parts[index] = 0
            case Part(id, number, _) if self._parts.get(id) == number:
                self._parts[id] += 1
            case End(id, parts, _, digest) if self._parts.get(id) == parts:
                return Checkpoint(id, index, parts, digest)
            case _:
                pass
        return None
