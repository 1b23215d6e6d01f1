"""What the demos have in common: they tell what happens when, and wait for the next leader."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from dledger.client import Log

CATCH_UP_TIMEOUT_S = 60.0
POLL_S = 0.02


class Story:
    """Tells on stderr what happens when."""

    def __init__(self) -> None:
        self._started = time.monotonic()

    def tell(self, what: str, **style: Any) -> None:
        """One event."""
        clock = click.style(f"{time.monotonic() - self._started:6.1f} s", dim=True)
        click.echo(f"{clock}  {click.style(what, **style)}", err=True)


async def leader_but(log: Log, former: str) -> str:
    """The leader's id, as soon as there is one other than ``former``."""
    async with asyncio.timeout(CATCH_UP_TIMEOUT_S):
        while True:
            status = await log.status()
            if status.leader and status.leader != former:
                return status.leader
            await asyncio.sleep(POLL_S)
