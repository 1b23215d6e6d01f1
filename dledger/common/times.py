"""Times as people write them: ISO 8601, in UTC unless an offset is named."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

EXAMPLE = "2026-11-21T20:15"

_ISO = re.compile(
    r"(?P<day>\d{4}-\d{2}-\d{2})"
    r"([T ](?P<clock>\d{2}:\d{2}(:\d{2}(\.\d{1,6})?)?)(?P<zone>Z|[+-]\d{2}:\d{2})?)?",
    re.ASCII,
)
_FRACTION_DIGITS = 6
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)


def ms_of(moment: datetime) -> int:
    """Milliseconds since the epoch, the next whole one. ``moment`` has a time zone."""
    return -((_EPOCH - moment) // _MS)


def iso_ms(text: str) -> int | None:
    """Milliseconds since the epoch of a date, or of a date with a time of day. None: it is neither.

    2026-11-21, 2026-11-21T20:15, 2026-11-21T20:15:30.5, 2026-11-21T20:15Z, 2026-11-21T20:15+01:00. A space may stand
    for the T.
    """
    found = _ISO.fullmatch(text)
    if found is None:
        return None
    clock, _, fraction = (found["clock"] or "00:00").partition(".")
    if fraction:
        clock = f"{clock}.{fraction:0<{_FRACTION_DIGITS}}"
    try:
        moment = datetime.fromisoformat(f"{found['day']}T{clock}{found['zone'] or 'Z'}")
    except ValueError:  # the 13th month, the 25th hour
        return None
    return ms_of(moment)


def format_ms(timestamp_ms: int) -> str:
    """What ``iso_ms`` reads: 2026-11-21T20:15:30.500Z. A time that no calendar has is told in milliseconds."""
    try:
        moment = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return f"{timestamp_ms}ms"
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
