"""What a command waits for, told on stderr."""

from __future__ import annotations

import asyncio
import sys
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Self

import click

from dledger.common.errors import ChangeRefused, DeadlineExceeded

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from dledger.cli.options import Target
    from dledger.client import Log, MembershipChange

TELL_INTERVAL_S = 1.0
"""Without a terminal: a line at most so often."""
POLL_INTERVAL_S = 0.2
LEAST_CALL_MS = 100
WAITS_FOR = "waits_for"
"""In the metadata of a refusal that passes by itself."""


class Waiting:
    """One line that is rewritten on a terminal; otherwise a line each second, if it says something new.

    Nothing is shown of a wait before ``patience_s``.
    """

    def __init__(self, patience_s: float = 0.0) -> None:
        self._patience_s = patience_s
        self._began_at = time.monotonic()
        self._on_terminal = sys.stderr.isatty()
        self._told = ""
        self._next_at = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._clear()

    def restart(self) -> None:
        """A wait is over, and another one begins."""
        self._clear()
        self._told = ""
        self._began_at = time.monotonic()

    def _clear(self) -> None:
        if self._on_terminal and self._told:
            click.echo("\r\x1b[2K", nl=False, err=True)

    def tell(self, sentence: object) -> None:
        """Shows it, on one line."""
        now = time.monotonic()
        if now - self._began_at < self._patience_s:
            return
        text = f"waiting: {' '.join(str(sentence).split())}"
        if self._on_terminal:
            click.echo(f"\r\x1b[2K{text}", nl=False, err=True)
        elif text != self._told and now >= self._next_at:
            self._next_at = now + TELL_INTERVAL_S
            click.echo(text, err=True)
        else:
            return
        self._told = text


@asynccontextmanager
async def telling(target: Target) -> AsyncIterator[tuple[Log, Waiting]]:
    """The log at ``target``; the waits of its calls are shown."""
    with Waiting() as waiting:
        async with target.connect(on_wait=waiting.tell) as log:
            yield log, waiting


async def once_it_passes(
    ask: Callable[[float], Awaitable[MembershipChange]], timeout_ms: float, waiting: Waiting
) -> MembershipChange:
    """Asks (with the milliseconds left) until the leader does it, while a refusal says that it passes by itself. So
    it is when the node is not connected yet, or lags. Raises DeadlineExceeded with the last refusal after
    ``timeout_ms``."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_ms / 1000
    while True:
        left_ms = (deadline - loop.time()) * 1000
        try:
            return await ask(max(LEAST_CALL_MS, left_ms))
        except ChangeRefused as refusal:
            if WAITS_FOR not in refusal.metadata:
                raise
            if loop.time() + POLL_INTERVAL_S >= deadline:
                text = f"waited {timeout_ms / 1000:g} s in vain: {refusal}"
                raise DeadlineExceeded(f"{text}; ask again, or give it more --timeout") from refusal
            waiting.tell(refusal)
        # The leader, another process, cannot be awaited: it is asked.
        await asyncio.sleep(POLL_INTERVAL_S)
