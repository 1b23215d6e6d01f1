"""The operator's side of the client: whom it asks, what it asks again, and when it does not know."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from dledger import client
from dledger.client.waits import TELL_INTERVAL_S
from dledger.common.errors import (
    ChangePending,
    ChangeRefused,
    Code,
    DLedgerError,
    InvalidRequest,
    OutcomeUnknown,
    TransferFailed,
    Unavailable,
    UnknownMember,
)
from dledger.common.types import Member, NodeId, PreferredLeader
from tests.unit.client.fake_server import FakeCluster

TIMEOUT_S = 60
"""Of a call at whose refusals this time passes at a leap."""

Leap = Callable[[float], None]


async def test_a_learner_is_added_promoted_readmitted_and_removed(cluster: FakeCluster, log: client.Log) -> None:
    added = await log.admin.add_learner("n5", "h:5")
    assert (added.learners, added.position) == (("n5",), 1)
    assert added.members[-1] == Member(NodeId("n5"), "h:5", voter=False)
    assert (await log.admin.promote("n5")).voters == ("n0", "n1", "n2", "n5")
    assert (await log.admin.readmit("n5")).learners == ("n5",)
    assert (await log.admin.remove("n5")).voters == ("n0", "n1", "n2")
    assert cluster.admin_changes == 4


async def test_a_dry_run_says_what_would_be_and_changes_nothing(cluster: FakeCluster, log: client.Log) -> None:
    before = dict(cluster.members)
    would_be = await log.admin.remove("n2", dry_run=True)
    assert (would_be.voters, would_be.position) == (("n0", "n1"), 0)
    assert cluster.members == before


async def test_a_change_whose_answer_was_lost_is_known_to_be_this_calls_own(
    cluster: FakeCluster, log: client.Log
) -> None:
    cluster.faults.drop_admin_answers = 1
    change = await log.admin.remove("n2")
    assert (change.position, change.may_be_earlier) == (0, True)
    assert not (await log.admin.remove("n2")).may_be_earlier


@pytest.mark.usefixtures("cluster")
async def test_what_is_so_already_has_no_position(log: client.Log) -> None:
    assert (await log.admin.promote("n1")).position == 0
    assert (await log.admin.remove("n9")).position == 0


@pytest.mark.usefixtures("cluster")
async def test_settings_come_back_as_the_log_has_them(log: client.Log) -> None:
    settings = await log.admin.set_preferred({"n1": 10, "n2": 5})
    assert settings.preferred == (PreferredLeader(NodeId("n1"), 10), PreferredLeader(NodeId("n2"), 5))
    kept = await log.admin.set_retention(max_age_ms=1_000, max_bytes=2_000)
    assert kept.settings == settings._replace(retention_max_age_ms=1_000, retention_max_bytes=2_000)
    assert (kept.trimmed_records, kept.trimmed_bytes) == (5, 500)
    assert (await log.admin.set_preferred({})).preferred == ()


@pytest.mark.usefixtures("cluster")
async def test_a_limit_of_the_retention_that_is_not_named_stays(log: client.Log) -> None:
    await log.admin.set_retention(max_age_ms=1_000, max_bytes=2_000)
    kept = (await log.admin.set_retention(max_bytes=0)).settings
    assert (kept.retention_max_age_ms, kept.retention_max_bytes) == (1_000, 0)


@pytest.mark.usefixtures("cluster")
async def test_limits_that_are_set_at_once_keep_each_other(log: client.Log) -> None:
    await asyncio.gather(log.admin.set_retention(max_age_ms=1_000), log.admin.set_retention(max_bytes=2_000))
    kept = (await log.admin.set_retention()).settings
    assert (kept.retention_max_age_ms, kept.retention_max_bytes) == (1_000, 2_000)


@pytest.mark.usefixtures("cluster")
async def test_numbers_that_cannot_be_are_refused_at_the_call(log: client.Log) -> None:
    for refused in (
        log.admin.trim(-1),
        log.admin.trim(1 << 63),
        log.admin.set_retention(max_age_ms=-1),
        log.admin.set_retention(max_bytes=1 << 64),
        log.admin.set_preferred({"n1": -5}),
        log.admin.set_preferred({"n1": 0}),
        log.admin.set_preferred({"n1": 1 << 32}),
    ):
        with pytest.raises(InvalidRequest):
            await refused


async def test_a_trim_says_where_the_log_begins_now(cluster: FakeCluster, log: client.Log) -> None:
    await cluster.fill([b"a", b"b", b"c"])
    assert await log.admin.trim(2, dry_run=True) == (2, 2, 200)
    assert cluster.first_index == 0
    assert await log.admin.trim(2) == (2, 2, 200)
    assert cluster.first_index == 2


# Whom it asks --------------------------------------------------------------------------------------------------------


async def test_a_change_of_leader_is_followed(cluster: FakeCluster, log: client.Log) -> None:
    await log.admin.promote("n1")
    cluster.lead(cluster.nodes[2])
    assert (await log.admin.add_learner("n5", "h:5")).learners == ("n5",)


async def test_the_removal_of_the_leader_ends_at_the_next_one(cluster: FakeCluster, log: client.Log) -> None:
    assert (await log.admin.remove("n0")).voters == ("n1", "n2")
    assert cluster.leader is cluster.nodes[1]


async def test_a_leader_that_died_is_left_for_the_next(cluster: FakeCluster, log: client.Log) -> None:
    await log.admin.promote("n1")
    await cluster.nodes[0].stop()
    cluster.lead(cluster.nodes[1])
    assert (await log.admin.remove("n0")).voters == ("n1", "n2")


@pytest.mark.parametrize(
    "code", [Code.LEADER_NOT_READY, Code.LEADER_TRANSFERRING, Code.CHANGE_PENDING, Code.WAIT_QUORUM_ACK_TIMEOUT]
)
async def test_what_passes_is_waited_for(cluster: FakeCluster, code: Code, leap: Leap) -> None:
    cluster.faults.refuse_admin = [code] * 3
    told: list[DLedgerError] = []

    def on_wait(refusal: DLedgerError) -> None:
        told.append(refusal)
        leap(TELL_INTERVAL_S)

    async with client.connect(cluster.endpoints, on_wait=on_wait) as log:
        assert (await log.admin.add_learner("n5", "h:5")).position == 1
    assert [refusal.code for refusal in told] == [code] * 3


async def test_an_election_is_waited_for(cluster: FakeCluster, log: client.Log) -> None:
    cluster.lead(None)
    asking = asyncio.ensure_future(log.admin.promote("n1"))
    await asyncio.wait({asking}, timeout=0.05)
    assert not asking.done()
    cluster.lead(cluster.nodes[1])
    assert (await asking).position == 0


# When it ends otherwise ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("code", "kind"), [(Code.CHANGE_PENDING, ChangePending), (Code.LEADER_NOT_READY, Unavailable)])
async def test_what_does_not_pass_in_time_is_told_as_it_is(
    cluster: FakeCluster, leap: Leap, code: Code, kind: type[DLedgerError]
) -> None:
    cluster.faults.refuse_admin = [code]
    async with client.connect(cluster.endpoints, on_wait=lambda _: leap(TIMEOUT_S)) as log:
        with pytest.raises(kind):
            await log.admin.promote("n1", timeout_ms=TIMEOUT_S * 1_000)


@pytest.mark.parametrize(
    ("code", "kind"),
    [(Code.CHANGE_REFUSED, ChangeRefused), (Code.UNKNOWN_MEMBER, UnknownMember), (Code.DISK_FULL, DLedgerError)],
)
async def test_a_refusal_is_told_at_once(
    cluster: FakeCluster, log: client.Log, code: Code, kind: type[DLedgerError]
) -> None:
    cluster.faults.refuse_admin = [code]
    with pytest.raises(kind):
        await log.admin.promote("n1")


async def test_nobody_there_is_no_doubt() -> None:
    async with client.connect("127.0.0.1:1") as log:
        with pytest.raises(Unavailable):
            await log.admin.remove("n0", timeout_ms=100)


async def test_a_dead_leader_that_everybody_names_was_never_asked(cluster: FakeCluster, leap: Leap) -> None:
    refusals: list[DLedgerError] = []

    def on_wait(refusal: DLedgerError) -> None:
        refusals.append(refusal)
        leap(TIMEOUT_S if len(refusals) == 2 else TELL_INTERVAL_S)

    async with client.connect(cluster.endpoints, on_wait=on_wait) as log:
        await log.admin.promote("n1")
        await cluster.nodes[0].stop()
        with pytest.raises(Unavailable, match="cannot be reached"):
            await log.admin.remove("n2", timeout_ms=TIMEOUT_S * 1_000)
    assert len(refusals) == 2


# In doubt ------------------------------------------------------------------------------------------------------------


async def test_a_lost_answer_is_asked_for_again(cluster: FakeCluster, log: client.Log) -> None:
    cluster.faults.drop_admin_answers = 2
    assert (await log.admin.add_learner("n5", "h:5")).learners == ("n5",)
    assert cluster.admin_changes == 1


async def test_no_answer_by_the_deadline_is_of_unknown_outcome(cluster: FakeCluster, leap: Leap) -> None:
    cluster.faults.drop_admin_answers = 1
    async with client.connect(cluster.endpoints, on_wait=lambda _: leap(TIMEOUT_S)) as log:
        with pytest.raises(OutcomeUnknown, match=cluster.nodes[0].address):
            await log.admin.add_learner("n5", "h:5", timeout_ms=TIMEOUT_S * 1_000)
    assert "n5" in cluster.members


# The leadership ------------------------------------------------------------------------------------------------------


async def test_the_leadership_is_handed_over(cluster: FakeCluster, log: client.Log) -> None:
    assert await log.admin.transfer_leadership("n2") == ("n2", cluster.term)
    await log.append(b"x")
    with pytest.raises((UnknownMember, TransferFailed)):
        await log.admin.transfer_leadership("n9")


async def test_a_handover_to_whoever_is_not_asked_for_twice(cluster: FakeCluster, log: client.Log) -> None:
    """The second one would hand over what the first one brought."""
    cluster.faults.refuse_admin = [Code.LEADER_TRANSFERRING, Code.WAIT_QUORUM_ACK_TIMEOUT]
    with pytest.raises(OutcomeUnknown):
        await log.admin.transfer_leadership()
    assert cluster.faults.refuse_admin == []
