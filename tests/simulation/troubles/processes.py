"""Processes and power: kills, cuts, pauses and stops, also in the middle of whatever the disk is being told."""

from __future__ import annotations

from tests.simulation.disk import Trap
from tests.simulation.host import SimHost
from tests.simulation.seat import Seat
from tests.simulation.troubles.scene import Scene, Trouble

AMID_CUT_SHARE = 0.2
"""Of the truncations and resets."""


class ProcessTroubles:
    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._cluster = scene.cluster
        self._random = scene.random
        scene.cluster.on_cut = self._on_cut

    def all(self) -> list[Trouble]:
        return [
            Trouble(4, self.cut_power, is_gentle=True),
            Trouble(8, self.cut_power_soon, is_gentle=True),
            Trouble(1, self.cut_power_of_two),
            Trouble(1, self.cut_power_of_all),
            Trouble(1, self.kill),
            Trouble(2, self.kill_soon),
            Trouble(14, self.restart, is_gentle=True),
            Trouble(2, self.restart_cleanly),
            Trouble(5, self.pause),
        ]

    async def cut_power(self) -> None:
        up = self._leader_rather(self._cluster.up())
        if up:
            host = self._random.choice(up)
            host.crash()
            self._scene.hit("power cut", host.id)

    async def cut_power_soon(self) -> None:
        """At one of the next operations of its disk, which may be any step of a roll, a cut or a start."""
        self._set_trap("power cut at an operation", power=True)

    async def kill_soon(self) -> None:
        self._set_trap("kill at an operation", power=False)

    def _on_cut(self, seat: Seat) -> None:
        """A cut takes few operations, and each leaves something else behind."""
        if seat.host.mood.trap is None and self._random.random() < AMID_CUT_SHARE:
            self._trap(seat.host, "power cut amid a cut", self._random.randrange(1, 12), power=True)

    def _set_trap(self, name: str, *, power: bool) -> None:
        host = self._scene.any()
        self._trap(host, name, self._random.choice((1, 3, 10, 30, 100)) + self._random.randrange(10), power=power)

    def _trap(self, host: SimHost, name: str, countdown: int, *, power: bool) -> None:
        def spring() -> None:
            self._scene.hit(name, host.id)
            host.crash(power=power)

        host.mood.trap = Trap(countdown, spring)

    async def cut_power_of_two(self) -> None:
        up = self._cluster.up()
        if len(up) >= 2:
            self._cut(self._random.sample(up, 2))
            self._scene.hit("power cut of two")

    async def cut_power_of_all(self) -> None:
        self._cut(self._cluster.up())
        self._scene.hit("power cut of all")

    def _cut(self, hosts: list[SimHost]) -> None:
        for host in hosts:
            host.crash()

    async def kill(self) -> None:
        if host := self._scene.any_up():
            host.crash(power=False)
            self._scene.hit("kill", host.id)

    async def restart(self) -> None:
        for host in self._cluster.down():
            self._scene.begin(host.start(), f"start {host.id}")

    async def restart_cleanly(self) -> None:
        if host := self._scene.any_up():
            self._scene.hit("clean stop", host.id)
            self._scene.begin(host.stop(), f"stop {host.id}")

    async def pause(self) -> None:
        """Its buffers fill and its disk goes on; then everything that is late comes at once."""
        up = self._leader_rather([host for host in self._cluster.up() if not host.is_paused])
        if up:
            host = self._random.choice(up)
            host.pause()
            self._cluster.world.call_later(self._random.choice((0.2, 0.6, 1.5, 5.0)), host.resume)
            self._scene.hit("pause", host.id)

    def _leader_rather(self, hosts: list[SimHost]) -> list[SimHost]:
        """Every second time, whoever leads some group: it is one of many, and the one that matters."""
        group = self._scene.pick()
        leaders = [host for host in hosts if host.seat(group.name).leads]
        return leaders if leaders and self._random.random() < 0.5 else hosts
