"""A foreign client at work on three nodes, of which one after the other is killed."""

from __future__ import annotations

import asyncio
import json
from asyncio.subprocess import PIPE
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from dledger.common.types import META_GROUP
from dledger.server.meta.meta_backend import etcd_id
from tests.integration.nodes import Nodes, leader_of

STEPS_WITHIN_S = 30.0
STEPS = 2
"""The first of them may have been under way before; the other is not."""
KEPT_CHARACTERS = 4_000
SLOW = "lease"
"""A part with a step every other second."""


class ClientAtWork:
    """It prints ``step PART WORD`` for each piece of its work, and a JSON object when it was told to end."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._steps: Counter[str] = Counter()
        self._words: dict[str, str] = {}
        self._report: dict[str, Any] = {}
        self._progress = asyncio.Condition()
        self._errors = asyncio.create_task(_read(process.stderr), name="a foreign client's errors")
        self._reading = asyncio.create_task(self._read_steps(), name="a foreign client's steps")

    async def _read_steps(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            text = line.decode()
            async with self._progress:
                if text.startswith("step "):
                    _, part, word = text.split()
                    self._steps[part] += 1
                    self._words[part] = word
                else:
                    self._report = json.loads(text)
                self._progress.notify_all()
        async with self._progress:
            self._progress.notify_all()

    def goals(self, parts: Iterable[str]) -> dict[str, int]:
        """How far each of the parts is once it has done something from now on."""
        return {part: self._steps[part] + STEPS for part in parts}

    async def reach(self, goals: Mapping[str, int]) -> None:
        def late() -> list[str]:
            return [part for part, count in goals.items() if self._steps[part] < count]

        try:
            async with asyncio.timeout(STEPS_WITHIN_S), self._progress:
                while late() and not self._reading.done():
                    await self._progress.wait()
        except TimeoutError:
            raise AssertionError(f"{', '.join(late())} did not go on within {STEPS_WITHIN_S:g} s") from None
        if late():
            await self.end()
            raise AssertionError("the client ended before it was told to")

    def word(self, part: str) -> str:
        """The last one of the part."""
        return self._words[part]

    async def end(self) -> dict[str, Any]:
        """What it has to say of each part."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        async with asyncio.timeout(STEPS_WITHIN_S):
            code = await self._process.wait()
            await self._reading
            errors = await self._errors
        assert code == 0, f"the client ended with {code}: {errors[-KEPT_CHARACTERS:]}"
        return self._report

    async def close(self) -> None:
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()
        await asyncio.gather(self._reading, self._errors)


async def _read(stream: asyncio.StreamReader | None) -> str:
    assert stream is not None
    return (await stream.read()).decode(errors="replace")


@asynccontextmanager
async def at_work(command: list[str], nodes: Nodes) -> AsyncIterator[ClientAtWork]:
    process = await asyncio.create_subprocess_exec(
        *command, nodes.cluster.endpoints, stdin=PIPE, stdout=PIPE, stderr=PIPE
    )
    client = ClientAtWork(process)
    try:
        yield client
    finally:
        await client.close()


async def kill_leaders(nodes: Nodes, client: ClientAtWork, parts: Iterable[str], kills: int) -> None:
    """Of the group ``meta``."""
    await client.reach(client.goals(parts))
    for _ in range(kills):
        await _kill(await leader_of(nodes, META_GROUP), nodes, client, parts)


async def kill_the_watched(nodes: Nodes, client: ClientAtWork, parts: Iterable[str]) -> None:
    """The node that answers the client's watch: its member id is the watch's last word."""
    names = {str(etcd_id(node_id)): node_id for node_id in nodes.ids}
    await _kill(names[client.word("watch")], nodes, client, parts)


async def _kill(victim: str, nodes: Nodes, client: ClientAtWork, parts: Iterable[str]) -> None:
    """All parts but the slow one go on before the node comes back, and all have gone on when it is there."""
    await nodes.cluster.kill(victim)
    goals = client.goals(parts)
    await client.reach({part: count for part, count in goals.items() if part != SLOW})
    await nodes.restart(victim)
    await client.reach(goals)
