"""What is lost on a link is told to everybody who asked for it, however the rules change meanwhile."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from random import Random
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import pytest

from jepsen.hosts.api import Host, Hosts
from jepsen.nemesis.api import World
from jepsen.nemesis.delays import Delay
from jepsen.nemesis.partitions import Flapping
from jepsen.network import Network, both_ways

A, B, C = "n0", "n1", "n2"


class FakeHosts:
    """Hosts that have nft's rules and counters, and nothing else."""

    def __init__(self, seed: int = 0) -> None:
        self.names = [A, B, C]
        self.chance = Random(seed)
        self.rules: dict[str, Counter[str]] = {name: Counter() for name in self.names}
        """Of each host: by the address that a rule names, the packets it dropped."""

    @property
    def all(self) -> tuple[Host, ...]:
        return tuple(Host(name, self.address(name)) for name in self.names)

    @staticmethod
    def address(name: str) -> str:
        return f"10.0.0.{name[1:]}"

    async def run(self, host: str, *command: str) -> str:
        for _ in range(self.chance.randrange(5)):  # the later of two commands may end first
            await asyncio.sleep(0)
        if command[:2] == ("nft", "-j"):
            rules = [
                {"rule": {"comment": f"n{address.rpartition('.')[2]}", "expr": [{"counter": {"packets": packets}}]}}
                for address, packets in self.rules[host].items()
            ]
            return json.dumps({"nftables": rules})
        added = [part.split() for part in command[1].split("; ") if part.startswith("add rule")]
        self.rules[host] = Counter({words[words.index("saddr") + 1]: 0 for words in added})
        return ""

    def send(self, sender: str, receiver: str) -> bool:
        """Whether it arrives."""
        if self.address(sender) not in self.rules[receiver]:
            return True
        self.rules[receiver][self.address(sender)] += 1
        return False


def network_of(hosts: FakeHosts) -> Network:
    return Network(cast("Hosts", hosts))


async def test_a_link_is_cut_until_it_is_healed_and_its_losses_are_told() -> None:
    hosts = FakeHosts()
    network = network_of(hosts)
    await network.cut("partition", {(A, B)})
    assert (hosts.send(A, B), hosts.send(B, A)) == (False, True)
    assert await network.heal("partition") == {(A, B): 1}
    assert hosts.send(A, B)


async def test_what_another_fault_asks_for_does_not_take_away_what_was_counted() -> None:
    hosts = FakeHosts()
    network = network_of(hosts)
    await network.cut("partition", {(A, B)})
    hosts.send(A, B)
    await network.cut("laggards", {(C, B)})
    hosts.send(C, B)
    assert await network.heal("laggards") == {(C, B): 1}
    hosts.send(A, B)
    assert await network.heal("partition") == {(A, B): 2}


async def test_what_is_lost_on_a_link_that_two_faults_cut_is_told_of_both() -> None:
    hosts = FakeHosts()
    network = network_of(hosts)
    await network.cut("partition", {(A, B)})
    await network.cut("laggards", {(A, B)})
    hosts.send(A, B)
    assert await network.heal("laggards") == {(A, B): 1}
    assert not hosts.send(A, B)
    assert await network.heal("partition") == {(A, B): 2}


@pytest.mark.parametrize("seed", range(20))
async def test_faults_that_begin_and_end_at_once_leave_the_rules_of_all_of_them(seed: int) -> None:
    hosts = FakeHosts(seed)
    network = network_of(hosts)
    await network.cut("flapping", {(A, B)})
    await asyncio.gather(network.heal("flapping"), network.cut("laggards", {(C, B)}), network.cut("loss", {(B, A)}))
    assert (hosts.send(A, B), hosts.send(C, B), hosts.send(B, A)) == (True, False, False)
    of_loss, of_laggards, _ = await asyncio.gather(
        network.heal("loss"), network.heal("laggards"), network.cut("flapping", {(A, B)})
    )
    assert (of_loss, of_laggards) == ({(B, A): 1}, {(C, B): 1})
    assert (hosts.send(A, B), hosts.send(C, B), hosts.send(B, A)) == (False, True, True)


async def test_a_removed_member_stays_cut_off_and_the_rules_can_still_change() -> None:
    hosts = FakeHosts()
    network = network_of(hosts)
    await network.cut("partition", {(A, B), (C, B)})
    hosts.names.remove(A)
    await network.cut("laggards", {(C, B)})
    assert not hosts.send(A, B)
    assert await network.heal("partition") == {(A, B): 1, (C, B): 0}


def world_of(hosts: FakeHosts) -> World:
    observer: Any = SimpleNamespace(leader=A)
    nowhere: Any = None
    return World(cast("Hosts", hosts), network_of(hosts), observer, nowhere, nowhere, Random(0), nowhere)


async def test_flapping_links_are_whole_in_the_end_and_every_flap_was_counted() -> None:
    hosts = FakeHosts()
    fault = Flapping()
    injury = await fault.begin(world_of(hosts))
    [alone] = set.intersection(*(set(link) for link in injury.cut))
    other = next(name for name in hosts.names if name != alone)
    while hosts.send(alone, other):  # noqa: ASYNC110  # the first cut is made by a task
        await asyncio.sleep(0)
    proof = await fault.end(world_of(hosts))
    assert proof.bit
    assert all(hosts.send(one, other) for one, other in both_ways([(A, B), (A, C), (B, C)]))


class FakeDelayer:
    """A process that says, as it ends, what it held."""

    def send_signal(self, number: int) -> None: ...

    async def communicate(self) -> tuple[bytes, None]:
        return b'{"packets": 3, "held_ms": 90}', None


async def test_a_delay_takes_back_the_rules_that_it_made_though_a_member_has_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class TablesHosts(FakeHosts):
        tables: ClassVar[set[tuple[str, ...]]] = set()

        @staticmethod
        def inside(host: str) -> tuple[str, ...]:
            return (host,)

        async def run(self, host: str, *command: str) -> str:
            rule = (host, *command[2:])
            self.tables.add(rule) if command[1] == "-A" else self.tables.remove(rule)
            return ""

    async def started(*_: str, **__: object) -> FakeDelayer:
        return FakeDelayer()

    monkeypatch.setattr(asyncio, "create_subprocess_exec", started)
    hosts, fault = TablesHosts(), Delay()
    await fault.begin(world_of(hosts))
    assert hosts.tables
    hosts.names.remove(B)
    assert (await fault.end(world_of(hosts))).bit
    assert not hosts.tables
