"""Groups that are removed for good while machines are away, learners that leave a group and come back to it, and debts
that a node has in all its groups at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from dledger.common.errors import DLedgerError
from tests.simulation.directory import Directory
from tests.simulation.host import SimHost
from tests.simulation.process import GoneError
from tests.simulation.seat import Seat
from tests.simulation.troubles.members import MOST_MEMBERS, add, remove
from tests.simulation.troubles.scene import Scene, Trouble

REMOVED_SHARE = 0.25
"""Of the removals that come up: done where there is one group beside the founding one; of many, every one."""
FEW = 2
AWAY_SHARE = 0.6
"""Of the removals: a machine is without power when the group is removed."""


STAY_S = (0.2, 2.0)
LOOK_S = 0.05
LOOKS = 100
OWED_S = 10.0
"""By then a node has noted on its disk that it owes."""


class GroupTroubles:
    def __init__(self, scene: Scene, directory: Directory, may_lose: Callable[[SimHost], bool]) -> None:
        """``may_lose``: whether the others could do without the disk."""
        self._scene = scene
        self._directory = directory
        self._random = scene.random
        self._may_lose = may_lose

    def all(self) -> list[Trouble]:
        return [Trouble(1, self.remove), Trouble(3, self.owe_in_every_group), Trouble(8, self.leave_and_come_back)]

    async def remove(self) -> None:
        groups = [group for group in self._scene.groups[1:] if group.watch.chronicle.commit_position]
        if not groups or (len(groups) < FEW and self._random.random() > REMOVED_SHARE):
            return
        group = self._random.choice(groups)
        up = [seat.host for seat in group.up() if seat.host.is_up]
        if up and self._random.random() < AWAY_SHARE:
            host = self._random.choice(up)
            host.crash()
            self._scene.hit("group removed while a node is away", group.name, host.id)
        self._scene.in_doubt.pop(group.name, None)
        self._directory.remove(group)

    async def leave_and_come_back(self) -> None:
        """A machine replicates a group, leaves it, drops its replica, and is added again."""
        groups = [group for group in self._scene.groups[1:] if group.settled_members()]
        if not groups:
            return
        group = self._random.choice(groups)
        known = {member.id for member in group.settled_members()}
        seats = [seat for seat in group.seats if seat.id not in known and seat.host.is_in_cluster]
        fit = [seat for seat in seats if not (seat.was_member or seat.is_dropping)]
        if fit and len(known) < MOST_MEMBERS:
            self._scene.begin(self._leave_and_come_back(self._random.choice(fit)), "leave and come back")

    async def _leave_and_come_back(self, seat: Seat) -> None:
        group = seat.group
        seat.was_member = True
        for name, work in (("add learner", partial(add, seat)), ("remove", partial(remove, seat.id))):
            if not await self._scene.ask(name, group, work):
                return
            await asyncio.sleep(self._random.uniform(*STAY_S))
        for _ in range(LOOKS):
            if not seat.was_member:  # it has dropped its replica
                self._scene.hit("member back", seat.name)
                await self._scene.ask("add learner", group, partial(add, seat))
                return
            await asyncio.sleep(LOOK_S)

    async def owe_in_every_group(self) -> None:
        """As if damaged frames had been cut in all of its logs: a node may always say that it owes a catch-up."""
        host = self._scene.any_up()
        if host is None or host.is_rotten or not self._may_lose(host):
            return
        seats = [seat for seat in host.seats if seat.is_up and not seat.group.is_removed]
        if not await self._owe(host, seats):
            return
        self._scene.hit("debt in every group", host.id)
        if self._random.random() < 0.5:
            host.crash()

    async def _owe(self, host: SimHost, seats: list[Seat]) -> bool:
        async def owe() -> None:
            await asyncio.gather(*(seat.replica.owe_catch_up() for seat in seats))

        for seat in seats:
            seat.was_made_to_owe = True
        try:
            async with asyncio.timeout(OWED_S):
                await host.ask(owe)
        except (DLedgerError, GoneError, TimeoutError):
            return False  # by a timeout: its disk hangs
        return True
