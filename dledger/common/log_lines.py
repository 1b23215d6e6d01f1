"""Lines of a log, written by a thread of their own: a reader of stderr that stands still holds nobody up.

A pipe that is not read is full after 64 KiB, and a write to it blocks. If the event loop's thread wrote it, the whole
node would stand still. So lines wait in a queue. When that is full, further lines are dropped and counted. The count is
the first line written afterwards.
"""

from __future__ import annotations

import logging
import os
import sys
from collections import deque
from collections.abc import Callable
from threading import Condition, Thread

MAX_LINES = 10_000
"""That wait to be written."""
FLUSH_TIMEOUT_S = 1.0
"""How long the end of the process waits for them."""

Write = Callable[[bytes], None]


def stderr_writer() -> Write:
    """Writes to stderr, and blocks while its reader does not read. It passes Python's own buffer by. A thread that
    blocked in it would hold the buffer's lock, and the end of the process needs that lock."""
    stream = sys.stderr
    try:
        descriptor = stream.fileno()
    except (OSError, ValueError, AttributeError):  # a stream in memory, as tests have it

        def write_text(data: bytes) -> None:
            stream.write(data.decode())
            stream.flush()

        return write_text

    def write(data: bytes) -> None:
        while data:
            data = data[os.write(descriptor, data) :]

    return write


class LogLines(logging.Handler):
    """Never blocks, and never raises. The thread begins with the first line and ends with ``close``."""

    def __init__(self, write: Write, *, most_lines: int = MAX_LINES) -> None:
        super().__init__()
        self._write = write
        self._most_lines = most_lines
        self._lines: deque[str] = deque()
        self._held_back = 0
        self._changed = Condition()
        self._is_writing = False
        self._is_closed = False
        self._thread: Thread | None = None

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self.format(record)
        except Exception:  # noqa: BLE001  # as every handler of the standard library
            self.handleError(record)
            return
        with self._changed:
            if len(self._lines) >= self._most_lines:
                self._held_back += 1
                return
            self._lines.append(line)
            if self._thread is None:
                self._thread = Thread(target=self._run, name="log-lines", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def flush(self) -> None:
        """Returns when all lines are written, or after ``FLUSH_TIMEOUT_S``."""
        with self._changed:
            self._changed.wait_for(self._is_idle, FLUSH_TIMEOUT_S)

    def close(self) -> None:
        """Writes what is left, as ``flush`` does, and ends the thread."""
        self.flush()
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        super().close()

    def _is_idle(self) -> bool:
        return not self._lines and not self._held_back and not self._is_writing

    def _run(self) -> None:
        while (text := self._next()) is not None:
            try:
                self._write(text.encode(errors="backslashreplace"))
            except (OSError, ValueError):  # the reader is gone, or the stream closed: there is nobody to tell
                pass
            finally:
                with self._changed:
                    self._is_writing = False
                    self._changed.notify_all()

    def _next(self) -> str | None:
        """All lines that wait. None: it is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._lines or self._held_back or self._is_closed)
            if not self._lines and not self._held_back:
                return None
            lines = [*self._lines]
            if self._held_back:
                lines.append(self._line_of_those_held_back())
            self._lines.clear()
            self._held_back = 0
            self._is_writing = True
        return "".join(f"{line}\n" for line in lines)

    def _line_of_those_held_back(self) -> str:
        record = logging.LogRecord(__name__, logging.WARNING, __file__, 0, "lines were not logged", None, None)
        record.held_back = self._held_back
        return self.format(record)
