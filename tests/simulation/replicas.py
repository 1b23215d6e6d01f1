"""Logs that have come to rest: all the same, byte for byte, and what the clients were told."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from hashlib import blake2b
from typing import NamedTuple

from dledger.common.batch import records_of
from dledger.common.errors import Code, DLedgerError
from dledger.common.types import Consistency, Position, TrimPoint
from tests.simulation.journal import Journal
from tests.simulation.seat import Seat
from tests.simulation.violation import Violation

ROUNDS = 20
"""So often they are read again where somebody moved meanwhile."""

GET_EVERY = 10
"""Of the records, read one by one."""


class Held(NamedTuple):
    """What one node's log holds, as far as it is committed."""

    start: TrimPoint
    digest: str
    """Of the frames' bytes."""
    state: bytes
    records: list[bytes]


async def check_equal(seats: Sequence[Seat], journal: Journal) -> None:
    """``seats`` are the members; all are up and level."""
    first, *others = await _at_rest(seats)
    for seat, held in zip(seats, (first, *others), strict=True):
        journal.check(held.records, held.start.first_index, who=seat.name)
        if (held.start, held.digest) != (first.start, first.digest):
            raise Violation("equal bytes", f"{seat.name} holds other frames behind {held.start} than {seats[0].name}")
        if held.state != first.state:
            raise Violation("equal states", f"{seat.name} has another small state than {seats[0].name}")


async def _at_rest(seats: Sequence[Seat]) -> list[Held]:
    """Read while nobody moved: the leader trims by size, or hands over, of its own accord."""
    for _ in range(ROUNDS):
        before = [_stand(seat) for seat in seats]
        held = [await seat.ask(_reading(seat)) for seat in seats]
        if before == [_stand(seat) for seat in seats] and len(set(before)) == 1:
            return [each for each in held if each is not None]
        await asyncio.sleep(0.2)
    raise Violation("liveness", f"the logs never stood still: {[_stand(seat) for seat in seats]}")


async def check_served(seats: Sequence[Seat], journal: Journal) -> None:
    """Each of ``seats``, which are level, serves what was acknowledged and not trimmed, the last record included."""
    for seat in seats:
        start = seat.replica.log.state.start
        try:
            served = await seat.ask(_served(seat, sorted(journal.acknowledged)))
        except DLedgerError as refusal:
            if refusal.code is Code.INDEX_LESS_THAN_LOCAL_BEGIN and seat.replica.log.state.start != start:
                continue  # it was trimmed meanwhile, by what deletion.py allows
            raise Violation("what is acknowledged is served", f"{seat.name}: {refusal!r}") from refusal
        for index, value in served.items():
            journal.saw(index, value, who=seat.name)


def _served(seat: Seat, indexes: list[int]) -> Callable[[], Awaitable[dict[int, bytes]]]:
    """All at once, and some one by one."""

    async def read() -> dict[int, bytes]:
        reader, first_index = seat.replica.reader, seat.replica.log.state.first_index
        point = await reader.read_point(Consistency.COMMITTED)
        kept = [index for index in indexes if index >= first_index]
        if not kept:
            return {}
        served: dict[int, bytes] = {}
        async for frames, _ in reader.read(kept[0], kept[-1] + 1, point, follow=False):
            for frame in frames:
                served.update(enumerate(records_of(frame.body, frame.header.count), frame.header.base_index))
        if missing := [index for index in kept if index not in served]:
            raise Violation("what is acknowledged is served", f"{seat.name} passes over {missing}")
        for index in {*kept[::GET_EVERY], kept[-1], point.commit_index}:
            served[index] = (await reader.get(index, point)).value
        return served

    return read


def _stand(seat: Seat) -> tuple[Position, Position, Position]:
    log = seat.replica.log
    return log.state.start.position, log.last.position, seat.replica.core.commit_position


def _reading(seat: Seat) -> Callable[[], Awaitable[Held | None]]:
    """Reads the whole log of ``seat``, there. None where it was trimmed meanwhile."""

    async def read() -> Held | None:
        log = seat.replica.log
        start = TrimPoint(log.state.start, log.state.first_index)
        position = Position(start.point.position + 1)
        digest = blake2b(digest_size=8)
        records: list[bytes] = []
        try:
            while position <= seat.replica.core.commit_position:
                frames = await log.read(position, 1 << 20)
                for frame in frames:
                    digest.update(frame.raw)
                    if frame.header.count:
                        records += records_of(frame.body, frame.header.count)
                position = Position(frames[-1].header.position + 1)
        except DLedgerError as refusal:
            if refusal.code is Code.INDEX_LESS_THAN_LOCAL_BEGIN and log.state.start != start.point:
                return None
            raise
        return Held(start, digest.hexdigest(), log.state.encode(), records)

    return read
