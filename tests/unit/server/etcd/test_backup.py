"""A backup gives its parts back, or says that it is none."""

from __future__ import annotations

import pytest

from dledger.server.etcd.backup import BadBackup, backup_blobs, backup_parts

PARTS = [b"one", b"x" * 700, b"\x00\x00\x00\x00"]


def test_the_parts_come_back() -> None:
    assert backup_parts(b"".join(backup_blobs(PARTS))) == PARTS


@pytest.mark.parametrize("parts", [[], [b"a"], [b"a" * 484], [b"a" * 485], PARTS])
def test_etcds_clients_find_the_digest_behind_a_multiple_of_512(parts: list[bytes]) -> None:
    assert len(b"".join(backup_blobs(parts))) % 512 == 32


@pytest.mark.parametrize("place", [0, 30, 500, -1])
def test_a_byte_that_is_another_is_found(place: int) -> None:
    data = bytearray(b"".join(backup_blobs(PARTS)))
    data[place] ^= 1
    with pytest.raises(BadBackup):
        backup_parts(bytes(data))


@pytest.mark.parametrize("length", [0, 10, 40, 600])
def test_one_that_was_cut_off_is_found(length: int) -> None:
    with pytest.raises(BadBackup):
        backup_parts(b"".join(backup_blobs(PARTS))[:length])
