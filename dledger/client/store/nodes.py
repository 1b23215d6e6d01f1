"""Which node a call of the store goes to: the leader of ``meta`` if it is known, else any; another one after a failure.

Every node takes every call, so the leader is only the shortest way.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from dledger.common.errors import Code, DLedgerError, NotLeader
from dledger.rpc.client.retry import PASSING

if TYPE_CHECKING:
    import random

    from dledger.client.connections import Connections
    from dledger.client.leader_locator import LeaderLocator
    from dledger.rpc.client.channels import Endpoint

AVOIDED_S = 1.0
"""For so long a node that failed is asked only if there is no other."""
FIND_LEADER_S = 0.3
"""A search for the leader that takes longer is no shorter way."""
_NO_WAY_TO_LEADER = PASSING | {Code.UNSUPPORTED, Code.UNKNOWN_GROUP}


class StoreNodes:
    """For one kind of calls, which stay with one node until it fails."""

    def __init__(self, connections: Connections, leaders: LeaderLocator, rng: random.Random) -> None:
        self._channels = connections.channels
        self._book = connections.book
        self._leaders = leaders
        self._rng = rng
        self._loop = asyncio.get_running_loop()
        self._address = ""
        """The node that answered last; empty: none did, or it failed since."""
        self._avoided: dict[str, float] = {}
        """Until when, by address."""

    def check(self) -> None:
        """Raises the error that makes asking useless: SHUTTING_DOWN, UNKNOWN_CLUSTER."""
        self._leaders.check()

    async def find(self) -> Endpoint:
        """The node to ask. Raises the errors of ``check``."""
        self.check()
        if not self._address:
            self._address = await self._choose()
        return self._channels.at(self._address)

    def lost(self, address: str, refusal: DLedgerError) -> None:
        """The node at ``address`` did not serve a call, or cannot be reached."""
        if not address:
            return
        self._avoided[address] = self._loop.time() + AVOIDED_S
        self._leaders.lost(address, refusal)
        if self._address == address:
            self._address = ""
        if isinstance(refusal, NotLeader) and refusal.leader_address not in ("", address):
            self._address = refusal.leader_address

    async def _choose(self) -> str:
        leader = await self._leader()
        others = [each for each in self._leaders.addresses if each != leader]
        self._rng.shuffle(others)
        known = [each for each in filter(None, [leader, *others]) if not self._book.is_of_others(each)]
        now_s = self._loop.time()
        candidates = known or self._leaders.addresses
        return min(candidates, key=lambda each: max(0.0, self._avoided.get(each, 0.0) - now_s))

    async def _leader(self) -> str:
        """Its address; empty if nobody names one soon. Raises as ``check``."""
        try:
            async with asyncio.timeout(FIND_LEADER_S):
                return (await self._leaders.find()).address
        except TimeoutError:
            return ""
        except DLedgerError as refusal:
            self.check()
            if refusal.code not in _NO_WAY_TO_LEADER:
                raise
            return ""

    # What a pipelined stream asks while its node answers nothing ----------------------------------------------------

    @property
    def in_conflict(self) -> bool:
        return self._leaders.in_conflict

    async def moved_on(self, address: str) -> bool:
        """Whether another node than ``address`` is said to lead: then that one is to be asked."""
        leader = await self._leader()
        if leader == address:
            return await self._leaders.moved_on(address)
        return bool(leader)
