"""What an operator does, at the worst moments: members come and go, leaderships move, the log is trimmed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

from dledger.common.types import Member, NodeId, PreferredLeader
from dledger.group.replica import Replica
from tests.simulation.groups import SimGroup
from tests.simulation.host import SimHost
from tests.simulation.seat import Seat
from tests.simulation.troubles.scene import Scene, Trouble

HASTY_SHARE = 0.25
"""Of the new leaders, asked for a change before they have committed anything."""
SLOW_SHARE = 0.4
"""Of the changes that are made in vain: on a disk that is so slow that others cut them while it is at them."""
UNHEARD_SHARE = 0.3
"""Of the handovers: the old leader hears nothing of the new one."""
STAYS_SHARE = 0.3
"""Of the learners: never promoted."""
GROWN = 3
MOST_MEMBERS = 6
GROWS_WITHIN_S = 10.0
GROW_LOOK_S = 0.2


class MemberTroubles:
    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._cluster = scene.cluster
        self._random = scene.random
        self._stays: set[Seat] = set()
        scene.cluster.on_leader = self._on_leader
        scene.cluster.on_take = self._on_take

    def all(self) -> list[Trouble]:
        return [
            Trouble(3, self.transfer),
            Trouble(4, self.trim),
            Trouble(2, self.limit),
            Trouble(1, self.prefer),
            Trouble(3, self.add),
            Trouble(5, self.promote),
            Trouble(2, self.remove),
            Trouble(3, self.change_in_vain),
        ]

    async def transfer(self) -> None:
        await self._scene.ask("transfer", self._scene.pick(), lambda replica: replica.handover.transfer(None))

    async def trim(self) -> None:
        group = self._scene.pick()

        def trim(replica: Replica) -> Awaitable[object]:
            before_index = self._random.randint(0, replica.reader.commit_index + 1)
            group.watch.deletion.ask(before_index)
            return replica.retention.trim(before_index)

        await self._scene.ask("trim", group, trim)

    async def limit(self) -> None:
        group = self._scene.pick()
        max_bytes, max_age_ms = self._random.choice((0, 0, 60_000)), self._random.choice((0, 10_000, 30_000))
        group.watch.deletion.ask_policy(max_age_ms, max_bytes)
        await self._scene.ask("retention", group, lambda replica: replica.retention.set(max_age_ms, max_bytes))

    async def prefer(self) -> None:
        group = self._scene.pick()
        voters = [member.id for member in group.members() if member.voter]
        preferred = [PreferredLeader(self._random.choice(voters), 5)] if voters and self._random.random() < 0.6 else []
        await self._scene.ask("preferred", group, lambda replica: replica.settings.set_preferred(preferred))

    # Members -----------------------------------------------------------------------------------------------------

    async def grow(self, is_over: Callable[[], bool]) -> None:
        """What one machine founded is to have three voters soon, whatever befalls it on the way."""
        group = self._cluster.founding
        await asyncio.sleep(self._random.uniform(0, GROWS_WITHIN_S))
        while not is_over():
            await asyncio.sleep(GROW_LOOK_S)
            members = group.settled_members()
            if not members:
                continue
            if sum(member.voter for member in members) >= GROWN:
                self._scene.cluster.trace.hit("branch grown from one")
                return
            if sum(member.voter or not self._is_to_stay(group, member) for member in members) < GROWN:
                await self._add(group)
            else:
                await self._promote(group)

    def _is_to_stay(self, group: SimGroup, member: Member) -> bool:
        """As a learner."""
        return self._cluster.hosts[member.id].seat(group.name) in self._stays

    async def add(self) -> None:
        await self._add(self._scene.pick())

    async def _add(self, group: SimGroup) -> None:
        members = group.members()
        if not members or len(members) >= MOST_MEMBERS:
            return
        seat = self._stranger(group, members)
        if seat is None:
            return
        if seat.is_down:
            self._scene.begin(seat.host.start(), f"start {seat.id}")
        if await self._scene.ask("add learner", group, partial(add, seat)):
            seat.was_member = True
            if self._random.random() < STAYS_SHARE:
                self._stays.add(seat)
                self._scene.hit("learner that stays", seat.name)

    def _stranger(self, group: SimGroup, members: tuple[Member, ...]) -> Seat | None:
        """Another group than the founding one takes nobody who does not know the cluster."""
        known = {member.id for member in members}
        strangers = [seat for seat in group.seats if seat.id not in known and not seat.was_member]
        if not group.is_founding:
            known_here = [seat for seat in strangers if seat.host.is_in_cluster and not seat.is_dropping]
            return self._random.choice(known_here) if known_here else None
        seat = strangers[0] if strangers else self._cluster.new_host().seat()
        if not seat.host.lives:
            seat.host.peers = {str(member.id): member.peer_address for member in members}
        return seat

    async def promote(self) -> None:
        await self._promote(self._scene.pick())

    async def _promote(self, group: SimGroup) -> None:
        """Nobody while a disk is in doubt: a voter that never met the one before is the stated limit."""
        if self._scene.forgetful is not None:
            return
        for member in group.members():
            if not member.voter and not self._is_to_stay(group, member):
                await self._scene.ask("promote", group, partial(_promote, member.id))
                return

    def _removable(self, group: SimGroup) -> Seat | None:
        hosts = self._cluster.hosts
        members = [member for member in group.members() if self._may_go(group, hosts[member.id])]
        voters = [
            member for member in group.members() if member.voter and hosts[member.id] is not self._scene.forgetful
        ]
        candidates = members if len(voters) > 3 else [member for member in members if not member.voter]
        return hosts[self._random.choice(candidates).id].seat(group.name) if candidates else None

    def _may_go(self, group: SimGroup, host: SimHost) -> bool:
        """Who leaves the founding group does not come back to the cluster with another disk: where other groups need
        it, its disk is to be whole."""
        is_needed = group.is_founding and any(other.names(host.id) for other in self._scene.groups[1:])
        return not is_needed or (host.is_up and not host.has_rotted)

    async def remove(self) -> None:
        group = self._scene.pick()
        if seat := self._removable(group):
            seat.was_member = True
            await self._scene.ask("remove", group, partial(remove, seat.id))

    # At the worst moments ----------------------------------------------------------------------------------------

    async def change_in_vain(self) -> None:
        """A leader that nobody hears, or that one node alone hears, appends a change; another leader will cut it, at
        times before the leader's disk is done with it."""
        leaders = self._scene.pick().leaders()
        if not leaders:
            return
        leader = leaders[0]
        hears = set(self._random.sample(list(self._cluster.hosts), self._random.choice((0, 1)))) | {leader.id}
        self._cluster.network.faults.partition(hears, [each for each in self._cluster.hosts if each not in hears])
        if self._random.random() < SLOW_SHARE:
            leader.host.mood.sync_s = (0.0001, 4.0)
            self._cluster.world.call_later(self._random.uniform(0.5, 2.0), self._cluster.network.heal)
        self._scene.begin(self._change(leader, 2.0), "change in vain")
        self._scene.hit("change in vain", leader.name)

    def _on_leader(self, seat: Seat) -> None:
        if self._random.random() < HASTY_SHARE:
            self._scene.begin(self._hurry(seat), "hasty change")

    def _on_take(self, leader: Seat, successor: NodeId) -> None:
        """The leader does not hear that its successor stands, and wins."""
        if self._random.random() < UNHEARD_SHARE:
            self._cluster.network.faults.cut(successor, leader.id)
            self._scene.hit("successor unheard", successor, leader.name)

    async def _hurry(self, seat: Seat) -> None:
        """Asks a leader again and again from its first moment on."""
        for _ in range(5):
            if not seat.leads or await self._change(seat, 0.5):
                return
            await asyncio.sleep(0.005)

    async def _change(self, leader: Seat, timeout_s: float) -> bool:
        group, members = leader.group, leader.members
        gone = self._removable(group)
        stranger = self._stranger(group, members) if len(members) < MOST_MEMBERS else None
        learners = [each.id for each in members if not each.voter and not self._is_to_stay(group, each)]
        works: list[partial[Awaitable[object]]] = []
        if gone is not None and gone is not leader:
            works.append(partial(remove, gone.id))
        if stranger is not None:
            works.append(partial(add, stranger))
        if learners and self._scene.forgetful is None:
            works.append(partial(_promote, learners[0]))
        if not works:
            return False
        work = self._random.choice(works)
        if work.func is remove and gone is not None:
            gone.was_member = True
        if work.func is add and stranger is not None:
            stranger.was_member = True
        return await self._scene.ask("hasty change", leader, work, timeout_s)


def _promote(node_id: NodeId, replica: Replica) -> Awaitable[object]:
    return replica.members.promote(node_id)


def remove(node_id: NodeId, replica: Replica) -> Awaitable[object]:
    return replica.members.remove(node_id)


def add(seat: Seat, replica: Replica) -> Awaitable[object]:
    return replica.members.add(seat.id, seat.host.address)
