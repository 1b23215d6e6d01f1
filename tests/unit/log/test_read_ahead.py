"""Reading in order what only the device has: the kernel reads ahead, and keeps nothing that was read."""

from __future__ import annotations

from pathlib import Path

from dledger.common.batch import Buffer
from dledger.common.config import Limits
from dledger.common.types import Position
from dledger.disk.disk import OsDisk
from dledger.disk.syncer import Handle
from tests.unit.log.harness import Witness, frames_after, open_at

PAGE_BYTES = 4096
LIMITS = Limits(tail_cache_bytes=1, segment_max_bytes=256 << 10)
PIECE_BYTES = 16 << 10


class ColdDisk(OsDisk):
    """Whose page cache has what was read, or read ahead, and nothing else."""

    def __init__(self) -> None:
        super().__init__()
        self.warm: set[tuple[Handle, int]] = set()
        self.waits = 0
        """Reads of frames that had to wait for the device."""

    def pread_cached(self, handle: Handle, size_bytes: int, offset: int) -> Buffer | None:
        pages = {(handle, page) for page in range(offset // PAGE_BYTES, (offset + size_bytes - 1) // PAGE_BYTES + 1)}
        if pages <= self.warm:
            return self.pread(handle, size_bytes, offset)
        self.waits += 1
        self.warm |= pages  # by the read that waits now
        return None

    def read_ahead(self, handle: Handle, offset: int, size_bytes: int) -> None:
        last = (offset + size_bytes - 1) // PAGE_BYTES
        self.warm |= {(handle, page) for page in range(offset // PAGE_BYTES, last + 1)}

    def drop_cache(self, handle: Handle, offset: int = 0, size_bytes: int = 0) -> None:
        first = -(-offset // PAGE_BYTES)
        end = (offset + size_bytes) // PAGE_BYTES if size_bytes else 1 << 40
        self.warm = {(each, page) for each, page in self.warm if each != handle or not first <= page < end}


async def test_who_reads_in_order_waits_for_the_device_once_a_segment(tmp_path: Path) -> None:
    disk = ColdDisk()
    log = await open_at(tmp_path, disk, LIMITS)
    witness = Witness(log)
    frames = frames_after(log, 1_000, size_bytes=1_000)
    log.append(frames)
    await witness.all_durable()
    await log.close()

    log = await open_at(tmp_path, disk, LIMITS)
    Witness(log)
    sealed = [each.name.base_position for each in log._files.segments if each.sealed]
    disk.waits, disk.warm = 0, set()
    at = 1
    while at < log._files.active.name.base_position:
        found = await log.read(Position(at), PIECE_BYTES)
        assert [each.raw for each in found] == [each.raw for each in frames[at - 1 : at - 1 + len(found)]]
        at += len(found)
    assert len(sealed) > 2
    assert disk.waits == len(sealed)
    assert len(disk.warm) <= 6 * len(sealed), "but for the last pages of each"
    await log.close()
