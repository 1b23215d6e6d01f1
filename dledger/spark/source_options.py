"""The options of readers and writers, by Kafka's names if it has one. Every refusal is one sentence.

Spark hands options over as strings, in lower case or as they were written: names are compared without case.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from dledger.client.client_options import parse_endpoints
from dledger.common.errors import ConfigError
from dledger.common.times import EXAMPLE, iso_ms
from dledger.common.types import DEFAULT_GROUP
from dledger.spark.columns import DEFAULT_COLUMNS, parse_columns

EARLIEST, LATEST = "earliest", "latest"
KAFKA_LATEST, KAFKA_EARLIEST = -1, -2
DEFAULT_TIMEOUT_MS = 30_000

READ_OPTIONS = (
    "dledger.endpoints",
    "endpoints",
    "group",
    "clusterId",
    "path",
    "columns",
    "readFrom",
    "startingOffsets",
    "endingOffsets",
    "startingTimestamp",
    "endingTimestamp",
    "failOnDataLoss",
    "minPartitions",
    "maxOffsetsPerTrigger",
    "maxBytesPerTrigger",
    "pushFilters",
    "timeoutMs",
)
WRITE_OPTIONS = ("dledger.endpoints", "endpoints", "group", "clusterId", "txnAppId", "txnVersion", "timeoutMs")
MAX_APP_ID_BYTES = 240
"""The log gives a producer's name 255: what is added is ``spark/`` and a partition's number."""
MAX_VERSION = (1 << 32) - 1
"""An epoch of the log."""
SPARKS_OWN = frozenset(
    {"checkpointlocation", "queryname", "owner", "provider", "location", "external", "comment", "collation"}
)
"""Options of a writeStream, and properties of a table, that Spark hands on to every source and sink."""
OF_A_TABLE = "option."
"""The OPTIONS of a table come under this prefix, and some of them a second time without it. All else is a property of
the table then, Spark's or the user's."""

OF_NO_TABLE = (
    ". Spark does not hand on the OPTIONS of a table that it keeps: write SELECT … FROM table "
    "WITH ('dledger.endpoints' = '…'), or CREATE TEMPORARY VIEW … USING dledger OPTIONS (…)"
)


@dataclass(frozen=True, slots=True)
class Place:
    """Where the log is: a cluster, or a copy of one node's files."""

    endpoints: tuple[str, ...] = ()
    group: str = DEFAULT_GROUP
    path: str = ""
    read_from: str = "leader"
    """leader, any, or a node's id or address."""
    timeout_ms: int = DEFAULT_TIMEOUT_MS
    cluster_id: str = ""
    """The only cluster that is meant; empty: the one of the endpoints."""

    @property
    def name(self) -> str:
        """For messages and progress."""
        return self.path or f"{','.join(self.endpoints)}/{self.group}"


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """A source's options, checked."""

    place: Place
    columns: tuple[str, ...] = DEFAULT_COLUMNS
    starting: int | str = EARLIEST
    """An index, earliest or latest."""
    ending: int | str = LATEST
    """An index (exclusive) or latest."""
    starting_timestamp_ms: int | None = None
    ending_timestamp_ms: int | None = None
    fail_on_data_loss: bool = True
    min_partitions: int = 0
    max_offsets_per_trigger: int = 0
    """0: all there are."""
    max_bytes_per_trigger: int = 0
    push_filters: bool = False

    @classmethod
    def parse(cls, given: Mapping[str, str], *, streaming: bool = False) -> ReadOptions:
        """Raises CONFIG_ERROR."""
        options = _Given(given, READ_OPTIONS)
        place = _place(options)
        if options.has("startingOffsets") and options.has("startingTimestamp"):
            raise ConfigError("startingOffsets and startingTimestamp are both given: leave one out")
        if options.has("endingOffsets") and options.has("endingTimestamp"):
            raise ConfigError("endingOffsets and endingTimestamp are both given: leave one out")
        if streaming and (options.has("endingOffsets") or options.has("endingTimestamp")):
            raise ConfigError("a stream has no end: leave endingOffsets and endingTimestamp out, or use read")
        starting = options.offset("startingOffsets", LATEST if streaming else EARLIEST, place.group)
        ending = options.offset("endingOffsets", LATEST, place.group)
        if starting == LATEST and not streaming:
            raise ConfigError("startingOffsets is latest: a batch read from there would be empty; name an index")
        if ending == EARLIEST:
            raise ConfigError("endingOffsets is earliest: a read to there would be empty; name an index, or latest")
        starting_ms, ending_ms = (
            options.optional_time_ms("startingTimestamp"),
            options.optional_time_ms("endingTimestamp"),
        )
        _check_order("Offsets", starting, ending)
        _check_order("Timestamp", starting_ms, ending_ms)
        return cls(
            place,
            columns=parse_columns(options.text("columns", ",".join(DEFAULT_COLUMNS))),
            starting=starting,
            ending=ending,
            starting_timestamp_ms=starting_ms,
            ending_timestamp_ms=ending_ms,
            fail_on_data_loss=options.boolean("failOnDataLoss", default=True),
            min_partitions=options.number("minPartitions", 0),
            max_offsets_per_trigger=options.number("maxOffsetsPerTrigger", 0),
            max_bytes_per_trigger=options.number("maxBytesPerTrigger", 0),
            push_filters=options.boolean("pushFilters", default=False),
        )


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """A sink's options, checked."""

    place: Place
    app_id: str = ""
    """``txnAppId``: under which name a batch write is found again when it is run again."""
    version: int = field(default=0)
    """``txnVersion``: which run of it this is."""

    @classmethod
    def parse(cls, given: Mapping[str, str], *, streaming: bool = False) -> WriteOptions:
        """Raises CONFIG_ERROR."""
        options = _Given(given, WRITE_OPTIONS)
        if streaming and (options.has("txnAppId") or options.has("txnVersion")):
            raise ConfigError("a stream writes under its query's id: leave txnAppId and txnVersion out, or use write")
        if options.has("txnAppId") != options.has("txnVersion"):
            raise ConfigError("txnAppId and txnVersion belong together: give both, or none of them")
        app_id, version = options.text("txnAppId", ""), options.number("txnVersion", 0)
        if options.has("txnAppId") and not 1 <= len(app_id.encode()) <= MAX_APP_ID_BYTES:
            raise ConfigError(f"txnAppId has {len(app_id.encode())} bytes: give a name of 1 to {MAX_APP_ID_BYTES}")
        if version > MAX_VERSION:
            raise ConfigError(f"txnVersion is {version}: count the runs of a name, from 0 to {MAX_VERSION}")
        return cls(_place(options), app_id=app_id, version=version)


class _Given:
    """Options as the user gave them."""

    def __init__(self, given: Mapping[str, str], known: tuple[str, ...]) -> None:
        """Raises CONFIG_ERROR for an option that is not ``known``."""
        by_lower = {name.lower(): name for name in known}
        lower = {name.lower(): value for name, value in given.items()}
        prefixed = ((name, value) for name, value in lower.items() if name.startswith(OF_A_TABLE))
        of_a_table = {name.removeprefix(OF_A_TABLE): value for name, value in prefixed}
        self._values = {name: value for name, value in (of_a_table | lower).items() if name in by_lower}
        checked = of_a_table.keys() or lower.keys() - SPARKS_OWN
        for name in sorted(checked - by_lower.keys()):
            close = get_close_matches(name, by_lower, 1)
            hint = f"did you mean {by_lower[close[0]]}?" if close else f"there are {', '.join(known)}"
            raise ConfigError(f"dledger knows no option {name!r}: {hint}")

    @property
    def are_none(self) -> bool:
        """Whether nothing at all was given."""
        return not self._values

    def has(self, name: str) -> bool:
        return name.lower() in self._values

    def text(self, name: str, default: str) -> str:
        return self._values.get(name.lower(), default).strip()

    def number(self, name: str, default: int) -> int:
        text = self.text(name, str(default))
        if not _is_number(text) or int(text) >= 1 << 63:
            raise ConfigError(f"{name} is {text!r}: give a whole number from 0")
        return int(text)

    def optional_time_ms(self, name: str) -> int | None:
        """Milliseconds since the epoch, or a date with or without a time of day."""
        if not self.has(name):
            return None
        text = self.text(name, "")
        timestamp_ms = iso_ms(text)
        if timestamp_ms is None and not _is_number(text):
            raise ConfigError(f"{name} is {text!r}: give {EXAMPLE} (UTC), or milliseconds since the epoch")
        return self.number(name, 0) if timestamp_ms is None else max(0, timestamp_ms)

    def boolean(self, name: str, *, default: bool) -> bool:
        text = self.text(name, str(default)).lower()
        if text not in ("true", "false"):
            raise ConfigError(f"{name} is {text!r}: give true or false")
        return text == "true"

    def offset(self, name: str, default: str, group: str) -> int | str:
        """earliest, latest, an index, or Kafka's JSON by group: {"default": 17}, where −2 and −1 are the two words."""
        text = self.text(name, default)
        value: Any = text.lower()
        if text.startswith("{"):
            value = _by_group(name, text, group)
        if value in (EARLIEST, KAFKA_EARLIEST):
            return EARLIEST
        if value in (LATEST, KAFKA_LATEST):
            return LATEST
        if isinstance(value, str) and _is_number(value):
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 63:
            raise ConfigError(f'{name} is {text!r}: give earliest, latest, an index, or JSON such as {{"{group}": 17}}')
        return value


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()


def _check_order(what: str, first: int | str | None, last: int | str | None) -> None:
    if isinstance(first, int) and isinstance(last, int) and first > last:
        raise ConfigError(f"starting{what} is {first} and ending{what} is {last}: nothing lies between, swap them")


def _by_group(name: str, text: str, group: str) -> object:
    try:
        by_group = json.loads(text)
    except ValueError as bad:
        raise ConfigError(f"{name} is no JSON ({bad}): {text}") from bad
    if group not in by_group:
        raise ConfigError(f"{name} says nothing of group {group!r}: {text}")
    return by_group[group]


def _place(options: _Given) -> Place:
    endpoints = options.text("dledger.endpoints", "") or options.text("endpoints", "")
    path = options.text("path", "").removeprefix("file:")
    if bool(endpoints) == bool(path):
        what = "both are given" if path else "neither is given"
        raise ConfigError(
            "the log is found by the option dledger.endpoints (host:port,…), or by load(path) of a node's data "
            f"directory: {what}{OF_NO_TABLE if options.are_none else ''}"
        )
    if path and not Path(path).is_dir():
        raise ConfigError(f"{path} is no directory: name a node's data directory, which every worker can read")
    timeout_ms = options.number("timeoutMs", DEFAULT_TIMEOUT_MS)
    if not timeout_ms:
        raise ConfigError("timeoutMs is 0: give the milliseconds that a call may take")
    return Place(
        endpoints=tuple(parse_endpoints(endpoints)) if endpoints else (),
        group=options.text("group", "") or DEFAULT_GROUP,
        path=path,
        read_from=options.text("readFrom", "leader") or "leader",
        timeout_ms=timeout_ms,
        cluster_id=options.text("clusterId", ""),
    )
