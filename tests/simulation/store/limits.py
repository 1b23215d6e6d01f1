"""Limits that are so small, while a seed runs, that its few keys and watches reach them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

from dledger.server.meta import compactor
from dledger.statemachine import runner, sessions
from dledger.store import watch, watcher

_SMALL: tuple[tuple[ModuleType, str, float], ...] = (
    (runner, "RECORDS_AT_ONCE", 3),
    (sessions, "MAX_SESSIONS", 6),
    (watcher, "MAX_PENDING", 5),
    (watcher, "MAX_REVISIONS", 4),
    (watcher, "SCANNED_AT_ONCE", 16),
    (watch, "MAX_FRAGMENT_BYTES", 160),
    (compactor, "STEPS_AT_ONCE", 4),
    (compactor, "CLEAN_PAUSE_S", 0.05),
)


@contextmanager
def small_limits() -> Iterator[None]:
    before = [getattr(module, name) for module, name, _ in _SMALL]
    for module, name, limit in _SMALL:
        setattr(module, name, limit)
    try:
        yield
    finally:
        for (module, name, _), limit in zip(_SMALL, before, strict=True):
            setattr(module, name, limit)
