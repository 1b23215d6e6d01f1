"""Writes the history of a store's clients while it happens, and reads it again.

::

    operations.jsonl   {"type":"invoke","id":7,"process":3,"ns":120,"op":"put","key":"kv/1","value":"3.17"}
                       {"type":"ok","id":7,"ns":190,"node":"n1","revision":41,"term":2,"before":["3.11",12,40,5]}
                       {"type":"info","id":8,"ns":5200,"node":"n1","error":"DEADLINE_EXCEEDED: the call's time is up"}
                       {"type":"note","ns":5300,"about":"watch","watch":3,"revision":41,"events":[…]}

An operation without a second line is of unknown outcome: the harness itself was killed meanwhile. A note stands by
itself: it is what a watch was told, or what a node held at the end.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from dledger.common.errors import ConfigError
from dledger.kernels.history import FAIL, INFO, OK
from dledger.kernels.store.register import FOREVER
from jepsen.store.client import Asked
from jepsen.store.outcomes import Answered, Refused, Unknown

FILE = "operations.jsonl"
FLUSH_LINES = 2_000
INVOKE, NOTE = "invoke", "note"


class Journal:
    """Of one run. Times are in ns since ``begin``."""

    def __init__(self, run_dir: Path) -> None:
        self._file = (run_dir / FILE).open("w", encoding="utf-8")
        self._lines: list[str] = []
        self._began_ns = time.monotonic_ns()
        self._next_id = 0
        self.acknowledged = 0
        self.unknown = 0
        self.failed = 0
        """Operations, so far."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.flush()
        self._file.close()

    def begin(self) -> None:
        """The load begins: time is 0."""
        self._began_ns = time.monotonic_ns()

    def now_ns(self) -> int:
        return time.monotonic_ns() - self._began_ns

    def invoke(self, process: int, op: str, **what: Any) -> int:
        """Before the call is sent. Returns the operation's id."""
        self._next_id += 1
        self._write({"type": INVOKE, "id": self._next_id, "process": process, "ns": self.now_ns(), "op": op, **what})
        return self._next_id

    def complete(self, operation: int, asked: Asked, **found: Any) -> None:
        """After its outcome was told; ``found`` is of the answer, if there was one."""
        outcome = asked.outcome
        line = {"id": operation, "ns": self.now_ns(), "node": asked.node}
        match outcome:
            case Answered():
                self.acknowledged += 1
                self._write({"type": OK, **line, **found})
            case Refused(why):
                self.failed += 1
                self._write({"type": FAIL, **line, "error": why})
            case Unknown(why):
                self.unknown += 1
                self._write({"type": INFO, **line, "error": why})

    def note(self, about: str, **what: Any) -> None:
        self._write({"type": NOTE, "ns": self.now_ns(), "about": about, **what})

    def _write(self, line: dict[str, Any]) -> None:
        self._lines.append(json.dumps(line, separators=(",", ":")) + "\n")
        if len(self._lines) >= FLUSH_LINES:
            self.flush()

    def flush(self) -> None:
        """Hands the lines to the system; called ten times a second too."""
        self._file.write("".join(self._lines))
        self._file.flush()
        self._lines.clear()


@dataclass(frozen=True, slots=True)
class Call:
    """An operation as the history tells it."""

    id: int
    process: int
    op: str
    invoked_ns: int
    completed_ns: int
    """``FOREVER`` if nothing is known of its end."""
    outcome: str
    told: dict[str, Any]
    """All else: of the request, and of the answer."""

    @property
    def is_ok(self) -> bool:
        return self.outcome == OK


class Note(NamedTuple):
    about: str
    at_ns: int
    told: dict[str, Any]


@dataclass(frozen=True, slots=True)
class History:
    calls: list[Call]
    """In the order of their invocations."""
    notes: list[Note]

    def of(self, *ops: str) -> Iterator[Call]:
        return (call for call in self.calls if call.op in ops)

    def about(self, about: str) -> Iterator[Note]:
        return (note for note in self.notes if note.about == about)


def read_history(run_dir: Path) -> History:
    """Raises CONFIG_ERROR for what is no history."""
    file = run_dir / FILE
    calls: dict[int, Call] = {}
    notes: list[Note] = []
    try:
        with file.open(encoding="utf-8") as lines:
            for line in lines:
                if line.endswith("\n"):  # else the harness was killed as it wrote that
                    _take(json.loads(line), calls, notes)
    except (OSError, ValueError, KeyError) as failure:
        raise ConfigError(f"{file} is not a history of the store: {failure!r}") from None
    return History(list(calls.values()), notes)


def _take(line: dict[str, Any], calls: dict[int, Call], notes: list[Note]) -> None:
    kind, at_ns = line.pop("type"), line.pop("ns")
    if kind == NOTE:
        notes.append(Note(line.pop("about"), at_ns, line))
        return
    number = line.pop("id")
    if kind == INVOKE:
        calls[number] = Call(number, line.pop("process"), line.pop("op"), at_ns, FOREVER, INFO, line)
        return
    if kind not in (OK, FAIL, INFO):
        raise ValueError(f"{kind!r} is no outcome")
    begun = calls[number]
    calls[number] = Call(number, begun.process, begun.op, begun.invoked_ns, at_ns, kind, begun.told | line)
