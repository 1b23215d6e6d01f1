"""Trouble, by weight: what goes wrong, and what ends it."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Awaitable, Callable
from random import Random

from dledger.errors import DLedgerError
from dledger.server.replica import Replica
from dledger.transport.faults import Rule
from dledger.types import Member, NodeId, PreferredLeader
from tests.simulation.cluster import SimHost, SimulatedCluster
from tests.simulation.disk import Platter

Trouble = Callable[[], Awaitable[None]]


class Nemesis:
    def __init__(self, cluster: SimulatedCluster, random: Random) -> None:
        self._cluster = cluster
        self._random = random
        self._starts: list[asyncio.Task[None]] = []
        self._forgetful: SimHost | None = None
        """Whose disk is not what it was. One at a time: of two, what one held for the other would be lost."""
        self._backup: tuple[SimHost, int, Platter] | None = None
        self._troubles: list[tuple[int, Trouble]] = [
            (4, self._power_cut),
            (1, self._power_cut_of_all),
            (2, self._kill),
            (8, self._restart),
            (2, self._clean_restart),
            (3, self._partition),
            (2, self._isolate_leader),
            (3, self._one_way),
            (2, self._bridge),
            (8, self._heal),
            (4, self._weather),
            (2, self._calm),
            (3, self._disconnect),
            (3, self._transfer),
            (3, self._slow_disk),
            (2, self._failing_sync),
            (2, self._full_disk),
            (2, self._hung_disk),
            (2, self._clock_jump),
            (3, self._trim),
            (1, self._retention),
            (1, self._preferred),
            (2, self._add),
            (4, self._promote),
            (2, self._remove),
            (1, self._wipe),
            (1, self._back_up),
            (1, self._restore),
            (4, self._readmit),
        ]

    async def run(self, is_over: Callable[[], bool]) -> None:
        weights = [weight for weight, _ in self._troubles]
        while not is_over():
            (_, trouble) = self._random.choices(self._troubles, weights)[0]
            await trouble()
            await asyncio.sleep(self._random.uniform(0.05, 1.2))

    async def end(self) -> None:
        """Everything is whole again, and everybody is up."""
        cluster = self._cluster
        cluster.network.faults.clear()
        cluster.network.heal()
        for host in cluster.hosts.values():
            host.mood.sync_s = (0.0001, 0.002)
            host.mood.fails_next_sync = host.mood.is_hung = False
            host.platter.capacity_bytes = 1 << 30
        await asyncio.gather(*self._starts)
        await self.mend()

    async def mend(self) -> None:
        """What an operator would see to: all members run, and those in doubt are admitted anew."""
        for host in self._cluster.down():
            await host.start()
        if self._forgetful is not None:
            await self._readmit()

    def _hit(self, name: str, *details: object) -> None:
        self._cluster.trace.hit(f"fault {name}", *details)

    def _any(self) -> SimHost:
        return self._random.choice(list(self._cluster.hosts.values()))

    def _any_up(self) -> SimHost | None:
        up = self._cluster.up()
        return self._random.choice(up) if up else None

    # Processes and power -----------------------------------------------------------------------------------------

    async def _power_cut(self) -> None:
        if host := self._any_up():
            lost = host.platter.sectors_lost
            host.crash()
            self._hit("power cut", host.id)
            if host.platter.sectors_lost > lost:
                self._hit("sectors lost", host.id, host.platter.sectors_lost - lost)

    async def _power_cut_of_all(self) -> None:
        for host in self._cluster.up():
            host.crash()
        self._hit("power cut of all")

    async def _kill(self) -> None:
        if host := self._any_up():
            host.crash(power=False)
            self._hit("kill", host.id)

    async def _restart(self) -> None:
        for host in self._cluster.down():
            self._starts.append(asyncio.get_running_loop().create_task(host.start(), name=f"start {host.id}"))

    async def _clean_restart(self) -> None:
        if host := self._any_up():
            await host.stop()
            self._hit("clean stop", host.id)

    # The network -------------------------------------------------------------------------------------------------

    def _ids(self) -> list[NodeId]:
        ids = list(self._cluster.hosts)
        self._random.shuffle(ids)
        return ids

    async def _partition(self) -> None:
        ids = self._ids()
        at = self._random.randrange(1, len(ids))
        self._cluster.network.faults.partition(ids[:at], ids[at:])
        self._hit("partition", *ids[:at], "|", *ids[at:])

    async def _isolate_leader(self) -> None:
        for host in self._cluster.leaders()[:1]:
            others = [other for other in self._cluster.hosts if other != host.id]
            self._cluster.network.faults.partition([host.id], others)
            self._hit("leader isolated", host.id)

    async def _one_way(self) -> None:
        source, target = self._ids()[:2]
        self._cluster.network.faults.cut(source, target)
        self._hit("one-way cut", source, target)

    async def _bridge(self) -> None:
        ids = self._ids()
        half = len(ids) // 2
        self._cluster.network.faults.partition(ids[1 : half + 1], ids[half + 1 :])
        self._hit("bridge", *ids)

    async def _heal(self) -> None:
        self._cluster.network.heal()

    async def _weather(self) -> None:
        faults = self._cluster.network.faults
        faults.clear()
        share = self._random.choice((0.02, 0.1, 0.3))
        faults.add(
            Rule(drop_share=share, duplicate_share=share, reorder_share=share, reorder_s=self._random.choice((0.01, 1)))
        )
        self._hit("loss, duplication, reordering", share)

    async def _calm(self) -> None:
        self._cluster.network.faults.clear()

    async def _disconnect(self) -> None:
        a, b = self._ids()[:2]
        self._cluster.network.disconnect(a, b)
        self._hit("connection reset", a, b)

    # Leadership --------------------------------------------------------------------------------------------------

    async def _transfer(self) -> None:
        for host in self._cluster.leaders():
            try:
                async with asyncio.timeout(2):
                    await host.replica.handover.transfer(None)
            except (DLedgerError, TimeoutError):
                continue
            self._hit("transfer", host.id)

    # Membership and space ----------------------------------------------------------------------------------------

    async def _ask(self, name: str, work: Callable[[Replica], Awaitable[object]]) -> bool:
        """Asks whoever leads; a refusal is an answer."""
        for host in self._cluster.leaders()[:1]:
            try:
                async with asyncio.timeout(3):
                    await work(host.replica)
            except (DLedgerError, TimeoutError) as refusal:
                self._cluster.trace.note("refused", name, getattr(refusal, "code", refusal))
                return False
            self._hit(name, host.id)
            return True
        return False

    def _members(self) -> tuple[Member, ...]:
        leaders = self._cluster.leaders()
        return leaders[0].replica.log.state.members if leaders else ()

    async def _trim(self) -> None:
        def trim(replica: Replica) -> Awaitable[object]:
            return replica.retention.trim(self._random.randint(0, replica.reader.commit_index + 1))

        await self._ask("trim", trim)

    async def _retention(self) -> None:
        max_bytes = self._random.choice((0, 0, 60_000))
        await self._ask("retention", lambda replica: replica.retention.set(0, max_bytes))

    async def _preferred(self) -> None:
        voters = [member.id for member in self._members() if member.voter]
        preferred = [PreferredLeader(self._random.choice(voters), 5)] if voters and self._random.random() < 0.6 else []
        await self._ask("preferred", lambda replica: replica.settings.set_preferred(preferred))

    async def _add(self) -> None:
        members = self._members()
        if not members or len(members) >= 6:
            return
        known = {member.id for member in members}
        strangers = [host for host in self._cluster.hosts.values() if host.id not in known and not host.was_member]
        host = strangers[0] if strangers else self._cluster.new_host()
        host.peers = {str(member.id): member.peer_address for member in members}
        if not host.is_up and not host.is_starting:
            await host.start()
        if await self._ask("add learner", lambda replica: replica.members.add(host.id, host.address)):
            host.was_member = True

    async def _promote(self) -> None:
        for member in self._members():
            host = self._cluster.hosts[member.id]
            if not member.voter and host is not self._forgetful:
                await self._ask("promote", lambda replica, member=member: replica.members.promote(member.id))  # type: ignore[misc]
                return

    async def _remove(self) -> None:
        members = [member for member in self._members() if self._cluster.hosts[member.id] is not self._forgetful]
        voters = [member for member in members if member.voter]
        candidates = members if len(voters) > 3 else [member for member in members if not member.voter]
        if candidates:
            chosen = self._random.choice(candidates)
            self._cluster.hosts[chosen.id].was_member = True
            await self._ask("remove", lambda replica: replica.members.remove(chosen.id))

    async def _wipe(self) -> None:
        if host := self._any_up():
            await self._forget("wiped disk", host, 1, host.wipe)

    async def _back_up(self) -> None:
        host = self._any_up()
        if host is not None and self._backup is None:
            host.crash()
            self._backup = host, host.lives, copy.deepcopy(host.platter)

    async def _restore(self) -> None:
        if self._backup is not None:
            (host, life, backup), self._backup = self._backup, None
            await self._forget("old backup", host, life + 1, lambda: host.restore(backup))

    async def _forget(self, name: str, host: SimHost, known_life: int, change: Callable[[], None]) -> None:
        """``host`` comes back with another disk. Those who met it since its life ``known_life`` can tell; a voter that
        did not is the stated limit, so all others must have."""
        members = self._members()
        voters = [member.id for member in members if member.voter]
        others = [self._cluster.hosts[member.id] for member in members if member.id != host.id]
        if self._forgetful is not None or host.id not in voters or host.is_starting:
            return
        if any(self._cluster.known_start(other, host.id) < known_life for other in others):
            return
        host.crash()
        change()
        self._forgetful = host
        self._hit(name, host.id)

    async def _readmit(self) -> None:
        """As an operator does: admits the disk it has now as a learner's, and promotes that when it has caught up."""
        host = self._forgetful
        if host is None or not host.is_up:
            return
        if not any(member.id == host.id for member in self._members()):
            return

        async def readmit(replica: Replica) -> None:
            await replica.members.readmit(host.id)
            await replica.members.promote(host.id)

        if await self._ask("readmit", readmit):
            self._forgetful = None

    # Disks and clocks --------------------------------------------------------------------------------------------

    async def _slow_disk(self) -> None:
        host = self._any()
        host.mood.sync_s = self._random.choice(((0.0001, 0.002), (0.005, 0.05), (0.0001, 0.3)))
        self._hit("slow disk", host.id, host.mood.sync_s)

    async def _failing_sync(self) -> None:
        if host := self._any_up():
            host.mood.fails_next_sync = True
            self._hit("failed fdatasync", host.id)

    async def _full_disk(self) -> None:
        host = self._any()
        full = host.platter.capacity_bytes > host.platter.used_bytes + 4096
        host.platter.capacity_bytes = host.platter.used_bytes if full else 1 << 30
        self._hit("full disk", host.id, full)

    async def _hung_disk(self) -> None:
        host = self._any()
        host.mood.is_hung = not host.mood.is_hung
        self._hit("hung disk", host.id, host.mood.is_hung)

    async def _clock_jump(self) -> None:
        host = self._any()
        host.clock_ahead_ms = self._random.choice((0, -3_600_000, 5, 3_600_000))
        self._hit("clock jump", host.id, host.clock_ahead_ms)
