"""What a client makes of an end without an answer, and which node it asks next."""

from __future__ import annotations

import random

import pytest

from dledger.etcdpb import rpc_pb2 as rpc
from dledger.rpc.client.rpc_failure import RpcFailure
from dledger.rpc.status import StatusCode
from dledger.store.refusals import StoreCode
from jepsen.store.client import CALLS_AT_A_NODE, StoreClient
from jepsen.store.outcomes import NEVER_SENT, Answered, Refused, Unknown, outcome_of
from tests.support.local_store import LocalBackend
from tests.unit.jepsen.store.nodes import serving


@pytest.mark.parametrize("code", list(StoreCode))
def test_a_refusal_of_the_stores_own_is_one(code: StoreCode) -> None:
    failure = RpcFailure(StatusCode[code.status], code.text)
    assert outcome_of(failure) == Refused(code.text)


@pytest.mark.parametrize(
    "failure",
    [
        RpcFailure(StatusCode.UNAVAILABLE, "etcdserver: no leader"),
        RpcFailure(StatusCode.UNAVAILABLE, "etcdserver: request timed out"),
        RpcFailure(StatusCode.UNAVAILABLE, "etcdserver: leader changed"),
        RpcFailure(StatusCode.RESOURCE_EXHAUSTED, "etcdserver: too many requests"),
        RpcFailure(StatusCode.INTERNAL, StoreCode.LEASE_NOT_FOUND.text),
        RpcFailure(StatusCode.NOT_FOUND, StoreCode.LEASE_NOT_FOUND.text, is_local=True),
        RpcFailure(StatusCode.DEADLINE_EXCEEDED, "the call's time is up", is_local=True),
    ],
)
def test_any_other_end_leaves_doubt(failure: RpcFailure) -> None:
    assert isinstance(outcome_of(failure), Unknown)


def test_what_was_never_sent_did_not_happen() -> None:
    failure = RpcFailure(StatusCode.UNAVAILABLE, "cannot be reached", was_sent=False, is_local=True)
    assert outcome_of(failure) == Refused(NEVER_SENT)


async def test_a_client_that_goes_round_leaves_a_node_after_some_calls_and_avoids_one_without_an_answer() -> None:
    async with serving(LocalBackend()) as one, serving(LocalBackend()) as two:
        nodes = {"n0": one, "n1": two, "dead": "127.0.0.1:1"}
        client = StoreClient(nodes, 2, random.Random(1))
        asked = [await client.call("KV.Range", rpc.RangeRequest(key=b"a")) for _ in range(3 * CALLS_AT_A_NODE)]
        await client.close()
    answered = [each.node for each in asked if isinstance(each.outcome, Answered)]
    assert set(answered) == {"n0", "n1"}
    assert max(answered.count("n0"), answered.count("n1")) <= 2 * CALLS_AT_A_NODE
    assert [each.outcome for each in asked if each.node == "dead"] == [Refused(NEVER_SENT)]


async def test_a_client_that_is_at_home_somewhere_asks_nobody_else() -> None:
    async with serving(LocalBackend()) as one:
        client = StoreClient({"n0": one, "dead": "127.0.0.1:1"}, 2, random.Random(1), home="dead")
        asked = [await client.call("KV.Range", rpc.RangeRequest(key=b"a")) for _ in range(3)]
        await client.close()
    assert {each.node for each in asked} == {"dead"}
