"""Nodes as processes of this machine: started, watched, killed, brought back, stopped.

``dledger dev``, ``dledger demo``, the soak and the tests all run their nodes with this. A node's output goes to
``DIR/<id>.log``, beside its data. The nodes hang on a lifeline (lifeline.py): they end with the process that runs them,
also by kill -9. So do nodes that somebody revived by hand with ``serve_command``.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from dledger.cli.lifeline import Lifeline
from dledger.cli.options import DEV_PORT_STEP
from dledger.cli.ports import LOOPBACK, busy_port, free_base, ports_of
from dledger.common.config import GRPC_PORT_OFFSET, HTTP_PORT_OFFSET
from dledger.common.config_file import format_peers
from dledger.common.errors import Code, ConfigError, DLedgerError, error
from dledger.common.types import Durability

STOP_GRACE_S = 8.0
"""A little more than a node gives itself for a clean stop."""
POLL_INTERVAL_S = 0.05
PROBE_TIMEOUT_MS = 1_000
MAX_NODES = 99


def is_passed_on(variable: str) -> bool:
    """Of the environment's flags only the choice of gRPC's engine, which has no place on the command line."""
    return not variable.startswith("DLEDGER_") or variable == "DLEDGER_GRPC"


@dataclass(slots=True)
class LocalNode:
    """One node: where it is, and its process once it was started."""

    id: str
    peer_port: int
    data_dir: Path
    joins: bool = False
    """Whether it came later: it asks the others for the members."""
    process: asyncio.subprocess.Process | None = None
    watcher: asyncio.Task[None] | None = field(default=None, repr=False)
    expected_to_end: bool = False

    @property
    def peer_address(self) -> str:
        return f"{LOOPBACK}:{self.peer_port}"

    @property
    def client_address(self) -> str:
        return f"{LOOPBACK}:{self.peer_port + GRPC_PORT_OFFSET}"

    @property
    def http_address(self) -> str:
        return f"{LOOPBACK}:{self.peer_port + HTTP_PORT_OFFSET}"

    @property
    def log_file(self) -> Path:
        return self.data_dir.with_name(f"{self.id}.log")

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.returncode is None


@dataclass(frozen=True, slots=True)
class Ready:
    """A cluster with a leader, in which all nodes answer."""

    leader: str
    term: int


OnExit = Callable[[LocalNode, int], None]
"""Told of a node that ended on its own, with its return code (−9 for kill -9 by somebody else)."""


class LocalCluster:
    """``nodes`` nodes n0, n1 … in ``data``; node i's peer port is ``port`` + 10·i (0: a free block).

    ``add`` brings more. The members may change: a node that ends is told of in any case, and can be brought back.
    """

    def __init__(
        self,
        data: Path,
        *,
        nodes: int,
        port: int = 0,
        durability: Durability = Durability.FSYNC,
        serve_flags: Iterable[str] = (),
        program: Iterable[str] = (sys.executable, "-m", "dledger"),
        on_exit: OnExit | None = None,
    ) -> None:
        """Takes nothing yet. ``serve_flags`` are handed to every ``dledger serve``. Raises CONFIG_ERROR."""
        if not 1 <= nodes <= MAX_NODES:
            raise ConfigError(f"{nodes} nodes cannot be run: choose 1 to {MAX_NODES}")
        base = port or free_base(nodes)
        if ports_of(base, nodes)[-1] > 65535:
            raise ConfigError(f"port {base} leaves no room for {nodes} nodes: choose a lower one")
        self.data = data.absolute()
        self.nodes = {f"n{i}": LocalNode(f"n{i}", base + DEV_PORT_STEP * i, self.data / f"n{i}") for i in range(nodes)}
        self._base = base
        self._durability = durability
        self._serve_flags = tuple(serve_flags)
        self._program = tuple(program)
        self._on_exit = on_exit
        self._lifeline: Lifeline | None = None

    @property
    def endpoints(self) -> str:
        """The nodes' gRPC addresses, comma-separated."""
        return ",".join(node.client_address for node in self.nodes.values())

    @property
    def lifeline_file(self) -> Path:
        return self.data / "dev.lock"

    def serve_command(self, node_id: str) -> list[str]:
        """The command line that runs the node."""
        node = self._node(node_id)
        flags = ["--id", node.id, *self._whereabouts(node), "--data", str(node.data_dir)]
        flags += ["--durability", self._durability.value, *self._serve_flags, "--stop-with", str(self.lifeline_file)]
        return [*self._program, "serve", *flags]

    def _whereabouts(self, node: LocalNode) -> list[str]:
        others = [each for each in self.nodes.values() if each is not node]
        if node.joins:
            endpoints = ",".join(each.client_address for each in others)
            return ["--address", node.peer_address, "--join", endpoints]
        founders = {each.id: each.peer_address for each in self.nodes.values() if not each.joins}
        return ["--peers", format_peers(founders)]

    def serve_line(self, node_id: str) -> str:
        """``serve_command`` as one types it."""
        return shlex.join(self.serve_command(node_id))

    async def start(self) -> None:
        """Starts every node. Raises CONFIG_ERROR when a port is in use or another process runs these nodes."""
        taken = busy_port(ports_of(self._base, len(self.nodes)))
        if taken is not None:
            raise ConfigError(f"port {taken} is in use: stop what listens there, or choose another --port (0: any)")
        self._lifeline = Lifeline(self.lifeline_file)
        try:
            for node_id in self.nodes:
                await self.restart(node_id)
        except BaseException:
            await self.stop()
            raise

    async def add(self, node_id: str = "") -> LocalNode:
        """Starts a node more, on free ports, which joins the others; it becomes a member when they add it."""
        node_id = node_id or f"n{len(self.nodes)}"
        assert node_id not in self.nodes, f"there is a node {node_id} already"
        node = self.nodes[node_id] = LocalNode(node_id, free_base(1), self.data / node_id, joins=True)
        await self.restart(node_id)
        return node

    async def restart(self, node_id: str) -> int:
        """Starts a node that is not running; returns its pid."""
        node = self._node(node_id)
        assert self._lifeline is not None, "start() comes first"
        assert not node.running, f"{node_id} is running"
        # The environment's flags are the caller's own: a node is told everything on its command line.
        environment = {key: value for key, value in os.environ.items() if is_passed_on(key)}
        with node.log_file.open("ab") as log:
            node.process = await asyncio.create_subprocess_exec(
                *self.serve_command(node_id),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,  # Ctrl-C in the terminal is for the caller alone: it stops the nodes in order
            )
        node.expected_to_end = False
        node.watcher = asyncio.create_task(self._watch(node, node.process), name=f"watch {node_id}")
        return node.process.pid

    async def kill(self, node_id: str) -> int:
        """kill -9; returns the pid once the process is gone."""
        node = self._node(node_id)
        assert node.process is not None
        assert node.running, f"{node_id} is not running"
        node.expected_to_end = True
        node.process.kill()
        await self._watched(node)
        return node.process.pid

    async def stop(self) -> None:
        """Ends every node: cleanly, and by kill -9 what is still there after ``STOP_GRACE_S``."""
        for node in self.nodes.values():
            node.expected_to_end = True
            _signal(node, signal.SIGTERM)
        if watchers := [node.watcher for node in self.nodes.values() if node.watcher is not None]:
            _, late = await asyncio.wait(watchers, timeout=STOP_GRACE_S)
            if late:
                self.kill_all()
                await asyncio.wait(late)
        if self._lifeline is not None:
            self._lifeline.release()
            self._lifeline = None

    def kill_all(self) -> None:
        """kill -9 to every node, at once; ``stop`` waits for them."""
        for node in self.nodes.values():
            node.expected_to_end = True
            _signal(node, signal.SIGKILL)

    async def wait_ready(self, timeout_s: float = 30.0) -> Ready:
        """Waits until there is a leader, and every member that is a node of this cluster answers.

        Members that run elsewhere, and removed nodes, are not waited for. Raises the failure of a node that ended
        meanwhile, as its log tells it, or TIMEOUT.
        """
        from dledger.client import connect  # noqa: PLC0415  # gRPC is slow to import: start the nodes first

        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        async with connect(self.endpoints, timeout_ms=PROBE_TIMEOUT_MS) as log:
            while loop.time() < deadline:
                self._raise_if_one_ended()
                with suppress(DLedgerError):
                    status = await log.status()
                    if status.leader and all(node.reachable for node in status.nodes if node.id in self.nodes):
                        return Ready(status.leader, status.term)
                # Other processes cannot be awaited: they are asked.
                await asyncio.sleep(POLL_INTERVAL_S)
        raise error(
            Code.TIMEOUT, f"the nodes had no leader within {timeout_s:.0f} s: see {self.data}/*.log for what they say"
        )

    def _raise_if_one_ended(self) -> None:
        for node in self.nodes.values():
            if node.process is not None and node.process.returncode is not None and not node.expected_to_end:
                raise ConfigError(f"{node.id} did not start: {last_words(node.log_file)}")

    async def _watch(self, node: LocalNode, process: asyncio.subprocess.Process) -> None:
        code = await process.wait()
        if not node.expected_to_end and self._on_exit is not None:
            self._on_exit(node, code)

    async def _watched(self, node: LocalNode) -> None:
        if node.watcher is not None:
            await asyncio.shield(node.watcher)

    def _node(self, node_id: str) -> LocalNode:
        if node_id not in self.nodes:
            raise error(Code.UNKNOWN_MEMBER, f"there is no node {node_id!r}: there are {', '.join(self.nodes)}")
        return self.nodes[node_id]


def last_words(log_file: Path) -> str:
    """The last words of a process that ended, without the "dledger: " in front."""
    lines = log_file.read_text(errors="replace").splitlines() if log_file.exists() else []
    said = next((line for line in reversed(lines) if line.strip()), f"it left nothing in {log_file}")
    return said.removeprefix("dledger: ")


def _signal(node: LocalNode, number: signal.Signals) -> None:
    if node.process is not None and node.running:
        with suppress(ProcessLookupError):
            node.process.send_signal(number)
