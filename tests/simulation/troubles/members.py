"""What an operator does, at the worst moments: members come and go, leaderships move, the log is trimmed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

from dledger.common.types import Member, NodeId, PreferredLeader
from dledger.group.replica import Replica
from tests.simulation.host import SimHost
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
GROWS_WITHIN_S = 10.0
GROW_LOOK_S = 0.2


class MemberTroubles:
    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._cluster = scene.cluster
        self._random = scene.random
        self._stays: set[NodeId] = set()
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
        await self._scene.ask("transfer", lambda replica: replica.handover.transfer(None))

    async def trim(self) -> None:
        def trim(replica: Replica) -> Awaitable[object]:
            before_index = self._random.randint(0, replica.reader.commit_index + 1)
            self._cluster.watch.deletion.ask(before_index)
            return replica.retention.trim(before_index)

        await self._scene.ask("trim", trim)

    async def limit(self) -> None:
        max_bytes, max_age_ms = self._random.choice((0, 0, 60_000)), self._random.choice((0, 10_000, 30_000))
        self._cluster.watch.deletion.ask_policy(max_age_ms, max_bytes)
        await self._scene.ask("retention", lambda replica: replica.retention.set(max_age_ms, max_bytes))

    async def prefer(self) -> None:
        voters = [member.id for member in self._scene.members() if member.voter]
        preferred = [PreferredLeader(self._random.choice(voters), 5)] if voters and self._random.random() < 0.6 else []
        await self._scene.ask("preferred", lambda replica: replica.settings.set_preferred(preferred))

    # Members -----------------------------------------------------------------------------------------------------

    async def grow(self, is_over: Callable[[], bool]) -> None:
        """What one machine founded is to have three voters soon, whatever befalls it on the way."""
        await asyncio.sleep(self._random.uniform(0, GROWS_WITHIN_S))
        while not is_over():
            await asyncio.sleep(GROW_LOOK_S)
            members = self._scene.settled_members()
            if not members:
                continue
            if sum(member.voter for member in members) >= GROWN:
                self._scene.cluster.trace.hit("branch grown from one")
                return
            if sum(member.voter or member.id not in self._stays for member in members) < GROWN:
                await self.add()
            else:
                await self.promote()

    async def add(self) -> None:
        members = self._scene.members()
        if not members or len(members) >= 6:
            return
        host = self._stranger(members)
        if host.is_down:
            self._scene.begin(host.start(), f"start {host.id}")
        if await self._scene.ask("add learner", lambda replica: replica.members.add(host.id, host.address)):
            host.was_member = True
            if self._random.random() < STAYS_SHARE:
                self._stays.add(host.id)
                self._scene.hit("learner that stays", host.id)

    def _stranger(self, members: tuple[Member, ...]) -> SimHost:
        known = {member.id for member in members}
        strangers = [host for host in self._cluster.hosts.values() if host.id not in known and not host.was_member]
        host = strangers[0] if strangers else self._cluster.new_host()
        if not host.lives:
            host.peers = {str(member.id): member.peer_address for member in members}
        return host

    async def promote(self) -> None:
        """Nobody while a disk is in doubt: a voter that never met the one before is the stated limit."""
        if self._scene.forgetful is not None:
            return
        for member in self._scene.members():
            host = self._cluster.hosts[member.id]
            if not member.voter and host.id not in self._stays:
                await self._scene.ask("promote", partial(_promote, member.id))
                return

    def _removable(self) -> SimHost | None:
        hosts = self._cluster.hosts
        members = [member for member in self._scene.members() if hosts[member.id] is not self._scene.forgetful]
        voters = [member for member in members if member.voter]
        candidates = members if len(voters) > 3 else [member for member in members if not member.voter]
        return hosts[self._random.choice(candidates).id] if candidates else None

    async def remove(self) -> None:
        if host := self._removable():
            host.was_member = True
            await self._scene.ask("remove", partial(_remove, host.id))

    # At the worst moments ----------------------------------------------------------------------------------------

    async def change_in_vain(self) -> None:
        """A leader that nobody hears, or that one node alone hears, appends a change; another leader will cut it, at
        times before the leader's disk is done with it."""
        leaders = self._cluster.leaders()
        if not leaders:
            return
        leader = leaders[0]
        hears = set(self._random.sample(list(self._cluster.hosts), self._random.choice((0, 1)))) | {leader.id}
        self._cluster.network.faults.partition(hears, [each for each in self._cluster.hosts if each not in hears])
        if self._random.random() < SLOW_SHARE:
            leader.mood.sync_s = (0.0001, 4.0)
            self._cluster.world.call_later(self._random.uniform(0.5, 2.0), self._cluster.network.heal)
        self._scene.begin(self._change(leader, 2.0), "change in vain")
        self._scene.hit("change in vain", leader.id)

    def _on_leader(self, host: SimHost) -> None:
        if self._random.random() < HASTY_SHARE:
            self._scene.begin(self._hurry(host), "hasty change")

    def _on_take(self, leader: SimHost, successor: NodeId) -> None:
        """The leader does not hear that its successor stands, and wins."""
        if self._random.random() < UNHEARD_SHARE:
            self._cluster.network.faults.cut(successor, leader.id)
            self._scene.hit("successor unheard", successor, leader.id)

    async def _hurry(self, host: SimHost) -> None:
        """Asks a leader again and again from its first moment on."""
        for _ in range(5):
            if not host.leads or await self._change(host, 0.5):
                return
            await asyncio.sleep(0.005)

    async def _change(self, host: SimHost, timeout_s: float) -> bool:
        members = host.replica.log.state.members
        gone = self._removable()
        stranger = self._stranger(members) if len(members) < 6 else None
        learners = [each.id for each in members if not each.voter and each.id not in self._stays]
        works = []
        if gone is not None and gone is not host:
            works.append(partial(_remove, gone.id))
        if stranger is not None:
            works.append(partial(_add, stranger))
        if learners and self._scene.forgetful is None:
            works.append(partial(_promote, learners[0]))
        if not works:
            return False
        work = self._random.choice(works)
        if work.func is _remove and gone is not None:
            gone.was_member = True
        if work.func is _add and stranger is not None:
            stranger.was_member = True
        return await self._scene.ask("hasty change", work, host, timeout_s)


def _promote(node_id: NodeId, replica: Replica) -> Awaitable[object]:
    return replica.members.promote(node_id)


def _remove(node_id: NodeId, replica: Replica) -> Awaitable[object]:
    return replica.members.remove(node_id)


def _add(host: SimHost, replica: Replica) -> Awaitable[object]:
    return replica.members.add(host.id, host.address)
