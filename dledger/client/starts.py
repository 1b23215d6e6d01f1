"""The beginning of a read: the caller's argument as a place in the log, and the index of this place."""

from __future__ import annotations

import math
from datetime import datetime
from typing import Literal, NamedTuple

from dledger.client.arguments import check_index, is_int
from dledger.common.errors import Code, InvalidRequest, OutOfRange
from dledger.common.places import LATEST, THE_END, Bounds, Kind, Place, TimestampOf, index_of
from dledger.common.times import ms_of
from dledger.common.types import MAX_INDEX

Start = int | Literal["latest"]
"""An index; negative: so many records before the end; "latest": the end."""
Since = datetime | float
"""With a time zone; or milliseconds since the epoch."""


def place_of(start: object, since: object) -> Place:
    """Raises UNEXPECTED_ARGUMENT unless the two name one beginning."""
    if since is not None:
        if not is_int(start) or start != 0:
            raise InvalidRequest(f"start is {start!r} and since is {since!r}: a read has one beginning, leave one out")
        return Place(Kind.TIME, _since_ms(since))
    if start == LATEST:
        return THE_END
    if isinstance(start, datetime):
        raise InvalidRequest(f"start is {start!r}: a time is given as since, as in read(since=…)")
    if not is_int(start):
        text = f'give an index, -5 for the last five records, or "{LATEST}" for those that come'
        raise InvalidRequest(f"start is {start!r}: {text}")
    if start < -MAX_INDEX:
        raise InvalidRequest(f"start is {start}: a log holds {MAX_INDEX} records at most")
    if start < 0:
        return Place(Kind.BEFORE_END, -start)
    check_index(start)
    return Place(Kind.INDEX, start)


def _since_ms(since: object) -> int:
    if isinstance(since, datetime):
        if since.utcoffset() is None:
            raise InvalidRequest(f"since is {since!r}, in no time zone: give one, as in datetime.now(UTC)")
        return max(0, ms_of(since))
    if isinstance(since, bool) or not isinstance(since, int | float) or not 0 <= since <= MAX_INDEX:
        text = "give a datetime with a time zone, or milliseconds since the epoch"
        raise InvalidRequest(f"since is {since!r}: {text}")
    return math.ceil(since)


class Found(NamedTuple):
    """The index of a read's beginning, and the latest one to begin at if the log is trimmed meanwhile."""

    start: int
    latest: int


async def find_start(place: Place, bounds: Bounds, timestamp_of: TimestampOf) -> Found:
    """The index of ``place`` in a log with ``bounds``. For a time it may be a little early: the reader leaves out older
    records.

    The log may be trimmed meanwhile, and one node knows of fewer commits than another. So a trimmed record is taken
    for an older one, and a record of the future for a newer one.
    """

    async def timestamp_or_guess(index: int) -> int:
        try:
            return await timestamp_of(index)
        except OutOfRange as refusal:
            return -1 if refusal.code is Code.INDEX_LESS_THAN_LOCAL_BEGIN else MAX_INDEX

    start = await index_of(place, bounds, timestamp_or_guess)
    return Found(start, max(start, bounds.end))
