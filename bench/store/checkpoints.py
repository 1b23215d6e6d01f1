"""When checkpoints of the store began and ended, by the nodes' own logs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Self

_LINE = re.compile(r"^(\S+Z) \S+\s+\S+: a checkpoint (begins|is complete|was not completed)\b.*group=meta")
BEGINS, COMPLETE = "begins", "is complete"


@dataclass(frozen=True, slots=True)
class Event:
    """``at_s``: by the machine's clock."""

    at_s: float
    kind: str

    @classmethod
    def of(cls, line: str) -> Self | None:
        found = _LINE.match(line)
        return cls(datetime.fromisoformat(found[1]).timestamp(), found[2]) if found else None


@dataclass(frozen=True, slots=True)
class Span:
    """One checkpoint from its beginning to its end, complete or not."""

    began_s: float
    ended_s: float
    is_complete: bool


class Checkpoints:
    """Of all nodes: any of them may lead. The logs of nodes that are started again go on in the same files."""

    def __init__(self, logs: Sequence[Path]) -> None:
        self._logs = logs

    def events(self, since_s: float = 0.0) -> list[Event]:
        """In the order of time."""
        found = [event for log in self._logs for event in _events(log) if event.at_s >= since_s]
        return sorted(found, key=lambda event: event.at_s)

    def has(self, kind: str, since_s: float) -> bool:
        return any(event.kind == kind for event in self.events(since_s))

    def spans(self, since_s: float = 0.0) -> list[Span]:
        """Those that ended."""
        spans, began_s = [], None
        for event in self.events(since_s):
            if event.kind == BEGINS:
                began_s = event.at_s
            elif began_s is not None:
                spans.append(Span(began_s, event.at_s, event.kind == COMPLETE))
                began_s = None
        return spans


def _events(log: Path) -> Iterator[Event]:
    for line in log.read_text(errors="replace").splitlines():
        event = Event.of(line)
        if event is not None:
            yield event
