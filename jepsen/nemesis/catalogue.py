"""All nemeses by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import cycle
from random import Random

from dledger.common.errors import ConfigError
from jepsen.hosts.api import Ability
from jepsen.nemesis.api import Fault
from jepsen.nemesis.clocks import LIBRARY, ClockDrift, ClockJump
from jepsen.nemesis.delays import Delay
from jepsen.nemesis.members import Churn, Transfer
from jepsen.nemesis.partitions import PARTITIONS, Flapping, Loss, Partition
from jepsen.nemesis.processes import Kill, Laggards, Pause, RollingRestart, a_majority, everyone, leader, one
from jepsen.nemesis.storage import BitRot, FsyncErrors, FullDisk, PowerCut, SlowDisk, WipedDirectory

Make = Callable[[], Fault]

NEMESES: dict[str, Make] = {
    **{name: partial(Partition, name, grudge) for name, grudge in PARTITIONS.items()},
    "flapping": Flapping,
    "loss": Loss,
    "kill-one": partial(Kill, "kill-one", one),
    "kill-leader": partial(Kill, "kill-leader", leader),
    "kill-majority": partial(Kill, "kill-majority", a_majority),
    "kill-all": partial(Kill, "kill-all", everyone),
    "pause-one": partial(Pause, "pause-one", one),
    "pause-leader": partial(Pause, "pause-leader", leader),
    "laggards": Laggards,
    "rolling-restart": RollingRestart,
    "delay": Delay,
    "power-cut-one": partial(PowerCut, "power-cut-one", one),
    "power-cut-all": partial(PowerCut, "power-cut-all", everyone),
    "power-cut-slow-disks": partial(PowerCut, "power-cut-slow-disks", everyone, slow_ms=300),
    "full-disk": FullDisk,
    "slow-disk": SlowDisk,
    "fsync-errors": FsyncErrors,
    "bit-rot-stopped": partial(BitRot, "bit-rot-stopped", running=False),
    "bit-rot-running": partial(BitRot, "bit-rot-running", running=True),
    "wiped-directory": WipedDirectory,
    "clock-jump": ClockJump,
    "clock-drift": ClockDrift,
    "transfer": Transfer,
    "churn": Churn,
}

ALL = "all"
"""By weight, two at once."""
EVERY = "every"
"""One after the other."""

OF_THE_NETWORK = (*PARTITIONS, "flapping", "loss", "delay")

TOOLS = {
    "iptables": ("iptables", ("delay",)),
    "strace": ("strace", ("slow-disk", "fsync-errors", "power-cut-slow-disks")),
    str(LIBRARY): ("faketime", ("clock-jump", "clock-drift")),
}
"""What not every machine has: the package, and whose faults need it."""

WEIGHTS = {"kill-leader": 3, "power-cut-one": 2, "power-cut-all": 2, "partition-random-halves": 3, "churn": 2}
"""Of ``all``: how often each comes; 1 where nothing is said."""


def lanes(names: Sequence[str], chance: Random) -> list[Callable[[], Fault]]:
    """What makes the next fault, for each of the schedules that run at the same time.

    Several names take turns. ``all`` is two at once by weight: one of the network, one of anything else.
    Raises CONFIG_ERROR.
    """
    for name in names:
        if name not in (ALL, EVERY, *NEMESES):
            raise ConfigError(f"there is no nemesis {name!r}: choose none, all, every, or of {', '.join(NEMESES)}")
    if ALL in names:
        others = [name for name in NEMESES if name not in OF_THE_NETWORK]
        return [partial(_weighted, chance, OF_THE_NETWORK), partial(_weighted, chance, others)]
    in_turn = NEMESES if EVERY in names else names
    return [partial(_next, cycle(in_turn))] if names else []


def _weighted(chance: Random, names: Sequence[str]) -> Fault:
    weights = [WEIGHTS.get(name, 1) for name in names]
    return NEMESES[chance.choices(names, weights)[0]]()


def _next(turns: Iterator[str]) -> Fault:
    return NEMESES[next(turns)]()


def needs(names: Sequence[str]) -> frozenset[Ability]:
    """What the hosts must be able to for all of these."""
    is_asked = {name: name in names or ALL in names or EVERY in names for name in NEMESES}
    return frozenset().union(*(make().needs for name, make in NEMESES.items() if is_asked[name]))


def tools(names: Sequence[str]) -> dict[str, str]:
    """The commands, or files, that these work with, and the packages that have them."""
    chosen = {name for name in NEMESES if name in names or ALL in names or EVERY in names}
    wanted = {tool: package for tool, (package, users) in TOOLS.items() if chosen & set(users)}
    return wanted | ({"mkfs.ext4": "e2fsprogs"} if Ability.DISKS in needs(names) else {})
