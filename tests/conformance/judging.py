"""What a judge says, and how the programs that judge are run."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

LAST_WORDS = 400


class Case(NamedTuple):
    """One thing that was looked at. An empty ``failure``: it is as it should be."""

    name: str
    failure: str = ""
    skipped: str = ""
    """Why it does not apply."""


class Judge(NamedTuple):
    name: str
    judge: Callable[[], Awaitable[list[Case]]]
    """Raises Unavailable."""


class Unavailable(Exception):
    """A tool cannot be had here: nothing was judged."""


class Ended(NamedTuple):
    """A program's exit code, and all that it said."""

    code: int
    output: str

    @property
    def last_words(self) -> str:
        return " ".join(self.output[-LAST_WORDS:].split())


async def run(
    command: Sequence[str | Path],
    *,
    within_s: float,
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> Ended:
    """Runs a program to its end. One that takes longer is killed, and has exit code −9."""
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=folder,
        env=os.environ | (environment or {}),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        async with asyncio.timeout(within_s):
            said, _ = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
        return Ended(-9, f"it took longer than {within_s:g} s")
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode is not None
    return Ended(process.returncode, said.decode(errors="replace"))


async def case_of(name: str, check: Awaitable[object]) -> Case:
    """Of a check of our own: it raises when something is wrong."""
    try:
        await check
    except Exception as failure:  # noqa: BLE001  # whatever it is, the report tells it
        return Case(name, f"{type(failure).__name__}: {failure}")
    return Case(name)
