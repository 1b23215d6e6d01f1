"""A start's findings about the log that it opened."""

from __future__ import annotations

from typing import NamedTuple


class RecoveryReport(NamedTuple):
    """What a start found."""

    clean_stop: bool
    """The log was closed in order, or is new."""
    torn_bytes: int
    """Bytes behind the last good frame that were cut off."""
    frames_replayed: int
