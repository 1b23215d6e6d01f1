"""``dledger config``: each setting with its source, and whether a node would start with a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.cli.conftest import Run

WHOLE = """
id = "n0"
data = "{data}"
[peers]
n0 = "127.0.0.1:20911"
[limits]
max_record_bytes = 2097152
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "dledger.toml"
    path.write_text(WHOLE.format(data=tmp_path))
    return path


def test_every_setting_says_where_it_comes_from(dledger: Run, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DLEDGER_LOG_LEVEL", "warning")
    shown = dledger("config", "show", "--config", str(file), "--http-port", "0", "-o", "json").last_json
    assert shown["limits.max_record_bytes"] == {"value": 2097152, "source": str(file)}
    assert shown["limits.max_batch_bytes"] == {"value": 4194304, "source": "default"}
    assert shown["log_level"] == {"value": "warning", "source": "DLEDGER_LOG_LEVEL"}
    assert shown["http_port"] == {"value": 0, "source": "--http-port"}
    assert shown["grpc_port"] == {"value": 20912, "source": "default"}


def test_a_flag_wins_over_the_file(dledger: Run, file: Path) -> None:
    shown = dledger("config", "show", "--config", str(file), "--id", "n7", "-o", "json").last_json
    assert shown["id"] == {"value": "n7", "source": "--id"}


def test_what_is_not_known_is_shown_as_nothing(dledger: Run) -> None:
    rows = dledger("config", "show").out.decode().splitlines()
    assert [row.split() for row in rows if row.startswith("id ")] == [["id", "-", "default"]]


def test_a_good_file_is_ok(dledger: Run, file: Path) -> None:
    assert dledger("config", "check", str(file)).out == f"ok file={file} missing=-\n".encode()


def test_what_is_left_to_flags_is_named(dledger: Run, tmp_path: Path) -> None:
    path = tmp_path / "part.toml"
    path.write_text('cluster_id = "c"\n')
    assert dledger("config", "check", str(path), "-o", "json").last_json["missing"] == ["id", "peers", "data"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[limits]\nmax_recrd_bytes = 1\n", "did you mean 'max_record_bytes'?"),
        ("[timings]\nheartbeat_interval_ms = 400\n", "leave room for two"),
        ("id = 5\n", "must be a string"),
    ],
)
def test_a_bad_file_is_refused_with_the_reason(dledger: Run, tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(text)
    outcome = dledger("config", "check", str(path))
    assert (outcome.code, outcome.out) == (2, b"")
    assert why in outcome.err
