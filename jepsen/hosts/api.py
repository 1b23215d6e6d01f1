"""What the rest of the harness asks of hosts, wherever they are."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from signal import Signals
from typing import NamedTuple, Protocol

from jepsen.disks import Disk


class Ability(Enum):
    """What not all hosts can do."""

    FILES = "its files and processes are this machine's"
    DISKS = "each has a file system of its own, whose power can be cut"
    MORE_HOSTS = "there are more hosts to be had"


class Host(NamedTuple):
    """One machine with one node on it."""

    name: str
    """Also the node's id."""
    address: str
    """As the other hosts see it."""


class Hosts(Protocol):
    """Five hosts, or as many as there are. Everything is done as root."""

    @property
    def abilities(self) -> frozenset[Ability]: ...

    @property
    def all(self) -> tuple[Host, ...]:
        """Those that take part now."""

    @property
    def endpoints(self) -> str:
        """Where clients reach the nodes, comma-separated."""

    def client_address(self, host: str) -> str: ...

    def peer_address(self, host: str) -> str: ...

    async def up(self) -> None:
        """Makes the hosts ready; nothing runs yet."""

    async def down(self) -> None:
        """Ends what runs and takes everything away that ``up`` made. May be called twice."""

    def inside(self, host: str) -> tuple[str, ...]:
        """What to put before a command to run it in the host's network."""

    async def run(self, host: str, *command: str) -> str:
        """Runs a command there, and returns what it prints. Raises CommandFailedError."""

    async def start(self, host: str, *, environment: dict[str, str] | None = None) -> int:
        """Starts the host's node, or starts it again, with more in its environment; its process id on the host."""

    async def signal(self, host: str, number: Signals) -> None:
        """Sends the running node a signal; one that has ended meanwhile gets none."""

    async def state(self, host: str, pid: int) -> str:
        """Of a process there, as /proc tells it: R, S, T …; empty when it is gone."""

    def pid(self, host: str) -> int | None:
        """Of the running node; None when it does not run."""

    async def ended(self, host: str, within_s: float) -> int | None:
        """Waits for the node's end; its return code (−9 for kill -9), or None when it still runs."""

    # With Ability.FILES:

    def data_dir(self, host: str) -> Path:
        """Where the node keeps its log."""

    # With Ability.DISKS:

    @property
    def disks(self) -> dict[str, Disk]: ...

    # With Ability.MORE_HOSTS:

    def add(self) -> str:
        """One host more; its node, which is to join the others, is not started."""

    def retire(self, host: str) -> None:
        """It takes no part any more; its node, if it runs, ends with the others."""
