"""Faults of what is stored: full, slow and failing disks, lost power, rot, and directories that are gone."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import ClassVar

from dledger.cli.waiting import Waiting, once_it_passes
from dledger.common.errors import DLedgerError
from jepsen.disks import Disk
from jepsen.hosts.api import Ability
from jepsen.nemesis.api import Injury, Proof, World
from jepsen.nemesis.processes import Choice, kill, one, stop

MIB = 1 << 20
SLOW_S = 2.0
ROUGHLY = 4 * MIB
"""What allocating itself takes."""
ENDS_WITHIN_S = 10.0
ROT_BYTES = 16
STARTED_AGAIN = "it was started again"


class PowerCut:
    """What was not synced is gone, on one host or on all: the file system is shut down under the running node.

    ``slow_ms``: for a while before, every sync takes so long. Who speaks of what is not durable yet is then caught.
    """

    needs: ClassVar[frozenset[Ability]] = frozenset({Ability.DISKS})

    def __init__(self, name: str, choose: Choice, *, slow_ms: int = 0) -> None:
        self.name = name
        self._choose = choose
        self._slow_ms = slow_ms

    async def begin(self, world: World) -> Injury:
        self._targets = self._choose(world)
        disks = {name: world.hosts.disks[name] for name in self._targets}
        held_up = f"delay_enter={self._slow_ms * 1000}"
        straces = [await Strace.attach(world, name, held_up) for name in self._targets if self._slow_ms]
        if straces:
            await asyncio.sleep(SLOW_S)
        # All at the same moment: what one host still syncs after another one's cut may be what was acknowledged.
        with ThreadPoolExecutor(len(disks)) as pool:
            list(pool.map(Disk.cut_power, disks.values()))
        self._refused = [name for name, disk in disks.items() if _refuses_writes(disk.mount_point)]
        await kill(world, self._targets)
        self._held_up = sum([await strace.detach() for strace in straces])
        for name in self._targets:
            world.hosts.disks[name].unmount()
        return Injury(self._targets, "power cut", down=frozenset(self._targets))

    async def end(self, world: World) -> Proof:
        for name in self._targets:
            world.hosts.disks[name].mount()
            await world.hosts.start(name)
        evidence: dict[str, int | list[str]] = {"disks_shut_down": self._refused, "syncs_held_up": self._held_up}
        return Proof(self._refused == self._targets and bool(self._held_up) == bool(self._slow_ms), evidence)


class FullDisk:
    """One host's file system has no byte left, or less than the node's watermark."""

    name: ClassVar[str] = "full-disk"
    needs: ClassVar[frozenset[Ability]] = frozenset({Ability.DISKS})

    async def begin(self, world: World) -> Injury:
        [self._target] = one(world)
        leave = world.chance.choice([0, 64 * MIB])
        disk = world.hosts.disks[self._target]
        self._ballast = disk.mount_point / "ballast"
        with self._ballast.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, max(disk.free_bytes - leave - ROUGHLY, 1))
        if not leave:
            fill_up(self._ballast)
        self._left = disk.free_bytes
        return Injury([self._target], f"{self._left // MIB} MiB left")

    async def end(self, world: World) -> Proof:
        seen = world.observer.disk_of(self._target)
        self._ballast.unlink()
        await ensure_runs(world, self._target)
        evidence: dict[str, int | str] = {"free_bytes": self._left, "the_node_says": seen}
        return Proof(seen == "full" or self._left == 0, evidence)


class SlowDisk:
    """Every sync of one node takes long: strace holds the system call up. Proof: the calls it held up."""

    name: ClassVar[str] = "slow-disk"
    needs: ClassVar[frozenset[Ability]] = frozenset({Ability.FILES})

    async def begin(self, world: World) -> Injury:
        [target] = one(world)
        delay_ms = world.chance.choice([20, 100, 500, 1500])
        self._strace = await Strace.attach(world, target, f"delay_enter={delay_ms * 1000}")
        return Injury([target], f"each sync takes {delay_ms} ms")

    async def end(self, world: World) -> Proof:
        held_up = await self._strace.detach()
        return Proof(held_up > 0, {"syncs_held_up": held_up})


class FsyncErrors:
    """A node's next sync fails with EIO: it must end, and never take the sync for done."""

    name: ClassVar[str] = "fsync-errors"
    needs: ClassVar[frozenset[Ability]] = frozenset({Ability.FILES})

    async def begin(self, world: World) -> Injury:
        [self._target] = one(world)
        self._strace = await Strace.attach(world, self._target, "error=EIO")
        self._code = await world.hosts.ended(self._target, ENDS_WITHIN_S)
        return Injury([self._target], "EIO from every sync", down=frozenset([self._target]))

    async def end(self, world: World) -> Proof:
        failed = await self._strace.detach()
        still_runs = world.hosts.pid(self._target) is not None
        await ensure_runs(world, self._target)
        code = "none" if self._code is None else self._code
        return Proof(failed > 0 and not still_runs, {"syncs_failed": failed, "the_node_ended_with": code})


class BitRot:
    """Bytes of a log that were written and synced change, under a running node or one that is stopped meanwhile."""

    needs: ClassVar[frozenset[Ability]] = frozenset({Ability.FILES})

    def __init__(self, name: str, *, running: bool) -> None:
        self.name = name
        self._running = running

    async def begin(self, world: World) -> Injury:
        [self._target] = one(world)
        if not self._running:
            await kill(world, [self._target])
        self._changed = rot(world.hosts.data_dir(self._target), world)
        world.rotten.add(self._target)
        if not self._running:
            await world.hosts.start(self._target)
        return Injury([self._target], "bytes of the log changed", down=frozenset([self._target]))

    async def end(self, world: World) -> Proof:
        ran_on = world.hosts.pid(self._target) is not None
        if ran_on:
            # What was not read meanwhile is read at a start.
            await stop(world, self._target)
        how = await ensure_runs(world, self._target)
        evidence: dict[str, int | str | bool | list[str]] = {"changed": self._changed, "ran_on": ran_on, "then": how}
        return Proof(bool(self._changed), evidence)


class WipedDirectory:
    """A node loses its whole directory, and starts with an empty one: it must not count until it is re-admitted."""

    name: ClassVar[str] = "wiped-directory"
    needs: ClassVar[frozenset[Ability]] = frozenset({Ability.FILES})

    async def begin(self, world: World) -> Injury:
        [self._target] = one(world)
        await kill(world, [self._target])
        self._files = wipe(world, self._target)
        await world.hosts.start(self._target)
        return Injury([self._target], f"{self._files} files gone", down=frozenset([self._target]))

    async def end(self, world: World) -> Proof:
        is_member = world.takes_part(self._target)
        problem = await readmit(world, self._target) if is_member else ""
        told = problem or ("yes" if is_member else "it is no member any more")
        return Proof(self._files > 0 and not problem, {"files_gone": self._files, "readmitted": told})


class Strace:
    """strace on a running node, which changes what its syncs do. Without kernel AIO they go through fdatasync."""

    def __init__(self, process: asyncio.subprocess.Process, out: Path) -> None:
        self._process = process
        self._out = out

    @staticmethod
    async def attach(world: World, host: str, what: str) -> Strace:
        pid = world.hosts.pid(host)
        assert pid is not None
        out = world.run_dir / f"strace-{host}-{pid}.txt"
        injections = ["-e", "inject=io_submit:error=EAGAIN", "-e", f"inject=fdatasync,fsync:{what}"]
        traced = ["-e", "trace=io_submit,fdatasync,fsync"]
        process = await asyncio.create_subprocess_exec(
            *("strace", "-f", "-qq", "-o", str(out), "-p", str(pid)), *traced, *injections
        )
        return Strace(process, out)

    async def detach(self) -> int:
        """How many syncs were tampered with."""
        if self._process.returncode is None:
            self._process.send_signal(signal.SIGINT)
        await self._process.wait()
        lines = self._out.read_text(encoding="utf-8", errors="replace").splitlines()
        self._out.unlink()
        return sum("sync" in line and ("INJECTED" in line or "DELAYED" in line) for line in lines)


def fill_up(file: Path) -> None:
    """Appends to it until the file system has no room."""
    with file.open("ab", buffering=0) as opened, contextlib.suppress(OSError):
        while opened.write(bytes(MIB)):
            continue


def rot(data_dir: Path, world: World) -> list[str]:
    """Changes a few bytes somewhere in what a log's files hold; says which."""
    segments = sorted(data_dir.glob("groups/*/*.log"))
    for segment in world.chance.sample(segments, len(segments)):
        with segment.open("r+b") as file:
            used = _used_bytes(file.read())
            if used <= 2 * PAGE:
                continue  # one made ahead holds nothing yet
            offset = world.chance.randrange(PAGE, used - ROT_BYTES)
            file.seek(offset)
            before = file.read(ROT_BYTES)
            file.seek(offset)
            file.write(bytes(byte ^ 0xFF for byte in before))
            file.flush()
            os.fsync(file.fileno())
            return [f"{segment.name}@{offset}+{ROT_BYTES}"]
    return []


PAGE = 4096
"""The first page of a segment holds its marks."""


def _used_bytes(content: bytes) -> int:
    """Without the zeros that a segment is filled with ahead."""
    return len(content.rstrip(b"\0"))


def wipe(world: World, host: str) -> int:
    """Removes the node's directory; how many files there were."""
    data_dir = world.hosts.data_dir(host)
    files = sum(path.is_file() for path in data_dir.rglob("*"))
    shutil.rmtree(data_dir)
    world.rotten.discard(host)
    return files


async def ensure_runs(world: World, host: str) -> str:
    """Returns once the node runs and knows what is committed, or a minute has passed; says how it came to that.

    A node that cannot run with what it has gets an empty directory, and is re-admitted.
    """
    if not world.takes_part(host):
        return "it is no member any more"
    how = "it ran"
    # Of a process on another machine, that it has ended is only heard of by asking.
    if world.hosts.pid(host) is None or await world.hosts.ended(host, 0.0) is not None:
        await world.hosts.start(host)
        how = STARTED_AGAIN
    if not await ended_before_it_caught_up(world, host):
        return how
    if host not in world.rotten:
        world.unrecovered.append(host)
    if Ability.FILES not in world.hosts.abilities:
        return "it ended again"
    wipe(world, host)
    await world.hosts.start(host)
    return await readmit(world, host) or "its directory was wiped, and it was re-admitted"


async def ended_before_it_caught_up(world: World, host: str) -> bool:
    """Waits for one or the other; a node that does neither within a minute runs, and is behind."""
    ending = asyncio.create_task(world.hosts.ended(host, world.patience_s))
    catching_up = asyncio.create_task(world.observer.wait_for_caught_up(host, world.patience_s))
    try:
        await asyncio.wait({ending, catching_up}, return_when=asyncio.FIRST_COMPLETED)
        return ending.done() and world.hosts.pid(host) is None
    finally:
        for task in (ending, catching_up):
            task.cancel()
        await asyncio.wait({ending, catching_up})


async def readmit(world: World, host: str) -> str:
    """Makes a node with a new disk a voter again; what went wrong, or nothing. In `meta` it votes again by itself."""
    try:
        await once_it_passes(
            lambda left_ms: world.cluster.readmit(host, timeout_ms=left_ms), world.patience_s * 1000, Waiting()
        )
        await once_it_passes(
            lambda left_ms: world.admin.readmit(host, timeout_ms=left_ms), world.patience_s * 1000, Waiting()
        )
        await promote(world, host)
    except DLedgerError as refusal:
        return str(refusal)
    return ""


async def promote(world: World, host: str) -> None:
    """Once it has caught up. Raises what the leader refuses for good, or for a minute."""
    await once_it_passes(
        lambda left_ms: world.admin.promote(host, timeout_ms=left_ms), world.patience_s * 1000, Waiting()
    )


def _refuses_writes(mount_point: Path) -> bool:
    try:
        (mount_point / "probe").write_bytes(b"x")
    except OSError:
        return True
    return False
