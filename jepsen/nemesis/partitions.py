"""Partitions: which links are cut. Proof: packets that were dropped because of it, and on how many of the links."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from itertools import combinations
from random import Random
from typing import ClassVar

from jepsen.hosts.api import Ability
from jepsen.nemesis.api import Injury, Proof, World, happens
from jepsen.network import Link, both_ways

Grudge = Callable[[Sequence[str], Random, str | None], set[Link]]
"""From the hosts, chance, and the leader: the links to cut."""


def random_halves(names: Sequence[str], chance: Random, leader: str | None) -> set[Link]:
    """A random minority, one short of a half, and the rest."""
    shuffled = chance.sample(list(names), len(names))
    half = len(names) // 2
    return both_ways((one, other) for one in shuffled[:half] for other in shuffled[half:])


def random_node(names: Sequence[str], chance: Random, leader: str | None) -> set[Link]:
    """One host alone."""
    alone = chance.choice(list(names))
    return both_ways((alone, other) for other in names if other != alone)


def leader_alone(names: Sequence[str], chance: Random, leader: str | None) -> set[Link]:
    """The leader's host, alone."""
    alone = leader or chance.choice(list(names))
    return both_ways((alone, other) for other in names if other != alone)


def leader_in_minority(names: Sequence[str], chance: Random, leader: str | None) -> set[Link]:
    """The leader's host with as many others as make no majority."""
    first = leader or chance.choice(list(names))
    others = chance.sample([name for name in names if name != first], len(names) - 1)
    few = len(names) // 2 - 1
    return both_ways((one, other) for one in [first, *others[:few]] for other in others[few:])


def bridge(names: Sequence[str], chance: Random, leader: str | None) -> set[Link]:
    """Two halves that see each other only by one host in the middle."""
    shuffled = chance.sample(list(names), len(names))
    half = (len(names) - 1) // 2
    left, right = shuffled[:half], shuffled[half + 1 :]
    return both_ways((one, other) for one in left for other in right)


def majorities_ring(names: Sequence[str], chance: Random, leader: str | None) -> set[Link]:
    """Every host sees a majority, and no two see the same one: the hosts stand in a ring, and see their neighbours."""
    ring = chance.sample(list(names), len(names))
    count = len(ring)
    reach = (count // 2 + 1) // 2  # half of the others that a majority takes
    place = {name: number for number, name in enumerate(ring)}

    def apart(one: str, other: str) -> int:
        steps = abs(place[one] - place[other])
        return min(steps, count - steps)

    return both_ways((one, other) for one, other in combinations(ring, 2) if apart(one, other) > reach)


def one_way(names: Sequence[str], chance: Random, leader: str | None) -> set[Link]:
    """One host, the leader's half of the time, hears nobody; or is heard by nobody."""
    alone = leader if leader is not None and chance.random() < 0.5 else chance.choice(list(names))
    others = [name for name in names if name != alone]
    return {(other, alone) for other in others} if chance.random() < 0.5 else {(alone, other) for other in others}


def one_link(names: Sequence[str], chance: Random, leader: str | None) -> set[Link]:
    """The leader and one follower do not reach each other; everybody else reaches both."""
    one = leader or chance.choice(list(names))
    return both_ways([(one, chance.choice([name for name in names if name != one]))])


class Partition:
    """Cuts the links of a grudge."""

    needs: ClassVar[frozenset[Ability]] = frozenset()

    def __init__(self, name: str, grudge: Grudge) -> None:
        self.name = name
        self._grudge = grudge

    async def begin(self, world: World) -> Injury:
        links = self._grudge(world.names, world.chance, world.observer.leader)
        await world.network.cut(self.name, links)
        return Injury(_sides(links), describe(world.names, links), cut=frozenset(links))

    async def end(self, world: World) -> Proof:
        return dropped(await world.network.heal(self.name))


class Flapping:
    """The links of a random host come and go, several times a second or two."""

    name: ClassVar[str] = "flapping"
    needs: ClassVar[frozenset[Ability]] = frozenset()

    async def begin(self, world: World) -> Injury:
        links = random_node(world.names, world.chance, None)
        self._lost: dict[Link, int] = dict.fromkeys(links, 0)
        self._flaps = 0
        self._ending = asyncio.Event()
        self._task = asyncio.create_task(self._flap(world, links), name="flapping")
        return Injury(_sides(links), f"{len(links)} links come and go", cut=frozenset(links))

    async def _flap(self, world: World, links: set[Link]) -> None:
        # It ends between two changes, never in one: a cut that nobody waits for may be made after the last healing.
        while not self._ending.is_set():
            await world.network.cut(self.name, links)
            await happens(self._ending, world.chance.uniform(0.2, 2.0))
            for link, packets in (await world.network.heal(self.name)).items():
                self._lost[link] += packets
            self._flaps += 1
            await happens(self._ending, world.chance.uniform(0.2, 2.0))

    async def end(self, world: World) -> Proof:
        self._ending.set()
        await self._task
        proof = dropped(self._lost)
        return Proof(proof.bit, {**proof.evidence, "flaps": self._flaps})


class Loss:
    """A share of all packets between hosts is lost."""

    name: ClassVar[str] = "loss"
    needs: ClassVar[frozenset[Ability]] = frozenset()

    def __init__(self, percents: Sequence[int] = (1, 5, 20)) -> None:
        self._percents = percents

    async def begin(self, world: World) -> Injury:
        percent = world.chance.choice(self._percents)
        names = world.names
        links = {(one, other): percent for one in names for other in names if one != other}
        await world.network.drop(self.name, links)
        return Injury(names, f"{percent} % of the packets lost")

    async def end(self, world: World) -> Proof:
        return dropped(await world.network.heal(self.name))


def dropped(lost: dict[Link, int]) -> Proof:
    """A cut bit when packets were dropped because of it."""
    packets = sum(lost.values())
    links = sum(count > 0 for count in lost.values())
    return Proof(packets > 0, {"packets_dropped": packets, "links_that_dropped": links, "links": len(lost)})


def describe(names: Sequence[str], links: set[Link]) -> str:
    """The islands that are left, or when everybody still reaches everybody by others, how many links are cut."""
    islands: list[set[str]] = []
    for name in names:
        near = {other for other in names if (name, other) not in links or (other, name) not in links}
        joined = [island for island in islands if island & near]
        islands = [island for island in islands if not island & near] + [set.union({name}, *joined)]
    if len(islands) > 1:
        return " | ".join(" ".join(sorted(island)) for island in sorted(islands, key=len))
    return f"{len(links)} links cut: " + ", ".join(f"{sender}→{receiver}" for sender, receiver in sorted(links))


def _sides(links: set[Link]) -> list[str]:
    return sorted({name for link in links for name in link})


PARTITIONS: dict[str, Grudge] = {
    "partition-random-halves": random_halves,
    "partition-random-node": random_node,
    "partition-leader": leader_alone,
    "partition-leader-in-minority": leader_in_minority,
    "bridge": bridge,
    "partition-majorities-ring": majorities_ring,
    "one-way": one_way,
    "one-link": one_link,
}
