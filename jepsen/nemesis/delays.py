"""Delay and jitter: packets are queued to a process of ours in the host's namespace, which lets them go later.

iptables hands what comes from other hosts to an NFQUEUE; ``delayer`` holds each packet's verdict back. Proof: how many
packets it held, and for how long together. If it died the packets would pass (``--queue-bypass``).
"""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from typing import ClassVar

from jepsen.hosts.api import Ability
from jepsen.nemesis.api import Injury, Proof, World


class Delay:
    """What comes from other hosts arrives later at some hosts, or at all, each packet by a time of its own."""

    name: ClassVar[str] = "delay"
    needs: ClassVar[frozenset[Ability]] = frozenset({Ability.FILES})

    async def begin(self, world: World) -> Injury:
        delay_ms, jitter_ms = world.chance.choice([(5, 2), (30, 10), (100, 50), (150, 140)])
        self._targets = world.chance.sample(world.names, world.chance.choice([1, len(world.names)]))
        self._delayers: dict[str, asyncio.subprocess.Process] = {}
        # Kept, to be taken back: members may come and go meanwhile.
        self._rules = {name: _rules(world, name) for name in self._targets}
        for name in self._targets:
            self._delayers[name] = await asyncio.create_subprocess_exec(
                *world.hosts.inside(name),
                *(sys.executable, "-m", "jepsen.nemesis.delayer", str(delay_ms), str(jitter_ms)),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
            )
            for rule in self._rules[name]:
                await world.hosts.run(name, "iptables", "-A", *rule)
        return Injury(self._targets, f"packets come {delay_ms} ± {jitter_ms} ms later")

    async def end(self, world: World) -> Proof:
        packets = held_ms = 0
        for name, delayer in self._delayers.items():
            for rule in self._rules[name]:
                await world.hosts.run(name, "iptables", "-D", *rule)
            delayer.send_signal(signal.SIGTERM)
            out, _ = await delayer.communicate()
            told = json.loads(out)
            packets += told["packets"]
            held_ms += told["held_ms"]
        return Proof(packets > 0 and held_ms > 0, {"packets_held": packets, "held_ms": held_ms})


def _rules(world: World, host: str) -> list[list[str]]:
    others = [each.address for each in world.hosts.all if each.name != host]
    queue = ["-j", "NFQUEUE", "--queue-num", "0", "--queue-bypass"]
    return [["INPUT", "-s", address, *queue] for address in others]
