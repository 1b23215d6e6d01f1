"""The order of effects: what follows a ``Persist`` waits for it, and so does everything else meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

import pytest

from dledger.common.errors import Code, DLedgerError, error
from dledger.common.types import NodeId, Position, Role, Term
from dledger.group.effect_runner import EffectRunner
from dledger.group.hard_state import HardState
from dledger.raft.effects import Committed, Effect, Persist, RoleChanged
from dledger.raft.raft_node import RaftNode
from tests.support.cluster import MemorySaver, SimCluster
from tests.support.virtual_time import START_S, settle, virtual_time

SAVE_S = 0.05


class ScriptedCore:
    """Wants what the test says, and remembers when its timer fired."""

    def __init__(self) -> None:
        self.deadline_ms = float("inf")
        self.wanted: list[Effect] = []
        self.ticks: list[float] = []

    @property
    def has_effects(self) -> bool:
        return bool(self.wanted)

    def take_effects(self) -> list[Effect]:
        wanted, self.wanted = self.wanted, []
        return wanted

    def tick(self, now_ms: float) -> None:
        self.ticks.append(now_ms)
        self.deadline_ms += 100


class Bench:
    def __init__(self) -> None:
        self.core = ScriptedCore()
        self.saver = MemorySaver()
        self.saver.delay_s = SAVE_S
        self.done: list[str] = []
        self.failures: list[DLedgerError] = []
        self.core.deadline_ms = START_S * 1000 + 3_600_000
        self.elector = EffectRunner(
            cast("RaftNode", self.core), self.saver, self._execute, self._guard, self.failures.append
        )

    def _execute(self, effect: Effect) -> None:
        if isinstance(effect, RoleChanged):
            self.done.append(f"{effect.role.value} in {effect.term}")
            return
        assert isinstance(effect, Committed)
        self.done.append(f"effect {effect.position}")

    def _guard(self, work: Callable[[], None]) -> None:
        work()
        self.elector.run()

    def want(self, *effects: Effect) -> None:
        self.core.wanted += effects
        self.elector.run()

    def work(self, name: str) -> Callable[[], None]:
        return lambda: self.done.append(name)


def persist(term: int) -> Persist:
    return Persist(Term(term), NodeId("n0"))


def effect(number: int) -> Committed:
    return Committed(Position(number))


@virtual_time
async def test_effects_are_done_in_order_and_at_once() -> None:
    bench = Bench()
    bench.want(effect(1), effect(2))
    assert bench.done == ["effect 1", "effect 2"]
    bench.elector.stop()


@virtual_time
async def test_what_follows_a_persist_waits_until_it_is_durable() -> None:
    bench = Bench()
    bench.want(effect(1), persist(5), effect(2))
    assert bench.done == ["effect 1"]
    await asyncio.sleep(SAVE_S * 0.9)
    bench.want(effect(3))
    assert bench.done == ["effect 1"]
    await asyncio.sleep(SAVE_S * 0.2)
    assert bench.done == ["effect 1", "effect 2", "effect 3"]
    assert bench.saver.state == HardState(Term(5), NodeId("n0"))
    bench.elector.stop()


@virtual_time
async def test_each_persist_is_saved_and_waited_for_in_turn() -> None:
    bench = Bench()
    bench.want(persist(5), effect(1), persist(6), effect(2))
    await asyncio.sleep(SAVE_S * 1.5)
    assert (bench.done, bench.saver.state.term) == (["effect 1"], 5)
    await asyncio.sleep(SAVE_S)
    assert (bench.done, bench.saver.state.term) == (["effect 1", "effect 2"], 6)
    bench.elector.stop()


@virtual_time
async def test_a_term_that_is_taken_for_a_vote_is_saved_once_with_the_vote() -> None:
    bench = Bench()
    without_vote = Persist(Term(5), NodeId(""))
    bench.want(without_vote, RoleChanged(Role.FOLLOWER, Term(5), NodeId("")), persist(5), effect(1))
    await asyncio.sleep(SAVE_S * 0.9)
    assert bench.done == []
    await asyncio.sleep(SAVE_S * 0.2)
    assert bench.done == ["follower in 5", "effect 1"]
    assert bench.saver.saved == [HardState(Term(5), NodeId("n0"))]
    bench.elector.stop()


@virtual_time
async def test_what_is_said_in_between_is_said_of_what_was_saved_before() -> None:
    bench = Bench()
    bench.want(Persist(Term(5), NodeId("")), effect(1), persist(5), effect(2))
    await asyncio.sleep(SAVE_S * 1.1)
    assert (bench.done, bench.saver.state) == (["effect 1"], HardState(Term(5), NodeId("")))
    await asyncio.sleep(SAVE_S)
    assert (bench.done, bench.saver.state.vote) == (["effect 1", "effect 2"], "n0")
    bench.elector.stop()


@virtual_time
async def test_deferred_work_keeps_its_place_behind_what_is_held() -> None:
    bench = Bench()
    bench.elector.defer(bench.work("at once"))
    bench.want(persist(5), effect(1))
    bench.elector.defer(bench.work("behind"))
    assert bench.done == ["at once"]
    assert bench.elector.is_behind
    await asyncio.sleep(2 * SAVE_S)
    assert bench.done == ["at once", "effect 1", "behind"]
    assert not bench.elector.is_behind
    bench.elector.stop()


@virtual_time
async def test_the_timer_fires_when_the_core_wants_it_and_is_armed_again() -> None:
    bench = Bench()
    begun_ms = START_S * 1000
    bench.core.deadline_ms = begun_ms + 100
    bench.elector.start()
    await asyncio.sleep(0.35)
    assert bench.core.ticks == pytest.approx([begun_ms + 100, begun_ms + 200, begun_ms + 300])
    bench.elector.stop()


@virtual_time
async def test_a_deadline_put_off_costs_no_timer_and_one_brought_forward_moves_it() -> None:
    bench = Bench()
    begun_ms = START_S * 1000
    bench.core.deadline_ms = begun_ms + 100
    bench.elector.start()
    bench.core.deadline_ms = begun_ms + 500
    bench.elector.run()
    await asyncio.sleep(0.2)
    bench.core.ticks.clear()  # the early call, which a core takes for nothing
    bench.core.deadline_ms = begun_ms + 210
    bench.elector.run()
    await asyncio.sleep(0.02)
    assert bench.core.ticks == pytest.approx([begun_ms + 210])
    bench.elector.stop()


@virtual_time
async def test_no_timer_fires_during_a_save_and_a_missed_one_fires_after_it() -> None:
    bench = Bench()
    begun_ms = START_S * 1000
    bench.core.deadline_ms = begun_ms + 10
    bench.want(persist(5))
    await asyncio.sleep(SAVE_S * 0.9)
    assert bench.core.ticks == []
    await asyncio.sleep(SAVE_S * 0.2)
    assert bench.core.ticks == pytest.approx([begun_ms + 1000 * SAVE_S])
    bench.elector.stop()


@pytest.mark.parametrize("failure", [error(Code.DISK_FULL, "no room"), OSError("gone")])
@virtual_time
async def test_a_save_that_fails_stops_the_node_and_lets_nothing_pass(failure: Exception) -> None:
    bench = Bench()
    bench.saver.failure = failure
    bench.want(persist(5), effect(1))
    await asyncio.sleep(2 * SAVE_S)
    assert bench.done == []
    assert [f.code for f in bench.failures] == [getattr(failure, "code", Code.DISK_ERROR)]
    bench.elector.stop()


@virtual_time
async def test_exclusive_work_waits_for_the_save_and_holds_everything_else() -> None:
    bench = Bench()
    bench.want(persist(5))
    entered = asyncio.Event()

    async def cut() -> None:
        async with bench.elector.exclusive():
            entered.set()
            await asyncio.sleep(1)

    cutting = asyncio.create_task(cut())
    await asyncio.sleep(SAVE_S * 0.9)
    assert not entered.is_set()
    await asyncio.sleep(SAVE_S * 0.2)
    assert entered.is_set()
    bench.want(effect(1))
    await asyncio.sleep(0.5)
    assert bench.done == []
    await cutting
    assert bench.done == ["effect 1"]
    bench.elector.stop()


@virtual_time
async def test_after_a_stop_nothing_is_done_any_more() -> None:
    bench = Bench()
    bench.want(persist(5), effect(1))
    bench.elector.stop()
    await asyncio.sleep(1)
    assert (bench.done, bench.core.ticks) == ([], [])


@virtual_time
async def test_a_node_whose_term_cannot_be_saved_stops_and_says_so() -> None:
    async with SimCluster(3) as cluster:
        node = cluster[0]
        node.saver.failure = error(Code.DISK_ERROR, "the disk is gone")
        await cluster.until(lambda: node.failure is not None or any(n.leads for n in cluster.up()))
        await asyncio.sleep(1)
        assert node.failure is not None
        assert node.failure.code is Code.DISK_ERROR
        node.failure = None
        leader = await cluster.leader()
        assert leader is not node


@virtual_time
async def test_an_assertion_that_fails_in_a_timer_stops_the_node() -> None:
    async with SimCluster(3, start=[0]) as cluster:
        node = cluster[0]

        def break_an_invariant(now_ms: float) -> None:
            raise AssertionError(f"planted at {now_ms}")

        node.replica.core.tick = break_an_invariant  # type: ignore[method-assign]
        await asyncio.sleep(2)
        await settle()
        assert node.failure is not None
        assert "planted" in str(node.failure)
        node.failure = None
