"""Turns ``GroupMetrics`` into Prometheus families when somebody scrapes, and only then."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from select import select
from typing import NamedTuple, TypeVar

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from dledger.metrics.group import GroupMetrics, PeerMetrics

GROUP_LABELS = ("group", "node")
PEER_LABELS = ("group", "node", "peer")


class _Family(NamedTuple):
    """One family: its name without ``dledger_`` and ``_total``, the field it comes from, and what it says."""

    name: str
    field: str
    help: str


GAUGES = (
    _Family("has_leader", "has_leader", "1 while the node knows a leader."),
    _Family("is_leader", "is_leader", "1 while the node leads."),
    _Family("term", "term", "The node's term."),
    _Family("proposals_pending", "proposals_pending", "Appends written and not yet committed."),
    _Family("first_index", "first_index", "Index of the first record kept."),
    _Family("commit_index", "commit_index", "Index of the last committed record, -1 without one."),
    _Family("last_index", "last_index", "Index of the last record, committed or not, -1 without one."),
    _Family("commit_position", "commit_position", "Position of the last committed frame."),
    _Family("last_position", "last_position", "Position of the last frame."),
    _Family("durable_position", "durable_position", "Position of the last frame that the disk holds."),
    _Family("disk_free_bytes", "disk_free_bytes", "Room left on the log's file system."),
    _Family("disk_state", "disk_state", "0 ok, 1 low, 2 full (appends are refused), 3 hung."),
    _Family("damaged_frames", "damaged_frames", "Stored frames known to be damaged and not repaired yet."),
    _Family("scrub_position", "scrub_position", "Position up to which the present scrub has checked the log."),
    _Family(
        "scrub_last_pass_timestamp_seconds",
        "scrub_last_pass_s",
        "When the last scrub of the whole log was done; 0: never.",
    ),
    _Family("named_producers", "named_producers", "Producers' names that the log keeps; it refuses more than 10,000."),
    _Family(
        "clock_ahead_seconds", "clock_ahead_s", "This leader's clock over those of a majority; 0 within ten seconds."
    ),
    _Family("record_ahead_seconds", "record_ahead_s", "The last record's time over the clocks; 0 within a minute."),
    _Family("log_size_bytes", "log_size_bytes", "What the log's segments take on the disk."),
)
COUNTERS = (
    _Family("leader_changes", "leader_changes", "Leaders seen to come."),
    _Family("proposals_committed", "proposals_committed", "Appends committed by this leader."),
    _Family("proposals_failed", "proposals_failed", "Appends refused or of unknown outcome."),
    _Family("records_appended", "records_appended", "Records written to the log."),
    _Family("bytes_appended", "bytes_appended", "Bytes written to the log."),
    _Family("pushes_sent", "pushes_sent", "Frames sent to followers."),
    _Family("pushes_resent", "pushes_resent", "Frames sent to a follower again."),
    _Family("reads", "reads", "Reads served."),
    _Family("read_index_rounds", "read_index_rounds", "Rounds of a quorum that confirmed the leader for reads."),
    _Family("torn_bytes_cut", "torn_bytes_cut", "Bytes cut behind the last sync mark at the start."),
    _Family("trims", "trims", "Times the log lost its oldest segments."),
    _Family("resets", "resets", "Times the log was begun anew from a leader's that begins later."),
    _Family("corruptions_found", "corruptions_found", "Stored frames found not to match their checksums."),
    _Family("scrub_passes", "scrub_passes", "Times the whole log was read and checked in the background."),
    _Family("repairs", "repairs", "Damaged ranges of the log that were repaired from other nodes."),
    _Family("frames_repaired", "frames_repaired", "Frames that were repaired from other nodes."),
    _Family("frames_served", "frames_served", "Frames given to nodes that repair, or complete, their log."),
)
HISTOGRAMS = (
    _Family("fsync_duration_seconds", "fsync_duration_s", "How long fdatasync of the log takes."),
    _Family("append_duration_seconds", "append_duration_s", "From the acceptance of an append to its commit."),
)
PEER_GAUGES = (
    _Family("peer_connected", "connected", "1 while messages to the peer can be sent."),
    _Family("follower_lag_frames", "lag_frames", "Frames the peer has not acknowledged yet, seen by the leader."),
)
PEER_COUNTERS = (_Family("messages_dropped", "messages_dropped", "Messages to the peer that were not sent."),)
PEER_HISTOGRAMS = (_Family("peer_round_trip_seconds", "round_trip_s", "From a heartbeat to its answer."),)

SAMPLES_AT_A_TIME = 30
"""A fifth of a millisecond of this thread's work."""
PAUSE_S = 0.0001
_AnyFamily = TypeVar("_AnyFamily", bound=Metric)
_Metrics = GroupMetrics | PeerMetrics
_Rows = list[tuple[tuple[str, ...], _Metrics]]


class GroupCollector(Collector):
    """The families of every group of a node. ``refresh`` is called first, on the scraper's thread: it may only copy
    plain numbers into the metrics."""

    def __init__(self, groups: Iterable[GroupMetrics], refresh: Callable[[], None] | None = None) -> None:
        self._groups = groups
        self._refresh = refresh

    def describe(self) -> Iterator[Metric]:
        """The families without samples. By their names the library finds those for ``/metrics?name[]=``."""
        yield from _families([], GROUP_LABELS, GAUGES, COUNTERS)
        yield from _histograms([], GROUP_LABELS, HISTOGRAMS)
        yield from _families([], PEER_LABELS, PEER_GAUGES, PEER_COUNTERS)
        yield from _histograms([], PEER_LABELS, PEER_HISTOGRAMS)

    def collect(self) -> Iterator[Metric]:
        if self._refresh is not None:
            self._refresh()
        groups: _Rows = []
        peers: _Rows = []
        for metrics in list(self._groups):
            labels = (metrics.group, metrics.node)
            groups.append((labels, metrics))
            peers += [((*labels, peer), of_peer) for peer, of_peer in list(metrics.peers.items())]
        yield from _families(groups, GROUP_LABELS, GAUGES, COUNTERS)
        yield from _histograms(groups, GROUP_LABELS, HISTOGRAMS)
        yield from _families(peers, PEER_LABELS, PEER_GAUGES, PEER_COUNTERS)
        # Only leaders see round trips: most of so many histograms, of a node with many groups, would say nothing.
        seen = [(values, metrics) for values, metrics in peers if _has_seen(metrics)]
        yield from _histograms(seen, PEER_LABELS, PEER_HISTOGRAMS)


def _families(
    rows: _Rows,
    labels: tuple[str, ...],
    gauges: Iterable[_Family],
    counters: Iterable[_Family],
) -> Iterator[Metric]:
    for kind, families in ((GaugeMetricFamily, gauges), (CounterMetricFamily, counters)):
        for family in families:
            make = partial(kind, f"dledger_{family.name}", family.help, labels=labels)
            yield _row_by_row(make, rows, partial(_add_value, family.field))


def _histograms(rows: _Rows, labels: tuple[str, ...], histograms: Iterable[_Family]) -> Iterator[Metric]:
    for family in histograms:
        make = partial(HistogramMetricFamily, f"dledger_{family.name}", family.help, labels=labels)
        yield _row_by_row(make, rows, partial(_add_histogram, family.field))


def _add_value(
    field: str, to: GaugeMetricFamily | CounterMetricFamily, values: tuple[str, ...], metrics: _Metrics
) -> None:
    to.add_metric(values, getattr(metrics, field))


def _add_histogram(field: str, to: HistogramMetricFamily, values: tuple[str, ...], metrics: _Metrics) -> None:
    observed = getattr(metrics, field)
    to.add_metric(values, observed.cumulative(), observed.sum)


def _row_by_row(make: Callable[[], _AnyFamily], rows: _Rows, add: Callable[..., None]) -> _AnyFamily:
    """A family whose samples are made while they are written, so they can be gone through once only.

    Thousands of them at a time would have the garbage collector look at everything that the node has. The pauses let
    the event loop go on, which would wait for this thread at each of its steps."""

    def samples() -> Iterator[Sample]:
        one = make()
        made = 0
        for values, metrics in rows:
            add(one, values, metrics)
            made += len(one.samples)
            yield from one.samples
            one.samples.clear()
            if made >= SAMPLES_AT_A_TIME:
                made = 0
                # Under libfaketime time.sleep fails where clocks jump, and an Event's wait hangs where they drift.
                select([], [], [], PAUSE_S)

    family = make()
    family.samples = samples()  # type: ignore[assignment]  # a list by its declaration; only ever iterated over
    return family


def _has_seen(metrics: _Metrics) -> bool:
    return isinstance(metrics, PeerMetrics) and metrics.round_trip_s.count > 0


def make_registry(*collectors: Collector) -> CollectorRegistry:
    """A node's own registry: ``collectors``, and what the library says of the process, the platform and the garbage
    collector. Never the global one, as several nodes may live in one process."""
    registry = CollectorRegistry(auto_describe=False)
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    GCCollector(registry=registry)
    for collector in collectors:
        registry.register(collector)
    return registry
