"""What a ``NodeConfig`` must fulfil before a node starts with it, wherever it came from."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path

from dledger.common.config import (
    MAX_IN_ONE_MESSAGE_BYTES,
    MAX_STREAM_BATCHES,
    NODE_ID,
    Limits,
    NodeConfig,
    Timings,
    check_reachable,
    split_address,
)
from dledger.common.errors import ConfigError, InvalidRequest
from dledger.common.types import Durability, check_group_name

IN_ONE_MESSAGE = ("max_batch_bytes", "push_message_bytes", "read_message_bytes")
"""The limits of what travels in one message."""


def validate(config: NodeConfig) -> None:
    """Raises CONFIG_ERROR unless a node can start with ``config``; looks at the disk, and changes nothing."""
    _check_types(config)
    _check_names(config)
    _check_ports(config)
    check_numbers(config.limits, config.timings)
    _check_data_dir(config.data_dir)


TEXTS = ("id", "address", "group", "listen", "advertise", "cluster_id")


def _check_types(config: NodeConfig) -> None:
    """A program may have given anything."""
    for name in TEXTS:
        _check_type(name, getattr(config, name), str, "a str")
    _check_type("peers", config.peers, Mapping, "a dict of id to host:port")
    for node_id, address in config.peers.items():
        _check_type("an id in peers", node_id, str, "a str")
        _check_type(f"the address of {node_id} in peers", address, str, "host:port")
    for name in ("grpc_port", "http_port"):
        port = getattr(config, name)
        if port is not None and (not isinstance(port, int) or isinstance(port, bool)):
            raise ConfigError(f"{name} is {port!r}: give an int")
    _check_type("durability", config.durability, Durability, "a dledger.Durability")
    _check_type("limits", config.limits, Limits, "a dledger.Limits")
    _check_type("timings", config.timings, Timings, "a dledger.Timings")


def _check_type(name: str, given: object, kind: type, wanted: str) -> None:
    if not isinstance(given, kind):
        raise ConfigError(f"{name} is {given!r}: give {wanted}")


def _check_names(config: NodeConfig) -> None:
    for node_id in (config.id, *config.peers):
        if not NODE_ID.fullmatch(node_id):
            raise ConfigError(f"{node_id!r} is not a node id: use letters, digits, '-', '_' and '.'")
    _check_address(config)
    try:
        check_group_name(config.group)
    except InvalidRequest as why:
        raise ConfigError(str(why)) from None
    for address in filter(None, (*config.peers.values(), config.address, config.advertise)):
        check_reachable(address)


def _check_address(config: NodeConfig) -> None:
    listed = config.peers.get(config.id)
    if listed is None and not config.address:
        raise ConfigError(
            f"the peers {', '.join(config.peers)} do not list {config.id!r}: add this node to them, or give its "
            "--address if it joins"
        )
    if listed is not None and config.address not in ("", listed):
        raise ConfigError(f"{config.id} is at {listed} by the peers and at {config.address} by --address: give it once")


def _check_ports(config: NodeConfig) -> None:
    taken: dict[tuple[str, int], str] = {}
    for node_id, address in {**config.peers, config.id: config.peer_address}.items():
        place = split_address(address)
        if place in taken:
            raise ConfigError(f"{taken[place]} and {node_id} share the address {address}: give each its own port")
        taken[place] = node_id
    host = split_address(config.peer_address)[0]
    for name, port, lowest in (("gRPC", config.client_port, 1), ("HTTP", config.metrics_port, 0)):
        if not lowest <= port < 65536:
            raise ConfigError(f"the {name} port {port} is not a port: choose one from {lowest} to 65535")
        if port and (owner := taken.get((host, port))):
            raise ConfigError(f"the {name} port {port} of {config.id} is taken by {owner}: leave three ports a node")
        taken[host, port] = f"{config.id} ({name})"


def check_numbers(limits: Limits, timings: Timings) -> None:
    """Raises CONFIG_ERROR unless they fit each other."""
    for section in (limits, timings):
        for field in fields(section):
            number = getattr(section, field.name)
            if isinstance(number, bool) or not isinstance(number, int | float):
                raise ConfigError(f"{field.name} is {number!r}: give a number")
            if number <= 0:
                raise ConfigError(f"{field.name} must be above 0, not {number}")
    if limits.max_record_bytes > limits.max_batch_bytes:
        raise ConfigError(
            f"max_record_bytes ({limits.max_record_bytes}) is above max_batch_bytes ({limits.max_batch_bytes})"
            ": a record must fit into a batch"
        )
    if limits.max_stream_batches > MAX_STREAM_BATCHES:
        raise ConfigError(
            f"max_stream_batches ({limits.max_stream_batches}) is above {MAX_STREAM_BATCHES}: the log knows no more of "
            "a producer's last batches"
        )
    for name in IN_ONE_MESSAGE:
        if getattr(limits, name) > MAX_IN_ONE_MESSAGE_BYTES:
            raise ConfigError(
                f"{name} ({getattr(limits, name)}) is above {MAX_IN_ONE_MESSAGE_BYTES}: it travels in one message"
            )
    if timings.max_clock_drift >= 1:
        raise ConfigError(
            f"max_clock_drift ({timings.max_clock_drift}) must be below 1: it is a part of a clock's rate"
        )
    if timings.heartbeat_interval_ms * 2 > timings.election_timeout_min_ms:
        raise ConfigError(
            f"a heartbeat every {timings.heartbeat_interval_ms} ms is too seldom for an election timeout of "
            f"{timings.election_timeout_min_ms} ms: leave room for two"
        )
    if timings.election_timeout_min_ms > timings.election_timeout_max_ms:
        raise ConfigError(
            f"election_timeout_min_ms ({timings.election_timeout_min_ms}) is above election_timeout_max_ms "
            f"({timings.election_timeout_max_ms})"
        )


def _check_data_dir(data_dir: object) -> None:
    """The data directory, or the nearest existing directory above it, is a directory in which this process may
    write."""
    if not isinstance(data_dir, Path):
        raise ConfigError(f"data_dir is {data_dir!r}: give a pathlib.Path")
    place = data_dir.absolute()
    while not place.exists() and place != place.parent:
        place = place.parent
    if not place.is_dir():
        raise ConfigError(f"the data directory {data_dir} cannot be made: {place} is a file")
    if os.statvfs(place).f_flag & os.ST_RDONLY:
        raise ConfigError(f"the data directory {data_dir} cannot be written: {place} is mounted read-only")
    if not os.access(place, os.R_OK | os.W_OK | os.X_OK):
        raise ConfigError(f"the data directory {data_dir} cannot be written: check the rights of {place}")
