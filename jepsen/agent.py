"""A small process beside the control node that runs commands for it.

The control node is large and busy: to fork it takes long, and stops its clients meanwhile. So it asks by a pipe.

::

    asked      {"id": 7, "command": ["nft", "…"]}
    answered   {"id": 7, "code": 0, "out": "…", "problem": ""}
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from itertools import count

from jepsen.shell import CommandFailedError

TIMEOUT_S = 30.0
NOT_FOUND = 127
"""As a shell says it."""
MOST_LINE_BYTES = 16 << 20


class Agent:
    """The control node's end."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._ids = count()
        self._waiting: dict[int, asyncio.Future[dict[str, object]]] = {}
        self._hearing = asyncio.create_task(self._hear(), name="agent")

    @staticmethod
    async def start() -> Agent:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "jepsen.agent"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            limit=MOST_LINE_BYTES,
            start_new_session=True,
        )
        return Agent(process)

    async def run(self, *command: str) -> str:
        """What the command prints. Raises CommandFailedError, TimeoutError."""
        assert self._process.stdin is not None
        number = next(self._ids)
        answered = self._waiting[number] = asyncio.get_running_loop().create_future()
        self._process.stdin.write(json.dumps({"id": number, "command": command}).encode() + b"\n")
        try:
            answer = await asyncio.wait_for(answered, TIMEOUT_S)
        finally:
            del self._waiting[number]
        if answer["code"]:
            raise CommandFailedError(command, int(str(answer["code"])), str(answer["problem"]))
        return str(answer["out"])

    async def _hear(self) -> None:
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            answer = json.loads(line)
            waiting = self._waiting.get(answer["id"])
            if waiting is not None and not waiting.done():
                waiting.set_result(answer)

    async def close(self) -> None:
        """It ends when nobody asks it any more."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        await self._process.wait()
        await self._hearing


async def _serve() -> None:
    """The agent's end: commands run beside each other, until the pipe is closed."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=MOST_LINE_BYTES)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    tasks: set[asyncio.Task[None]] = set()
    while line := await reader.readline():
        asked = json.loads(line)
        task = asyncio.create_task(_run(asked["id"], asked["command"]))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
    if tasks:
        await asyncio.wait(tasks)


async def _run(number: int, command: list[str]) -> None:
    try:
        process = await asyncio.create_subprocess_exec(
            *command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
    except OSError as failure:
        _answer(number, NOT_FOUND, "", f"{command[0]}: {failure.strerror}")
        return
    out, problem = await process.communicate()
    _answer(number, process.returncode or 0, out.decode(errors="replace"), problem.decode(errors="replace"))


def _answer(number: int, code: int, out: str, problem: str) -> None:
    sys.stdout.write(json.dumps({"id": number, "code": code, "out": out, "problem": problem}) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(_serve())
