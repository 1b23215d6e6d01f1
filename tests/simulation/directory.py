"""The directory of groups: which there are, with whom they begin, and which are gone for good.

It makes the groups beside the founding one, and hears from their leaders, sooner or later, who the members are by now.
It tells every node, again after each start until the node has done it, which groups to open, to drop and to remove.
Nothing of a cluster's safety rests on it: it may be late, and tell a node long after a removal to open the group.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from random import Random
from typing import Any

from dledger.common.errors import Code, DLedgerError, error
from dledger.common.types import Member
from dledger.node.node import Node
from dledger.server.committed_members import committed_members
from dledger.server.meta.group_records import GroupMembers
from tests.simulation.groups import SimGroup
from tests.simulation.host import SimHost
from tests.simulation.process import GoneError
from tests.simulation.seat import Seat
from tests.simulation.troubles.scene import Scene
from tests.simulation.violation import Violation

LOOK_S = 0.1
FEWEST = 3
"""So many members a group begins with, where the cluster has as many."""
SMALLER_SHARE = 0.1
"""Of the groups: begun with fewer."""
MISNAMED_SHARE = 0.25
"""Of the groups with enough founders: the record names a disk of one that it does not have any more."""
MACHINE_SHARE = 0.5
"""Of the groups: a state machine runs on it."""
LATE_SHARE = 0.02
"""Of the looks at a node that has removed a group, or dropped it: it is told to open it, by a record of before."""
TOLD_SHARE = 0.15
"""Of the looks at a leader that knows of a change of its members: it tells the directory now."""
DROP_SHARE = 0.3
"""Of the looks at a node with a group that it is no member of, as far as the directory knows: it is told so now. A
later change of the members may be in its log by then."""
WAITS_S = 12.0
"""For three members, where one machine founded the cluster."""


class Directory:
    def __init__(self, scene: Scene, random: Random) -> None:
        self._scene = scene
        self._cluster = scene.cluster
        self._random = random
        self._telling: dict[SimHost, asyncio.Task[None]] = {}
        self._made = 0

    # Groups ------------------------------------------------------------------------------------------------------

    async def make(self, is_over: Callable[[], bool]) -> SimGroup | None:
        """One more group, for some members of the founding one, as soon as that has a leader, and all disks are whole.
        None when it ``is_over`` before."""
        began_s = self._cluster.world.time()
        while not is_over():
            founders = self._founders(may_be_few=self._cluster.world.time() > began_s + WAITS_S)
            if founders:
                return self._declare(founders)
            await asyncio.sleep(LOOK_S)
        return None

    def _founders(self, *, may_be_few: bool) -> list[SimHost]:
        hosts = self._cluster.hosts
        if any(host.is_in_trouble for host in hosts.values()):
            return []
        members = [hosts[member.id] for member in self._cluster.founding.settled_members()]
        ready = [host for host in members if host.is_in_cluster]
        if not ready or (len(ready) < FEWEST and not may_be_few):
            return []
        fewest = 1 if self._random.random() < SMALLER_SHARE else min(FEWEST, len(ready))
        return self._random.sample(ready, self._random.randint(fewest, len(ready)))

    def _declare(self, hosts: list[SimHost]) -> SimGroup:
        self._made += 1
        group = self._cluster.group(f"g{self._made}")
        if self._random.random() < MACHINE_SHARE:
            group.give_machine()
        members = [_member(host) for host in hosts]
        if len(hosts) >= FEWEST and self._random.random() < MISNAMED_SHARE:
            at = self._random.randrange(len(hosts))
            members[at] = members[at]._replace(node_uuid=self._random.randbytes(16))
            self._cluster.trace.hit("fault founder with another disk", hosts[at].id, group.name)
            self._scene.in_doubt[group.name] = hosts[at]
        group.founders = tuple(members)
        group.known = GroupMembers(group.founders)
        group.wanted = {host.id for host in hosts}
        group.watch.begun_by(members)
        self._cluster.trace.hit("branch group made", group.name, *(host.id for host in hosts))
        return group

    def remove(self, group: SimGroup) -> None:
        """For good. Its nodes hear of it one after the other, as they are up."""
        group.is_removed = True
        self._cluster.trace.hit("fault group removed", group.name)

    # Telling -----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """For ever."""
        while True:
            for group in self._cluster.groups.values():
                self._hear(group)
            for host in self._cluster.hosts.values():
                if host not in self._telling and not host.is_down and not host.is_starting:
                    self._look(host)
            await asyncio.sleep(LOOK_S)

    def _hear(self, group: SimGroup) -> None:
        """What its leaders have to tell of the members, also one that is deposed and does not know it yet."""
        for seat in group.leaders():
            known = committed_members(seat.replica)
            is_news = known is not None and known.as_of.position > group.known.as_of.position
            if known is not None and is_news and known.changed_at and self._random.random() < TOLD_SHARE:
                group.known = known

    def _look(self, host: SimHost) -> None:
        for group in self._cluster.groups.values():
            if group.is_founding:
                continue
            work = self._news(host.seat(group.name))
            if work is not None:
                task = self._cluster.world.create_task(work(), name=f"tell {host.id}")
                self._telling[host] = task
                task.add_done_callback(partial(self._told, host))
                return

    def _told(self, host: SimHost, task: asyncio.Task[None]) -> None:
        self._telling.pop(host, None)
        if not task.cancelled() and (failure := task.exception()) is not None:
            self._cluster.world.fail(failure)

    def _news(self, seat: Seat) -> Callable[[], Coroutine[Any, Any, None]] | None:
        if seat.group.is_removed:
            if not seat.is_removed:
                return partial(self._tell_removal, seat)
            return partial(self._tell_late, seat) if self._random.random() < LATE_SHARE else None
        present = seat.life.present
        if present is None:
            is_wanted = seat.group.records(seat.id) or seat.is_called
            is_late = seat.was_dropped and self._random.random() < LATE_SHARE
            is_able = seat.life.failure is None and seat.host.is_in_cluster
            return partial(self._tell_opening, seat) if is_able and (is_wanted or is_late) else None
        is_told = self._is_left_over(seat) and self._random.random() < DROP_SHARE
        return partial(self._tell_drop, seat) if is_told else None

    def _is_left_over(self, seat: Seat) -> bool:
        """It has a replica of a group that it is no member of, as far as the directory knows."""
        is_left = not seat.group.records(seat.id) and seat.group.known.changed_at > 0
        return is_left and not seat.is_called and seat.is_up

    async def _tell_drop(self, seat: Seat) -> None:
        disk, group = seat.disk_name, seat.group
        dropped: list[bool] = []

        async def drop(node: Node) -> None:
            is_right = group.watch.may_drop(seat)
            dropped.append(await node.groups.drop(group.name, group.known.as_of))
            if dropped == [True] and not is_right:
                raise Violation("who is removed was removed by a commit", f"{seat.name} drops its replica")

        seat.is_dropping = True
        refusal = await self._ask(seat, drop)
        if dropped == [False]:
            seat.is_dropping = False
        elif dropped and seat.disk_name == disk:
            seat.dropped()
        elif refusal is not None and not self._is_of_the_disk(seat.host, refusal):
            raise Violation("a replica is dropped", f"{seat.name}: {refusal!r}")

    async def _tell_opening(self, seat: Seat) -> None:
        """A node that cannot open the group now is told again."""
        group = seat.group
        refusal = await self._ask(seat, lambda node: node.groups.open(group.name, group.founders))
        if refusal is None:
            self._cluster.trace.note("told", seat.name, "to open")
        elif refusal.code is not Code.LEADER_NOT_READY and not self._is_of_the_disk(seat.host, refusal):
            raise Violation("a group is opened", f"{seat.name}: {refusal!r}")

    async def _tell_removal(self, seat: Seat) -> None:
        disk = seat.disk_name
        refusal = await self._ask(seat, lambda node: node.groups.remove(seat.group.name))
        if refusal is None and seat.disk_name == disk:
            seat.removed()
            self._cluster.trace.hit("branch group removed", seat.name)
        elif refusal is not None and not self._is_of_the_disk(seat.host, refusal):
            raise Violation("a group is removed", f"{seat.name}: {refusal!r}")

    async def _tell_late(self, seat: Seat) -> None:
        group = seat.group
        refusal = await self._ask(seat, lambda node: node.groups.open(group.name, group.founders))
        if refusal is not None and refusal.code is Code.UNKNOWN_GROUP:
            self._cluster.trace.hit("branch late opening refused", seat.name)
        elif refusal is not None and refusal.code is not Code.SHUTTING_DOWN:
            raise Violation("a removed group stays removed", f"{seat.name}, told to open it again: {refusal!r}")

    async def _ask(self, seat: Seat, work: Callable[[Node], Awaitable[None]]) -> DLedgerError | None:
        """What the node refused it with. SHUTTING_DOWN where nobody is there to answer, or it stops."""
        if seat.is_down:
            return error(Code.SHUTTING_DOWN, "it is down")
        node = seat.host.life.node
        assert node is not None
        try:
            await seat.ask(lambda: work(node))
        except GoneError:
            return error(Code.SHUTTING_DOWN, "it is gone")
        except DLedgerError as refusal:
            return refusal
        return None

    def _is_of_the_disk(self, host: SimHost, refusal: DLedgerError) -> bool:
        if refusal.code is Code.SHUTTING_DOWN or host.is_down:
            return True
        cause = {Code.DISK_ERROR: errno.EIO, Code.DISK_FULL: errno.ENOSPC}.get(refusal.code)
        return cause in host.life.disk.failures

    @property
    def is_done(self) -> bool:
        """Every node that runs was told everything."""
        running = [host for host in self._cluster.hosts.values() if not host.is_down]
        return not self._telling and not any(self.lacks(host) for host in running)

    def lacks(self, host: SimHost) -> bool:
        """It has yet to open a group, to drop one, or to remove one."""
        return host.is_starting or any(self._lacks(seat) for seat in host.seats if not seat.group.is_founding)

    def _lacks(self, seat: Seat) -> bool:
        if seat.group.is_removed:
            return not seat.is_removed
        if seat.group.names(seat.id):
            return not seat.is_up
        return not seat.group.is_record_current or self._is_left_over(seat)


def _member(host: SimHost) -> Member:
    """As a record names it: with the disk that it has now."""
    node = host.life.node
    assert node is not None
    assert node._identity is not None
    uuid, count, nonces = node._identity.start
    return Member(host.id, host.address, True, uuid, count, nonces[-1])
