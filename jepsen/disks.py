"""A file system of a host's own: an ext4 image, loop-mounted, whose power can be cut."""

from __future__ import annotations

import fcntl
import os
import struct
from pathlib import Path

from jepsen import shell

_EXT4_IOC_SHUTDOWN = 0x8004587D
_NO_LOG_FLUSH = 2
"""What was not synced is lost, the journal's own pages too."""


class Disk:
    """``mount_point`` is on ``image``, of ``size_bytes``, which takes only what is written of it."""

    def __init__(self, image: Path, mount_point: Path, size_bytes: int) -> None:
        self.image = image
        self.mount_point = mount_point
        self.size_bytes = size_bytes

    def make(self) -> None:
        """Formats and mounts it."""
        self.mount_point.mkdir(parents=True, exist_ok=True)
        with self.image.open("wb") as file:
            file.truncate(self.size_bytes)
        shell.run("mkfs.ext4", "-q", "-m", "0", "-E", "lazy_itable_init=1", str(self.image))
        self.mount()

    def mount(self) -> None:
        """Also after a power cut: the journal is replayed."""
        shell.run("mount", "-o", "loop", str(self.image), str(self.mount_point))

    def cut_power(self) -> None:
        """From now on nothing reaches it: what was not synced is gone."""
        descriptor = os.open(self.mount_point, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.ioctl(descriptor, _EXT4_IOC_SHUTDOWN, struct.pack("I", _NO_LOG_FLUSH))
        finally:
            os.close(descriptor)

    def unmount(self) -> None:
        """Nobody may use it any more."""
        shell.run("umount", str(self.mount_point))

    @property
    def free_bytes(self) -> int:
        found = os.statvfs(self.mount_point)
        return found.f_bavail * found.f_frsize

    def remove(self) -> None:
        """The image, once it is not mounted any more."""
        self.image.unlink(missing_ok=True)
