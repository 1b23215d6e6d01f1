"""Clients of keys, at nodes in this process: a right store is valid, and one that serves the past is not."""

from __future__ import annotations

from pathlib import Path

from jepsen.report.page import write_report
from tests.support.local_store import LocalBackend
from tests.unit.jepsen.store.nodes import LaggingBackend, plan_of, run_at, serving


async def test_a_right_store_is_valid_and_its_report_counts_the_checks(tmp_path: Path) -> None:
    async with serving(LocalBackend()) as address:
        told = await run_at({"n0": address}, tmp_path, plan_of("kv"))
    assert told["valid"], told["reasons"]
    assert told["acknowledged"] > 100
    assert told["checks"]["copies"]["final_reads"] == 1
    assert "stale reads" in write_report(tmp_path).read_text()


async def test_a_node_that_serves_the_past_as_the_present_is_found(tmp_path: Path) -> None:
    first = LocalBackend()
    second = LaggingBackend(first, 5)
    async with serving(first) as one, serving(second) as two:
        plan = plan_of("kv", nodes=2)
        told = await run_at({"n0": one, "n1": two}, tmp_path, plan, before_the_end=second.catch_up)
    assert told["stale_reads"]
    assert not told["hashes_differ"]
    assert any(reason.startswith("stale reads") for reason in told["reasons"])


async def test_nodes_that_differ_in_the_end_are_found(tmp_path: Path) -> None:
    async with serving(LocalBackend()) as one, serving(LocalBackend()) as two:
        told = await run_at({"n0": one, "n1": two}, tmp_path, plan_of("kv", nodes=2))
    assert told["hashes_differ"] == 1
    assert told["shared_revisions"]
