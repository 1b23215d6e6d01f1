"""The store's figures for Prometheus."""

from __future__ import annotations

from dledger.metrics.collector import make_registry
from dledger.metrics.store import HELP, StoreCollector, StoreFigures


def test_every_figure_is_a_gauge_of_the_node() -> None:
    figures = StoreFigures(*range(1, len(HELP) + 1))
    registry = make_registry(StoreCollector("n1", lambda: figures))
    for name, figure in figures._asdict().items():
        assert registry.get_sample_value(f"dledger_store_{name}", {"node": "n1"}) == figure


def test_every_figure_is_said() -> None:
    assert tuple(HELP) == StoreFigures._fields
