"""One byte, or one sector, or one file of what a node stores, damaged; and what lay there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from dledger.log.segment.segment import FIRST_PAGE_BYTES, PREPARED_SUFFIX
from tests.corruption.node import FIRST_STATE, LATER_STATE, RESERVE, ROOM, UNUSED, Region, StoredDisk
from tests.simulation.platter import SECTOR_BYTES

A_BYTE = "a byte"
SEGMENT, FIRST_PAGE = "a segment", "a first page"
FRAMES, FRAMES_ABOVE, FRAMES_ON_BOTH_SIDES = "frames", "frames above the mark", "frames on both sides of the mark"


class Damage(NamedTuple):
    """One damage to one file."""

    path: str
    manner: str
    place: str
    """What is damaged."""
    offset: int
    end: int
    content: bytes | None
    """The whole file, damaged; None: it is gone."""
    reaches_behind_the_mark: bool

    @property
    def structure(self) -> str:
        """The line of the table that it belongs to."""
        return self.place if self.manner == A_BYTE else f"{self.manner}: {self.place}"

    def __str__(self) -> str:
        return f"{self.structure}, {self.path} at {self.offset}"


Pattern = Callable[[int], int]
"""What a byte becomes: never itself."""

FLIPS: tuple[Pattern, ...] = tuple(lambda byte, bit=bit: byte ^ (1 << bit) for bit in range(8))  # type: ignore[misc]
INVERTED: Pattern = lambda byte: byte ^ 0xFF  # noqa: E731 – one of the patterns, as the others are


def damaged_bytes(
    disk: StoredDisk, regions: dict[str, list[Region]], patterns: tuple[Pattern, ...], stride: int = 1
) -> Iterator[Damage]:
    """Every byte, with every pattern; of room that holds nothing every ``stride``-th."""
    for path, content in disk.image.files:
        for region in regions[path]:
            step = stride if region.structure in (UNUSED, ROOM, RESERVE) else 1
            for offset in range(region.begin, region.end, step):
                for pattern in patterns:
                    damaged = bytearray(content)
                    damaged[offset] = pattern(content[offset])
                    behind = _is_behind(region)
                    yield Damage(path, A_BYTE, region.structure, offset, offset + 1, bytes(damaged), behind)


def damaged_sectors(disk: StoredDisk, regions: dict[str, list[Region]]) -> Iterator[Damage]:
    """Each sector zeroed, and each with what belongs elsewhere in its file: where it differs."""
    for path, content in disk.image.files:
        for begin in range(0, len(content), SECTOR_BYTES):
            sector = content[begin : begin + SECTOR_BYTES]
            other = content[begin - SECTOR_BYTES :][:SECTOR_BYTES] if begin else content[-SECTOR_BYTES:]
            for name, piece in (("zeroed", bytes(len(sector))), ("misdirected", other[: len(sector)])):
                if piece != sector:
                    damaged = content[:begin] + piece.ljust(len(sector), b"\0") + content[begin + SECTOR_BYTES :]
                    end = begin + len(sector)
                    behind = _any_behind(regions[path], begin, end)
                    place = _place(regions[path], content, begin, end)
                    yield Damage(path, f"a sector {name}", place, begin, end, damaged, behind)


def damaged_files(disk: StoredDisk, regions: dict[str, list[Region]]) -> Iterator[Damage]:
    """Each file gone, and cut short at each sector."""
    for path, content in disk.image.files:
        size, kind = len(content), _kind(path, disk)
        yield Damage(path, "gone", kind, 0, size, None, reaches_behind_the_mark=False)
        yield Damage(path, "cut to nothing", kind, 0, size, b"", _any_behind(regions[path], 0, size))
        for end in range(SECTOR_BYTES, size, SECTOR_BYTES):
            behind = _any_behind(regions[path], end, size)
            is_first_page = kind == SEGMENT and end < FIRST_PAGE_BYTES
            place = FIRST_PAGE if is_first_page else _place(regions[path], content, end, size)
            yield Damage(path, "cut short", place, end, size, content[:end], behind)


def _kind(path: str, disk: StoredDisk) -> str:
    name = path.rpartition("/")[2]
    if name.endswith(".log"):
        return SEGMENT
    if name.endswith(".state"):
        return FIRST_STATE if path == disk.first_state else LATER_STATE
    return UNUSED if name.endswith(PREPARED_SUFFIX) else name


def _place(regions: list[Region], content: bytes, begin: int, end: int) -> str:
    """What lies there: frames before all else, and of the rest what comes first."""
    touched = [
        each.structure
        for each in regions
        if each.begin < end and each.end > begin and any(content[max(each.begin, begin) : min(each.end, end)])
    ]
    frames = [each for each in touched if each.startswith("frame ")]
    above = [each for each in frames if each.endswith("above the mark")]
    if frames:
        return FRAMES if not above else FRAMES_ABOVE if len(above) == len(frames) else FRAMES_ON_BOTH_SIDES
    return next((each for each in touched if each not in (UNUSED, ROOM)), UNUSED)


def _is_behind(region: Region) -> bool:
    return region.structure.endswith("above the mark") or region.structure == ROOM


def _any_behind(regions: list[Region], begin: int, end: int) -> bool:
    return any(_is_behind(each) for each in regions if each.begin < end and each.end > begin)
