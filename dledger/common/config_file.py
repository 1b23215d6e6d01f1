"""A node's configuration from outside: a TOML file and flags become one ``NodeConfig``, checked before anything starts.

The file's keys are the long flags of ``dledger serve`` with underscores, and two tables with the fields of ``Limits``
and ``Timings``::

    id = "n0"
    data = "/var/lib/dledger"
    durability = "fsync"

    [peers]                         # or one string: "n0=10.0.0.1:20911,n1=10.0.0.2:20911"
    n0 = "10.0.0.1:20911"
    n1 = "10.0.0.2:20911"

    [limits]
    max_record_bytes = 1048576

    [timings]
    heartbeat_interval_ms = 125

Everything here raises CONFIG_ERROR with one sentence.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import fields
from difflib import get_close_matches
from math import isfinite
from pathlib import Path
from typing import Any, TypeVar

from dledger.common.config import Limits, NodeConfig, Timings, split_address
from dledger.common.config_checks import validate
from dledger.common.errors import ConfigError
from dledger.common.types import Durability

TEXT_KEYS = ("id", "address", "join", "listen", "advertise", "cluster_id", "log_format", "log_level")
PORT_KEYS = ("grpc_port", "http_port")
SWITCH_KEYS = ("lease_reads",)
KEYS = (*TEXT_KEYS, *PORT_KEYS, *SWITCH_KEYS, "peers", "data", "durability", "limits", "timings")
CHOICES = {
    "durability": tuple(durability.value for durability in Durability),
    "log_format": ("text", "json"),
    "log_level": ("debug", "info", "warning", "error"),
}
Section = TypeVar("Section", Limits, Timings)


def load_config_file(path: Path) -> dict[str, Any]:
    """The settings of a TOML file, by the keys above, each of its right type; absent keys are absent."""
    table = _table(path)
    _refuse_unknown(table, KEYS, str(path))
    return {key: _setting(key, value, f"{path}: {key}") for key, value in table.items()}


def keys_in_file(path: Path) -> set[str]:
    """The keys that a file sets, those of its two tables as ``limits.max_record_bytes``."""
    found = set()
    for key, value in _table(path).items():
        found |= {f"{key}.{inner}" for inner in value} if key in ("limits", "timings") else {key}
    return found


def missing_keys(settings: Mapping[str, Any]) -> list[str]:
    """What a node needs and ``settings`` leave out. One with an address of its own joins, and needs no peers."""
    needed = ("id", "data") if settings.get("address") else ("id", "peers", "data")
    return [key for key in needed if not settings.get(key)]


def node_config(settings: Mapping[str, Any]) -> NodeConfig:
    """The configuration that ``settings`` (of a file, overlaid by flags) describe, validated."""
    for key in missing_keys(settings):
        instead = "; a node that joins a cluster has --join and --address instead" if key == "peers" else ""
        raise ConfigError(f"a node needs {key!r}: give --{key}, DLEDGER_{key.upper()} or {key} in --config{instead}")
    known = {field.name for field in fields(NodeConfig)}
    chosen = {key: value for key, value in settings.items() if key in known and value is not None}
    config = NodeConfig(data_dir=Path(settings["data"]), **{"peers": {}, **chosen})
    validate(config)
    return config


def parse_peers(text: str) -> dict[str, str]:
    """``n0=host:port,n1=host:port`` as id → address, in the order given."""
    peers: dict[str, str] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        node_id, separator, address = part.partition("=")
        if not separator or not node_id:
            raise ConfigError(f"{part!r} does not name a peer: write id=host:port, separated by commas")
        if node_id in peers:
            raise ConfigError(f"the peers name {node_id!r} twice: give every node an id of its own")
        split_address(address)
        peers[node_id] = address
    return peers


def format_peers(peers: Mapping[str, str]) -> str:
    """What ``parse_peers`` reads."""
    return ",".join(f"{node_id}={address}" for node_id, address in peers.items())


def _table(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as failure:
        raise ConfigError(f"the configuration {path} cannot be read: {failure.strerror}") from None
    except ValueError as failure:  # not UTF-8, not TOML, or a number of thousands of digits, which Python does not read
        raise ConfigError(f"the configuration {path} is not TOML: {failure}") from None


def _refuse_unknown(table: Mapping[str, Any], known: Iterable[str], where: str) -> None:
    names = sorted(known)
    for key in table:
        if key not in names:
            near = get_close_matches(key, names, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(names)}"
            raise ConfigError(f"{where} has an unknown key {key!r}: {hint}")


def _setting(key: str, value: Any, where: str) -> Any:
    """One key of the file as the type it has in ``NodeConfig``."""
    if key == "peers":
        return _peers(value, where)
    if key == "limits":
        return _section(Limits, value, where)
    if key == "timings":
        return _section(Timings, value, where)
    if key in PORT_KEYS:
        return _whole_number(value, where)
    if key in SWITCH_KEYS:
        if not isinstance(value, bool):
            raise ConfigError(f"{where} must be true or false, not {value!r}")
        return value
    if not isinstance(value, str):
        raise ConfigError(f"{where} must be a string, not {value!r}")
    if key in CHOICES and value not in CHOICES[key]:
        raise ConfigError(f"{where} cannot be {value!r}: choose {', '.join(CHOICES[key])}")
    return Durability(value) if key == "durability" else value


def _peers(value: Any, where: str) -> dict[str, str]:
    if isinstance(value, str):
        return parse_peers(value)
    if not isinstance(value, dict) or not all(isinstance(address, str) for address in value.values()):
        raise ConfigError(f'{where} must be a table of id = "host:port"')
    for address in value.values():
        split_address(address)
    return dict(value)


def _section(kind: type[Section], value: Any, where: str) -> Section:
    if not isinstance(value, dict):
        raise ConfigError(f"{where} must be a table")
    _refuse_unknown(value, (field.name for field in fields(kind)), where)
    defaults, chosen = kind(), dict[str, Any]()
    for key, number in value.items():
        read = _number if isinstance(getattr(defaults, key), float) else _whole_number
        chosen[key] = read(number, f"{where}.{key}")
    return kind(**chosen)


def _number(value: Any, where: str) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not isfinite(value):
        raise ConfigError(f"{where} must be a number, not {value!r}")
    return float(value)


def _whole_number(value: Any, where: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise ConfigError(f"{where} must be a whole number, not {value!r}")
    return value
