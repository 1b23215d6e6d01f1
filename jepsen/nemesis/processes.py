"""Faults of processes: killed, stopped, restarted. Proof: the pid is gone, the state is T, another pid runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from signal import Signals
from typing import ClassVar

from jepsen.hosts.api import Ability
from jepsen.nemesis.api import Injury, Proof, World
from jepsen.network import both_ways

Choice = Callable[[World], list[str]]
STOP_S = 15.0
LAG_S = 1.5


def one(world: World) -> list[str]:
    return [world.chance.choice(world.running)]


def leader(world: World) -> list[str]:
    """The leader, or when nobody knows one anybody."""
    known = world.observer.leader
    return [known] if known in world.running else one(world)


def a_majority(world: World) -> list[str]:
    return world.chance.sample(world.running, min(world.majority, len(world.running)))


def everyone(world: World) -> list[str]:
    return world.running


class Kill:
    """kill -9, and a start at the end."""

    needs: ClassVar[frozenset[Ability]] = frozenset()

    def __init__(self, name: str, choose: Choice) -> None:
        self.name = name
        self._choose = choose
        self._victims: dict[str, int] = {}

    async def begin(self, world: World) -> Injury:
        targets = self._choose(world)
        self._victims = await kill(world, targets)
        return Injury(targets, "kill -9", down=frozenset(targets))

    async def end(self, world: World) -> Proof:
        gone = [name for name, pid in self._victims.items() if not await world.hosts.state(name, pid)]
        for name in self._victims:
            await world.hosts.start(name)
        return Proof(len(gone) == len(self._victims) > 0, {"pids_gone": [str(self._victims[name]) for name in gone]})


class Pause:
    """SIGSTOP, and SIGCONT at the end: DLedger's hammer-time."""

    needs: ClassVar[frozenset[Ability]] = frozenset()

    def __init__(self, name: str, choose: Choice) -> None:
        self.name = name
        self._choose = choose
        self._victims: dict[str, int] = {}

    async def begin(self, world: World) -> Injury:
        targets = self._choose(world)
        self._victims = {name: pid for name in targets if (pid := world.hosts.pid(name)) is not None}
        for name in self._victims:
            await world.hosts.signal(name, Signals.SIGSTOP)
        return Injury(targets, "SIGSTOP", down=frozenset(targets))

    async def end(self, world: World) -> Proof:
        stopped = [name for name, pid in self._victims.items() if await world.hosts.state(name, pid) == "T"]
        for name in self._victims:
            await world.hosts.signal(name, Signals.SIGCONT)
        return Proof(len(stopped) == len(self._victims) > 0, {"stopped": stopped})


class Laggards:
    """As many followers as make no majority are cut off for a while; the links heal as the leader is killed.

    They are behind, and may well be the first to stand for election: nobody should elect them. (To stop their
    processes would not do: what the leader sent meanwhile would wait in their sockets.)
    """

    name: ClassVar[str] = "laggards"
    needs: ClassVar[frozenset[Ability]] = frozenset()

    async def begin(self, world: World) -> Injury:
        [first] = leader(world)
        others = [name for name in world.running if name != first]
        slow = world.chance.sample(others, min(len(others), len(world.names) - world.majority))
        links = both_ways((one, other) for one in slow for other in world.names if other not in slow)
        await world.network.cut(self.name, links)
        await asyncio.sleep(LAG_S)
        self._killed = await kill(world, [first])
        self._dropped = sum((await world.network.heal(self.name)).values())
        return Injury([*slow, first], f"{' '.join(slow)} behind, {first} killed", down=frozenset([first]))

    async def end(self, world: World) -> Proof:
        for name in self._killed:
            await world.hosts.start(name)
        evidence: dict[str, int | list[str]] = {"packets_dropped": self._dropped, "killed": list(self._killed)}
        return Proof(self._dropped > 0 and bool(self._killed), evidence)


class RollingRestart:
    """Every node in turn: stopped cleanly, started, and only then the next."""

    name: ClassVar[str] = "rolling-restart"
    needs: ClassVar[frozenset[Ability]] = frozenset()

    async def begin(self, world: World) -> Injury:
        self._restarted: list[str] = []
        self._targets = world.running
        self._task = asyncio.create_task(self._roll(world), name="rolling restart")
        return Injury(self._targets, "SIGTERM and start, one after the other")

    async def _roll(self, world: World) -> None:
        for name in world.chance.sample(self._targets, len(self._targets)):
            if not world.takes_part(name):
                continue
            await stop(world, name)
            await world.hosts.start(name)
            self._restarted.append(name)
            await world.observer.wait_for_caught_up(name, STOP_S)

    async def end(self, world: World) -> Proof:
        await self._task
        left_out = [name for name in self._targets if world.takes_part(name) and name not in self._restarted]
        return Proof(bool(self._restarted) and not left_out, {"restarted": self._restarted})


async def kill(world: World, names: list[str]) -> dict[str, int]:
    """kill -9 to all of them at once; their pids, once they are gone."""
    victims = {name: pid for name in names if (pid := world.hosts.pid(name)) is not None}
    await asyncio.gather(*(world.hosts.signal(name, Signals.SIGKILL) for name in victims))
    await asyncio.gather(*(world.hosts.ended(name, STOP_S) for name in victims))
    return victims


async def stop(world: World, name: str) -> None:
    """A clean stop, or kill -9 when that takes too long; also of a node that has ended."""
    if world.hosts.pid(name) is None:
        return
    await world.hosts.signal(name, Signals.SIGTERM)
    if await world.hosts.ended(name, STOP_S) is None:
        await kill(world, [name])
