"""A file system of its own for each node, and the moment at which its machine loses power.

The file systems' own shutdown ioctl is the cut: from one instant on nothing that only memory holds reaches the image,
neither dirty pages nor the journal (NOLOGFLUSH). ``power_on`` unmounts, which drops every cached page, and mounts,
which replays the journal: what is found is what the file system had handed to its device by then.

What this is not: the device's own cache is not lost. The image is a file of the host, which keeps all that was written
to it, so a file system that forgets to flush its device is not found out; nor are a device's torn or reordered sectors,
which the simulated disk has. What it tests is this program's part: which fdatasync, of which file and directory, comes
before which word to a client.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import shutil
import struct
import subprocess
from functools import cache
from pathlib import Path
from random import Random

IMAGE_BYTES = 384 << 20
"""XFS makes none below 300 MB. The image is sparse: what is not written takes no room."""
MAKE = {"ext4": ["mkfs.ext4", "-q", "-m", "0"], "xfs": ["mkfs.xfs", "-q"]}
_CLONE_NEWNS = 0x00020000
_SHUTDOWN = 0x8004587D  # EXT4_IOC_SHUTDOWN and XFS_IOC_GOINGDOWN are the same number
_NO_LOG_FLUSH = struct.pack("I", 2)
_FLUSH_BYTES = 256 << 10
"""The page cache writes out a folio at a time, and those of a file that was filled in large pieces are large."""
_FLUSH_SHARE = 0.5


class Volume:
    """An image beside ``directory``, mounted there."""

    def __init__(self, directory: Path, filesystem: str, *, image_bytes: int = IMAGE_BYTES) -> None:
        self.directory = directory
        self.image = directory.with_suffix(".img")
        self._filesystem = filesystem
        self._image_bytes = image_bytes

    def create(self) -> None:
        """Raises ``CannotMountError`` where this machine does not let us."""
        self.directory.mkdir(parents=True)
        with self.image.open("wb") as image:
            image.truncate(self._image_bytes)
        _run(*MAKE[self._filesystem], self.image)
        self._mount()

    def cut_power(self) -> None:
        directory = os.open(self.directory, os.O_RDONLY)
        try:
            fcntl.ioctl(directory, _SHUTDOWN, _NO_LOG_FLUSH)
        finally:
            os.close(directory)

    def power_on(self) -> None:
        """The file system as its device has it. Nobody may have a file open."""
        _run("umount", self.directory)
        self._mount()

    def scatter(self, chance: Random) -> None:
        """Has the kernel write out a part of the dirty pages of the newest segments, as its flusher may do at any time:
        what a power cut then leaves of a tail that no fdatasync covers is torn."""
        for path in sorted(self.directory.glob("groups/*/*.log"))[-2:]:
            file = os.open(path, os.O_RDONLY)
            try:
                for offset in range(0, os.fstat(file).st_size, _FLUSH_BYTES):
                    if chance.random() < _FLUSH_SHARE:
                        os.posix_fadvise(file, offset, _FLUSH_BYTES, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(file)

    def unmount(self) -> None:
        """Leaves the image. Safe when it was never mounted."""
        if self.directory.is_mount():
            _run("umount", "--lazy", self.directory)

    def remove(self) -> None:
        """Unmounts it and deletes the image."""
        self.unmount()
        shutil.rmtree(self.directory, ignore_errors=True)
        self.image.unlink(missing_ok=True)

    def _mount(self) -> None:
        _take_own_namespace()
        _run("mount", "-o", "loop", self.image, self.directory)


class CannotMountError(Exception):
    """A file system cannot be made or mounted here; says why."""


@cache
def _take_own_namespace() -> None:
    """From now on nobody else sees what this process mounts. Whoever begins a container would take the mounts along: a
    file system that he still has is not gone when it is unmounted here, and does not come back as its device has it."""
    if ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWNS):
        raise CannotMountError(f"no mount namespace: {os.strerror(ctypes.get_errno())}")
    _run("mount", "--make-rprivate", "/")


def _run(*command: str | Path) -> None:
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True)
    except FileNotFoundError as missing:
        raise CannotMountError(f"{command[0]} is not installed") from missing
    if done.returncode:
        raise CannotMountError(f"{' '.join(map(str, command))}: {done.stderr.strip()}")
