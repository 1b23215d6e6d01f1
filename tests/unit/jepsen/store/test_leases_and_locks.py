"""Clients of leases and locks, at nodes in this process: a right store is valid, and a breach is found."""

from __future__ import annotations

from pathlib import Path

import pytest

from dledger.etcdpb import rpc_pb2 as rpc
from dledger.kernels.history import OK
from dledger.kernels.store.leases import SECOND_NS, Disturbance
from jepsen.nemesis.schedule import Window
from jepsen.store import leases, locks
from jepsen.store.journal import Call
from jepsen.store.leases import bounds_of, disturbances_of
from tests.support.local_store import LocalBackend
from tests.unit.jepsen.store.nodes import plan_of, run_at, serving


@pytest.mark.parametrize("workload", ["lease", "lock"])
async def test_a_right_store_is_valid(tmp_path: Path, workload: str) -> None:
    async with serving(LocalBackend()) as address:
        told = await run_at({"n0": address}, tmp_path, plan_of(workload, seconds=1, clients=8))
    assert told["valid"], (told["reasons"], told["examples"])
    assert told["leases"]
    assert told["histories"] == 1
    assert workload == "lease" or told["fenced_writes"]


class ForgetfulBackend(LocalBackend):
    """Answers keepalives, and renews nothing."""

    async def keep_alive(self, lease_id: int) -> int:
        return (await self.lease_times(lease_id)).granted_s


async def test_a_lease_that_was_kept_alive_and_ended_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "KEPT", 1.0)
    monkeypatch.setattr(leases, "KEPT_FOR_S", (3.0, 3.0))
    monkeypatch.setattr(leases, "TTLS_S", (2,))
    async with serving(ForgetfulBackend()) as address:
        told = await run_at({"n0": address}, tmp_path, plan_of("lease", seconds=3, clients=8))
    assert told["early_expiries"]


async def test_holders_that_write_without_their_tokens_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lock by a lease alone is no lock: a client that was stopped for longer writes when another one has it."""

    def anything(key: bytes, revision: int) -> rpc.Compare:
        compare = rpc.Compare(key=key, target=rpc.Compare.CREATE, result=rpc.Compare.GREATER, create_revision=-1)
        return compare if revision else rpc.Compare(key=key, target=rpc.Compare.CREATE, result=rpc.Compare.EQUAL)

    monkeypatch.setattr(locks, "_created", anything)
    monkeypatch.setattr(locks, "LOCKS", 1)
    monkeypatch.setattr(locks, "STALLS", 1.0)
    monkeypatch.setattr(locks, "STALL_S", (2.5, 2.6))
    monkeypatch.setattr(locks, "MOST_WRITES", 1)
    async with serving(LocalBackend()) as address:
        told = await run_at({"n0": address}, tmp_path, plan_of("lock", seconds=8, clients=3))
    assert told["two_holders"]


def a_call(term: int, invoked_s: float, completed_s: float) -> Call:
    return Call(1, 1, "look", int(invoked_s * SECOND_NS), int(completed_s * SECOND_NS), OK, {"term": term})


def test_the_leader_is_disturbed_by_faults_and_wherever_the_term_has_changed() -> None:
    window = Window("kill-one", "kill -9", ["n0"], SECOND_NS, 2 * SECOND_NS, majority=True, bit=True, evidence={})
    calls = [a_call(3, 10, 11), a_call(3, 11.5, 12), a_call(4, 12.5, 15), a_call(3, 12, 16), a_call(4, 16, 17)]
    found = disturbances_of([window], calls)
    assert found == [Disturbance(SECOND_NS, 5 * SECOND_NS), Disturbance(12 * SECOND_NS, 17 * SECOND_NS)]


def test_clocks_that_drift_are_allowed_for() -> None:
    assert bounds_of(["kill-leader"]).rate == 1
    assert bounds_of(["kill-leader", "clock-drift"]).rate == 2
