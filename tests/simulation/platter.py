"""The medium of a simulated disk: what reads see, what a power cut would leave, and what rots.

Unsynced sectors persist independently of each other, at any time, and may be torn: the first bytes new, the rest old. A
size and a name may be there before the bytes, and the other way round. A failed fdatasync leaves pages that look clean
and never reached the medium.
"""

# Paths are names as the operating system takes them, and their directories are looked up by the hundred thousand:
# ruff: noqa: PTH119, PTH120
from __future__ import annotations

import errno
import os
from collections.abc import Container
from dataclasses import dataclass, field
from random import Random

SECTOR_BYTES = 512
PAGE_BYTES = 4096
ROOMY_BYTES = 2 << 30
"""Enough not to be warned of."""
HEAD_BYTES = 64
"""Half of the tears fall here, where the marks and the states that begin a sector have what is theirs."""
TORN_SHARE = 0.2
"""Of the sectors that were being written when the power went."""

Sectors = dict[int, tuple[int, bytes]]
"""As they were: by number, which write and its bytes; none of what a truncation took away."""


class Captured(Sectors):
    """What a sync that begins has to make durable."""

    size_bytes = 0
    """Of the file."""
    truncations = 0
    """Of the file, until then."""


@dataclass(eq=False, slots=True)
class SimFile:
    """``data`` is what reads see, ``medium`` what a power cut leaves of it."""

    data: bytearray = field(default_factory=bytearray)
    medium: bytearray = field(default_factory=bytearray)
    dirty: set[int] = field(default_factory=set)
    """Sectors that were written and not synced."""
    lost: set[int] = field(default_factory=set)
    """Sectors that look clean, and whose write failed: gone as soon as the cache is dropped."""
    written: dict[int, int] = field(default_factory=dict)
    """How often each sector was written."""
    reached: dict[int, int] = field(default_factory=dict)
    """Which of those writes the medium holds."""
    unreadable: set[int] = field(default_factory=set)
    """Pages that the device does not give back until they are written whole."""
    truncated: set[int] = field(default_factory=set)
    """Sectors that a truncation took from the file, and that no sync has taken from the medium yet."""
    truncations: int = 0
    synced_truncations: int = 0
    """How many of them are on the medium."""
    written_over: dict[tuple[int, int], int] = field(default_factory=dict)
    """By the bytes, of one sector, that rotted: which write of it was the last that went over them; 0 for none."""
    before: dict[int, bytes] = field(default_factory=dict)
    """What the medium held of a sector before the last write that changed it: what a lost write would leave there."""

    def capture(self) -> Captured:
        """What a sync that begins now has to make durable."""
        data, written = self.data, self.written
        captured = Captured(
            (number, (written[number], bytes(data[number * SECTOR_BYTES : (number + 1) * SECTOR_BYTES])))
            for number in sorted(self.dirty)
        )
        captured.update((number, (written[number], b"")) for number in sorted(self.truncated))
        captured.size_bytes, captured.truncations = len(data), self.truncations
        return captured

    def persist(self, sectors: Sectors) -> None:
        """The medium holds ``sectors`` from now on, or what was written to them since and is there already."""
        medium, reached = self.medium, self.reached
        if sectors and (missing := min((max(sectors) + 1) * SECTOR_BYTES, len(self.data)) - len(medium)) > 0:
            medium.extend(bytes(missing))
        for number, (version, piece) in sectors.items():
            if version < reached.get(number, 0):
                continue
            reached[number] = version
            begin = number * SECTOR_BYTES
            old = medium[begin : begin + len(piece)]
            if old != piece and any(old):
                self.before[number] = bytes(old)
            put_sector(medium, number, piece)

    def truncate(self, size_bytes: int) -> None:
        """What lies behind is gone for whoever reads, and with the next sync that begins."""
        self.truncations += 1
        end_bytes = max(len(self.data), len(self.medium))
        del self.data[size_bytes:]
        kept, rest_bytes = divmod(size_bytes, SECTOR_BYTES)
        if rest_bytes:  # the kernel writes the sector that holds the end, with zeros behind it
            self.written[kept] = self.written.get(kept, 0) + 1
            self.dirty.add(kept)
            kept += 1
        self.dirty = {sector for sector in self.dirty if sector < kept}
        self.lost = {sector for sector in self.lost if sector < kept}
        self.unreadable = {page for page in self.unreadable if page * PAGE_BYTES < size_bytes}
        for number in range(kept, -(-end_bytes // SECTOR_BYTES)):
            self.written[number] = self.written.get(number, 0) + 1
            self.truncated.add(number)
        if self.written_over:
            self.write_over(size_bytes, end_bytes)

    def sync(self, captured: Captured) -> None:
        """The medium is as the file was when the sync began, but for what was written back since."""
        self.persist(captured)
        gone = {
            number for number, (version, piece) in captured.items() if not piece and self.written[number] == version
        }
        self.truncated -= gone
        if captured.truncations == self.truncations:
            del self.medium[len(self.data) :]
        if captured.truncations >= self.synced_truncations:
            self.synced_truncations = captured.truncations
            self.medium.extend(bytes(max(0, captured.size_bytes - len(self.medium))))

    def tear(self, number: int, piece: bytes, size_bytes: int) -> None:
        """Only the first bytes of ``piece`` reach the medium."""
        begin = number * SECTOR_BYTES
        size_bytes = min(size_bytes, len(piece))
        if len(self.medium) < begin + size_bytes:
            self.medium.extend(bytes(begin + size_bytes - len(self.medium)))
        self.medium[begin : begin + size_bytes] = piece[:size_bytes]

    def settle(self, sectors: Sectors) -> None:
        """They are clean, unless they were written again meanwhile."""
        self.dirty.difference_update(number for number, (at, _) in sectors.items() if self.written[number] == at)

    def spoil(self, offset: int, rotten: bytes) -> None:
        """The medium, and whatever is read from it, says ``rotten`` from now on."""
        end = offset + len(rotten)
        self.medium[offset:end] = self.data[offset:end] = rotten
        self.written_over[offset, end] = 0

    def write_over(self, begin: int, end: int) -> None:
        """The last write of the sectors there was of all these bytes."""
        for first, after in self.written_over:
            if begin <= first and after <= end:
                self.written_over[first, after] = self.written[first // SECTOR_BYTES]

    def is_written_over(self, begin: int, end: int) -> bool:
        """Whether the medium holds something else than what rotted there, be it the same bytes."""
        write = self.written_over.get((begin, end), 0)
        return 0 < write <= self.reached.get(begin // SECTOR_BYTES, 0)

    def take_back(self, sectors: Container[int]) -> None:
        """They are what the medium holds: a write that did not reach it never was."""
        for place, write in self.written_over.items():
            number = place[0] // SECTOR_BYTES
            if number in sectors and self.reached.get(number, 0) < write:
                self.written_over[place] = 0

    def is_unreadable(self, begin: int, end: int) -> bool:
        return any(page * PAGE_BYTES < end and begin < (page + 1) * PAGE_BYTES for page in self.unreadable)

    def write_anew(self, begin: int, end: int) -> None:
        """The device takes other sectors for what cannot be read. Raises EIO where a page is not written whole: the
        rest of it had to be read first."""
        whole = {page for page in self.unreadable if begin <= page * PAGE_BYTES and (page + 1) * PAGE_BYTES <= end}
        self.unreadable -= whole
        if self.is_unreadable(begin, end):
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    def holds(self, begin: int, end: int) -> bool:
        """Whether a power cut now would leave these bytes as they are read."""
        return self.medium[begin:end] == self.data[begin:end]


@dataclass(frozen=True, slots=True)
class Rot:
    """Where something rotted, and what stood there."""

    path: str
    file: SimFile
    offset: int
    good: bytes
    rotten: bytes
    written: int
    """How often its sector was written until then."""

    def is_healed(self, platter: Platter) -> bool:
        """It is as it was, or something else was written there, durably; or nobody has the file any more. What is
        written in its place may be the same byte."""
        if not platter.exists(self.path) or platter.find(self.path) is not self.file:
            return True
        end = self.offset + len(self.good)
        if self.file.is_written_over(self.offset, end):
            return True
        now = self.file.data[self.offset : end]
        is_written_anew = now != self.rotten and self.file.written.get(self.offset // SECTOR_BYTES, 0) > self.written
        return (now == self.good or is_written_anew) and self.file.holds(self.offset, end)


def put_sector(content: bytearray, number: int, piece: bytes) -> None:
    """What ``content`` holds of the sector behind ``piece`` is of a file that was longer: zeros from now on."""
    begin, end = number * SECTOR_BYTES, number * SECTOR_BYTES + len(piece)
    if piece and len(content) < end:
        content.extend(bytes(end - len(content)))
    content[begin:end] = piece
    if len(piece) < SECTOR_BYTES:
        rest = range(len(content))[end : begin + SECTOR_BYTES]
        content[end : end + len(rest)] = bytes(len(rest))


NameChange = tuple[str, SimFile | None]
"""A path, and what it names from then on."""


class Platter:
    """The files of one node. Everything is in memory; ``crash`` is a power cut."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.capacity_bytes = ROOMY_BYTES
        self._names: dict[str, SimFile] = {}
        self._durable_names: dict[str, SimFile] = {}
        self._pending: dict[str, list[tuple[NameChange, ...]]] = {}
        """By directory: changes since its last sync, in order; those of one rename belong together."""
        self._directories: set[str] = {"/"}
        self._removed: set[str] = set()
        """Directories that are gone, which their parent's next sync makes durable, with all that was in them."""
        self.locks: set[str] = set()
        self.sectors_lost = 0
        self.sectors_torn = 0

    # Names -------------------------------------------------------------------------------------------------------

    def find(self, path: str) -> SimFile:
        try:
            return self._names[path]
        except KeyError:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path) from None

    def durable(self, path: str) -> SimFile | None:
        """The file that a power cut now would leave under this name."""
        return self._durable_names.get(path)

    def durable_paths(self) -> list[str]:
        return sorted(self._durable_names)

    def paths(self, below: str = "") -> list[str]:
        """Of all files, or of those in the directory ``below`` and in what is in it."""
        return sorted(path for path in self._names if path.startswith(f"{below}/")) if below else sorted(self._names)

    def create(self, path: str) -> SimFile:
        file = SimFile()
        self._change((path, file))
        return file

    def rename(self, source: str, target: str) -> None:
        self._change((target, self.find(source)), (source, None))

    def unlink(self, path: str) -> None:
        self.find(path)
        self._change((path, None))

    def _change(self, *changes: NameChange) -> None:
        for path, file in changes:
            if file is None:
                self._names.pop(path, None)
            else:
                self._names[path] = file
        self._pending.setdefault(os.path.dirname(changes[0][0]), []).append(changes)

    def exists(self, path: str) -> bool:
        return path in self._names or path in self._directories

    def listdir(self, directory: str) -> list[str]:
        if directory not in self._directories:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), directory)
        every = [*self._names, *self._directories]
        return sorted(os.path.basename(path) for path in every if os.path.dirname(path) == directory and path != "/")

    def rmdir(self, path: str) -> None:
        if self.listdir(path):
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), path)
        self._directories.discard(path)
        self._removed.add(path)

    def mkdir(self, path: str) -> None:
        self._directories.add(path)
        self._removed.discard(path)

    def sync_directory(self, path: str) -> None:
        for removed in sorted(each for each in self._removed if os.path.dirname(each) == path):
            self._removed.discard(removed)
            self.sync_directory(removed)
        for changes in self._pending.pop(path, []):
            self._make_durable(changes)

    def _make_durable(self, changes: tuple[NameChange, ...]) -> None:
        for path, file in changes:
            if file is None:
                self._durable_names.pop(path, None)
            else:
                self._durable_names[path] = file

    # Bytes -------------------------------------------------------------------------------------------------------

    @property
    def used_bytes(self) -> int:
        return sum(len(file.data) for file in self._names.values())

    def write(self, file: SimFile, data: bytes, offset: int) -> None:
        end = offset + len(data)
        if file.unreadable:
            file.write_anew(offset, end)
        if end > len(file.data):
            self.claim(end - len(file.data))
            file.data.extend(bytes(end - len(file.data)))
        file.data[offset:end] = data
        touched = range(offset // SECTOR_BYTES, (end + SECTOR_BYTES - 1) // SECTOR_BYTES)
        written = file.written
        for number in touched:
            written[number] = written.get(number, 0) + 1
        file.dirty.update(touched)
        file.truncated.difference_update(touched)
        if file.lost:
            file.lost.difference_update(touched)
        if file.written_over:
            file.write_over(offset, end)
        if self.random.random() < 0.05:
            self._write_back(file)

    def claim(self, size_bytes: int) -> None:
        if self.used_bytes + size_bytes > self.capacity_bytes:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    @property
    def is_unreadable(self) -> bool:
        """Whether there is anything that it does not give back."""
        return any(file.unreadable for file in self._names.values())

    def give_back(self) -> None:
        """All that it has can be read again."""
        for file in self._names.values():
            file.unreadable.clear()

    def write_back_all(self) -> None:
        """The kernel has written out what was written a while ago; it stays dirty, for nobody may rely on it."""
        for file in self._names.values():
            file.persist(file.capture())

    def _write_back(self, file: SimFile) -> None:
        """As above, whatever it likes, whenever it likes."""
        file.persist({number: piece for number, piece in file.capture().items() if self.random.random() < 0.5})

    def resize(self, file: SimFile, size_bytes: int) -> None:
        if size_bytes > len(file.data):
            self.claim(size_bytes - len(file.data))
            file.data.extend(bytes(size_bytes - len(file.data)))
        elif size_bytes < len(file.data):
            if size_bytes % PAGE_BYTES and file.is_unreadable(size_bytes, size_bytes + 1):
                raise OSError(errno.EIO, os.strerror(errno.EIO))  # what is kept of the page has to be read
            file.truncate(size_bytes)

    def drop_cache(self, file: SimFile) -> None:
        gone = file.lost - file.dirty
        file.take_back(gone)
        for sector in sorted(gone):
            begin = sector * SECTOR_BYTES
            piece = file.medium[begin : begin + SECTOR_BYTES].ljust(SECTOR_BYTES, b"\0")
            file.data[begin : begin + SECTOR_BYTES] = piece[: len(file.data) - begin]
        file.lost.clear()

    # Power -------------------------------------------------------------------------------------------------------

    def crash(self) -> None:
        """The power goes: unsynced sectors and names survive by chance, and all locks end."""
        random = self.random
        for directory in sorted(self._removed):
            if random.random() < 0.5:
                self._removed.discard(directory)
                self.sync_directory(directory)
        self._directories |= self._removed
        self._removed.clear()
        for directory in sorted(self._pending):
            changes = self._pending[directory]
            kept = random.randint(0, len(changes))
            for change in changes[:kept]:
                self._make_durable(change)
        self._pending.clear()
        for path in sorted(self._durable_names):
            self._crash_file(self._durable_names[path])
        self._names = dict(self._durable_names)
        self.locks.clear()

    def _crash_file(self, file: SimFile) -> None:
        random = self.random
        share = random.choice((0.0, 0.5, 0.5, 0.9, 1.0))
        kept: Sectors = {}
        for number, (version, piece) in file.capture().items():
            if random.random() < share:
                kept[number] = version, piece
            elif piece and random.random() < TORN_SHARE:
                file.tear(number, piece, random.randrange(random.choice((HEAD_BYTES, SECTOR_BYTES))))
                self.sectors_torn += 1
        self.sectors_lost += len(file.dirty - kept.keys())
        file.persist(kept)
        # The size is of its own: it may be there without the bytes, which read as zeros then.
        size_bytes = random.choice((len(file.data), max(len(file.medium), 0)))
        file.medium.extend(bytes(max(0, size_bytes - len(file.medium))))
        del file.medium[size_bytes:]
        file.data = bytearray(file.medium)
        file.take_back(range(len(file.data) // SECTOR_BYTES + 1))
        file.dirty.clear()
        file.lost.clear()
        file.truncated.clear()

    def kill(self) -> None:
        """The process is killed: what it wrote is in the machine's memory."""
        self.locks.clear()
