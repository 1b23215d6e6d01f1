"""Hosts as network namespaces of this machine: a bridge, a veth pair each, and nft inside of them. Needs root.

::

    control (this process)  10.88.S.1
            │
        bridge dljS ──┬── dljS-n0: eth0 10.88.S.10   dledger serve, its own nft rules
                      ├── dljS-n1: eth0 10.88.S.11
                      └── …
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from signal import Signals
from types import MappingProxyType

from dledger.cli.lifeline import Lifeline
from dledger.common.config import GRPC_PORT_OFFSET
from dledger.common.config_file import format_peers
from dledger.common.errors import ConfigError
from jepsen import shell
from jepsen.agent import Agent
from jepsen.disks import Disk
from jepsen.hosts.api import Ability, Host
from jepsen.hosts.slots import Slot

PEER_PORT = 20911
PROGRAM = (sys.executable, "-m", "dledger")
STOP_GRACE_S = 10.0
TOOLS = {"ip": "iproute2", "nft": "nftables", "nsenter": "util-linux"}


class NamespaceHosts:
    """``disk_bytes``: each node's data on a file system of its own of that size; 0: in a plain directory."""

    def __init__(
        self,
        run_dir: Path,
        count: int,
        *,
        disk_bytes: int = 0,
        program: Sequence[str] = PROGRAM,
        environment: dict[str, str] | None = None,
        serve_flags: Sequence[str] = (),
    ) -> None:
        self._run_dir = run_dir.absolute()
        self._names = [f"n{number}" for number in range(count)]
        self._founders = tuple(self._names)
        self._retired: set[str] = set()
        self._joins: dict[str, tuple[str, ...]] = {}
        self._disk_bytes = disk_bytes
        self._program = tuple(program)
        self._environment = environment or {}
        self._serve_flags = tuple(serve_flags)
        self._slot: Slot | None = None
        self._lifeline: Lifeline | None = None
        self._agent: Agent | None = None
        self._processes: dict[str, asyncio.subprocess.Process] = {}
        self.disks: dict[str, Disk] = {}
        """Of the hosts that have one of their own."""

    @property
    def abilities(self) -> frozenset[Ability]:
        return frozenset({Ability.FILES, Ability.MORE_HOSTS} | ({Ability.DISKS} if self._disk_bytes else set()))

    @property
    def slot(self) -> Slot:
        assert self._slot is not None, "up() comes first"
        return self._slot

    @property
    def all(self) -> tuple[Host, ...]:
        return tuple(Host(name, self._address(name)) for name in self._names if name not in self._retired)

    @property
    def names(self) -> tuple[str, ...]:
        """All that there ever were."""
        return tuple(self._names)

    @property
    def endpoints(self) -> str:
        return ",".join(self.client_address(host.name) for host in self.all)

    def _address(self, name: str) -> str:
        return f"10.88.{self.slot.number}.{10 + self._names.index(name)}"

    def namespace(self, host: str) -> str:
        return f"{self.slot.prefix}-{host}"

    # Up and down --------------------------------------------------------------------------------------------------

    async def up(self) -> None:
        check_root_and_tools()
        self._slot = Slot()
        self._agent = await Agent.start()
        self._run_dir.mkdir(parents=True, exist_ok=True)
        self._lifeline = Lifeline(self._run_dir / "nodes.lock")
        bridge, number = self.slot.prefix, self.slot.number
        shell.run("ip", "link", "add", bridge, "type", "bridge")
        shell.run("ip", "address", "add", f"10.88.{number}.1/24", "dev", bridge)
        shell.run("ip", "link", "set", bridge, "up")
        for name in self._names:
            self._make(name)

    def _make(self, name: str) -> None:
        namespace, outer = self.namespace(name), f"{self.slot.prefix}v{name}"
        shell.run("ip", "netns", "add", namespace)
        veth = ("type", "veth", "peer", "name", "eth0", "netns", namespace)
        shell.run("ip", "link", "add", outer, *veth)
        shell.run("ip", "link", "set", outer, "master", self.slot.prefix, "up")
        inside = ("ip", "-netns", namespace)
        shell.run(*inside, "address", "add", f"{self._address(name)}/24", "dev", "eth0")
        shell.run(*inside, "link", "set", "eth0", "up")
        shell.run(*inside, "link", "set", "lo", "up")
        if self._disk_bytes:
            self.disks[name] = Disk(self._run_dir / f"{name}.img", self.slot.directory / name, self._disk_bytes)
            self.disks[name].make()

    def add(self) -> str:
        """One host more; its node, which is to join the others, is not started."""
        name = f"n{len(self._names)}"
        self._joins[name] = tuple(self.endpoints.split(","))
        self._names.append(name)
        self._make(name)
        return name

    def retire(self, host: str) -> None:
        """It takes no part any more; its node, if it runs, ends with the others."""
        self._retired.add(host)

    def peer_address(self, host: str) -> str:
        """Where the other nodes reach its node."""
        return f"{self._address(host)}:{PEER_PORT}"

    def client_address(self, host: str) -> str:
        """Where clients reach its node."""
        return f"{self._address(host)}:{PEER_PORT + GRPC_PORT_OFFSET}"

    async def down(self) -> None:
        if self._slot is None:
            return
        for name in self._processes:
            await self.signal(name, Signals.SIGCONT)  # a stopped process hears of nothing else
            await self.signal(name, Signals.SIGTERM)
        await asyncio.gather(*(self._put_down(name) for name in self._processes))
        if self._lifeline is not None:
            self._lifeline.release()
        if self._agent is not None:
            await self._agent.close()
        slot, self._slot = self._slot, None
        slot.release()
        for disk in self.disks.values():
            disk.remove()

    async def _put_down(self, name: str) -> None:
        if await self.ended(name, STOP_GRACE_S) is None:
            self._processes[name].kill()
            await self._processes[name].wait()

    # Processes ----------------------------------------------------------------------------------------------------

    def inside(self, host: str) -> tuple[str, ...]:
        """What to put before a command to run it in the host's network."""
        return ("nsenter", f"--net=/run/netns/{self.namespace(host)}", "--")

    async def run(self, host: str, *command: str) -> str:
        assert self._agent is not None, "up() comes first"
        return await self._agent.run(*self.inside(host), *command)

    async def start(self, host: str, *, environment: dict[str, str] | None = None) -> int:
        assert self.pid(host) is None, f"{host} runs"
        assert self._lifeline is not None
        environ = {key: value for key, value in os.environ.items() if not key.startswith("DLEDGER_")}
        log_file = self.log_file(host)
        log_file.parent.mkdir(parents=True, exist_ok=True)
        with log_file.open("ab") as log:
            self._processes[host] = await asyncio.create_subprocess_exec(
                *self.inside(host),
                *self._serve_command(host),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environ | self._environment | (environment or {}),
                start_new_session=True,
            )
        return self._processes[host].pid

    def _serve_command(self, host: str) -> list[str]:
        flags = ["--id", host, "--data", str(self.data_dir(host)), "--stop-with", str(self._run_dir / "nodes.lock")]
        if host in self._joins:
            flags += ["--address", self.peer_address(host), "--join", ",".join(self._joins[host])]
        else:
            flags += ["--peers", format_peers({name: self.peer_address(name) for name in self._founders})]
        return [*self._program, "serve", *flags, *self._serve_flags]

    async def signal(self, host: str, number: Signals) -> None:
        if self.pid(host) is not None:
            self._processes[host].send_signal(number)

    async def state(self, host: str, pid: int) -> str:
        try:
            return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return ""

    def pid(self, host: str) -> int | None:
        process = self._processes.get(host)
        return process.pid if process is not None and process.returncode is None else None

    async def ended(self, host: str, within_s: float) -> int | None:
        process = self._processes[host]
        try:
            return await asyncio.wait_for(process.wait(), within_s)
        except TimeoutError:
            return None

    def log_file(self, host: str) -> Path:
        return self._run_dir / f"{host}.log"

    def data_dir(self, host: str) -> Path:
        disk = self.disks.get(host)
        return (disk.mount_point if disk else self._run_dir) / f"{host}-data"


def check_root_and_tools(more: Mapping[str, str] = MappingProxyType({})) -> None:
    """Raises CONFIG_ERROR, in one sentence, where namespaces cannot be made. ``more``: other tools, by package."""
    if os.geteuid() != 0:
        raise ConfigError("hosts are network namespaces, which only root can make: run it as root")
    check_tools(TOOLS | dict(more))


def check_tools(tools: Mapping[str, str]) -> None:
    """Raises CONFIG_ERROR for a command, or a file, that is not there."""
    for tool, package in tools.items():
        if shutil.which(tool) is None and not (tool.startswith("/") and Path(tool).exists()):
            raise ConfigError(f"the command {tool!r} is missing: install the package {package}")
