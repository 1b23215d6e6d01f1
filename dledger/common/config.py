"""A node's configuration: one frozen dataclass, from keyword arguments, a TOML file or the command line.

Every default is one to run in production. ``config_checks.validate`` checks a whole configuration before a node starts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path

from dledger.common.errors import ConfigError, quoted
from dledger.common.types import DEFAULT_GROUP, META_GROUP, Durability

MIB = 1 << 20
GRPC_PORT_OFFSET = 1
HTTP_PORT_OFFSET = 2
MAX_IN_ONE_MESSAGE_BYTES = 8 * MIB
"""Upper bound for ``max_batch_bytes``, ``push_message_bytes`` and ``read_message_bytes``. A message holds at most one
push or read plus one batch (16 MiB): half of what gRPC and peers accept."""
MAX_MACHINE_RECORD_BYTES = 4 * MIB
"""Upper bound of a record in the log of a state machine that runs on the nodes. ``max_record_bytes`` has no say
there."""
MAX_STREAM_BATCHES = 64
"""The log remembers so many batches of each producer, the newest ones. With more under way, a retry of the first could
not be answered with its index."""
MAX_MEMBERS = 128
"""Of a group, learners too: each node keeps what it knows of every other."""
NODE_ID = re.compile(r"[A-Za-z0-9_.-]{1,255}")
"""What a node may be called."""
_HOST = re.compile(r"[!-~]{1,253}")
_PORT = re.compile(r"[0-9]{1,5}")


@dataclass(frozen=True, slots=True)
class Limits:
    """The bounds of sizes, queues and memory, and the error code of a request beyond them."""

    max_record_bytes: int = 1 * MIB
    """RECORD_TOO_LARGE above."""
    max_batch_bytes: int = 4 * MIB
    """BATCH_TOO_LARGE above (the body of one batch)."""
    max_pending_batches: int = 10_000
    """LEADER_PENDING_FULL above: batches written and not yet committed."""
    max_pending_bytes: int = 64 * MIB
    """LEADER_PENDING_FULL above."""
    max_stream_batches: int = MAX_STREAM_BATCHES
    """An AppendStream is not read further while so many of its batches wait (flow control, no refusal); not more than
    ``MAX_STREAM_BATCHES``."""
    push_window_frames: int = 4_000
    """No further APPEND is sent to a follower with so many frames in flight: what it takes in one go stays short."""
    push_window_bytes: int = 16 * MIB
    """Bytes in flight to one follower."""
    max_transfer_lag_frames: int = 1_000
    """FALL_BEHIND_TOO_MUCH above: a node further behind is not handed the leadership. Nor is a node that lacks frames
    older than ``election_timeout_max_ms``: they may be large."""
    push_message_bytes: int = 1 * MIB
    """About how much one APPEND message carries."""
    catch_up_bytes_per_s: int = 208 * MIB
    """By so much a second a follower that was away gains on the leader while there are appends. Without appends it
    catches up as fast as it can."""
    read_message_bytes: int = 1 * MIB
    """About how much one ReadResponse carries."""
    tail_cache_bytes: int = 16 * MIB
    """The newest frames kept in memory."""
    page_cache_bytes: int = 64 * MIB
    """So much of the newest data stays in the kernel's page cache, for readers that lag. The active segment is not
    counted. Older data is read from the disk, and the kernel caches it as it sees fit."""
    segment_max_bytes: int = 64 * MIB
    """Segments grow from 64 KiB to this."""
    segment_max_frames: int = 100_000
    """A segment is rolled at this many frames too: it bounds what a start reads."""
    disk_warn_free_bytes: int = 2048 * MIB
    """With less room on the log's file system than this the node warns."""
    disk_refuse_free_bytes: int = 1024 * MIB
    """With less, appends are refused with DISK_FULL, until there is more again."""
    disk_refuse_meta_free_bytes: int = 256 * MIB
    """With less room the group `meta` refuses appends; ``disk_refuse_free_bytes`` counts if that is less. While users'
    groups are full, the deletion of groups can still be written there, and makes room."""
    store_quota_bytes: int = 2048 * MIB
    """The store takes no more keys beyond this size (NOSPACE, until the alarm is disarmed): it lies in memory."""

    def refuse_free_bytes(self, group: str) -> int:
        """With less room than this the group refuses appends."""
        least_bytes: int = getattr(self, self.refuse_setting(group))
        return least_bytes

    def refuse_setting(self, group: str) -> str:
        """The setting that ``refuse_free_bytes`` comes from."""
        is_less = self.disk_refuse_meta_free_bytes < self.disk_refuse_free_bytes
        return "disk_refuse_meta_free_bytes" if group == META_GROUP and is_less else "disk_refuse_free_bytes"


@dataclass(frozen=True, slots=True)
class Timings:
    """Clocks, in milliseconds unless the name says otherwise."""

    heartbeat_interval_ms: int = 125
    """How often a leader tells its followers that it is there. At most half of ``election_timeout_min_ms``."""
    election_timeout_min_ms: int = 500
    """A follower waits at least so long for its leader before it asks for votes. A leader goes on so long without
    hearing a quorum (check-quorum), and so long a voter is sticky."""
    election_timeout_max_ms: int = 1_000
    """Each wait for a leader is drawn anew, between ``election_timeout_min_ms`` and this."""
    max_clock_drift: float = 0.05
    """With leases: by how much of itself one node's clock may run slower than another's (raft/leadership.py)."""
    push_resend_ms: int = 1_000
    """An APPEND without an answer for so long makes the EntryDispatcher compare again. For a follower that takes longer
    it waits longer, up to twice as long (raft/patience.py)."""
    quorum_ack_timeout_ms: int = 5_000
    """An append that waits longer for its quorum is answered WAIT_QUORUM_ACK_TIMEOUT (outcome unknown), a linearizable
    read LEADER_NOT_READY."""
    sync_mark_interval_ms: int = 5
    """A group carries the sync mark of the one before when the last mark is this old: each is a write more."""
    sync_mark_idle_ms: int = 10
    """The sync mark is written alone after so much idling."""
    sync_interval_ms: int = 50
    """How often ``durability = interval`` syncs."""
    disk_timeout_ms: int = 700
    """A leader gives up the leadership when its fdatasync takes longer, until the disk is back. It keeps the leadership
    if the others' disks stand still as well (group/disk_watch.py)."""
    scrub_period_s: int = 7 * 24 * 3600
    """Every frame of the log is read and checked once in so many seconds."""
    store_history_s: int = 600
    """The store keeps its history for so long: older revisions are compacted away."""
    stop_timeout_ms: int = 5_000
    """How long a clean stop drains and hands over before it gives up on that."""


@dataclass(frozen=True, slots=True)
class NodeConfig:
    """One node. ``peers``: id → host:port for nodes. They are every voter of the first start, this one included; or
    some members, without this one, for a node that joins them. Once the log has the members, they count no more."""

    id: str
    peers: Mapping[str, str]
    data_dir: Path
    address: str = ""
    """This node's own host:port for nodes, where ``peers`` does not say it: it joins."""
    group: str = DEFAULT_GROUP
    """The group that a ``dledger.node.node.Node`` founds from ``peers``. ``dledger.Node`` and ``dledger serve`` ignore
    this name, and found `meta`."""
    listen: str = ""
    """The address to bind; the peer address's host by default."""
    grpc_port: int | None = None
    """The peer port + 1 by default."""
    http_port: int | None = None
    """The peer port + 2 by default; 0: no HTTP."""
    advertise: str = ""
    """HOST:PORT that clients are told; the listening one by default."""
    cluster_id: str = ""
    """Minted by the first leader when empty."""
    lease_reads: bool = False
    """A leader answers linearizable reads without asking its quorum for as long as a quorum has promised not to elect
    another. Rests on the clocks (``Timings.max_clock_drift``); a crashed leader is then replaced no sooner than
    ``election_timeout_min_ms`` after it was last heard."""
    durability: Durability = Durability.FSYNC
    limits: Limits = field(default_factory=Limits)
    timings: Timings = field(default_factory=Timings)

    @property
    def peer_address(self) -> str:
        return self.peers.get(self.id, self.address)

    @property
    def listen_host(self) -> str:
        return self.listen.removeprefix("[").removesuffix("]") or split_address(self.peer_address)[0]

    @property
    def peer_port(self) -> int:
        return split_address(self.peer_address)[1]

    @property
    def client_port(self) -> int:
        return self.peer_port + GRPC_PORT_OFFSET if self.grpc_port is None else self.grpc_port

    @property
    def metrics_port(self) -> int:
        return self.peer_port + HTTP_PORT_OFFSET if self.http_port is None else self.http_port

    @property
    def client_address(self) -> str:
        """What clients are told."""
        return self.advertise or join_address(split_address(self.peer_address)[0], self.client_port)

    @property
    def http_address(self) -> str:
        host = split_address(self.advertise or self.peer_address)[0]
        return join_address(host, self.metrics_port) if self.metrics_port else ""


def split_address(address: str) -> tuple[str, int]:
    """host:port, [v6]:port. Raises CONFIG_ERROR."""
    scheme, separator, rest = address.partition("://")
    if separator:
        plain = quoted(rest.rstrip("/"))[1:-1]
        raise ConfigError(f"{quoted(address)} is not an address: leave {quoted(scheme)[1:-1]}:// out, write {plain}")
    if ";" in address or " " in address:
        raise ConfigError(f"{quoted(address)} is not an address: write a comma between several")
    host, _, port = address.rpartition(":")
    if not _HOST.fullmatch(host) or not _PORT.fullmatch(port) or not 0 < int(port) < 65536:
        raise ConfigError(f"{quoted(address)} is not an address: write host:port, with a port from 1 to 65535")
    if host[0] == "[" and host[-1] == "]":
        return host[1:-1], int(port)
    if ":" in host:
        bracketed = quoted(f"[{host}]:{port}")[1:-1]
        raise ConfigError(f"{quoted(address)} is not an address: write an IPv6 address in brackets, {bracketed}")
    return host, int(port)


def check_reachable(address: str) -> None:
    """Checks an address that is told to others. Raises CONFIG_ERROR unless it is an address, and for one to listen on
    only (0.0.0.0)."""
    host, _ = split_address(address)
    with suppress(ValueError):  # a name
        if ip_address(host).is_unspecified:
            raise ConfigError(
                f"{quoted(address)} is an address to listen on, nobody can be reached there: write the machine's own"
            )


def join_address(host: str, port: int) -> str:
    """What ``split_address`` takes apart."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
