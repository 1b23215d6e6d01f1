"""Clocks that jump, or run fast or slow: one node is started again under libfaketime. Proof: what its clock says.

Jumps are of the wall clock alone, as an operator or NTP makes them; a clock that drifts, drifts with the monotonic one.
"""

from __future__ import annotations

import asyncio
import time
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import ClassVar
from urllib.error import HTTPError
from urllib.request import urlopen

from dledger.common.config import HTTP_PORT_OFFSET, split_address
from jepsen.hosts.api import Ability
from jepsen.hosts.namespaces import PEER_PORT
from jepsen.nemesis.api import Injury, Proof, World
from jepsen.nemesis.processes import one, stop

LIBRARY = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1")
STOP_S = 15.0
SEEN_WITHIN_S = 15.0
POLL_S = 0.2
NEAR_S = 5
JUMPS_S = (-86_400, -3_600, -30, 30, 3_600, 86_400)
RATES = (0.5, 0.9, 0.97, 1.03, 1.1, 2.0)


class ClockJump:
    """One node's wall clock is off by seconds up to a day, while it runs, and comes back."""

    name: ClassVar[str] = "clock-jump"
    needs: ClassVar[frozenset[Ability]] = frozenset({Ability.FILES})

    async def begin(self, world: World) -> Injury:
        [self._target] = one(world)
        jump_s = world.chance.choice(JUMPS_S)
        clock = world.run_dir / f"{self._target}.clock"
        clock.write_text("+0", encoding="ascii")
        await restart(world, self._target, {"FAKETIME_TIMESTAMP_FILE": str(clock), "FAKETIME_DONT_FAKE_MONOTONIC": "1"})
        await world.observer.wait_for_caught_up(self._target, STOP_S)
        clock.write_text(f"{jump_s:+d}", encoding="ascii")
        self._off_s = await seen_offset_s(world, self._target, jump_s)
        return Injury([self._target], f"the wall clock jumps by {jump_s} s")

    async def end(self, world: World) -> Proof:
        await restart(world, self._target, {})
        return Proof(abs(self._off_s) > NEAR_S, {"clock_off_by_s": self._off_s})


class ClockDrift:
    """All clocks of one node run at another rate."""

    name: ClassVar[str] = "clock-drift"
    needs: ClassVar[frozenset[Ability]] = frozenset({Ability.FILES})

    async def begin(self, world: World) -> Injury:
        [self._target] = one(world)
        self._rate = world.chance.choice(RATES)
        await restart(world, self._target, {"FAKETIME": f"+0 x{self._rate}"})
        self._began_s = time.time()
        return Injury([self._target], f"clocks run at {self._rate:g} of their rate")

    async def end(self, world: World) -> Proof:
        off_s = await clock_offset_s(world, self._target)
        expected_s = (self._rate - 1) * (time.time() - self._began_s)
        is_fake = await asyncio.to_thread(runs_on_fake_time, world.hosts.pid(self._target))
        await restart(world, self._target, {})
        evidence: dict[str, int | str | bool] = {
            "rate": str(self._rate),
            "clock_off_by_s": "unknown" if off_s is None else off_s,
            "library_loaded": is_fake,
        }
        # A Date has whole seconds: what is less than two of them cannot be told from none.
        is_off = off_s is not None and (abs(expected_s) < 2 or off_s * expected_s > 0)
        return Proof(is_fake and is_off, evidence)


async def restart(world: World, host: str, environment: dict[str, str]) -> None:
    """A clean stop, and a start with another clock."""
    await stop(world, host)
    fake = {"LD_PRELOAD": str(LIBRARY), "FAKETIME_CACHE_DURATION": "1"} | environment if environment else {}
    await world.hosts.start(host, environment=fake)


async def seen_offset_s(world: World, host: str, expected_s: float) -> int:
    """Waits until the clock is about that far off; the library looks once a second, when it is asked for the time."""
    deadline = time.monotonic() + SEEN_WITHIN_S
    while time.monotonic() < deadline:
        off_s = await clock_offset_s(world, host)
        if off_s is not None and abs(off_s - expected_s) <= NEAR_S:
            return off_s
        await asyncio.sleep(POLL_S)
    return 0


async def clock_offset_s(world: World, host: str) -> int | None:
    """The node's wall clock minus ours, by the Date of its HTTP answers; None when it does not answer.

    Raises HTTPError when it answers that it failed."""
    address, _ = split_address(world.hosts.client_address(host))
    url = f"http://{address}:{PEER_PORT + HTTP_PORT_OFFSET}/metrics"
    try:
        date = await asyncio.to_thread(_date_of, url)
    except HTTPError:
        raise  # a node that runs, and fails to tell its metrics
    except OSError:
        return None
    return round(parsedate_to_datetime(date).timestamp() - time.time())


def _date_of(url: str) -> str:
    with urlopen(url, timeout=5) as answer:  # noqa: S310  # http only
        return str(answer.headers["Date"])


def runs_on_fake_time(pid: int | None) -> bool:
    """Whether the process was told to, and has the library: one that is not there is passed over with a warning."""
    if pid is None:
        return False
    environment = Path(f"/proc/{pid}/environ").read_text(encoding="utf-8", errors="replace")
    maps = Path(f"/proc/{pid}/maps").read_text(encoding="utf-8", errors="replace")
    return "FAKETIME=" in environment and LIBRARY.name in maps
