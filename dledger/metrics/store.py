"""The store's figures as Prometheus families, read when somebody scrapes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

LABELS = ("node",)
HELP = {
    "revision": "The store's revision, as of what the node has applied.",
    "compact_revision": "Reads of the past, and watches, go back to this revision; 0: to the first one.",
    "keys": "Keys in the store.",
    "size_bytes": "What the store's records take in memory; its quota counts this.",
    "quota_bytes": "The size beyond which the store takes no more keys.",
    "leases": "Leases in the store.",
    "watches": "Watches that clients have on the node.",
    "applied_index": "Index of the last record of the log of meta that is in the store, -1 without one.",
    "rebuilds": "How often the node has built its store anew, as it differed from the others'.",
}


class StoreFigures(NamedTuple):
    """Of one node; each is said in ``HELP``."""

    revision: int
    compact_revision: int
    keys: int
    size_bytes: int
    quota_bytes: int
    leases: int
    watches: int
    applied_index: int
    rebuilds: int


class StoreCollector(Collector):
    """``read`` is called on the scraper's thread: it may only read plain numbers."""

    def __init__(self, node: str, read: Callable[[], StoreFigures]) -> None:
        self._node = node
        self._read = read

    def describe(self) -> Iterator[Metric]:
        """The families without samples."""
        for name, text in HELP.items():
            yield GaugeMetricFamily(f"dledger_store_{name}", text, labels=LABELS)

    def collect(self) -> Iterator[Metric]:
        figures = self._read()
        for family, figure in zip(self.describe(), figures, strict=True):
            assert isinstance(family, GaugeMetricFamily)
            family.add_metric([self._node], figure)
            yield family
