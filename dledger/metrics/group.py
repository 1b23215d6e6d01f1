"""The counts of one group on one node: plain fields, set without a lock and without a call by the part that knows them.

Everything runs on the event loop; the scraper's thread only reads. Some gauges would have to be set on every append.
They are set at a scrape instead: ``GroupCollector`` calls ``refresh`` first.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from dledger.common.types import NodeId
from dledger.metrics.histogram import Histogram


@dataclass(slots=True)
class PeerMetrics:
    """One peer, seen from this node."""

    connected: bool = False
    """Messages to it can be sent."""
    lag_frames: int = 0
    """Last position − what it acknowledged; counts on the leader only, 0 elsewhere."""
    messages_dropped: int = 0
    """Messages not sent: the peer was not connected, or its buffer was full."""
    round_trip_s: Histogram = field(default_factory=Histogram)
    """From a heartbeat to its answer."""


@dataclass(slots=True)
class GroupMetrics:
    """One group on one node. Counters only rise, and start at 0 with the process."""

    group: str
    node: NodeId

    # The leadership.
    has_leader: bool = False
    is_leader: bool = False
    term: int = 0
    leader_changes: int = 0
    """Leaders this node saw come, the first one included."""

    # Appends, on the leader. A proposal is one frame.
    proposals_committed: int = 0
    proposals_failed: int = 0
    """Refused, or of unknown outcome."""
    proposals_pending: int = 0
    append_duration_s: Histogram = field(default_factory=Histogram)
    """From the acceptance of an append to its commit."""

    # The log. Everything written counts as appended, on the leader and on followers.
    records_appended: int = 0
    bytes_appended: int = 0
    """Frames as stored, headers and padding included."""
    first_index: int = 0
    commit_index: int = -1
    last_index: int = -1
    commit_position: int = 0
    last_position: int = 0
    durable_position: int = 0
    fsync_duration_s: Histogram = field(default_factory=Histogram)
    torn_bytes_cut: int = 0
    """What recovery cut behind the last sync mark."""
    corruptions_found: int = 0
    """Frames with wrong checksums in a place that a crash cannot explain."""

    damaged_frames: int = 0
    """Known to be damaged and not repaired yet."""
    repairs: int = 0
    """Damaged ranges that were written anew from other nodes' copies."""
    frames_repaired: int = 0
    frames_served: int = 0
    """Given to nodes that asked with FETCH."""

    scrub_position: int = 0
    """How far the pass under way has checked the log."""
    scrub_passes: int = 0
    scrub_last_pass_s: float = 0.0
    """When the last one was done, in seconds since the epoch; 0: none since the start."""

    # Clocks, on the leader.
    clock_ahead_s: float = 0.0
    """This leader's clock, over that of a majority; 0 within ten seconds."""
    record_ahead_s: float = 0.0
    """The last record's time, over the clocks; 0 within a minute."""

    # Space.
    disk_free_bytes: int = 0
    """On the log's file system, at the last look."""
    disk_state: int = 0
    """0 ok, 1 low, 2 full (appends are refused), 3 hung."""
    named_producers: int = 0
    """Names that the log keeps."""
    log_size_bytes: int = 0
    """What the log's segments take."""
    trims: int = 0
    """How often the log lost its oldest segments."""
    resets: int = 0
    """How often this node's log was begun anew from a leader's, because it ended before that one begins."""

    # Replication, on the leader.
    pushes_sent: int = 0
    pushes_resent: int = 0
    """Frames sent again after a COMPARE."""

    # Reads.
    reads: int = 0
    """Get calls and Read responses served."""
    read_index_rounds: int = 0
    """Rounds of a quorum that confirmed the leadership for reads."""

    peers: dict[NodeId, PeerMetrics] = field(default_factory=dict)

    def peer(self, peer: NodeId) -> PeerMetrics:
        """The peer's metrics, made at first use."""
        found = self.peers.get(peer)
        if found is None:
            found = self.peers[peer] = PeerMetrics()
        return found
