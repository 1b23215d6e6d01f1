"""What memory does not hold waits in files, comes back as it was, and leaves nothing behind."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pyarrow as pa
import pytest

from dledger.common.errors import ConfigError
from dledger.kernels.spill import Spill


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def numbers(*values: int) -> pa.Table:
    return pa.table({"n": pa.array(values, pa.int64())})


@pytest.mark.parametrize("limit_bytes", [0, 30, 1_000_000])
def test_what_was_added_is_taken_whatever_was_written(limit_bytes: int) -> None:
    with Spill(limit_bytes) as spill:
        for n in range(10):
            spill.add("even" if n % 2 == 0 else "odd", numbers(n, n + 100))
        assert spill.keys == ["even", "odd"]
        even = pa.concat_tables(spill.take("even")).column("n").to_pylist()
        assert sorted(even) == [0, 2, 4, 6, 8, 100, 102, 104, 106, 108]
        assert spill.keys == ["odd"]


def test_what_fits_is_never_written(scratch: Path) -> None:
    with Spill() as spill:
        spill.add("a", numbers(1))
        assert not list(scratch.iterdir())


def test_a_disk_that_is_full_is_named_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/dev/full")  # nothing can be made in there
    with Spill(0) as spill, pytest.raises(ConfigError, match=r"/dev/full cannot take .* point TMPDIR at a larger disk"):
        spill.add("a", numbers(1))


def test_the_files_go_with_it(scratch: Path) -> None:
    with Spill(0) as spill:
        spill.add("a", numbers(1))
        assert list(scratch.iterdir())
    assert not list(scratch.iterdir())
