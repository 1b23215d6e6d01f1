"""A small thing that must never be lost: two copies in one preallocated file, each made durable in turn.

::

    offset     size        field
    0          slot_bytes  slot 0: a record (record.py), the rest 0
    slot_bytes slot_bytes  slot 1: the same

A save writes slot 0 and syncs it, then slot 1 and syncs that: whenever the power goes, one slot is whole. On open the
newer good copy counts and the other is written again. The file comes into being with both copies good, by one rename:
a file without a good copy is damaged, never merely new.

A save is urgent (``Disk.run_urgent``): elections wait for it, and it waits for no data of any log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

from dledger.common.errors import Code, DLedgerError, error
from dledger.disk.disk import FULL, Disk, run_to_the_end
from dledger.disk.record import READMIT, RECORD_HEADER_BYTES, Record, RecordKind, in_file, pack_record, unpack_record
from dledger.disk.syncer import Handle

Result = TypeVar("Result")

SLOT_BYTES = 4096


def unwritable(path: str, reason: OSError) -> DLedgerError:
    """DISK_FULL or DISK_ERROR."""
    code = Code.DISK_FULL if reason.errno in FULL else Code.DISK_ERROR
    return error(code, f"{path} cannot be written: {reason.strerror}")


class TwoSlotFile:
    """One file of two slots. ``payload`` is the last one saved."""

    def __init__(self, disk: Disk, path: str, kind: RecordKind, *, slot_bytes: int = SLOT_BYTES) -> None:
        self._disk = disk
        self.path = path
        self._kind = kind
        self._slot_bytes = slot_bytes
        self._sequence = 0
        self._one_at_a_time = asyncio.Lock()
        self.payload = b""
        self._is_stored = False

    async def load(self) -> bool:
        """Reads the newer good copy and repairs the other. False when there is no file. Raises CORRUPT_LOG,
        UNSUPPORTED_VERSION, and DISK_FULL or DISK_ERROR when it can be neither read nor repaired."""
        return await self._do(self._load)

    async def create(self, payload: bytes) -> None:
        """Makes the file, durable when it returns. Raises DISK_FULL or DISK_ERROR."""
        self._check_fits(payload)
        await self._do(partial(self._create, payload))

    async def save(self, payload: bytes) -> None:
        """Durable in both slots when it returns; what is so already is not written again. Raises DISK_FULL or
        DISK_ERROR, and then which payload is stored is not known; RECORD_TOO_LARGE, and nothing changed, when it is
        too long for a slot."""
        self._check_fits(payload)
        async with self._one_at_a_time:
            if payload != self.payload or not self._is_stored:
                await self._do(partial(self._save, payload))

    def _check_fits(self, payload: bytes) -> None:
        if len(payload) + RECORD_HEADER_BYTES > self._slot_bytes:
            raise error(
                Code.RECORD_TOO_LARGE,
                f"{self.path} has room for {self._slot_bytes - RECORD_HEADER_BYTES} bytes, and not for the "
                f"{len(payload)} that were to be kept there",
            )

    async def _do(self, job: Callable[[], Result]) -> Result:
        try:
            return await run_to_the_end(self._disk, job, urgent=True)
        except OSError as reason:
            raise unwritable(self.path, reason) from reason

    def _load(self) -> bool:
        if not self._disk.exists(self.path):
            return False
        handle = self._disk.open(self.path)
        try:
            self._settle(handle)
            copies = [self._read_slot(handle, slot) for slot in (0, 1)]
            good = [copy for copy in copies if copy is not None]
            if not good:
                raise error(
                    Code.CORRUPT_LOG,
                    f"neither copy in {self.path} matches its checksum: this node's promises are lost; {READMIT}",
                )
            newest = max(good)
            self._sequence, self.payload = newest
            if copies[0] != copies[1]:
                for slot in (0, 1):
                    if copies[slot] != newest:
                        self._write_slot(handle, slot)
            self._is_stored = True
        finally:
            self._disk.close(handle)
        return True

    def _settle(self, handle: Handle) -> None:
        """Makes later reads of the page cache equal to the disk. A failed sync leaves pages that look clean and are not
        on the disk, so the page cache is dropped. A killed process may leave bytes, or a name, that are not synced yet.
        So both are synced: never may both copies be unsynced at a time."""
        self._disk.drop_cache(handle)
        self._disk.fdatasync(handle)
        self._disk.fsync_directory(str(Path(self.path).parent))

    def _create(self, payload: bytes) -> None:
        temporary = self.path + ".tmp"
        handle = self._disk.open(temporary, create=True)
        try:
            self._disk.fallocate(handle, 0, 2 * self._slot_bytes)
            self._sequence, self.payload = 1, payload
            self._write_slot(handle, 0)
            self._write_slot(handle, 1)
        finally:
            self._disk.close(handle)
        self._disk.rename(temporary, self.path)
        self._disk.fsync_directory(str(Path(self.path).parent))
        self._is_stored = True

    def _save(self, payload: bytes) -> None:
        handle = self._disk.open(self.path)
        try:
            self._sequence += 1
            self.payload, self._is_stored = payload, False
            self._write_slot(handle, 0)
            self._write_slot(handle, 1)
            self._is_stored = True
        finally:
            self._disk.close(handle)

    def _read_slot(self, handle: Handle, slot: int) -> Record | None:
        with in_file(self.path):
            return unpack_record(self._kind, self._disk.pread(handle, self._slot_bytes, slot * self._slot_bytes))

    def _write_slot(self, handle: Handle, slot: int) -> None:
        record = pack_record(self._kind, self._sequence, self.payload)
        padded = record + bytes(self._slot_bytes - len(record))
        self._disk.pwritev(handle, [padded], slot * self._slot_bytes)
        self._disk.fdatasync(handle)
