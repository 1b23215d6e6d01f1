from __future__ import annotations

import dataclasses
import gc

import pytest
from prometheus_client import REGISTRY, CollectorRegistry, generate_latest

from dledger.common.types import NodeId
from dledger.metrics import GroupCollector, GroupMetrics, Histogram, PeerMetrics, make_registry
from dledger.metrics import collector as collector_module

N0, N1 = NodeId("n0"), NodeId("n1")
LABELS = {"group": "default", "node": "n0"}


def registry_of(*metrics: GroupMetrics) -> CollectorRegistry:
    return make_registry(GroupCollector(metrics))


def test_every_field_is_exported_under_exactly_one_family() -> None:
    group = {f.field for f in collector_module.GAUGES + collector_module.COUNTERS + collector_module.HISTOGRAMS}
    peer_tables = collector_module.PEER_GAUGES + collector_module.PEER_COUNTERS + collector_module.PEER_HISTOGRAMS
    assert group == {f.name for f in dataclasses.fields(GroupMetrics)} - {"group", "node", "peers"}
    assert {f.field for f in peer_tables} == {f.name for f in dataclasses.fields(PeerMetrics)}


def test_gauges_and_counters_carry_group_and_node() -> None:
    metrics = GroupMetrics("default", N0, is_leader=True, commit_index=41, records_appended=42)
    registry = registry_of(metrics)
    assert registry.get_sample_value("dledger_is_leader", LABELS) == 1
    assert registry.get_sample_value("dledger_commit_index", LABELS) == 41
    assert registry.get_sample_value("dledger_records_appended_total", LABELS) == 42


def test_peers_have_a_label_of_their_own() -> None:
    metrics = GroupMetrics("default", N0)
    metrics.peer(N1).messages_dropped += 3
    metrics.peer(N1).round_trip_s.observe(0.002)
    registry = registry_of(metrics)
    labels = LABELS | {"peer": "n1"}
    assert registry.get_sample_value("dledger_messages_dropped_total", labels) == 3
    assert registry.get_sample_value("dledger_peer_round_trip_seconds_count", labels) == 1


def test_a_peer_without_a_round_trip_has_no_histogram_of_them() -> None:
    metrics = GroupMetrics("default", N0)
    metrics.peer(N1).connected = True
    text = generate_latest(registry_of(metrics)).decode()
    assert 'dledger_peer_connected{group="default",node="n0",peer="n1"} 1.0' in text
    assert "# TYPE dledger_peer_round_trip_seconds histogram" in text
    assert "dledger_peer_round_trip_seconds_bucket{" not in text


def test_histograms_are_cumulative_with_sum_and_count() -> None:
    metrics = GroupMetrics("default", N0)
    for duration_s in (0.0001, 0.0003, 99):
        metrics.fsync_duration_s.observe(duration_s)
    registry = registry_of(metrics)

    def bucket(bound: str) -> float | None:
        return registry.get_sample_value("dledger_fsync_duration_seconds_bucket", LABELS | {"le": bound})

    assert (bucket("5e-05"), bucket("0.0001"), bucket("0.0005"), bucket("10.0"), bucket("+Inf")) == (0, 1, 2, 2, 3)
    assert registry.get_sample_value("dledger_fsync_duration_seconds_count", LABELS) == 3
    assert registry.get_sample_value("dledger_fsync_duration_seconds_sum", LABELS) == pytest.approx(99.0004)


def test_a_value_on_a_bound_counts_as_at_or_below_it() -> None:
    histogram = Histogram((1, 2))
    for value in (1, 2, 2.5):
        histogram.observe(value)
    assert histogram.cumulative() == [("1", 1), ("2", 2), ("+Inf", 3)]
    assert (histogram.count, histogram.sum) == (3, 5.5)


def test_refresh_runs_before_the_families_are_made() -> None:
    metrics = GroupMetrics("default", N0)

    def refresh() -> None:
        metrics.last_position = 7

    registry = make_registry(GroupCollector([metrics], refresh))
    assert registry.get_sample_value("dledger_last_position", LABELS) == 7


def test_several_groups_share_a_family() -> None:
    text = generate_latest(registry_of(GroupMetrics("a", N0), GroupMetrics("b", N0))).decode()
    assert text.count("# TYPE dledger_term gauge") == 1
    assert 'dledger_term{group="a",node="n0"}' in text
    assert 'dledger_term{group="b",node="n0"}' in text


def test_nodes_of_one_process_do_not_meet_and_the_global_registry_stays_clean() -> None:
    first, second = registry_of(GroupMetrics("default", N0)), registry_of(GroupMetrics("default", N1))
    assert first.get_sample_value("dledger_term", LABELS) == 0
    assert second.get_sample_value("dledger_term", LABELS) is None
    assert REGISTRY.get_sample_value("dledger_term", LABELS) is None


def test_process_metrics_are_there() -> None:
    assert (registry_of().get_sample_value("process_open_fds") or 0) > 0


def test_a_scrape_of_many_groups_does_not_set_off_the_garbage_collector() -> None:
    """Its work grows with all that the node has, and nothing else runs meanwhile."""
    groups = [GroupMetrics(f"g{number}", N0) for number in range(200)]
    registry = registry_of(*groups)
    generate_latest(registry)
    gc.collect()
    before = sum(generation["collections"] for generation in gc.get_stats())
    generate_latest(registry)
    assert sum(generation["collections"] for generation in gc.get_stats()) <= before + 2
