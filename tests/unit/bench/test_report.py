"""Figures are medians of the rounds with their ranges, and ratios are of one round each."""

from __future__ import annotations

from typing import Any

import pytest

from bench.limits import LIMITS_TURN, THREE_COPIES
from bench.report import ONE, Figures, Spread, as_markdown
from bench.work import BULK, SINGLE_WORKS

MANY = SINGLE_WORKS[2].name
MACHINE = {
    "cores": 2,
    "processor": "some",
    "kernel": "6",
    "file_system": "ext4",
    "python": "3.11",
    "program": "0123456789ab",
    "started": "2026-01-02",
    "load_before": 0.1,
}
ABOUT = {"title": "some", "version": "1", "promise": "synced", "syncs": True, "bulk": ""}


def sample(number: int, system: str, work: str, *, rate: float = 0.0, p50_ms: float = 0.0, errors: int = 0) -> Any:
    measured = {"records_per_s": rate, "p50_ms": p50_ms, "p99_ms": 1.0, "records": 10, "errors": errors}
    used = {"server_core_s": 1.0, "client_core_s": 1.0, "largest_server_mb": 60.0 + number}
    return {"round": number, "system": system, "work": work, **used, **measured}


def result(*samples: Any) -> dict[str, Any]:
    plan = {"rounds": 3, "duration_s": 3.0}
    systems = {"dledger": ABOUT, "etcd": ABOUT}
    return {"plan": plan, "machine": MACHINE, "systems": systems, "missing": {}, "samples": list(samples)}


def test_a_ratio_is_taken_round_by_round() -> None:
    rates = [(300.0, 100.0), (400.0, 200.0), (900.0, 100.0)]
    samples = [
        sample(number, system, MANY, rate=rate)
        for number, pair in enumerate(rates)
        for system, rate in zip(("dledger", "etcd"), pair, strict=True)
    ]
    assert Figures(result(*samples)).ratio("etcd", MANY) == Spread(middle=3, low=2, high=9)


def test_with_one_in_flight_the_ratio_says_how_much_sooner_we_answer() -> None:
    samples = [sample(0, "dledger", ONE, p50_ms=0.5), sample(0, "etcd", ONE, p50_ms=1.0)]
    assert Figures(result(*samples)).ratio("etcd", ONE) == Spread.of([2.0])


def test_a_round_that_one_of_both_missed_is_in_no_ratio() -> None:
    samples = [sample(0, "dledger", MANY, rate=1.0), sample(1, "etcd", MANY, rate=1.0)]
    assert Figures(result(*samples)).ratio("etcd", MANY) is None


def test_a_share_of_a_limit_is_taken_round_by_round() -> None:
    rates = [(10.0, 100.0), (30.0, 100.0), (40.0, 80.0)]
    samples = [
        sample(number, system, work, rate=rate)
        for number, pair in enumerate(rates)
        for system, work, rate in zip(("dledger", LIMITS_TURN), (BULK, THREE_COPIES.name), pair, strict=True)
    ]
    assert Figures(result(*samples)).share(BULK, THREE_COPIES.name) == Spread(middle=30, low=10, high=50)
    assert "- bulk: 30 % (10 – 50) of: three synced copies" in as_markdown(result(*samples))


def test_memory_is_the_most_of_the_rounds() -> None:
    samples = [sample(number, "etcd", MANY, rate=1.0) for number in (2, 0, 1)]
    assert Figures(result(*samples)).spread("etcd", MANY, "largest_server_mb") == Spread(middle=61, low=60, high=62)
    assert "| some 1 | – | – | 62 | – | – |" in as_markdown(result(*samples))


def test_errors_stand_beside_the_rate() -> None:
    samples = [sample(number, "etcd", MANY, rate=1000.0, errors=errors) for number, errors in enumerate((0, 2, 1))]
    assert "**3 errors**" in as_markdown(result(*samples))


def test_what_is_missing_and_what_failed_is_said() -> None:
    told = as_markdown(result({"round": 1, "system": "etcd", "failure": "no leader"}) | {"missing": {"nats": "no Go"}})
    assert "- etcd, round 2: no leader" in told
    assert "- nats: no Go" in told


@pytest.mark.parametrize("key", ["processor", "program", "file_system"])
def test_the_machine_and_the_program_are_named(key: str) -> None:
    assert str(MACHINE[key]) in as_markdown(result())
