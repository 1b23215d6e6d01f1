"""What a fault is, and what it may use."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Protocol

from dledger.client import Admin
from dledger.common.types import DEFAULT_GROUP
from jepsen.hosts.api import Ability, Hosts
from jepsen.network import Link, Network


class Observer(Protocol):
    """Who leads, as the probe saw it last."""

    @property
    def leader(self) -> str | None: ...

    async def wait_for_leader(self, within_s: float, *, other_than: str | None = None) -> str | None:
        """The leader, once there is one (another one); None when none came."""

    def disk_of(self, node: str) -> str:
        """What the node says of its disk: ok, low, full or hung; empty when it does not answer."""

    def watch(self, node: str, address: str) -> None:
        """A node more."""

    def begin(self) -> None:
        """The load begins: time is 0."""

    async def wait_for_caught_up(self, node: str, within_s: float) -> bool:
        """Whether the node has come to know, within the time, of all that is committed when it is asked."""


@dataclass(slots=True)
class World:
    """All that a fault touches."""

    hosts: Hosts
    network: Network
    observer: Observer
    admin: Admin
    """Of the group `default`."""
    cluster: Admin
    """Of the group `meta`, whose members are all nodes."""
    chance: random.Random
    run_dir: Path
    patience_s: float = 60.0
    """How long a node may take to catch up."""
    learners: set[str] = field(default_factory=set)
    rotten: set[str] = field(default_factory=set)
    """The hosts whose files a fault has changed, and who may therefore refuse to run with them."""
    unrecovered: list[str] = field(default_factory=list)
    """The hosts whose nodes ended, by themselves, with files that no fault had changed."""
    group: str = DEFAULT_GROUP
    """The one under test."""

    @property
    def tested(self) -> Admin:
        """Of the group under test."""
        return self.admin if self.group == DEFAULT_GROUP else self.cluster

    @property
    def names(self) -> list[str]:
        """The hosts whose nodes vote."""
        return [host.name for host in self.hosts.all if host.name not in self.learners]

    @property
    def running(self) -> list[str]:
        return [name for name in self.names if self.hosts.pid(name) is not None]

    def takes_part(self, host: str) -> bool:
        """Whether it was not removed meanwhile."""
        return any(host == each.name for each in self.hosts.all)

    @property
    def majority(self) -> int:
        return len(self.names) // 2 + 1


@dataclass(frozen=True, slots=True)
class Injury:
    """What a fault did: who suffers, which ways are cut, whose nodes are down (or as good as)."""

    targets: Sequence[str]
    what: str
    cut: frozenset[Link] = frozenset()
    down: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Proof:
    """That it bit: numbers that tell, and whether they do."""

    bit: bool
    evidence: Mapping[str, int | str | bool | list[str]]


class Fault(Protocol):
    """Begins, and ends: afterwards everything is as it was, and every node runs."""

    needs: ClassVar[frozenset[Ability]]
    """What the hosts must be able to."""

    @property
    def name(self) -> str: ...

    async def begin(self, world: World) -> Injury: ...

    async def end(self, world: World) -> Proof: ...


def majority_connected(names: Sequence[str], cut: frozenset[Link], down: frozenset[str]) -> bool:
    """Whether some node that is up has ways to and from a majority, itself counted: it could lead."""
    up = [name for name in names if name not in down]
    return any(
        2 * sum(other == one or ((one, other) not in cut and (other, one) not in cut) for other in up) > len(names)
        for one in up
    )


async def happens(event: asyncio.Event, within_s: float) -> bool:
    """Waits for the event for so long; whether it came."""
    try:
        await asyncio.wait_for(event.wait(), within_s)
    except TimeoutError:
        return False
    return True
