"""A copy of the store, and its keys in another one."""

from __future__ import annotations

from pathlib import Path

import pytest

from dledger.cli.kv_backup import TXN_BYTES, TXN_KEYS, parts_of
from dledger.client.store import KeyValue
from tests.etcd.servers import ours
from tests.unit.cli.conftest import Kv, Run


@pytest.fixture
def copy(kv: Kv, tmp_path: Path) -> Path:
    """Of a store with a key of a lease, an overwritten one, and one that is no text."""
    lease = kv("lease-grant", "60", "-o", "json").last_json["lease"]
    kv("put", "a", "-", stdin=b"\xff\0")
    kv("put", "b", "1")
    kv("put", "b", "2", "--lease", lease)
    kv("put", "c", "gone")
    kv("del", "c")
    file = tmp_path / "copy"
    outcome = kv("backup", str(file))
    assert outcome.code == 0
    assert outcome.out.decode() == f"backup file={file} size_bytes={file.stat().st_size}\n"
    assert [each.name for each in tmp_path.iterdir()] == ["copy"]
    return file


def test_a_copy_is_restored_into_an_empty_store(dledger: Run, kv: Kv, copy: Path) -> None:
    with ours() as other:
        there = "--endpoints", other
        outcome = dledger("kv", "restore", str(copy), *there)
        assert (outcome.code, outcome.err) == (0, "")
        assert outcome.out == b"restored keys=2 leases=1 revision=2\n"
        assert dledger("kv", "get", "a", *there).out == b"\xff\0"
        assert dledger("kv", "get", "c", *there).code == 1
        told = dledger("kv", "get", "b", "-o", "json", *there).last_json
        assert (told["value"], told["lease"]) == ("2", kv("get", "b", "-o", "json").last_json["lease"])
        again = dledger("kv", "restore", str(copy), *there)
        assert (again.code, again.err.count("\n")) == (5, 1)
        assert "has keys already" in again.err


def test_a_file_that_exists_is_left_alone(kv: Kv, copy: Path) -> None:
    before = copy.read_bytes()
    outcome = kv("backup", str(copy))
    assert (outcome.code, copy.read_bytes()) == (2, before)


@pytest.mark.parametrize("damage", [b"", b"no copy", b"x"])
def test_a_file_that_is_no_whole_copy_is_refused(kv: Kv, copy: Path, damage: bytes) -> None:
    copy.write_bytes(copy.read_bytes()[:-1] + damage if damage == b"x" else damage)
    outcome = kv("restore", str(copy))
    assert (outcome.code, outcome.err.count("\n")) == (2, 1)
    assert "is no copy of a store" in outcome.err


def test_a_backup_that_nobody_serves_leaves_no_file(dledger: Run, tmp_path: Path) -> None:
    outcome = dledger("kv", "backup", str(tmp_path / "copy"), "--endpoints", "127.0.0.1:1", "--timeout", "0.2")
    assert outcome.code == 3
    assert not list(tmp_path.iterdir())


def test_pieces_fit_a_transaction() -> None:
    small = [KeyValue(b"%d" % number, b"", 1, 1, 1) for number in range(300)]
    assert [len(part) for part in parts_of(small)] == [TXN_KEYS, TXN_KEYS, 300 - 2 * TXN_KEYS]
    large = [KeyValue(b"a", bytes(TXN_BYTES), 1, 1, 1)] * 3
    assert [len(part) for part in parts_of(large)] == [1, 1, 1]
    assert list(parts_of([])) == []
