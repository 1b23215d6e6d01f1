"""Whether a node's log is the input: nothing lost, nothing twice, everything in order."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterable, Sequence
from itertools import chain
from struct import Struct
from typing import NamedTuple

_LENGTH = Struct("<I").pack
_IDENTITY_BYTES = 8


class Verdict(NamedTuple):
    """``lost``: input lines that are not at the index in their ack. ``duplicated``: records that no ack accounts for.

    ``out_of_order``: lines with an ack that did not come behind the ack of the line before.
    """

    lost: int = 0
    duplicated: int = 0
    out_of_order: int = 0

    @property
    def clean(self) -> bool:
        return not any(self)


class Fingerprint:
    """SHA-256 over each record's length (u32, little-endian) and bytes, and how many there were."""

    def __init__(self) -> None:
        self._digest = hashlib.sha256()
        self.count = 0

    def add(self, records: Sequence[bytes]) -> None:
        """The next records."""
        self.count += len(records)
        self._digest.update(b"".join(chain.from_iterable(zip(map(_LENGTH, map(len, records)), records, strict=True))))

    @property
    def value(self) -> str:
        return self._digest.hexdigest()

    def same_as(self, other: Fingerprint) -> bool:
        """Equal records, in the same order."""
        return (self.count, self.value) == (other.count, other.value)


def dense(indexes: array[int]) -> bool:
    """Whether the acks are 0, 1, 2 … : then a log with the input's fingerprint is the input."""
    return indexes == array("q", range(len(indexes)))


def compare(lines: Iterable[Sequence[bytes]], acked: array[int], records: Iterable[Sequence[bytes]]) -> Verdict:
    """Takes a log apart that did not match. ``acked`` holds the index that each line's ack gave, in order of lines."""
    held = [_identity(record) for part in records for record in part]
    lost = 0
    for index, line in zip(acked, chain.from_iterable(lines), strict=True):
        lost += not (0 <= index < len(held) and held[index] == _identity(line))
    duplicated = len(held) - len({index for index in acked if 0 <= index < len(held)})
    out_of_order = sum(acked[i] <= acked[i - 1] for i in range(1, len(acked)))
    return Verdict(lost, duplicated, out_of_order)


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """The largest number of each, over all nodes."""
    return Verdict(*(max(column) for column in zip(*verdicts, strict=True)))


def _identity(record: bytes) -> bytes:
    return hashlib.blake2b(record, digest_size=_IDENTITY_BYTES).digest()
