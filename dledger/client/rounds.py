"""One round of questions: every address is asked what it knows of a group, until somebody's answer will do."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Protocol

from dledger.common.errors import Code, DLedgerError, Unavailable, error
from dledger.common.futures import retrieve
from dledger.rpc.client.retry import PASSING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dledger.client.metadata import Metadata

STAGGER_S = 0.1
"""An endpoint that has not answered for so long is no longer waited for alone: the next one is asked beside it."""


class Asker(Protocol):
    """The asker of the round's questions."""

    group: str

    @property
    def addresses(self) -> list[str]:
        """All that are known by now."""

    async def ask(self, address: str) -> Metadata:
        """What one node knows."""

    def met(self, *, somebody: bool) -> None:
        """The endpoints were asked of which cluster they are; ``somebody`` has answered."""

    def check(self) -> None:
        """Raises what makes asking of no use."""


class Round:
    """Asks the addresses in turn, staggered, and gives out what they answer as it comes.

    ``meets``: all are asked at once, and nothing is given out before the quick ones have named their cluster.
    """

    def __init__(self, asker: Asker, addresses: Sequence[str], *, meets: bool) -> None:
        self._asker = asker
        self._meets = meets
        self._waiting = deque(addresses)
        self._taken = set(addresses)
        self._asked: dict[asyncio.Task[Metadata], str] = {}
        self._answered: deque[tuple[Metadata, str]] = deque()
        self._refusals: dict[str, DLedgerError] = {}
        """By the address that was asked, in the order of the answers."""
        self._heard = False

    def __aiter__(self) -> Round:
        return self

    async def __anext__(self) -> tuple[Metadata, str]:
        if self._meets:
            self._meets = False
            await self._meet()
        while not self._answered:
            if not self._waiting and not self._asked:
                self._take_in_others()
            if self._waiting:
                self._ask_next()
            if not self._asked:
                raise StopAsyncIteration
            await self._hear(STAGGER_S if self._waiting else None, asyncio.FIRST_COMPLETED)
        return self._answered.popleft()

    def _take_in_others(self) -> None:
        """Nodes without a replica of the group may have told of others meanwhile."""
        if any(refusal.code is Code.NOT_HERE for refusal in self._refusals.values()):
            others = [address for address in self._asker.addresses if address not in self._taken]
            self._waiting.extend(others)
            self._taken.update(others)

    async def _meet(self) -> None:
        while self._waiting:
            self._ask_next()
        while self._asked and not self._answered:
            await self._hear(None, asyncio.FIRST_COMPLETED)
        if self._asked:
            await self._hear(STAGGER_S, asyncio.ALL_COMPLETED)
        self._asker.met(somebody=bool(self._answered))

    def _ask_next(self) -> None:
        address = self._waiting.popleft()
        task = asyncio.create_task(self._asker.ask(address), name=f"dledger-ask {address}")
        task.add_done_callback(retrieve)  # it may come behind the end of its round
        self._asked[task] = address

    async def _hear(self, timeout_s: float | None, until: str) -> None:
        await asyncio.wait(self._asked, timeout=timeout_s, return_when=until)
        for task in [task for task in self._asked if task.done()]:
            self._collect(task, self._asked.pop(task))

    def _collect(self, task: asyncio.Task[Metadata], address: str) -> None:
        try:
            metadata = task.result()
        except DLedgerError as refusal:
            self._refusals[address] = refusal
        else:
            self._heard = True
            self._answered.append((metadata, address))

    def nobody(self) -> DLedgerError:
        """Why the round brought nothing: the client's end, a refusal that will not pass, no leader to be asked, or
        nobody there."""
        self._asker.check()
        refusals = list(self._refusals.values())
        for refusal in refusals:
            if refusal.code not in PASSING and refusal.code is not Code.UNKNOWN_CLUSTER:
                return refusal
        if self._heard:
            return error(Code.LEADER_NOT_READY, "no leader is known to the nodes that answer: dledger health says why")
        founding = next((each for each in refusals if each.code is Code.LEADER_NOT_READY), None)
        if founding is not None:
            return founding
        if all(refusal.code is Code.UNKNOWN_CLUSTER for refusal in refusals):
            return refusals[0]  # beside those of ours that are away for a moment it would say nothing
        if any(refusal.code is Code.NOT_HERE for refusal in refusals):
            text = f"no node that answers has a replica of the group {self._asker.group!r} ({self._reasons()})"
            return error(Code.NOT_HERE, f"{text}: start its members, or name them")
        return Unavailable(f"no node answers ({self._reasons()}): start the nodes, or name others")

    def _reasons(self) -> str:
        """Each once, with all the addresses that gave it."""
        alike: dict[str, list[str]] = {}
        for address in sorted(self._refusals, key=self._place):
            said = str(self._refusals[address])
            reason = said.removeprefix(f"{address} ")
            alike.setdefault(reason, []).extend([address] if reason != said else [])
        return "; ".join(" ".join(filter(None, (", ".join(alike[reason]), reason))) for reason in alike)

    def _place(self, address: str) -> int:
        """Its place among the addresses of the asker: callers list them in an order with a meaning."""
        known = self._asker.addresses
        return known.index(address) if address in known else len(known)

    async def close(self) -> None:
        """Ends the questions that nobody waits for any more."""
        for task in self._asked:
            task.cancel()
        if self._asked:
            await asyncio.wait(self._asked)
