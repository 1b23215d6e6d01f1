"""What a run's clients do, and how they write it down: of the log, or of the store."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AbstractContextManager, AsyncExitStack
from pathlib import Path
from typing import Protocol

from jepsen.nemesis.api import World


class Worker(Protocol):
    """One process."""

    async def run(self, ended: asyncio.Event) -> None:
        """Until ``ended``."""


class Recording(Protocol):
    """The history of a run while it happens. Times are in ns since ``begin``."""

    acknowledged: int
    unknown: int
    failed: int

    def begin(self) -> None: ...

    def now_ns(self) -> int: ...

    def flush(self) -> None:
        """Hands all that is known to the system; called ten times a second."""


class Load(Protocol):
    group: str
    """The one under test, whose leader the nemeses mean."""

    def recording(self, run_dir: Path) -> AbstractContextManager[Recording]: ...

    async def workers(self, world: World, stack: AsyncExitStack) -> Sequence[Worker]:
        """The processes; ``stack`` closes their clients."""

    async def final_reads(self, world: World) -> None:
        """What every node holds in the end. Raises DLedgerError where nothing can be proven."""

    def keep(self, run_dir: Path) -> None:
        """Brings the history into the form in which it is kept."""
