"""What befalls the store of a node, beside what befalls the node: state machines that lag, and leaders that stand still
for longer than leases live."""

from __future__ import annotations

from tests.simulation.seat import Seat
from tests.simulation.troubles.scene import Scene, Trouble

LAGS_S = 0.05, 0.3, 1.0, 3.0
STANDSTILLS_S = 4.0, 7.0


class StoreTroubles:
    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._random = scene.random

    def all(self) -> list[Trouble]:
        return [
            Trouble(12, self.lag),
            Trouble(2, self.stand_still, fewest=2),
            Trouble(3, self.hand_over, fewest=2),
        ]

    async def lag(self) -> None:
        """A node applies nothing for a while."""
        seat = self._leader_rather()
        store = None if seat is None else seat.host.life.store
        if seat is not None and store is not None:
            store.lag(self._random.choice(LAGS_S))
            self._scene.hit("lagging state", seat.name)

    async def stand_still(self) -> None:
        """A leader hears of nothing for so long that others have led, and ended leases, meanwhile."""
        for seat in self._scene.cluster.founding.leaders()[:1]:
            if not seat.host.is_paused:
                seat.host.pause()
                self._scene.cluster.world.call_later(self._random.choice(STANDSTILLS_S), seat.host.resume)
                self._scene.hit("leader at a standstill", seat.name)

    async def hand_over(self) -> None:
        await self._scene.ask("transfer", self._scene.cluster.founding, lambda leader: leader.handover.transfer(None))

    def _leader_rather(self) -> Seat | None:
        group = self._scene.cluster.founding
        leading = group.leaders()
        seats = leading if leading and self._random.random() < 0.5 else group.up()
        return self._random.choice(seats) if seats else None
