"""Which checkpoint a log is to be restored from. No IO.

The log is passed over from its beginning. A checkpoint is **complete** when its END is there, and all of its parts
stand between its BEGIN and that END. Everybody ignores incomplete ones. What stands before its BEGIN is part of its
state.

On a node, the first complete checkpoint counts that a later record confirms: an unconfirmed one may come from a leader
with damaged memory. A log that was trimmed always has one, as nothing else trims it. On a client nobody confirms: there
the first complete one counts.
"""

from __future__ import annotations

from typing import NamedTuple

from dledger.statemachine.records import Begin, Confirmed, End, Head, Part, decode


class Checkpoint(NamedTuple):
    """A complete checkpoint in the log: its BEGIN is the record ``id``."""

    id: int
    end_index: int
    parts: int
    digest: bytes
    size_bytes: int = 0


class CheckpointFinder:
    def __init__(self, *, needs_confirmation: bool = False, least_id: int = 0) -> None:
        """``least_id``: of the checkpoints that count."""
        self._needs_confirmation = needs_confirmation
        self._least_id = least_id
        self._begun: dict[int, tuple[int, int]] = {}
        """Checkpoints with a BEGIN read so far: how many parts, and pieces of the head, followed in order."""
        self._complete: dict[int, Checkpoint] = {}
        """Complete checkpoints that wait to be confirmed."""

    def feed(self, index: int, value: bytes) -> Checkpoint | None:
        """The checkpoint that the record at ``index`` makes one to restore from. Raises as ``decode``."""
        match decode(index, value):
            case Begin() if index >= self._least_id:
                self._begun[index] = 0, 0
            case Part(id, number, _) if id in self._begun:
                self._count(id, number, 0)
            case Head(id, number, _) if id in self._begun:
                self._count(id, number, 1)
            case End(id, parts, size_bytes, digest, heads) if self._begun.pop(id, None) == (parts, heads):
                found = Checkpoint(id, index, parts, digest, size_bytes)
                if not self._needs_confirmation:
                    return found
                self._complete[id] = found
            case Confirmed(id, digest) if id in self._complete and self._complete[id].digest == digest:
                return self._complete.pop(id)
            case _:
                pass
        return None

    def _count(self, checkpoint_id: int, number: int, kind: int) -> None:
        counts = list(self._begun[checkpoint_id])
        if counts[kind] == number:
            counts[kind] += 1
            self._begun[checkpoint_id] = counts[0], counts[1]
