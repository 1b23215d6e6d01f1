"""A key-value pair as of one change, as it lies in memory and in checkpoints: one ``bytes`` object.

A million of these are a million objects that hold no others, so Python's garbage collector passes over them. A deletion
is a record too: a tombstone, of version 0.

::

    create_revision, mod_revision, version, lease: 4 × int64 · sub, key length: 2 × uint32 · key · value

``sub`` is its place among the changes of its revision, from 0.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from struct import Struct
from typing import TYPE_CHECKING

from dledger.etcdpb import kv_pb2 as kvpb

if TYPE_CHECKING:
    from google.protobuf.internal.containers import RepeatedCompositeFieldContainer

Record = bytes

_HEADER = Struct("<qqqqII")
_HEADER_BYTES = _HEADER.size
pack_head = _HEADER.pack
"""Takes create_revision, mod_revision, version, lease, sub and the key's length; key and value follow."""
_MOD = Struct("<8xq")
_VERSION = Struct("<16xq")
_LEASE = Struct("<24xq")
_KEY_LENGTH = Struct("<36xI")

DIGEST_BYTES = 16
_DIGEST_MASK = (1 << 8 * DIGEST_BYTES) - 1


def tombstone(key: bytes, mod: int, sub: int) -> Record:
    return _HEADER.pack(0, mod, 0, 0, sub, len(key)) + key


def unpack(of: Record) -> tuple[int, int, int, int, int, int]:
    """create_revision, mod_revision, version, lease, sub, length of the key."""
    return _HEADER.unpack_from(of)


def mod_of(of: Record) -> int:
    mod: int = _MOD.unpack_from(of)[0]
    return mod


def lease_of(of: Record) -> int:
    """0: none."""
    lease: int = _LEASE.unpack_from(of)[0]
    return lease


def is_tombstone(of: Record) -> bool:
    version: int = _VERSION.unpack_from(of)[0]
    return not version


def key_of(of: Record) -> bytes:
    return of[_HEADER_BYTES : _HEADER_BYTES + _KEY_LENGTH.unpack_from(of)[0]]


def value_of(of: Record) -> bytes:
    return of[_HEADER_BYTES + _KEY_LENGTH.unpack_from(of)[0] :]


def pair_of(of: Record) -> kvpb.KeyValue:
    """Of a tombstone: the key and the revision of the deletion."""
    pair = kvpb.KeyValue()
    _fill(pair, of)
    return pair


def add_pairs(
    pairs: RepeatedCompositeFieldContainer[kvpb.KeyValue],
    records: Iterable[Record],
    *,
    keys_only: bool,
    has_lease: bool,
) -> None:
    """To a field of a message. ``keys_only``: without values, and with leases only where it ``has_lease``."""
    add = pairs.add
    for each in records:
        pair = add()
        _fill(pair, each)
        if keys_only:
            pair.ClearField("value")
            if not has_lease:
                pair.ClearField("lease")


def _fill(pair: kvpb.KeyValue, of: Record) -> None:
    create, pair.mod_revision, version, lease, _, key_length = _HEADER.unpack_from(of)
    value_at = _HEADER_BYTES + key_length
    pair.key = of[_HEADER_BYTES:value_at]
    if version:
        pair.value = of[value_at:]
        pair.create_revision = create
        pair.version = version
    if lease:
        pair.lease = lease


# Digests: of a set of items, the sum of their hashes. So a change of the set changes the digest in constant time, and
# two sets that were come to in different ways have the same digest.


def hash_of(item: bytes | memoryview) -> int:
    return int.from_bytes(blake2b(item, digest_size=DIGEST_BYTES).digest(), "little")


def digest_bytes(total: int) -> bytes:
    """Of a sum of hashes, which may be negative."""
    return (total & _DIGEST_MASK).to_bytes(DIGEST_BYTES, "little")
