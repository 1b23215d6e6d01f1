"""Logs that have come to rest: all the same, byte for byte, and what the clients were told."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from hashlib import blake2b
from typing import NamedTuple

from dledger.common.batch import records_of
from dledger.common.errors import Code, DLedgerError
from dledger.common.types import Consistency, Position, TrimPoint
from tests.simulation.host import SimHost
from tests.simulation.journal import Journal
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


async def check_equal(hosts: Sequence[SimHost], journal: Journal) -> None:
    """``hosts`` are the members; all are up and level."""
    first, *others = await _at_rest(hosts)
    for host, held in zip(hosts, (first, *others), strict=True):
        journal.check(held.records, held.start.first_index, who=host.id)
        if (held.start, held.digest) != (first.start, first.digest):
            raise Violation("equal bytes", f"{host.id} holds other frames behind {held.start} than {hosts[0].id}")
        if held.state != first.state:
            raise Violation("equal states", f"{host.id} has another small state than {hosts[0].id}")


async def _at_rest(hosts: Sequence[SimHost]) -> list[Held]:
    """Read while nobody moved: the leader trims by size, or hands over, of its own accord."""
    for _ in range(ROUNDS):
        before = [_stand(host) for host in hosts]
        held = [await host.ask(_reading(host)) for host in hosts]
        if before == [_stand(host) for host in hosts] and len(set(before)) == 1:
            return [each for each in held if each is not None]
        await asyncio.sleep(0.2)
    raise Violation("liveness", f"the logs never stood still: {[_stand(host) for host in hosts]}")


async def check_served(hosts: Sequence[SimHost], journal: Journal) -> None:
    """Each of ``hosts``, which are level, serves what was acknowledged and not trimmed, the last record included."""
    for host in hosts:
        start = host.replica.log.state.start
        try:
            served = await host.ask(_served(host, sorted(journal.acknowledged)))
        except DLedgerError as refusal:
            if refusal.code is Code.INDEX_LESS_THAN_LOCAL_BEGIN and host.replica.log.state.start != start:
                continue  # it was trimmed meanwhile, by what deletion.py allows
            raise Violation("what is acknowledged is served", f"{host.id}: {refusal!r}") from refusal
        for index, value in served.items():
            journal.saw(index, value, who=host.id)


def _served(host: SimHost, indexes: list[int]) -> Callable[[], Awaitable[dict[int, bytes]]]:
    """All at once, and some one by one."""

    async def read() -> dict[int, bytes]:
        reader, first_index = host.replica.reader, host.replica.log.state.first_index
        point = await reader.read_point(Consistency.COMMITTED)
        kept = [index for index in indexes if index >= first_index]
        if not kept:
            return {}
        served: dict[int, bytes] = {}
        async for frames, _ in reader.read(kept[0], kept[-1] + 1, point, follow=False):
            for frame in frames:
                served.update(enumerate(records_of(frame.body, frame.header.count), frame.header.base_index))
        if missing := [index for index in kept if index not in served]:
            raise Violation("what is acknowledged is served", f"{host.id} passes over {missing}")
        for index in {*kept[::GET_EVERY], kept[-1], point.commit_index}:
            served[index] = (await reader.get(index, point)).value
        return served

    return read


def _stand(host: SimHost) -> tuple[Position, Position, Position]:
    log = host.replica.log
    return log.state.start.position, log.last.position, host.replica.core.commit_position


def _reading(host: SimHost) -> Callable[[], Awaitable[Held | None]]:
    """Reads the whole log of ``host``, there. None where it was trimmed meanwhile."""

    async def read() -> Held | None:
        log = host.replica.log
        start = TrimPoint(log.state.start, log.state.first_index)
        position = Position(start.point.position + 1)
        digest = blake2b(digest_size=8)
        records: list[bytes] = []
        try:
            while position <= host.replica.core.commit_position:
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
