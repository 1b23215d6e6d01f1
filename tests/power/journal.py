"""The client's own journal: what it was told, durable before it counts, on a disk that keeps its power."""

from __future__ import annotations

import os
from hashlib import blake2b
from itertools import pairwise
from pathlib import Path
from struct import Struct
from typing import NamedTuple

from dledger.common.types import Ack

_ACK = Struct("<QQ")
_NUMBER_BYTES = 8
_LARGE_REPEATS = 12_000
LARGE_EVERY = 1 << 20
"""Numbers that are a multiple of this belong to large records."""


def value_of(number: int) -> bytes:
    """The record with this number, unlike any other: some bytes, or for a few of them most of a MiB."""
    head = number.to_bytes(_NUMBER_BYTES, "big")
    digest = blake2b(head).digest()
    return (head + digest * _LARGE_REPEATS) if number % LARGE_EVERY == 0 else (head + digest).ljust(100, b".")


class Findings(NamedTuple):
    """What one node's log gets wrong."""

    lost: int = 0
    """Acknowledged, and not at the index that was acknowledged."""
    doubled: int = 0
    out_of_order: int = 0
    foreign: int = 0
    """Never appended, refused, or with other bytes."""

    @property
    def clean(self) -> bool:
        return not any(self)


class AckJournal:
    """One client's. Numbers are handed out in order; a record is known by its number."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600)
        self._path = path
        self.next_number = 1
        self.acknowledged = 0
        self.unknown: set[int] = set()

    def take(self, count: int) -> range:
        """The next numbers to append."""
        first = self.next_number
        self.next_number = first + count
        return range(first, first + count)

    def take_large(self) -> range:
        """The next number that is a large record's."""
        first = self.next_number + -self.next_number % LARGE_EVERY
        self.next_number = first + 1
        return range(first, first + 1)

    def write(self, acks: list[tuple[int, Ack]]) -> None:
        """They count once this has returned. Blocks for the disk."""
        os.write(self._file, b"".join(_ACK.pack(number, ack.index) for number, ack in acks))
        os.fdatasync(self._file)
        self.acknowledged += len(acks)

    def close(self) -> None:
        os.close(self._file)

    def read(self) -> list[tuple[int, int]]:
        """(number, index) of all that was acknowledged, by number."""
        return sorted(_ACK.iter_unpack(self._path.read_bytes()))

    def judge(self, records: list[bytes]) -> Findings:
        """Holds a node's log against the journal."""
        acked = self.read()
        numbers = [int.from_bytes(record[:_NUMBER_BYTES], "big") for record in records]
        lost = sum(not (index < len(records) and numbers[index] == number) for number, index in acked)
        allowed = {number for number, _ in acked} | self.unknown
        foreign = sum(
            number not in allowed or record != value_of(number) for number, record in zip(numbers, records, strict=True)
        )
        out_of_order = sum(later < earlier for earlier, later in pairwise(numbers))
        out_of_order += sum(later <= earlier for (_, earlier), (_, later) in pairwise(acked))
        return Findings(lost, len(numbers) - len(set(numbers)), out_of_order, foreign)
