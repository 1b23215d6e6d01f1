"""What a node counts, and how Prometheus gets it."""

from __future__ import annotations

from dledger.metrics.collector import GroupCollector, make_registry
from dledger.metrics.group import GroupMetrics, PeerMetrics
from dledger.metrics.histogram import Histogram
from dledger.metrics.server import MetricsServer, start_metrics_server

__all__ = [
    "GroupCollector",
    "GroupMetrics",
    "Histogram",
    "MetricsServer",
    "PeerMetrics",
    "make_registry",
    "start_metrics_server",
]
