"""Changes: each is carried out once, and what its caller is told is what became of it."""

from __future__ import annotations

import asyncio

import pytest

from dledger import client
from dledger.client.store import Compare, Deleted, KeyValue, Op, Pairs, PutDone, Store, TxnDone
from dledger.client.store.lane import WINDOW
from dledger.client.store.writer import MAX_LANES
from dledger.common.errors import (
    Code,
    DeadlineExceeded,
    DLedgerError,
    InvalidRequest,
    LeaseNotFound,
    NoSpace,
    OutcomeUnknown,
    Unavailable,
    error,
)
from tests.support.store_nodes import StoreNodes, TroubledBackend


async def test_a_put_tells_its_revision(store: Store) -> None:
    assert [await store.put("a", "1"), await store.put("a", "2")] == [2, 3]


async def test_a_deletion_tells_how_many_there_were(store: Store) -> None:
    await asyncio.gather(store.put("a1", ""), store.put("a2", ""), store.put("b", ""))
    assert await store.delete("b") == Deleted(1, 5)
    assert await store.delete("b") == Deleted(0, 5)
    assert await store.delete(prefix="a") == Deleted(2, 6)


async def test_a_transaction_takes_one_branch_at_one_revision(store: Store) -> None:
    await store.put("a", "1")
    done = await store.txn(
        [Compare.value("a", "==", "1")],
        [Op.put("b", "2"), Op.get("a"), Op.delete("a"), Op.range(prefix="", limit=5), Op.txn([], [Op.put("c", "")])],
    )
    pair = KeyValue(b"a", b"1", 2, 2, 1)
    assert done.succeeded
    assert done.revision == 3
    put, got, deleted, rest, inner = done.responses
    assert (put, deleted, inner) == (PutDone(3), Deleted(1, 3), TxnDone(True, 3, (PutDone(3),)))
    assert isinstance(got, Pairs)
    assert list(got) == [pair]
    assert isinstance(rest, Pairs)
    assert [each.key for each in rest] == [b"b"]


async def test_a_transaction_whose_comparison_fails_takes_the_other_branch(store: Store) -> None:
    done = await store.txn([Compare.exists("a")], [Op.put("a", "")], [Op.get("a")])
    assert not done.succeeded
    assert await store.get("a") is None


@pytest.mark.parametrize(
    ("compare", "holds"),
    [
        (Compare.value("a", "==", "1"), True),
        (Compare.value("a", ">", "1"), False),
        (Compare.value("none", "!=", "1"), False),
        (Compare.version("a", "==", 2), True),
        (Compare.created("a", "<", 3), True),
        (Compare.modified("a", "==", 3), True),
        (Compare.lease("a", "!=", 0), False),
        (Compare.exists("a"), True),
        (Compare.exists("none"), False),
        (Compare.absent("none"), True),
        (Compare.absent("a"), False),
    ],
)
async def test_comparisons_say_what_they_say(store: Store, compare: Compare, holds: bool) -> None:
    await store.put("a", "0")
    await store.put("a", "1")
    assert (await store.txn([compare])).succeeded is holds


@pytest.mark.parametrize(
    "wrong",
    [
        lambda store: store.put("a", 7),
        lambda store: store.put("", "a"),
        lambda store: store.put("a", "1", lease="x"),
        lambda store: store.put("a", b"x" * (2 << 20)),
        lambda store: store.txn(Compare.exists("a")),
        lambda store: store.txn([], [Compare.exists("a")]),
        lambda store: store.txn([], [Op.put("a", "")] * 129),
        lambda store: store.txn([], [Op.put("a", ""), Op.put("a", "")]),
        lambda store: store.put("/dledger/x", ""),
        lambda store: store.delete(),
        lambda store: store.put("a", "", timeout_ms=-1),
    ],
)
async def test_what_cannot_be_served_is_refused_and_changes_nothing(store: Store, wrong: object) -> None:
    with pytest.raises(InvalidRequest):
        await wrong(store)  # type: ignore[operator]
    assert (await store.status()).revision == 1


def test_a_sign_that_compares_nothing_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="compares nothing"):
        Compare.version("a", "=>", 1)  # type: ignore[arg-type]


async def test_the_stores_refusals_are_typed(store: Store, backend: TroubledBackend) -> None:
    with pytest.raises(LeaseNotFound):
        await store.put("a", "", lease=99)
    backend.quota_bytes = 10
    with pytest.raises(NoSpace):
        await store.put("a", "")


# Once ---------------------------------------------------------------------------------------------------------------


async def test_a_change_whose_answer_was_lost_returns_its_first_answer(store: Store, backend: TroubledBackend) -> None:
    backend.behind = [error(Code.TERM_CHANGED, "the leader is gone")]
    assert await store.put("a", "1") == 2
    assert len(backend.submitted) == 2
    found = await store.get("a")
    assert found is not None
    assert found.version == 1


async def test_a_refusal_whose_answer_was_lost_is_returned_again(store: Store, backend: TroubledBackend) -> None:
    backend.behind = [error(Code.TERM_CHANGED, "the leader is gone")]
    done = await store.txn([Compare.absent("a")], [Op.put("a", "1")])
    assert done == TxnDone(True, 2, (PutDone(2),))


async def test_changes_go_on_at_another_node_and_are_carried_out_once(store: Store, nodes: StoreNodes) -> None:
    begun = asyncio.Event()
    held: list[tuple[int, int]] = []

    async def hold_the_first(session: int, request: int) -> None:
        if (session, request) not in held:
            held.append((session, request))
            begun.set()
            await asyncio.Event().wait()

    nodes.backend.before = hold_the_first
    puts = [asyncio.create_task(store.put(f"k{number}", "")) for number in range(20)]
    await begun.wait()
    await nodes.kill_each_in_turn()
    assert sorted(await asyncio.gather(*puts)) == list(range(2, 22))
    assert (await store.status()).revision == 21


async def test_one_slow_change_keeps_no_other_waiting(store: Store, backend: TroubledBackend) -> None:
    released = asyncio.Event()

    async def hold_the_first(_session: int, request: int) -> None:
        if request == 1:
            await released.wait()

    backend.before = hold_the_first
    slow = asyncio.create_task(store.put("slow", ""))
    await asyncio.sleep(0)
    await asyncio.gather(*(store.put(f"k{number}", "") for number in range(WINDOW - 1)))
    released.set()
    assert await slow == WINDOW + 1


async def test_a_session_never_has_more_under_way_than_the_store_allows(store: Store, backend: TroubledBackend) -> None:
    released = asyncio.Event()

    async def hold_the_first(_session: int, request: int) -> None:
        if request == 1:
            await released.wait()

    backend.before = hold_the_first
    puts = [asyncio.create_task(store.put(f"k{number}", "")) for number in range(3 * MAX_LANES * WINDOW)]
    await backend.until_submitted(MAX_LANES * WINDOW)
    released.set()
    await asyncio.gather(*puts)
    assert backend.most_unacknowledged <= WINDOW
    assert len(backend.sessions) == MAX_LANES
    assert len(backend.submitted) == len(set(backend.submitted)) == len(puts)


async def test_a_caller_that_gives_up_takes_no_room(store: Store, backend: TroubledBackend) -> None:
    held = asyncio.Event()

    async def hold(_session: int, _request: int) -> None:
        await held.wait()

    backend.before = hold
    puts = [asyncio.create_task(store.put(f"k{number}", "")) for number in range(WINDOW * MAX_LANES)]
    await backend.until_submitted(len(puts))
    for put in puts:
        put.cancel()
    backend.before = None
    assert await store.put("a", "") == 2


# Sessions -------------------------------------------------------------------------------------------------------------


async def test_a_session_that_ended_while_nothing_was_under_way_is_replaced(
    store: Store, backend: TroubledBackend
) -> None:
    await store.put("a", "1")
    backend.sessions.end(1)
    assert sorted(await asyncio.gather(*(store.put(f"k{number}", "") for number in range(10)))) == list(range(3, 13))


async def test_a_change_in_doubt_whose_session_ended_has_an_unknown_outcome(
    store: Store, backend: TroubledBackend
) -> None:
    backend.behind = [error(Code.SESSION_EXPIRED, "the session has ended")]
    with pytest.raises(OutcomeUnknown) as raised:
        await store.put("a", "1")
    assert raised.value.code is Code.SESSION_EXPIRED
    assert await store.put("a", "2") == 3


# What the caller is told ------------------------------------------------------------------------------------------


async def test_a_change_that_nobody_took_is_no_unknown_outcome(store: Store, nodes: StoreNodes) -> None:
    await nodes.stop()
    with pytest.raises(Unavailable, match="nothing was changed"):
        await store.put("a", "1", timeout_ms=300)


async def test_a_change_that_is_refused_for_now_until_the_end_is_unavailable(
    store: Store, backend: TroubledBackend
) -> None:
    async def refuse(_session: int, _request: int) -> None:
        raise error(Code.LEADER_NOT_READY, "no leader yet")

    backend.before = refuse
    with pytest.raises(Unavailable, match="no leader yet"):
        await store.put("a", "1", timeout_ms=300)


async def test_a_change_that_nobody_answers_has_an_unknown_outcome(store: Store, backend: TroubledBackend) -> None:
    async def hold(_session: int, _request: int) -> None:
        await asyncio.Event().wait()

    backend.before = hold
    with pytest.raises(OutcomeUnknown):
        await store.put("a", "1", timeout_ms=300)


async def test_a_refusal_behind_a_doubt_has_an_unknown_outcome(store: Store, backend: TroubledBackend) -> None:
    backend.refusals = [error(Code.TERM_CHANGED, "the leader is gone"), error(Code.UNSUPPORTED, "not here")]
    with pytest.raises(OutcomeUnknown):
        await store.put("a", "1")


async def test_a_refusal_without_a_doubt_is_told_as_it_is(store: Store, backend: TroubledBackend) -> None:
    backend.refusals = [error(Code.NOT_LEADER, "another leads"), error(Code.UNSUPPORTED, "not here")]
    with pytest.raises(DLedgerError) as raised:
        await store.put("a", "1")
    assert raised.value.code is Code.UNSUPPORTED


async def test_a_call_whose_time_is_up_before_it_is_sent_changed_nothing(
    store: Store, backend: TroubledBackend
) -> None:
    async def hold(_session: int, _request: int) -> None:
        await asyncio.Event().wait()

    backend.before = hold
    held = [asyncio.create_task(store.put(f"k{number}", "")) for number in range(WINDOW * MAX_LANES)]
    await backend.until_submitted(len(held))
    with pytest.raises(DeadlineExceeded, match="nothing was changed"):
        await store.put("a", "", timeout_ms=100)
    for put in held:
        put.cancel()


# The end --------------------------------------------------------------------------------------------------------------


async def test_closing_waits_for_what_is_under_way(cluster: client.Cluster, backend: TroubledBackend) -> None:
    released = asyncio.Event()

    async def hold(_session: int, _request: int) -> None:
        await released.wait()

    backend.before = hold
    put = asyncio.create_task(cluster.store().put("a", ""))
    await backend.until_submitted(1)
    closing = asyncio.create_task(cluster.close())
    await asyncio.sleep(0)
    released.set()
    assert await put == 2
    await closing


async def test_ending_tells_what_is_under_way_that_its_outcome_is_unknown(
    cluster: client.Cluster, backend: TroubledBackend
) -> None:
    async def hold(_session: int, _request: int) -> None:
        await asyncio.Event().wait()

    backend.before = hold
    put = asyncio.create_task(cluster.store().put("a", ""))
    await backend.until_submitted(1)
    await cluster.give_up()
    with pytest.raises(OutcomeUnknown):
        await put


async def test_a_program_that_cancels_all_tasks_leaves_a_store_of_use(store: Store, backend: TroubledBackend) -> None:
    async def hold(_session: int, _request: int) -> None:
        await asyncio.Event().wait()

    await store.put("a", "1")
    backend.before = hold
    put = asyncio.create_task(store.put("a", "2"))
    await backend.until_submitted(2)
    for task in asyncio.all_tasks():
        if task.get_name().startswith("dledger-store"):
            task.cancel()
    with pytest.raises(OutcomeUnknown):
        await put
    backend.before = None
    assert await store.put("a", "3") == 3
