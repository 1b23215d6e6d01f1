"""When faults come and go: so long on, so long off, one after another; each is written down as it ends.

::

    {"fault":"bridge","what":"8 links cut","targets":["n0",…],"began_ns":…,"ended_ns":…,"majority":true,
     "bit":true,"evidence":{"packets_dropped":411,…},"cut":[["n0","n3"],…],"down":[],"members":["n0",…]}
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dledger.common.errors import ConfigError
from jepsen.nemesis.api import Fault, Injury, Proof, World, happens, majority_connected

logger = logging.getLogger(__name__)

FIRST_FAULT_S = 3.0


@dataclass(frozen=True, slots=True)
class Window:
    """One fault, from when it began to when all was whole again."""

    fault: str
    what: str
    targets: Sequence[str]
    began_ns: int
    ended_ns: int
    majority: bool
    """Whether, for all this fault did, some node reached a majority."""
    bit: bool
    evidence: dict[str, Any]
    cut: Sequence[Sequence[str]] = ()
    """Links, from whom to whom."""
    down: Sequence[str] = ()
    members: Sequence[str] = ()
    """Who voted as it began."""

    @property
    def key(self) -> str:
        """As the verdict names it."""
        return f"{self.fault}@{self.began_ns / 1e9:.0f}s"


class FaultBook:
    """Writes each window down as it ends; several schedules may share it."""

    def __init__(self, file: Path) -> None:
        self._file = file.open("w", encoding="utf-8")
        self.under_way: list[str] = []

    def write(self, window: Window) -> None:
        self._file.write(json.dumps(asdict(window)) + "\n")
        self._file.flush()

    def close(self) -> None:
        self._file.close()


class Schedule:
    """Each window takes the next fault of ``choose``."""

    def __init__(
        self,
        world: World,
        choose: Callable[[], Fault],
        book: FaultBook,
        *,
        on_s: float,
        off_s: float,
        now_ns: Callable[[], int],
    ) -> None:
        self._world = world
        self._choose = choose
        self._book = book
        self._on_s = on_s
        self._off_s = off_s
        self._now_ns = now_ns

    async def run(self, ended: asyncio.Event, within_s: float) -> None:
        """Until ``ended``, in ``within_s``: what could not last for half its time is not begun any more."""
        loop = asyncio.get_running_loop()
        began, wait_s = loop.time(), FIRST_FAULT_S
        while not await happens(ended, wait_s) and begins_in_time(loop.time() - began, self._on_s, within_s):
            await self._strike(ended)
            wait_s = self._off_s

    async def _strike(self, ended: asyncio.Event) -> None:
        fault = self._choose()
        self._book.under_way.append(fault.name)
        began_ns, members = self._now_ns(), self._world.names
        injury = await fault.begin(self._world)
        logger.info("%s: %s (%s)", fault.name, injury.what, ", ".join(injury.targets))
        await happens(ended, self._on_s)
        proof = await fault.end(self._world)
        self._book.under_way.remove(fault.name)
        logger.info("%s ended: %s", fault.name, json.dumps(dict(proof.evidence)))
        self._book.write(self._window(fault, injury, proof, began_ns, members))

    def _window(self, fault: Fault, injury: Injury, proof: Proof, began_ns: int, members: Sequence[str]) -> Window:
        cut, down = sorted(injury.cut), sorted(injury.down)
        return Window(
            fault=fault.name,
            what=injury.what,
            targets=list(injury.targets),
            began_ns=began_ns,
            ended_ns=self._now_ns(),
            majority=majority_connected(members, injury.cut, injury.down),
            bit=proof.bit,
            evidence=dict(proof.evidence),
            cut=cut,
            down=down,
            members=members,
        )


def begins_in_time(at_s: float, on_s: float, within_s: float) -> bool:
    """Whether a fault that begins then can last for half its time."""
    return at_s < within_s - on_s / 2


def read_windows(file: Path) -> list[Window]:
    """What ``Schedule`` wrote, up to where it was cut short as the harness was killed. Raises CONFIG_ERROR."""
    lines = file.read_text(encoding="utf-8").splitlines(keepends=True) if file.exists() else []
    try:
        return [Window(**json.loads(line)) for line in lines if line.endswith("\n")]
    except (ValueError, TypeError) as failure:
        raise ConfigError(f"{file} is damaged: {failure}") from None
