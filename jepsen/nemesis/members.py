"""Faults by the operator: the leadership handed around, and members that come and go. Proof: what was committed."""

from __future__ import annotations

import asyncio
from typing import ClassVar

from dledger.cli.waiting import Waiting, once_it_passes
from dledger.common.errors import DLedgerError
from jepsen.hosts.api import Ability
from jepsen.nemesis.api import Injury, Proof, World
from jepsen.nemesis.storage import promote

PAUSE_S = (0.3, 2.0)
CHANGE_MS = 30_000.0


async def add_node(world: World, name: str, *, timeout_ms: float) -> None:
    """To the cluster, then to the group under test, as a learner."""
    await world.cluster.add_learner(name, world.hosts.peer_address(name), timeout_ms=timeout_ms)
    await world.admin.add_learner(name, timeout_ms=timeout_ms)


class Transfer:
    """The leadership goes from node to node."""

    name: ClassVar[str] = "transfer"
    needs: ClassVar[frozenset[Ability]] = frozenset()

    async def begin(self, world: World) -> Injury:
        self._leaders: list[str] = []
        self._refusals = 0
        self._ending = asyncio.Event()
        self._task = asyncio.create_task(self._hand_around(world), name="transfers")
        return Injury(world.names, "the leadership is handed around")

    async def _hand_around(self, world: World) -> None:
        while not self._ending.is_set():
            others = [name for name in world.running if name != world.observer.leader]
            try:
                leader, _ = await world.tested.transfer_leadership(world.chance.choice(others), timeout_ms=CHANGE_MS)
            except DLedgerError:
                self._refusals += 1
            else:
                self._leaders.append(leader)
            await asyncio.sleep(world.chance.uniform(*PAUSE_S))

    async def end(self, world: World) -> Proof:
        self._ending.set()
        await self._task
        return Proof(bool(self._leaders), {"transfers": len(self._leaders), "refused": self._refusals})


class Churn:
    """A node more joins and is promoted, then one of the others is removed: again and again, so all are replaced."""

    name: ClassVar[str] = "churn"
    needs: ClassVar[frozenset[Ability]] = frozenset({Ability.MORE_HOSTS})

    async def begin(self, world: World) -> Injury:
        self._joined: list[str] = []
        self._removed: list[str] = []
        self._problems: list[str] = []
        self._ending = asyncio.Event()
        self._task = asyncio.create_task(self._replace_members(world), name="churn")
        return Injury(world.names, "members are replaced one by one")

    async def _replace_members(self, world: World) -> None:
        while not self._ending.is_set():
            name = world.hosts.add()
            world.learners.add(name)
            try:
                await self._replace_one(world, name)
            except DLedgerError as refusal:
                self._problems.append(f"{name}: {refusal}")
            await asyncio.sleep(world.chance.uniform(*PAUSE_S))

    async def _replace_one(self, world: World, name: str) -> None:
        leaving = world.chance.choice(world.names)
        try:
            await add_node(world, name, timeout_ms=CHANGE_MS)
        except DLedgerError:
            world.learners.discard(name)
            world.hosts.retire(name)  # it never ran
            raise
        await world.hosts.start(name)
        world.observer.watch(name, world.hosts.client_address(name))
        await promote(world, name)
        world.learners.discard(name)
        self._joined.append(name)
        await world.admin.remove(leaving, timeout_ms=CHANGE_MS)
        # A voter of the directory that ran no more would weaken it: it runs until it is none.
        await once_it_passes(
            lambda left_ms: world.cluster.remove(leaving, timeout_ms=left_ms), world.patience_s * 1000, Waiting()
        )
        world.hosts.retire(leaving)
        self._removed.append(leaving)

    async def end(self, world: World) -> Proof:
        self._ending.set()
        await self._task
        evidence: dict[str, int | str | bool | list[str]] = {
            "joined": self._joined,
            "removed": self._removed,
            "refused": self._problems,
        }
        return Proof(bool(self._joined and self._removed), evidence)
