"""Trouble, by weight, and its end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from random import Random
from typing import NamedTuple, Protocol

from dledger.raft.state import VoteBlocker
from tests.simulation.cluster import SimulatedCluster
from tests.simulation.directory import Directory
from tests.simulation.host import SimHost
from tests.simulation.seat import Seat
from tests.simulation.troubles.disks import DiskTroubles
from tests.simulation.troubles.groups import GroupTroubles
from tests.simulation.troubles.machines import MachineTroubles
from tests.simulation.troubles.members import MemberTroubles
from tests.simulation.troubles.parting import PartingTroubles
from tests.simulation.troubles.processes import ProcessTroubles
from tests.simulation.troubles.scene import Scene, Trouble
from tests.simulation.troubles.tails import TailTroubles
from tests.simulation.troubles.wires import NetworkTroubles

SETTLED_S = 0.1
"""By then a node whose disk failed a moment ago has ended, and been started again."""
SETTLE_LOOK_S = 0.01
TOLD_S = 5.0
"""By then the directory has told whoever can be told."""


class Kind(Protocol):
    """Of troubles."""

    def all(self) -> list[Trouble]: ...


class Mix(NamedTuple):
    """Of troubles."""

    pause_s: float = 1.0
    """Between two, at most."""
    shares: Mapping[type, float] = {}
    """By kind: how much of the usual weight it has."""
    more: tuple[Callable[[Scene], Kind], ...] = ()
    """Kinds beside the usual ones."""


USUAL = Mix()


class Nemesis:
    def __init__(self, cluster: SimulatedCluster, random: Random, *, mix: Mix = USUAL) -> None:
        self._pause_s = mix.pause_s
        self._cluster = cluster
        self._random = random
        self._scene = Scene(cluster, random)
        self.directory = Directory(self._scene, Random(random.getrandbits(64)))
        self._disks = DiskTroubles(self._scene)
        self._members = MemberTroubles(self._scene)
        kinds: tuple[Kind, ...] = (
            ProcessTroubles(self._scene),
            NetworkTroubles(self._scene),
            self._members,
            self._disks,
        )
        rots: tuple[Kind, ...] = (
            TailTroubles(self._scene, self._disks.may_lose),
            PartingTroubles(self._scene, self._disks.may_lose),
        )
        groups = GroupTroubles(self._scene, self.directory, self._disks.may_lose)
        more: tuple[Kind, ...] = (groups, MachineTroubles(self._scene), *(make(self._scene) for make in mix.more))
        self._troubles = [
            trouble._replace(weight=trouble.weight * mix.shares.get(type(kind), 1))
            for kind in (*kinds, *rots, *more)
            for trouble in kind.all()
        ]
        self._gentle = [trouble for trouble in self._troubles if trouble.is_gentle]

    async def run(self, is_over: Callable[[], bool], is_late: Callable[[], bool]) -> None:
        """Until ``is_over``. When it ``is_late`` there is gentle trouble alone, and no disk hangs any more, so that the
        seed gets its share of everything else."""
        if len(self._cluster.hosts) == 1:
            self._scene.begin(self._members.grow(is_over), "grow")
        troubles = self._troubles
        while not is_over():
            if is_late() and troubles is not self._gentle:
                troubles = self._gentle
                await self._disks.mend_disk()
            (trouble,) = self._random.choices(troubles, [each.weight for each in troubles])
            if len(self._cluster.hosts) >= trouble.fewest:
                await trouble.make()
            await asyncio.sleep(self._random.uniform(0.05, self._pause_s))

    # The end -----------------------------------------------------------------------------------------------------

    async def settle(self) -> None:
        """No trouble begins any more, and what was begun has ended."""
        self._cluster.on_leader = lambda _: None
        self._cluster.on_take = lambda *_: None
        self._cluster.on_cut = lambda _: None
        for host in self._cluster.hosts.values():
            host.resume()
            host.mend_disk()
        while self._scene.tasks:
            await asyncio.wait(list(self._scene.tasks))
        now_s = self._cluster.world.time()
        settled_s, told_s = now_s + SETTLED_S, now_s + TOLD_S
        while now_s < settled_s or (now_s < told_s and not self.directory.is_done):
            for host in self._cluster.down():
                if not host.is_beyond_repair:
                    await host.start()
            await asyncio.sleep(SETTLE_LOOK_S)
            now_s = self._cluster.world.time()

    def connected_majority(self) -> list[SimHost]:
        """Some voters that suffice for whatever any log says of the members, by chance; empty when there are none: one
        whose disk is in doubt, be it with one of them, or whose frames nobody else of them may have, or who lost some,
        would be needed."""
        in_doubt = list(self._scene.in_doubt.values())
        seats = [seat for group in self._scene.groups for seat in group.up()]
        doubted = {peer for seat in seats for peer in seat.replica.core.doubted}
        hosts = [
            host
            for host in self._cluster.hosts.values()
            if host not in in_doubt
            and host.id not in doubted
            and not (host.is_beyond_repair or host.awaits_repair or self.directory.lacks(host))
            and not any(_owes_catch_up(seat) or _lacks_end(seat) for seat in host.seats)
        ]
        self._random.shuffle(hosts)
        chosen: list[SimHost] = []
        known = [seat.replica.core.membership for seat in seats]
        memberships = [membership for membership in known if membership.voters]
        while not all(membership.is_quorum(host.id for host in chosen) for membership in memberships):
            if not hosts:
                return []
            chosen.append(hosts.pop())
        return chosen

    async def leave_alone(self, chosen: list[SimHost]) -> None:
        """``chosen`` run and hear each other; nobody else hears them, or is heard."""
        network = self._cluster.network
        network.mend()
        others = [host.id for host in self._cluster.hosts.values() if host not in chosen]
        network.faults.partition([host.id for host in chosen], *[[other] for other in others])

    @property
    def is_mending(self) -> bool:
        """A member is still in doubt, or has not found what rotted there."""
        if self._scene.forgetful is not None:
            return True
        return any(
            group.names(seat.id) and seat.awaits_repair and not seat.is_rotten_before_its_log
            for group in self._scene.groups
            for seat in group.seats
        )

    async def end(self) -> None:
        """Everything is whole again, and everybody is up."""
        self._cluster.network.mend()
        await self.mend()

    async def mend(self) -> None:
        """What an operator would see to: all members run, those in doubt are admitted anew, and one that never found
        the others, since all it was told of are gone, is told of the present ones. And what a kernel does by itself: a
        repair whose node was killed before its sync is on the medium after a while."""
        for host in self._cluster.hosts.values():
            if host.awaits_repair:
                host.platter.write_back_all()
        members = self._cluster.founding.members()
        for host in self._cluster.up():
            peers = {str(member.id): member.peer_address for member in members if member.id != host.id}
            if len(peers) < len(members) and not host.replica.log.last.position and host.peers != peers:
                host.peers = peers
                host.crash(power=False)
        for host in self._cluster.down():
            if not host.is_beyond_repair:
                await host.start()
        await self._disks.readmit()


def _owes_catch_up(seat: Seat) -> bool:
    """What rotted was cut, not repaired, as a leader's log was another one there, or began behind it. The node may have
    acknowledged that, so it does not vote until a leader has caught it up. It has no such excuse where nothing rotted,
    and nobody made it owe."""
    present = None if seat.is_down else seat.life.present
    is_excused = seat.host.has_rotted or seat.was_made_to_owe
    return is_excused and present is not None and VoteBlocker.OWES_CATCH_UP in present.core.vote_blockers


def _lacks_end(seat: Seat) -> bool:
    """It cut the end of its log, and somebody has more there that it may have acknowledged: without that it votes for
    nobody, whoever is away (tail_query.py)."""
    return seat.is_up and seat.replica.core.lacks_end
