"""Leases, and which keys go with each. When one expires is not decided here: see ``lease_clock``.

A lease id can be granted, revoked and granted again while the store's revision stays. So each grant has a serial, which
only rises, and an expiry names it.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from itertools import takewhile

from dledger.store.records import hash_of
from dledger.store.refusals import StoreCode, StoreRefused
from dledger.v1 import store_pb2

MIN_TTL_S = 2
"""A shorter one is raised to it."""
MAX_TTL_S = 9_000_000_000
LEASE_ITEM = b"l"


class Lease:
    """``keys`` changes; the rest does not."""

    __slots__ = ("id", "keys", "serial", "ttl_s")

    def __init__(self, lease_id: int, ttl_s: int, serial: int) -> None:
        self.id = lease_id
        self.ttl_s = ttl_s
        self.serial = serial
        self.keys: set[bytes] = set()

    def encode(self) -> bytes:
        """Without the keys: which lease a key goes with is said by the key."""
        message = store_pb2.StoreLease(id=self.id, ttl_s=self.ttl_s, serial=self.serial)
        return message.SerializeToString(deterministic=True)


class Leases:
    """Invariant: a key is in a lease's ``keys`` if and only if its record names that lease."""

    def __init__(self, serial: int = 0) -> None:
        self.serial = serial
        """Of the last grant."""
        self.digest = 0
        """The sum of the hashes of all leases, as they are encoded."""
        self._by_id: dict[int, Lease] = {}
        """In the order of their serials."""

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[Lease]:
        return iter(self._by_id.values())

    def get(self, lease_id: int) -> Lease | None:
        return self._by_id.get(lease_id)

    def granted_since(self, serial: int) -> list[Lease]:
        """Those with a later serial that are left, the last one first."""
        return list(takewhile(lambda each: each.serial > serial, reversed(self._by_id.values())))

    def check(self, lease_id: int) -> None:
        """Raises LEASE_NOT_FOUND unless it is 0 or exists."""
        if lease_id and lease_id not in self._by_id:
            raise StoreRefused(StoreCode.LEASE_NOT_FOUND)

    def grant(self, lease_id: int, ttl_s: int) -> Lease:
        """An id of 0: the store chooses one. Raises LEASE_TTL_TOO_LARGE and LEASE_EXISTS."""
        if ttl_s > MAX_TTL_S:
            raise StoreRefused(StoreCode.LEASE_TTL_TOO_LARGE)
        if lease_id in self._by_id:
            raise StoreRefused(StoreCode.LEASE_EXISTS)
        self.serial += 1
        lease = Lease(lease_id or self._free_id(), max(ttl_s, MIN_TTL_S), self.serial)
        self.add(lease)
        return lease

    def add(self, lease: Lease) -> None:
        self._by_id[lease.id] = lease
        self.digest += hash_of(LEASE_ITEM + lease.encode())

    def remove(self, lease: Lease) -> None:
        del self._by_id[lease.id]
        self.digest -= hash_of(LEASE_ITEM + lease.encode())

    def attach(self, lease_id: int, key: bytes) -> None:
        if lease_id:
            self._by_id[lease_id].keys.add(key)

    def detach(self, lease_id: int, key: bytes) -> None:
        """Does nothing for a lease that does not exist any more."""
        lease = self._by_id.get(lease_id)
        if lease is not None:
            lease.keys.discard(key)

    def _free_id(self) -> int:
        """The same on every node, as it is made of the serial. It is above 0, as all ids that the store chooses."""
        seed = self.serial
        while True:
            data = blake2b(seed.to_bytes(16, "little"), digest_size=8).digest()
            lease_id = int.from_bytes(data, "little") >> 1
            if lease_id and lease_id not in self._by_id:
                return lease_id
            seed += 1 << 64
