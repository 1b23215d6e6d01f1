"""Logs that have come to rest: all the same, byte for byte, and what the clients were told."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from hashlib import blake2b

from dledger.batch import records_of
from dledger.types import Position, TrimPoint
from tests.simulation.cluster import SimHost
from tests.simulation.journal import Journal
from tests.simulation.violation import Violation

ROUNDS = 20
"""So often they are read again where somebody moved meanwhile."""


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


def _stand(host: SimHost) -> tuple[Position, Position]:
    return host.replica.log.state.start.position, host.replica.core.commit_position


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
