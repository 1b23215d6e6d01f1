"""Numbered places for the things a run makes in the kernel, and their removal when a run was killed.

A run holds a lock on its slot's file for as long as it lives; kill -9 gives it up too. Whoever begins takes a free slot
and sweeps every slot that nobody holds: processes, mounts, namespaces and bridges are named by their slot's number.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
from pathlib import Path

from dledger.common.errors import ConfigError
from jepsen.shell import CommandFailedError, run

ROOT = Path("/run/dledger-jepsen")
SLOTS = 16


class Slot:
    """``number`` is this process's until ``release``."""

    def __init__(self) -> None:
        """Takes a free one, swept. Raises CONFIG_ERROR when all are taken."""
        ROOT.mkdir(parents=True, exist_ok=True)
        taken: list[tuple[int, int]] = []
        for number in range(SLOTS):
            descriptor = _try_lock(number)
            if descriptor is not None:
                sweep(number)
                taken.append((number, descriptor))
        if not taken:
            raise ConfigError(f"{SLOTS} runs are under way already: wait until one of them has ended")
        self.number, self._descriptor = taken[0]
        for _, descriptor in taken[1:]:
            os.close(descriptor)
        self.directory.mkdir(parents=True, exist_ok=True)

    @property
    def directory(self) -> Path:
        """Where this run mounts."""
        return ROOT / str(self.number)

    @property
    def prefix(self) -> str:
        """What the names of its namespaces and devices begin with."""
        return prefix_of(self.number)

    def release(self) -> None:
        """Sweeps, and lets others have it."""
        sweep(self.number)
        os.close(self._descriptor)


def prefix_of(number: int) -> str:
    return f"dlj{number}"


def _try_lock(number: int) -> int | None:
    descriptor = os.open(ROOT / f"{number}.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def sweep(number: int) -> None:
    """Removes what a run left: first who uses it, then what is used."""
    prefix = prefix_of(number)
    namespaces = [path.name for path in Path("/run/netns").glob(f"{prefix}-*")]
    for name in namespaces:
        _kill_all_in(name)
    for target in sorted(_mounts_below(ROOT / str(number)), reverse=True):
        run("umount", "--lazy", target)
    for name in namespaces:
        run("ip", "netns", "delete", name)
    # A namespace without a name lives on while one of its connections has something to send: its link with it.
    for device in Path("/sys/class/net").glob(f"{prefix}v*"):
        with contextlib.suppress(CommandFailedError):  # it has gone by itself meanwhile
            run("ip", "link", "delete", device.name)
    if Path(f"/sys/class/net/{prefix}").exists():
        run("ip", "link", "delete", prefix)


def _kill_all_in(namespace: str) -> None:
    with contextlib.suppress(CommandFailedError):  # the namespace may have been deleted meanwhile
        for pid in run("ip", "netns", "pids", namespace).split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)


def _mounts_below(directory: Path) -> list[str]:
    lines = Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()
    return [target for line in lines if (target := line.split()[1]).startswith(f"{directory}/")]
