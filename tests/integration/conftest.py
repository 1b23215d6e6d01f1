"""For tests of real clusters: which of them may run side by side, and what they measure."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from xdist.scheduler.loadfile import LoadFileScheduling

from dledger.cli.options import DEV_PORT_STEP
from dledger.cli.ports import HIGHEST, LOWEST, free_base

UNDER_LOAD = frozenset(
    f"tests/integration/test_{what}.py"
    for what in ("admin_commands", "any_node", "conditional_append", "demo_and_soak", "failover", "fuzzed_ports",
                 "leadership", "membership", "memory_for_clients", "operations", "retention", "rot", "store",
                 "store_client")
)  # fmt: skip
"""Modules that kill nodes while clients append, or measure how long those wait. The others look at answers."""

Tell = Callable[[str], None]


class Scheduling(LoadFileScheduling):  # type: ignore[misc]  # xdist has no types
    """Each module goes to one worker; those of clusters under load all to the same one."""

    def _split_scope(self, nodeid: str) -> str:
        module, *_ = nodeid.split("::")
        return "clusters under load" if module in UNDER_LOAD else module


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Scheduling:
    """Where workers run tests side by side, no two clusters under load ever do."""
    return Scheduling(config, log)


@pytest.fixture(scope="session", autouse=True)
def ports_of_its_own() -> Iterator[None]:
    """Nobody listens yet on the ports of a cluster that is about to start, nor on those of a node that was killed: each
    cluster gets others, and each worker has its share of them."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    share = (HIGHEST - LOWEST) // int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    ours = range(LOWEST + worker * share, LOWEST + (worker + 1) * share)
    given: set[int] = set()

    def fresh_base(nodes: int) -> int:
        while True:
            base = free_base(nodes)
            block = range(base, base + DEV_PORT_STEP * nodes)
            if block[0] in ours and block[-1] in ours and given.isdisjoint(block):
                given.update(block)
                return base

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dledger.cli.cluster.free_base", fresh_base)
        yield


@pytest.fixture
def tell(capsys: pytest.CaptureFixture[str]) -> Tell:
    """Shows a measured figure also when the test passes: on stderr, which a worker shares with who started it."""

    def show(measured: str) -> None:
        with capsys.disabled():
            print(f"\n{measured}", file=sys.stderr)  # noqa: T201

    return show
