"""Hosts as machines reached by ssh as root, without a password: faults of the network and of processes.

Each has `dledger` on its PATH (``program``), and keeps its node's files in ``/var/lib/dledger-jepsen``, which a run
empties. Ports are the defaults.
"""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Sequence
from pathlib import Path
from signal import Signals

from dledger.common.config import GRPC_PORT_OFFSET, split_address
from dledger.common.config_file import format_peers
from dledger.common.errors import ConfigError
from jepsen.agent import Agent
from jepsen.disks import Disk
from jepsen.hosts.api import Ability, Host
from jepsen.network import TABLE
from jepsen.shell import CommandFailedError

PEER_PORT = 20911
HOME = "/var/lib/dledger-jepsen"
POLL_S = 0.2
END_S = 10.0
WHOLE = f"nft 'add table inet {TABLE}; delete table inet {TABLE}'"
"""For a shell: nothing is cut any more."""


class SshHosts:
    """``addresses``: one for each node, as the machines reach each other, and this one them."""

    def __init__(
        self, addresses: Sequence[str], run_dir: Path, *, program: str = "dledger", home: str = HOME, ssh: str = "ssh"
    ) -> None:
        self._addresses = {f"n{number}": address for number, address in enumerate(addresses)}
        self._run_dir = run_dir
        self._program = program
        self._home = home
        self._ssh = ssh
        self._agent: Agent | None = None
        self._pids: dict[str, int | None] = {}

    @property
    def abilities(self) -> frozenset[Ability]:
        return frozenset()

    @property
    def all(self) -> tuple[Host, ...]:
        return tuple(Host(name, address) for name, address in self._addresses.items())

    @property
    def endpoints(self) -> str:
        return ",".join(map(self.client_address, self._addresses))

    @property
    def disks(self) -> dict[str, Disk]:
        return {}

    def client_address(self, host: str) -> str:
        return f"{self._addresses[host]}:{PEER_PORT + GRPC_PORT_OFFSET}"

    def peer_address(self, host: str) -> str:
        return f"{self._addresses[host]}:{PEER_PORT}"

    def data_dir(self, host: str) -> Path:
        raise ConfigError("another machine's files are not at hand: use the hosts of this machine")

    def add(self) -> str:
        raise ConfigError("there are no more machines than were given")

    def retire(self, host: str) -> None:
        raise ConfigError("the machines are members for good")

    async def up(self) -> None:
        """Empties the nodes' directories. Raises CONFIG_ERROR for a machine that is not reached, or lacks a program."""
        self._agent = await Agent.start()
        for name, address in self._addresses.items():
            split_address(self.peer_address(name))
            try:
                await self._sweep(name)
            except CommandFailedError as failure:
                raise ConfigError(f"{address} cannot be used by ssh: {failure.said}") from None

    async def _sweep(self, host: str) -> None:
        """Takes away what a run left there that was killed: its node, what was cut, its files."""
        needed = " && ".join(_has(program) for program in (self._program, "nft"))
        directory = self._dir(host)
        # Its number may be another process's by now.
        is_node = f"[ -s {directory}/pid ] && grep -aqs {directory}/data /proc/$(cat {directory}/pid)/cmdline"
        kill = f"if {is_node}; then kill -9 $(cat {directory}/pid); fi"
        script = f"{needed} && {kill} && {WHOLE} && rm -rf {directory} && mkdir -p {directory}"
        await self.run(host, "sh", "-c", script)

    async def down(self) -> None:
        if self._agent is None:
            return
        for name in self._pids:
            await self.signal(name, Signals.SIGKILL)
            await self.ended(name, END_S)
            await self.run(name, "sh", "-c", WHOLE)
            log = await self.run(name, "cat", f"{self._dir(name)}/node.log")
            (self._run_dir / f"{name}.log").write_text(log, encoding="utf-8")
        agent, self._agent = self._agent, None
        await agent.close()

    def inside(self, host: str) -> tuple[str, ...]:
        return (self._ssh, "-o", "BatchMode=yes", f"root@{self._addresses[host]}", "--")

    async def run(self, host: str, *command: str) -> str:
        assert self._agent is not None, "up() comes first"
        return await self._agent.run(*self.inside(host), shlex.join(command))

    async def start(self, host: str, *, environment: dict[str, str] | None = None) -> int:
        peers = format_peers({name: self.peer_address(name) for name in self._addresses})
        settings = " ".join(f"{name}={shlex.quote(value)}" for name, value in (environment or {}).items())
        serve = f"{self._program} serve --id {host} --peers {peers} --data {self._dir(host)}/data"
        line = f"{settings} nohup setsid {serve} >>{self._dir(host)}/node.log 2>&1 </dev/null & echo $!"
        self._pids[host] = int(await self.run(host, "sh", "-c", f"({line}) | tee {self._dir(host)}/pid"))
        return self._pids[host] or 0

    async def signal(self, host: str, number: Signals) -> None:
        pid = self._pids.get(host)
        if pid is not None and await self.state(host, pid):
            await self.run(host, "kill", f"-{number.name.removeprefix('SIG')}", str(pid))

    async def state(self, host: str, pid: int) -> str:
        try:
            stat = await self.run(host, "cat", f"/proc/{pid}/stat")
        except CommandFailedError:
            return ""
        return stat.rpartition(")")[2].split()[0]

    def pid(self, host: str) -> int | None:
        return self._pids.get(host)

    async def ended(self, host: str, within_s: float) -> int | None:
        """0 stands for every way to end: nobody there waits for the process."""
        deadline = asyncio.get_running_loop().time() + within_s
        pid = self._pids.get(host)
        while pid is not None and await self.state(host, pid):
            if asyncio.get_running_loop().time() > deadline:
                return None
            await asyncio.sleep(POLL_S)
        self._pids[host] = None
        return 0

    def _dir(self, host: str) -> str:
        return f"{self._home}/{host}"


def _has(program: str) -> str:
    """For a shell: that it is there, or what to say."""
    return f"{{ command -v {program} >/dev/null || {{ echo {program} is not on its PATH >&2; false; }}; }}"
