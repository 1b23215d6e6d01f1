"""A value as the bytes of a record, and back: 8 bytes of number, then a filler that depends on it.

::

    value, big-endian (8) | its low byte, as often as the record is long
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dledger.common.batch import Buffer
from dledger.kernels.history import Column

VALUE_BYTES = 8
FOREIGN = -2
"""Stands for a record that nobody appended: an unexpected value."""


def record_of(value: int, size_bytes: int) -> bytes:
    """The record of ``value``; ``size_bytes`` is at least ``VALUE_BYTES``."""
    head = value.to_bytes(VALUE_BYTES, "big")
    return head + head[-1:] * (size_bytes - VALUE_BYTES)


def records_of(first_value: int, count: int, size_bytes: int) -> Sequence[bytes]:
    """The records of consecutive values."""
    return [record_of(value, size_bytes) for value in range(first_value, first_value + count)]


def values_in(body: Buffer, count: int, size_bytes: int) -> Column:
    """The values of a batch's body (drawn in common.batch); FOREIGN where the bytes are not what was appended."""
    offsets = np.frombuffer(body, "<i4", count + 1)
    data = np.frombuffer(body, np.uint8, offset=4 * (count + 1))
    if len(data) != count * size_bytes or not (np.diff(offsets) == size_bytes).all():
        return np.full(count, FOREIGN, dtype=np.int64)
    rows = data.reshape(count, size_bytes)
    values = rows[:, :VALUE_BYTES].copy().view(">i8").reshape(count).astype(np.int64)
    intact = (rows[:, VALUE_BYTES:] == rows[:, VALUE_BYTES - 1 : VALUE_BYTES]).all(axis=1)
    return np.where(intact, values, FOREIGN)


def value_in(record: Buffer, size_bytes: int) -> int:
    """The value of one record; FOREIGN when the bytes are not what was appended."""
    value = int.from_bytes(record[:VALUE_BYTES], "big")
    return value if len(record) == size_bytes and record == record_of(value, size_bytes) else FOREIGN


def runs_in(values: Column) -> tuple[Column, Column]:
    """Where runs of consecutive values begin, and how long each is."""
    begins = np.flatnonzero(np.append(True, np.diff(values) != 1)) if len(values) else np.empty(0, dtype=np.int64)
    return begins, np.diff(np.append(begins, len(values)))
