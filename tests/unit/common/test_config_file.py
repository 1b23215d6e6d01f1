"""A configuration from outside: what is read, and the sentence for everything that cannot be used."""

from __future__ import annotations

import os
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dledger.common.config import NodeConfig, Timings
from dledger.common.config_checks import validate
from dledger.common.config_file import format_peers, load_config_file, node_config, parse_peers
from dledger.common.errors import ConfigError
from dledger.common.types import Durability

PEERS = {"n0": "127.0.0.1:20911", "n1": "127.0.0.1:20921", "n2": "127.0.0.1:20931"}


def write(path: Path, text: str) -> Path:
    file = path / "node.toml"
    file.write_text(text)
    return file


def config(tmp_path: Path, **settings: object) -> NodeConfig:
    return node_config({"id": "n0", "peers": PEERS, "data": str(tmp_path / "data"), **settings})


def test_a_file_gives_every_setting_its_type(tmp_path: Path) -> None:
    file = write(
        tmp_path,
        'id = "n1"\ndata = "d"\ndurability = "interval"\nhttp_port = 0\n'
        'lease_reads = true\n[peers]\nn0 = "a:1"\nn1 = "b:2"\n[limits]\nmax_record_bytes = 10\n'
        "[timings]\nheartbeat_interval_ms = 50\nmax_clock_drift = 0.1\n",
    )
    made = node_config(load_config_file(file))
    assert (made.id, made.peers, made.data_dir) == ("n1", {"n0": "a:1", "n1": "b:2"}, Path("d"))
    assert (made.durability, made.http_port) == (Durability.INTERVAL, 0)
    assert (made.limits.max_record_bytes, made.timings.heartbeat_interval_ms) == (10, 50)
    assert (made.lease_reads, made.timings.max_clock_drift) == (True, 0.1)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('pears = "n0=a:1"', "unknown key 'pears': did you mean 'peers'?"),
        ("[limits]\nmax_record = 1", "limits has an unknown key 'max_record': did you mean 'max_record_bytes'?"),
        ("zzzzzz = 1", "known are address"),
        ("[timings]\nheartbeat_interval_ms = 1.5", "must be a whole number, not 1.5"),
        ("[timings]\nmax_clock_drift = true", "must be a number, not True"),
        ("[timings]\nmax_clock_drift = nan", "must be a number, not nan"),
        ("grpc_port = true", "must be a whole number, not True"),
        ('lease_reads = "yes"', "must be true or false, not 'yes'"),
        ("id = 3", "must be a string, not 3"),
        ('durability = "often"', "cannot be 'often': choose fsync, interval, none"),
        ('log_format = "xml"', "cannot be 'xml': choose text, json"),
        ("[peers]\nn0 = 7", "must be a table of id"),
        ("id = ", "is not TOML"),
        (f"grpc_port = {'9' * 5_000}", "is not TOML"),
    ],
)
def test_a_file_that_cannot_be_meant_is_refused(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match=r".") as refused:
        load_config_file(write(tmp_path, text))
    assert sentence in str(refused.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        load_config_file(tmp_path / "none.toml")


def test_peers_are_read_as_they_are_written() -> None:
    assert parse_peers("n0=127.0.0.1:20911, n1=127.0.0.1:20921,n2=127.0.0.1:20931") == PEERS
    assert parse_peers(format_peers(PEERS)) == PEERS


@pytest.mark.parametrize("text", ["n0", "=a:1", "n0=a", "n0=a:0", "n0=a:99999", "n0=a:1,n0=b:2"])
def test_peers_that_name_nobody_are_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_peers(text)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"id": "n7"}, "do not list 'n7'"),
        ({"id": ""}, "a node needs 'id'"),
        ({"peers": {}}, "a node needs 'peers'"),
        ({"address": "127.0.0.1:9"}, "give it once"),
        ({"id": "n7", "address": "h"}, "is not an address"),
        ({"id": "n7", "address": PEERS["n1"]}, "share the address"),
        ({"id": "a/b", "peers": {"a/b": "h:1"}}, "is not a node id"),
        ({"group": "my group"}, "is not a group name"),
        ({"advertise": "host"}, "is not an address"),
        ({"advertise": "[::]:7"}, "nobody can be reached there"),
        ({"peers": {"n0": "0.0.0.0:20911"}}, "nobody can be reached there"),
        ({"id": "n7", "address": "0.0.0.0:7"}, "nobody can be reached there"),
        ({"peers": {"n0": "h:1", "n1": "h:1"}}, "share the address h:1"),
        ({"peers": {"n0": "h:100", "n1": "h:101"}}, "gRPC port 101 of n0 is taken by n1"),
        ({"http_port": 20912}, "HTTP port 20912 of n0 is taken by n0 (gRPC)"),
        ({"grpc_port": 0}, "gRPC port 0 is not a port"),
        ({"peers": {"n0": "h:65535"}}, "gRPC port 65536 is not a port"),
    ],
)
def test_a_node_that_cannot_run_is_refused(tmp_path: Path, settings: dict[str, object], sentence: str) -> None:
    with pytest.raises(ConfigError) as refused:
        config(tmp_path, **settings)
    assert sentence in str(refused.value)


@pytest.mark.parametrize("peers", [PEERS, {}])
def test_a_node_that_joins_says_where_it_is_itself(tmp_path: Path, peers: dict[str, str]) -> None:
    joining = config(tmp_path, id="n7", address="127.0.0.1:30911", peers=peers)
    assert joining.peer_address == "127.0.0.1:30911"
    assert joining.client_address == "127.0.0.1:30912"
    assert joining.peers == peers


@pytest.mark.parametrize(
    ("section", "sentence"),
    [
        ("[timings]\nheartbeat_interval_ms = 400", "too seldom"),
        ("[timings]\nelection_timeout_min_ms = 2000", "is above election_timeout_max_ms"),
        ("[timings]\nstop_timeout_ms = 0", "stop_timeout_ms must be above 0"),
        ("[limits]\nmax_record_bytes = 8388608", "a record must fit into a batch"),
        ("[limits]\nmax_batch_bytes = 8388609", "it travels in one message"),
        ("[limits]\nmax_stream_batches = 65", "(65) is above 64"),
        ("[limits]\nread_message_bytes = 8388609", "it travels in one message"),
    ],
)
def test_numbers_that_contradict_each_other_are_refused(tmp_path: Path, section: str, sentence: str) -> None:
    with pytest.raises(ConfigError) as refused:
        config(tmp_path, **load_config_file(write(tmp_path, section)))
    assert sentence in str(refused.value)


def test_a_data_directory_that_is_a_file_is_refused_and_nothing_is_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="is a file"):
        config(tmp_path, data=str(tmp_path / "file" / "n0"))
    config(tmp_path, data=str(tmp_path / "new" / "n0"))
    assert not (tmp_path / "new").exists()


def test_a_data_directory_on_a_read_only_mount_is_refused_by_that_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_flag=os.ST_RDONLY))
    with pytest.raises(ConfigError, match=f"{tmp_path} is mounted read-only"):
        config(tmp_path)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"durability": "fsync"}, "durability is 'fsync': give a dledger.Durability"),
        ({"peers": {"n0": 5}}, "the address of n0 in peers is 5: give host:port"),
        ({"peers": "n0=127.0.0.1:1"}, "peers is 'n0=127.0.0.1:1': give a dict of id to host:port"),
        ({"id": None}, "id is None: give a str"),
        ({"grpc_port": "20912"}, "grpc_port is '20912': give an int"),
        ({"limits": {}}, "limits is {}: give a dledger.Limits"),
        ({"timings": Timings(heartbeat_interval_ms="50")}, "heartbeat_interval_ms is '50': give a number"),  # type: ignore[arg-type]
        ({"data_dir": "data"}, "data_dir is 'data': give a pathlib.Path"),
    ],
)
def test_what_a_program_gives_of_the_wrong_type_is_refused_with_the_right_one(
    tmp_path: Path, settings: dict[str, Any], sentence: str
) -> None:
    given: dict[str, Any] = {"id": "n0", "peers": PEERS, "data_dir": tmp_path / "data", **settings}
    with pytest.raises(ConfigError, match=re.escape(sentence)):
        validate(NodeConfig(**given))
