"""Calls that are sent on to another node, which is a fake one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

import pytest

from dledger.common.errors import Code, DLedgerError, error
from dledger.common.types import Member, NodeId
from dledger.rpc.client.rpc_failure import RpcFailure
from dledger.rpc.status import StatusCode
from dledger.server.forwarding import Forwarder, RefusedCall
from dledger.v1 import log_pb2
from tests.unit.server.test_onward import said

GONE = RpcFailure(StatusCode.UNAVAILABLE, "cannot be reached: connection refused", was_sent=False, is_local=True)
LOST = RpcFailure(StatusCode.UNAVAILABLE, "the connection was lost", is_local=True)
REFUSAL = error(Code.NOT_LEADER, "n1 leads", leader_id="n1", leader_address="n1:2")
ACK = log_pb2.AppendResponse(base_index=7, count=1)
REQUEST = log_pb2.AppendRequest(records=[b"x"])


class Caller:
    def __init__(self, hops: str | None = None, left_s: float | None = None, cluster: str | None = None) -> None:
        told = {"dledger-hops": hops, "dledger-cluster-id": cluster}
        self._metadata = [(name, value) for name, value in told.items() if value is not None]
        self._left_s = left_s

    def invocation_metadata(self) -> Iterable[tuple[str, Any]]:
        return self._metadata

    def time_remaining(self) -> float | None:
        return self._left_s


class Others:
    """The map, and the nodes on it: what each address answers, in the order of the calls."""

    own_address = "own:2"
    cluster_id = "c1"

    def __init__(self, **answers: Any) -> None:
        self._answers = {address.replace("_", ":"): [*given] for address, given in answers.items()}
        self.addresses = list(self._answers)
        self.calls: list[tuple[str, float | None, dict[str, str]]] = []
        self.written: list[bytes] = []
        self.cancelled = 0

    def members_to_ask(self, group: str, refusal: DLedgerError) -> list[Member]:
        return [Member(NodeId("n1"), "n1:1")]

    def addresses_of(self, member: Member) -> list[str]:
        return self.addresses

    def answer(self, address: str, timeout: float | None, metadata: tuple[tuple[str, str], ...]) -> Any:
        self.calls.append((address, timeout, dict(metadata)))
        return self._answers[address].pop(0)

    def connect(self, address: str) -> Any:
        return FakeChannel(self, address)


class FakeChannel:
    def __init__(self, others: Others, address: str) -> None:
        self._others = others
        self._address = address

    def unary_unary(self, _path: str, _encode: object, _decode: object) -> Callable[..., Any]:
        async def call(_request: object, *, timeout: float | None, metadata: Any) -> Any:
            answer = self._others.answer(self._address, timeout, metadata)
            if isinstance(answer, Exception):
                raise answer
            return answer

        return call

    def stream_stream(self, _path: str) -> Callable[..., Any]:
        def call(*, timeout: float | None, metadata: Any) -> FakeStream:
            return FakeStream(self._others, self._others.answer(self._address, timeout, metadata))

        return call

    async def close(self) -> None: ...


class FakeStream:
    """Answers each request with its bytes, up to the failure that it is given: at once, or for that request."""

    def __init__(self, others: Others, ends: Any) -> None:
        self._others = others
        self._ends = ends
        self._said: asyncio.Queue[Any] = asyncio.Queue()

    async def write(self, request: bytes) -> None:
        if isinstance(self._ends, Exception) and not self._others.written and self._ends is GONE:
            raise self._ends
        self._others.written.append(request)
        at = self._ends if isinstance(self._ends, tuple) else (None, None)
        await self._said.put(at[1] if request == at[0] else b"re:" + request)

    async def done_writing(self) -> None:
        await self._said.put(None)

    async def read(self) -> Any:
        answer = await self._said.get()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def cancel(self) -> None:
        self._others.cancelled += 1


def appended(others: Others, caller: Caller | None = None, refusal: DLedgerError = REFUSAL) -> Any:
    forwarder = Forwarder(others, others.connect)
    return forwarder.unary(RefusedCall("Append", "", refusal, caller or Caller()), REQUEST, log_pb2.AppendResponse)


async def refusal_of(call: Any) -> DLedgerError:
    with pytest.raises(DLedgerError) as refused:
        await call
    return refused.value


async def test_the_answer_is_the_leaders_within_the_callers_time() -> None:
    others = Others(n1_2=[ACK])
    assert await appended(others, Caller(left_s=1.5)) == ACK
    assert others.calls == [("n1:2", 1.5, {"dledger-hops": "0", "dledger-cluster-id": "c1"})]


async def test_a_node_that_is_no_member_lets_the_next_one_send_it_on_once_more() -> None:
    others = Others(n1_2=[ACK])
    assert await appended(others, refusal=error(Code.NOT_HERE, "ask another")) == ACK
    assert others.calls[0][2]["dledger-hops"] == "1"


@pytest.mark.parametrize("code", [Code.NOT_LEADER, Code.NOT_HERE])
async def test_a_caller_who_wants_no_hop_hears_of_the_refusal(code: Code) -> None:
    others = Others(n1_2=[ACK])
    refusal = error(code, "ask another")
    assert await refusal_of(appended(others, Caller(hops="0"), refusal)) is refusal
    assert not others.calls


async def test_any_other_refusal_is_the_answer() -> None:
    others = Others(n1_2=[ACK])
    refusal = error(Code.RECORD_TOO_LARGE, "too large")
    assert await refusal_of(appended(others, refusal=refusal)) is refusal
    assert not others.calls


async def test_an_append_without_an_answer_is_never_sent_a_second_time() -> None:
    others = Others(n1_2=[LOST], n1_3=[ACK])
    assert (await refusal_of(appended(others))).code is Code.TERM_CHANGED
    assert len(others.calls) == 1


async def test_an_address_that_leads_nowhere_is_passed_over_and_comes_last_from_then_on() -> None:
    others = Others(n1_2=[GONE], n1_3=[ACK, ACK])
    forwarder = Forwarder(others, others.connect)
    for _ in range(2):
        refused = RefusedCall("Append", "", REFUSAL, Caller())
        assert await forwarder.unary(refused, REQUEST, log_pb2.AppendResponse) == ACK
    assert [address for address, *_ in others.calls] == ["n1:2", "n1:3", "n1:3"]


async def test_a_leader_that_cannot_be_reached_leaves_the_refusal_with_its_name() -> None:
    told = await refusal_of(appended(Others(n1_2=[GONE])))
    assert (told.code, told.metadata) == (Code.NOT_LEADER, REFUSAL.metadata)
    assert "connection refused" in str(told)


async def test_without_a_leader_the_refusal_is_the_answer() -> None:
    assert await refusal_of(appended(Others())) is REFUSAL


async def test_a_node_of_another_cluster_at_the_leaders_address_is_passed_over() -> None:
    assert await appended(Others(n1_2=[said(Code.UNKNOWN_CLUSTER)], n1_3=[ACK])) == ACK


async def test_a_call_of_another_clusters_node_is_refused() -> None:
    forwarder = Forwarder(Others())
    forwarder.check_sender(Caller(cluster="c1"))
    with pytest.raises(DLedgerError) as refused:
        forwarder.check_sender(Caller(cluster="c2"))
    assert refused.value.code is Code.UNKNOWN_CLUSTER


# Streams -------------------------------------------------------------------------------------------------------------


async def rest(*requests: bytes | DLedgerError) -> AsyncIterator[bytes]:
    for each in requests:
        if isinstance(each, DLedgerError):
            raise each
        yield each


async def streamed(others: Others, *requests: bytes | DLedgerError) -> tuple[list[bytes], DLedgerError | None]:
    """The answers, and the refusal behind them."""
    forwarder = Forwarder(others, others.connect)
    answers: list[bytes] = []
    try:
        refused = RefusedCall("AppendStream", "", REFUSAL, Caller())
        async for answer in forwarder.stream(refused, b"1", rest(*requests)):
            answers.append(answer)  # noqa: PERF401  # what came before a refusal counts
    except DLedgerError as refusal:
        return answers, refusal
    return answers, None


async def test_a_stream_is_answered_in_order_up_to_its_end() -> None:
    assert await streamed(Others(n1_2=["well"]), b"2", b"3") == ([b"re:1", b"re:2", b"re:3"], None)


async def test_a_stream_that_could_not_begin_goes_to_the_next_address() -> None:
    others = Others(n1_2=[GONE], n1_3=["well"])
    assert await streamed(others, b"2") == ([b"re:1", b"re:2"], None)


async def test_a_stream_that_breaks_leaves_the_rest_in_doubt_and_is_not_sent_a_second_time() -> None:
    others = Others(n1_2=[(b"2", LOST)], n1_3=["well"])
    answers, refusal = await streamed(others, b"2", b"3")
    assert answers == [b"re:1"]
    assert refusal is not None
    assert refusal.code is Code.TERM_CHANGED
    assert len(others.calls) == others.cancelled == 1


async def test_what_the_leader_refuses_ends_the_stream_behind_the_answers() -> None:
    answers, refusal = await streamed(Others(n1_2=[(b"2", said(Code.OUT_OF_ORDER))]), b"2", b"3")
    assert answers == [b"re:1"]
    assert refusal is not None
    assert refusal.code is Code.OUT_OF_ORDER


async def test_a_request_that_is_none_ends_the_stream_behind_the_answers_to_those_before() -> None:
    misfit = error(Code.UNEXPECTED_ARGUMENT, "no request")
    assert await streamed(Others(n1_2=["well"]), b"2", misfit) == ([b"re:1", b"re:2"], misfit)
