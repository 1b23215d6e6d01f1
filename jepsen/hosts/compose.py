"""Hosts as containers of docker-compose.yml: faults of the network and of processes. Clients use the published ports.

The services are n0 … n4, with the ports 127.0.0.1:20912, :20922, …; what ``docker compose`` reads from the environment
(DOCKER_HOST, DLEDGER_IMAGE …) counts here too. The project is a run's own: its log is empty when the run begins, and
the volumes that the run removes are no others'.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path
from signal import Signals
from typing import Any

from dledger.cli.ports import busy_port
from dledger.common.errors import ConfigError
from jepsen import shell
from jepsen.agent import Agent
from jepsen.disks import Disk
from jepsen.hosts.api import Ability, Host

FIRST_PORT = 20912
PORT_STEP = 10
PEER_PORT = 20911
PROJECT = "dledger-jepsen"
LABEL = "com.docker.compose"
"""Begins the names under which docker compose tells of which project and service a container is."""
POLL_S = 0.1


class ComposeHosts:
    """``file``: the compose file. Its containers are made by ``up``, and removed by ``down``."""

    def __init__(self, file: Path, run_dir: Path, count: int) -> None:
        self._file = file
        self._run_dir = run_dir
        self._names = [f"n{number}" for number in range(count)]
        self._compose = _compose_command()
        self._agent: Agent | None = None
        self._containers: dict[str, str] = {}
        """Their ids: docker itself answers much sooner than docker-compose, and faults are to begin on time."""
        self._pids: dict[str, int] = {}
        self._addresses: dict[str, str] = {}
        """In the containers' own network; of those that were started."""

    @property
    def abilities(self) -> frozenset[Ability]:
        return frozenset()

    @property
    def all(self) -> tuple[Host, ...]:
        return tuple(Host(name, self._addresses.get(name, "")) for name in self._names)

    @property
    def endpoints(self) -> str:
        return ",".join(map(self.client_address, self._names))

    @property
    def disks(self) -> dict[str, Disk]:
        return {}

    def client_address(self, host: str) -> str:
        return f"127.0.0.1:{FIRST_PORT + PORT_STEP * self._names.index(host)}"

    def peer_address(self, host: str) -> str:
        return f"{host}:{PEER_PORT}"

    def data_dir(self, host: str) -> Path:
        raise ConfigError("a container's files are not at hand: use the hosts of this machine")

    def add(self) -> str:
        raise ConfigError("there are no more containers than docker-compose.yml names")

    def retire(self, host: str) -> None:
        raise ConfigError("the containers are members for good")

    async def up(self) -> None:
        """Makes the containers, and leaves them stopped. Raises CONFIG_ERROR, also if another cluster has the ports."""
        try:
            await asyncio.to_thread(self._make)
        except shell.CommandFailedError as failure:
            raise ConfigError(f"the containers cannot be made: {failure.said}") from None
        self._agent = await Agent.start()
        ids = await self._ask("docker", "ps", "--all", "--quiet", "--filter", f"label={LABEL}.project={PROJECT}")
        told = json.loads(await self._ask("docker", "inspect", *ids.split()))
        self._containers = {each["Config"]["Labels"][f"{LABEL}.service"]: each["Id"] for each in told}

    def _make(self) -> None:
        # A run that was killed has left its containers, and its records in their volumes.
        shell.run(*self._docker("down", "--volumes", "--timeout", "0"))
        busy = busy_port([FIRST_PORT + PORT_STEP * number for number in range(len(self._names))])
        if busy is not None:
            raise ConfigError(f"127.0.0.1:{busy} is in use: end the cluster there first (docker compose down)")
        shell.run(*self._docker("up", "--no-start"))

    async def down(self) -> None:
        if self._agent is None:
            return
        agent, self._agent = self._agent, None
        for name in self._names:
            said = await agent.run(*self._docker("logs", "--no-color", name))
            (self._run_dir / f"{name}.log").write_text(said, encoding="utf-8")
        await agent.run(*self._docker("down", "--volumes", "--timeout", "10"))
        await agent.close()

    def inside(self, host: str) -> tuple[str, ...]:
        return ("nsenter", f"--net=/proc/{self._pids[host]}/ns/net", "--")

    async def run(self, host: str, *command: str) -> str:
        return await self._ask(*self.inside(host), *command)

    async def start(self, host: str, *, environment: dict[str, str] | None = None) -> int:
        if environment:
            raise ConfigError("a container's environment is docker-compose.yml's")
        await self._ask("docker", "start", self._containers[host])
        told = await self._inspect(host)
        self._pids[host] = int(told["State"]["Pid"])
        [network] = told["NetworkSettings"]["Networks"].values()
        self._addresses[host] = network["IPAddress"]
        return self._pids[host]

    async def signal(self, host: str, number: Signals) -> None:
        # Through docker, which otherwise takes a kill for a crash and starts the container again.
        await self._ask("docker", "kill", f"--signal={number.name}", self._containers[host])

    async def state(self, host: str, pid: int) -> str:
        try:
            return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return ""

    def pid(self, host: str) -> int | None:
        pid = self._pids.get(host)
        return pid if pid is not None and Path(f"/proc/{pid}").exists() else None

    async def ended(self, host: str, within_s: float) -> int | None:
        deadline = asyncio.get_running_loop().time() + within_s
        # A process that is not our child cannot be awaited.
        while self.pid(host) is not None:
            if asyncio.get_running_loop().time() > deadline:
                return None
            await asyncio.sleep(POLL_S)
        return int((await self._inspect(host))["State"]["ExitCode"])

    async def _inspect(self, host: str) -> dict[str, Any]:
        [told] = json.loads(await self._ask("docker", "inspect", self._containers[host]))
        return dict(told)

    async def _ask(self, *command: str) -> str:
        assert self._agent is not None, "up() comes first"
        return await self._agent.run(*command)

    def _docker(self, *arguments: str) -> tuple[str, ...]:
        return (*self._compose, "--file", str(self._file), "--project-name", PROJECT, *arguments)


def _compose_command() -> tuple[str, ...]:
    """Compose v2, or v1 where there is none. Raises CONFIG_ERROR."""
    if shutil.which("docker") is not None:
        try:
            shell.run("docker", "compose", "version")
        except shell.CommandFailedError:
            pass
        else:
            return ("docker", "compose")
    if shutil.which("docker-compose") is None:
        raise ConfigError("neither `docker compose` nor docker-compose is here: install one of them")
    return ("docker-compose",)
