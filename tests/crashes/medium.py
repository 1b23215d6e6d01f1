"""What a power cut can leave of a disk, as a finite set.

::

    RecordedPlatter  ──shot()──▶  Shot: what is durable, and the pending changes, each of which may be there or not
                                    │
                                    └─ images(): the files of each outcome ──▶ RecordedPlatter, to recover from

A pending change is one sector of one write that no completed fdatasync covers, a file's size, or a change of names that
no directory sync covers. Sectors and sizes persist each for itself, in any order; the changes of one directory persist
in theirs, as journaling file systems do it. A sector that was written twice may hold what it held before, between or
after.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from random import Random
from typing import NamedTuple

from dledger.common.batch import Buffer
from dledger.disk.syncer import Handle
from tests.simulation.disk import DiskMood, SimDisk
from tests.simulation.platter import SECTOR_BYTES, Captured, Platter, SimFile, put_sector


class Depth(NamedTuple):
    """How many of the outcomes are tried."""

    exhaustive_up_to: int
    """So many pending changes are tried in all of their subsets."""
    samples: int
    """Of more than that: so many subsets, beside the chosen ones."""


class SectorWrite(NamedTuple):
    """A sector's part of a write."""

    number: int
    piece: bytes


class FileShot(NamedTuple):
    """One file: what is durable of it, and what is not."""

    medium: bytes
    size_bytes: int
    """As reads see it."""
    pending: tuple[SectorWrite, ...]


Change = tuple[tuple[str, int | None], ...]
"""Names that change together: what each is the name of from then on, by number."""


class Image(NamedTuple):
    """Files and directories as a start finds them."""

    files: tuple[tuple[str, bytes], ...]
    directories: tuple[str, ...]


class _NoChance(Random):
    """Nothing is left to chance: no write-back, no short wait."""

    def random(self) -> float:
        return 0.999

    def uniform(self, a: float, b: float) -> float:
        return a


class Shot(NamedTuple):
    """A disk at one moment."""

    files: tuple[FileShot, ...]
    names: tuple[tuple[str, int], ...]
    """The durable ones: path and number of the file."""
    changes: tuple[tuple[Change, ...], ...]
    """Of each directory, in order."""
    directories: tuple[str, ...]

    @property
    def pending(self) -> int:
        """How many changes are not durable."""
        sizes = sum(file.size_bytes != len(file.medium) for file in self.files)
        return sizes + sum(len(file.pending) for file in self.files) + sum(map(len, self.changes))

    def images(self, depth: Depth, random: Random) -> Iterator[Image]:
        """All outcomes when few changes are pending; otherwise nothing, everything, each change alone, each one
        missing, and samples. Then each sector torn in its middle, beside none and beside all of the others, and all of
        them torn."""
        ways = self._ways()
        every = tuple(count - 1 for count in ways)
        if self.pending <= depth.exhaustive_up_to:
            choices: Iterator[tuple[int, ...]] = product(*map(range, ways))
        else:
            choices = _sampled(ways, random, depth.samples)
        for choice in choices:
            yield self._image(choice)
        sectors = range(sum(len(file.pending) for file in self.files))
        for torn in sectors:
            for beside in (tuple(0 for _ in ways), every):
                yield self._image(beside, frozenset({torn}))
        yield self._image(every, frozenset(sectors))

    def nothing_more(self) -> Image:
        """The outcome in which no pending change is there."""
        return self._image(tuple(0 for _ in self._ways()))

    def _ways(self) -> list[int]:
        """The number of outcomes of each sector write, then of each size, then of each directory."""
        sectors = [2 for file in self.files for _ in file.pending]
        sizes = [2 if file.size_bytes != len(file.medium) else 1 for file in self.files]
        return [*sectors, *sizes, *(len(changes) + 1 for changes in self.changes)]

    def _image(self, choice: tuple[int, ...], torn: frozenset[int] = frozenset()) -> Image:
        chosen = iter(choice)
        ordinal = 0
        contents = []
        for file in self.files:
            content = bytearray(file.medium)
            for number, piece in file.pending:
                if ordinal in torn:
                    piece = _torn(content, number, piece)  # noqa: PLW2901
                if next(chosen) or ordinal in torn:
                    put_sector(content, number, piece)
                ordinal += 1
            contents.append(content)
        for content, file in zip(contents, self.files, strict=True):
            if next(chosen):
                _resize(content, file.size_bytes)
        names = dict(self.names)
        for changes in self.changes:
            for change in changes[: next(chosen)]:
                _rename(names, change)
        files = ((path, bytes(contents[number])) for path, number in sorted(names.items()))
        return Image(tuple(files), self.directories)


def _sampled(ways: list[int], random: Random, samples: int) -> Iterator[tuple[int, ...]]:
    nothing = tuple(0 for _ in ways)
    everything = tuple(count - 1 for count in ways)
    yield nothing
    yield everything
    for at, count in enumerate(ways):
        if count > 1:
            yield (*nothing[:at], count - 1, *nothing[at + 1 :])
            yield (*everything[:at], 0, *everything[at + 1 :])
    for _ in range(samples):
        share = random.choice((0.2, 0.5, 0.8))
        yield tuple(random.randrange(count) if random.random() < share else count - 1 for count in ways)


def _torn(content: bytearray, number: int, piece: bytes) -> bytes:
    """The new sector up to the middle of what it changes, the old one behind."""
    begin = number * SECTOR_BYTES
    old = bytes(content[begin : begin + len(piece)]).ljust(len(piece), b"\0")
    changed = [at for at in range(len(piece)) if piece[at] != old[at]]
    middle = changed[len(changed) // 2] if changed else 0
    return piece[:middle] + old[middle:]


def _resize(content: bytearray, size_bytes: int) -> None:
    content.extend(bytes(max(0, size_bytes - len(content))))
    del content[size_bytes:]


def _rename(names: dict[str, int], change: Change) -> None:
    for path, number in change:
        if number is None:
            names.pop(path, None)
        else:
            names[path] = number


class RecordedPlatter(Platter):
    """Remembers every sector of every write until it is durable."""

    def __init__(self, image: Image | None = None) -> None:
        super().__init__(_NoChance(0))
        self._writes: dict[SimFile, dict[int, list[tuple[int, bytes]]]] = {}
        if image is not None:
            self._directories.update(image.directories)
            for path, content in image.files:
                self._durable_names[path] = SimFile(bytearray(content), bytearray(content))
            self._names = dict(self._durable_names)

    def write(self, file: SimFile, data: bytes, offset: int) -> None:
        super().write(file, data, offset)
        versions = self._writes.setdefault(file, {})
        for number in range(offset // SECTOR_BYTES, (offset + len(data) + SECTOR_BYTES - 1) // SECTOR_BYTES):
            begin = number * SECTOR_BYTES
            piece = bytes(file.data[begin : begin + SECTOR_BYTES])
            versions.setdefault(number, []).append((file.written[number], piece))

    def resize(self, file: SimFile, size_bytes: int) -> None:
        before = dict(file.written)
        super().resize(file, size_bytes)
        captured = file.capture()
        versions = self._writes.setdefault(file, {})
        for number in sorted(number for number, version in file.written.items() if version != before.get(number)):
            versions.setdefault(number, []).append(captured[number])

    def fail_writes(self) -> None:
        """Nothing of what waits for a sync reaches the disk any more: its pages look clean from now on."""
        for file in self._names.values():
            file.lost |= file.dirty
            file.dirty.clear()
        self._writes.clear()

    def shot(self) -> Shot:
        numbers: dict[SimFile, int] = {}
        changes = tuple(
            tuple(
                tuple((path, _number(numbers, file) if file is not None else None) for path, file in change)
                for change in self._pending[directory]
            )
            for directory in sorted(self._pending)
            if self._pending[directory]
        )
        names = tuple((path, _number(numbers, file)) for path, file in sorted(self._durable_names.items()))
        files = tuple(map(self._file_shot, numbers))
        return Shot(files, names, changes, tuple(sorted(self._directories)))

    def image(self) -> Image:
        """As a process that was killed leaves the files: the machine has everything."""
        files = tuple((path, bytes(file.data)) for path, file in sorted(self._names.items()))
        return Image(files, tuple(sorted(self._directories)))

    def _file_shot(self, file: SimFile) -> FileShot:
        pending: list[tuple[int, SectorWrite]] = []
        for number, versions in sorted(self._writes.get(file, {}).items()):
            reached = file.reached.get(number, 0)
            versions[:] = [each for each in versions if each[0] > reached]
            begin = number * SECTOR_BYTES
            durable = bytes(file.medium[begin : begin + SECTOR_BYTES])
            if any(piece.rstrip(b"\0") != durable.rstrip(b"\0") for _, piece in versions):
                pending += [(version, SectorWrite(number, piece)) for version, piece in versions]
        return FileShot(bytes(file.medium), len(file.data), tuple(each for _, each in pending))


def _number(numbers: dict[SimFile, int], file: SimFile) -> int:
    return numbers.setdefault(file, len(numbers))


OnCall = Callable[[str, bool], None]
"""Told of each call that changes something, before it and after it."""


class RecordingDisk(SimDisk):
    """Tells of every call that changes something, just before and just after it."""

    def __init__(self, platter: RecordedPlatter, on_call: OnCall = lambda _name, _after: None) -> None:
        super().__init__(platter, DiskMood(sync_s=(0.001, 0.001)), "boot")
        self.on_call = on_call

    def open(self, path: str, *, create: bool = False, exclusive: bool = False, read_only: bool = False) -> Handle:
        is_new = create and not self._platter.exists(path)
        if is_new:
            self.on_call("create", False)
        handle = super().open(path, create=create, exclusive=exclusive, read_only=read_only)
        if is_new:
            self.on_call("create", True)
        return handle

    def pwritev(self, handle: Handle, buffers: Sequence[Buffer], offset: int) -> None:
        self.on_call("pwritev", False)
        super().pwritev(handle, buffers, offset)
        self.on_call("pwritev", True)

    def sync_file(self, file: SimFile, sectors: Captured) -> None:
        self.on_call("fdatasync", False)
        super().sync_file(file, sectors)
        self.on_call("fdatasync", True)

    def fsync_directory(self, path: str) -> None:
        self.on_call("fsync_directory", False)
        super().fsync_directory(path)
        self.on_call("fsync_directory", True)

    def fallocate(self, handle: Handle, offset: int, size_bytes: int) -> None:
        self.on_call("fallocate", False)
        super().fallocate(handle, offset, size_bytes)
        self.on_call("fallocate", True)

    def ftruncate(self, handle: Handle, size_bytes: int) -> None:
        self.on_call("ftruncate", False)
        super().ftruncate(handle, size_bytes)
        self.on_call("ftruncate", True)

    def rename(self, source: str, target: str) -> None:
        self.on_call("rename", False)
        super().rename(source, target)
        self.on_call("rename", True)

    def unlink(self, path: str) -> None:
        self.on_call("unlink", False)
        super().unlink(path)
        self.on_call("unlink", True)

    def mkdir(self, path: str) -> None:
        self.on_call("mkdir", False)
        super().mkdir(path)
        self.on_call("mkdir", True)
