"""Connections that nobody waits for any more."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

import pytest
import uvloop

from dledger.rpc.client.dial import dial

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.SelectorEventLoop,
    "uvloop": uvloop.new_event_loop,
}


class Told(asyncio.Protocol):
    """Counts what it is told."""

    def __init__(self) -> None:
        self.made = self.lost = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.made += 1

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost += 1


@pytest.mark.parametrize("loop", LOOPS)
def test_a_connection_that_is_given_up_while_it_is_made_is_told_of_its_end(loop: str) -> None:
    made: list[Told] = []

    def make() -> Told:
        made.append(Told())
        return made[-1]

    async def run() -> None:
        server = await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        for turns in range(30):  # one of them falls between the making and its result
            dialling = asyncio.ensure_future(dial(["127.0.0.1"], port, make))
            for _ in range(turns):
                await asyncio.sleep(0)
            if dialling.cancel():
                with contextlib.suppress(asyncio.CancelledError):
                    await dialling
        await asyncio.sleep(0.1)
        server.close()

    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.run(run())
    assert [told for told in made if told.made and not told.lost] == []
