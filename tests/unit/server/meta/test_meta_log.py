"""The log of `meta` as any node writes to it: what is sent on, what is asked again, and what is in doubt."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from random import Random

import pytest

from dledger.common.errors import Code, DLedgerError, OutcomeUnknown, error
from dledger.common.types import META_GROUP, NodeId
from dledger.server.meta.lease_keeper import LeaderLeaseTimes
from dledger.server.meta.meta_leader import MetaLeader
from dledger.server.meta.meta_log import MAX_BYTES_AT_ONCE, WAIT_S, MetaLog
from tests.support.virtual_time import virtual_time

Listener = Callable[[str, object, object, NodeId], None]


class Roles:
    """A node, as far as it tells who leads."""

    def __init__(self) -> None:
        self._listeners: list[Listener] = []

    def add_listener(self, listener: Listener) -> None:
        self._listeners.append(listener)

    def elect(self, node_id: str) -> None:
        for listener in self._listeners:
            listener(META_GROUP, None, None, NodeId(node_id))


class Fake:
    """A way to a leader. It answers as it is told."""

    def __init__(self, *refusals: DLedgerError) -> None:
        self.refusals = list(refusals)
        self.appended: list[list[bytes]] = []
        self.asked = 0
        self.before: Callable[[], Awaitable[object]] | None = None
        """Awaited before each answer."""

    async def _judge(self) -> None:
        self.asked += 1
        if self.before is not None:
            await self.before()
        if self.refusals:
            raise self.refusals.pop(0)

    async def append(self, records: Sequence[bytes]) -> int:
        await self._judge()
        self.appended.append(list(records))
        return sum(map(len, self.appended[:-1]))

    async def read_index(self) -> int:
        await self._judge()
        return 17

    async def keep_alive(self, lease_id: int) -> int:
        await self._judge()
        return 5

    async def lease_times(self, lease_id: int) -> LeaderLeaseTimes:
        await self._judge()
        return LeaderLeaseTimes(5, 4, 17)


class Always(Fake):
    """Refuses all calls in the same way."""

    def __init__(self, refusal: DLedgerError) -> None:
        super().__init__()
        self._refusal = refusal

    async def _judge(self) -> None:
        self.asked += 1
        raise self._refusal


def not_leader() -> DLedgerError:
    return error(Code.NOT_LEADER, "another node leads")


def log_of(here: Fake, there: Fake, leader: str = "n2") -> tuple[MetaLog, Roles]:
    roles = Roles()
    log = MetaLog(here, there, MetaLeader(roles), Random(1))  # type: ignore[arg-type]  # as far as it is used
    if leader:
        roles.elect(leader)
    return log, roles


@virtual_time
async def test_appends_of_one_turn_go_in_one_call_and_each_has_its_index() -> None:
    here = Fake()
    log, _ = log_of(here, Fake())
    assert await asyncio.gather(*(log.append(b"%d" % number) for number in range(5))) == [0, 1, 2, 3, 4]
    assert len(here.appended) == 1


@virtual_time
async def test_records_beyond_a_call_go_in_further_calls() -> None:
    here = Fake()
    log, _ = log_of(here, Fake())
    large = bytes(MAX_BYTES_AT_ONCE)
    await asyncio.gather(log.append(b"1"), log.append(large), log.append(large), log.append(b"2"))
    assert sorted(map(len, here.appended)) == [1, 1, 1, 1]


@virtual_time
async def test_a_node_that_does_not_lead_asks_the_one_that_does() -> None:
    there = Fake()
    log, _ = log_of(Always(not_leader()), there)
    assert await log.append(b"x") == 0
    assert await log.commit_index() == 17
    assert await log.keep_alive(1) == 5
    assert there.asked == 3


@virtual_time
async def test_without_a_leader_a_call_waits_for_one() -> None:
    there = Fake()
    log, roles = log_of(Always(not_leader()), there, leader="")
    asking = asyncio.ensure_future(log.append(b"x"))
    await asyncio.sleep(1)
    assert not there.asked
    roles.elect("n3")
    assert await asking == 0


@virtual_time
async def test_without_a_leader_for_too_long_a_call_is_refused() -> None:
    log, _ = log_of(Always(not_leader()), Fake(), leader="")
    began_s = asyncio.get_running_loop().time()
    with pytest.raises(DLedgerError) as refused:
        await log.append(b"x")
    assert refused.value.code is Code.NOT_LEADER
    assert WAIT_S <= asyncio.get_running_loop().time() - began_s < WAIT_S + 5


@virtual_time
async def test_an_append_that_surely_was_not_carried_out_is_made_again() -> None:
    there = Fake(error(Code.LEADER_NOT_READY, "a moment"), error(Code.LEADER_PENDING_FULL, "a moment"))
    log, _ = log_of(Always(not_leader()), there)
    assert await log.append(b"x") == 0
    assert there.appended == [[b"x"]]


@virtual_time
async def test_an_append_of_unknown_outcome_is_not_made_again() -> None:
    there = Fake(error(Code.TERM_CHANGED, "who knows"))
    log, _ = log_of(Always(not_leader()), there)
    with pytest.raises(OutcomeUnknown):
        await log.append(b"x")
    assert there.asked == 1


@virtual_time
async def test_an_append_under_way_when_the_leader_changes_has_an_unknown_outcome() -> None:
    there = Fake()
    there.before = asyncio.Event().wait  # a leader that is cut off
    log, roles = log_of(Always(not_leader()), there)
    asking = asyncio.ensure_future(log.append(b"x"))
    await asyncio.sleep(0.1)
    roles.elect("")
    with pytest.raises(OutcomeUnknown):
        await asking


@virtual_time
async def test_a_read_under_way_when_the_leader_changes_asks_the_next_one() -> None:
    there = Fake()
    there.before = asyncio.Event().wait
    log, roles = log_of(Always(not_leader()), there)
    asking = asyncio.ensure_future(log.commit_index())
    await asyncio.sleep(0.1)
    there.before = None
    roles.elect("n3")
    assert await asking == 17


@virtual_time
async def test_a_refusal_that_does_not_pass_is_raised_at_once_to_every_caller() -> None:
    log, _ = log_of(Fake(error(Code.DISK_FULL, "no room")), Fake())
    outcomes = await asyncio.gather(log.append(b"1"), log.append(b"2"), return_exceptions=True)
    assert [each.code for each in outcomes if isinstance(each, DLedgerError)] == [Code.DISK_FULL] * 2


@virtual_time
async def test_closing_leaves_an_append_in_doubt() -> None:
    here = Fake()
    here.before = asyncio.Event().wait
    log, _ = log_of(here, Fake())
    asking = asyncio.ensure_future(log.append(b"x"))
    await asyncio.sleep(0.1)
    await log.close()
    with pytest.raises(OutcomeUnknown):
        await asking


@virtual_time
async def test_a_leader_is_lost_when_none_is_known_for_long_enough() -> None:
    roles = Roles()
    leader = MetaLeader(roles)  # type: ignore[arg-type]  # as far as it is used
    roles.elect("n1")
    lost = asyncio.ensure_future(leader.lost(3.0))
    roles.elect("")
    await asyncio.sleep(2.9)
    roles.elect("n2")
    await asyncio.sleep(10)
    assert not lost.done()
    roles.elect("")
    await asyncio.sleep(3.1)
    assert lost.done()
