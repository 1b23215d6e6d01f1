"""Logs that have come to rest: all the same, byte for byte, and what the clients were told."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from hashlib import blake2b

from dledger.batch import records_of
from dledger.errors import Code, DLedgerError
from dledger.types import Consistency, Position, TrimPoint
from tests.simulation.host import SimHost
from tests.simulation.journal import Journal
from tests.simulation.violation import Violation

ROUNDS = 20
"""So often they are read again where somebody moved meanwhile."""

GET_EVERY = 10
"""Of the records, read one by one."""


async def check_equal(hosts: Sequence[SimHost], journal: Journal) -> None:
    """``hosts`` are the members; all are up and level."""
    for _ in range(ROUNDS):
        before = [_stand(host) for host in hosts]
        first, *others = [await host.ask(host_reader(host, journal)) for host in hosts]
        if before == [_stand(host) for host in hosts] and len(set(before)) == 1:
            break
        await asyncio.sleep(0.2)  # the leader trims by size, or hands over, of its own accord
    for host, (start, digest, state) in zip(hosts[1:], others, strict=True):
        if start != first[0] or digest != first[1]:
            raise Violation("equal bytes", f"{host.id} holds other frames behind {start} than {hosts[0].id}")
        if state != first[2]:
            raise Violation("equal states", f"{host.id} has another small state than {hosts[0].id}")


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


def host_reader(host: SimHost, journal: Journal):  # type: ignore[no-untyped-def]
    """Reads the whole log of ``host``, there."""

    async def read() -> tuple[TrimPoint, str, bytes]:
        log = host.replica.log
        state = log.state
        position = Position(state.start.position + 1)
        digest = blake2b(digest_size=8)
        committed: list[bytes] = []
        while position <= host.replica.core.commit_position:
            frames = await log.read(position, 1 << 20)
            for frame in frames:
                digest.update(frame.raw)
                if frame.header.count:
                    committed += records_of(frame.body, frame.header.count)
            position = Position(frames[-1].header.position + 1)
        journal.check(committed, state.first_index, who=host.id)
        return TrimPoint(state.start, state.first_index), digest.hexdigest(), state.encode()

    return read
