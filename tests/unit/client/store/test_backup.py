"""A copy of the store, as bytes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pytest

from dledger.client.store import Store
from dledger.common.errors import CorruptLog, Unavailable
from dledger.server.etcd import maintenance_service
from dledger.server.etcd.backup import backup_blobs, backup_parts
from tests.support.store_nodes import StoreNodes


async def test_a_copy_has_all_of_the_store(store: Store) -> None:
    for number in range(20):
        await store.put(f"k{number}", "x" * 100_000)
    copy = b"".join([blob async for blob in store.backup()])
    assert b"".join(backup_parts(copy)).count(b"x" * 100_000) == 20


async def test_a_copy_whose_bytes_changed_on_the_way_is_told(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def rotten(parts: Iterable[bytes]) -> Iterator[bytes]:
        *all_but_last, last = backup_blobs(parts)
        yield from all_but_last
        yield last[:-1] + bytes([last[-1] ^ 1])

    monkeypatch.setattr(maintenance_service, "backup_blobs", rotten)
    with pytest.raises(CorruptLog, match="make another"):
        _ = [blob async for blob in store.backup()]


async def test_a_copy_goes_to_a_node_that_is_there(store: Store, nodes: StoreNodes) -> None:
    for node in nodes.nodes:
        await node.kill()
        assert [blob async for blob in store.backup()]
        await node.start()


async def test_a_copy_that_nobody_makes_is_unavailable(store: Store, nodes: StoreNodes) -> None:
    await nodes.stop()
    with pytest.raises(Unavailable):
        await anext(store.backup(timeout_ms=200))
