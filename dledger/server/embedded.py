"""A member of a cluster inside your own program, with all groups of the cluster. ``dledger serve`` runs the same class.

Its own log is the group `default`; every call takes another group by name. `meta`, which holds the directory of groups,
is founded from the configuration, and `default` by the first leader of `meta`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

from dledger.common.config import NodeConfig
from dledger.common.errors import DLedgerError
from dledger.common.types import DEFAULT_GROUP, META_GROUP
from dledger.disk.disk import Disk
from dledger.node import node
from dledger.server.directory import Directory
from dledger.transport.transport_api import Transport


class Node(node.Node):
    """``async with Node(config) as node``, or ``start`` and ``stop``."""

    def __init__(
        self,
        config: NodeConfig,
        *,
        disk: Disk | None = None,
        transport: Transport[Any] | None = None,
        random: Random | None = None,
        wall_clock_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        random = random or Random()  # seeded by the operating system
        config = replace(config, group=META_GROUP)
        super().__init__(config, disk=disk, transport=transport, random=random, wall_clock_ms=wall_clock_ms)
        self.directory = Directory(self, random)

    async def join(self) -> None:
        await super().join()
        self.directory.start()

    async def stop(self) -> None:
        await self.directory.stop()
        await super().stop()

    def _key_of(self, group: str) -> str:
        return super()._key_of(group or DEFAULT_GROUP)

    def _unknown(self, group: str) -> DLedgerError:
        return self.directory.refusal(group)
