"""A bit flips in a state machine's memory: its node finds out at the next checkpoint, and builds the state anew."""

from __future__ import annotations

from tests.simulation.machines import may_flip
from tests.simulation.troubles.scene import Scene, Trouble


class MachineTroubles:
    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._random = scene.random

    def all(self) -> list[Trouble]:
        return [Trouble(15, self.flip)]

    async def flip(self) -> None:
        groups = [group for group in self._scene.groups if group.truth is not None and may_flip(group)]
        if not groups:
            return
        group = self._random.choice(groups)
        leading = group.leaders()
        seats = leading if leading and self._random.random() < 0.5 else group.up()
        if not seats:
            return
        seat = self._random.choice(seats)
        machine = seat.life.machine
        if machine is not None and machine.flip(self._random):
            self._scene.hit("damaged state", seat.name, "leader" if seat.leads else "")
