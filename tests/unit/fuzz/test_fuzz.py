"""A cut of ``python -m tests.fuzz``: seconds of what it does for a million messages."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from random import Random

import pytest

from dledger.common.types import NodeId
from dledger.group.inbox import Inbox
from dledger.log.frame.frame import Frame
from dledger.raft import codec
from dledger.raft.messages import Message, PeerMessage
from dledger.rpc.server.call import ServerCall
from dledger.rpc.server.connection import ServerConnection
from dledger.transport.peer import TcpTransport
from dledger.v1 import raft_pb2 as pb
from tests.fuzz import attacks
from tests.fuzz.__main__ import Done, Slice
from tests.fuzz.decoders import ENOUGH_CASES, Decoders, Stranger
from tests.fuzz.http2 import Http2
from tests.fuzz.members import NonsenseMember
from tests.fuzz.mutate import mutated_bytes
from tests.fuzz.ports import SILENT, check_records
from tests.fuzz.recorded import record


def test_decoders_take_or_refuse_whatever_comes() -> None:
    fuzz = Decoders(seed=1)
    fuzz.run(10_000)
    refusals = {outcome.split(": ")[1] for outcome in fuzz.outcomes}
    assert {"CORRUPT_LOG", "UNEXPECTED_ARGUMENT", "UNKNOWN_CLUSTER", "decoded"} <= refusals


def test_mutated_frames_come_as_far_as_the_checks_of_their_bodies() -> None:
    fuzz = Decoders(seed=1)
    fuzz.run(10_000)
    for outcome in (
        "frames: CORRUPT_LOG by following",
        "frames: CORRUPT_BATCH by following",
        "frames: decoded",
        "control: CORRUPT_LOG by check_control",
        "control: decoded",
        "batch_body: CORRUPT_BATCH by check_body",
    ):
        assert fuzz.outcomes[outcome] > 20, outcome
    assert not {outcome for outcome in fuzz.outcomes if outcome.startswith("control: ") and "following" in outcome}


def _nothing(*_args: object) -> None: ...


@pytest.mark.parametrize(
    ("where", "check"),
    [
        ("dledger.log.frame.frame.check_link", "check_link"),
        ("dledger.log.frame.frame.check_frame_body", "check_frame_body"),
        ("tests.fuzz.decoders.check_control", "check_control"),
    ],
)
def test_a_check_that_refuses_nothing_is_found_out(where: str, check: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(where, _nothing)
    with pytest.raises(AssertionError, match=f"none was refused by {check}: it lets everything in"):
        Decoders(seed=1).run(ENOUGH_CASES)


def test_a_cut_of_the_cases_is_not_asked_for_refusals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dledger.log.frame.frame.check_frame_body", _nothing)
    Decoders(seed=1).run(100)


def test_a_refusal_that_is_none_of_ours_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(frame: Frame, what: str) -> None:
        raise RuntimeError(f"{frame} {what}")

    monkeypatch.setattr("dledger.log.frame.control._nonsense", fail)
    with pytest.raises(RuntimeError, match=r"leaves no voter|names no frame|names a member twice"):
        Decoders(seed=1).run(10_000)


def test_the_engine_of_the_client_port_takes_or_refuses_whatever_comes() -> None:
    fuzz = Http2(seed=1)
    fuzz.run(5_000)
    assert {"goes on", "PROTOCOL_ERROR", "COMPRESSION_ERROR", "FRAME_SIZE_ERROR", "STREAM_CLOSED"} <= set(fuzz.outcomes)
    assert fuzz.outcomes["goes on"] > 500


@pytest.mark.parametrize("where", ["_on_rst_stream", "_on_ping", "_on_continuation"])
def test_a_bug_of_the_engine_is_found_out(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_args: object) -> None:
        raise KeyError(where)

    monkeypatch.setattr(ServerConnection, where, fail)
    with pytest.raises(AssertionError, match=where):
        Http2(seed=1).run(5_000)


def test_an_engine_that_gives_nothing_back_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ServerCall, "_let_go", _nothing)
    with pytest.raises(AssertionError):
        Http2(seed=1).run(5_000)


def test_a_member_that_sends_nonsense_changes_nothing() -> None:
    fuzz = NonsenseMember(seed=1)
    fuzz.run(2_000)
    assert sum(fuzz.outcomes.values()) == 2_000


def test_without_the_checks_a_nonsense_member_is_seen_to_do_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Inbox, "_disbelieve", lambda *_args, **_fields: None)
    taken = Inbox.take

    def believe(self: Inbox, sender: NodeId, message: Message) -> None:
        monkeypatch.setattr("dledger.group.inbox.MAX_TERM_LEAP", 1 << 65)
        taken(self, sender, message)

    monkeypatch.setattr(Inbox, "take", believe)
    with pytest.raises(TimeoutError):
        NonsenseMember(seed=1).run(2_000)


def test_a_record_is_of_an_acknowledged_call_or_once_of_one_whose_outcome_is_unknown() -> None:
    possible = Counter([b"open"])
    check_records([b"acked", b"open"], {0: b"acked"}, possible, {})
    for found, why in (
        ([b"other"], "not b'acked'"),
        ([b"acked", b"open", b"open"], "of no open call"),
        ([b"acked", b"refused"], "its call was refused with CORRUPT_BATCH"),
    ):
        with pytest.raises(AssertionError, match=why):
            check_records(found, {0: b"acked"}, possible, {b"refused": "CORRUPT_BATCH"})


def test_no_two_calls_bring_the_same_records() -> None:
    random = Random(1)
    calls = [attacks.make_call(random) for _ in range(2_000)]
    records = Counter(value for sent in calls for value in {each for of_one in sent.records for each in of_one})
    assert len(records) > 1_000
    assert {value for value, calls_of_it in records.items() if calls_of_it > 1 and len(value) > 8} == set()


def test_mutations_are_a_function_of_the_seed_and_do_change_something() -> None:
    data = bytes(range(100))
    first = [mutated_bytes(Random(seed), data) for seed in range(200)]
    assert first == [mutated_bytes(Random(seed), data) for seed in range(200)]
    assert sum(each != data for each in first) > 190


class Listener(Stranger):
    """Counts what it is told."""

    told = 0

    def on_message(self, sender: NodeId, message: PeerMessage) -> None:
        self.told += 1


def _learner() -> pb.Hello:
    return pb.Hello(
        version=1, cluster_id="c", node_id="n9", node_uuid=b"u", start_count=1, start_nonces=[1], expected_node_id="n1"
    )


def _with_listener(talk: Callable[[Listener, str], object]) -> None:
    """``talk`` with a node's transport, in this process, and its address."""

    async def run() -> None:
        listener, transport = Listener("n1"), TcpTransport("127.0.0.1", 0, codec=codec, random=Random(1))
        await transport.start(listener)
        try:
            await talk(listener, f"127.0.0.1:{transport.port}")  # type: ignore[misc]
        finally:
            await transport.close()

    asyncio.run(run())


def test_of_a_members_session_a_node_looks_at_every_message_that_counts() -> None:
    """All are taken, but for the last where that is refused, or has no end."""
    random, kinds = Random(1), record()
    messages = [each for kind in sorted(kinds) for each in kinds[kind]]
    ends = Counter[int]()

    async def talk(listener: Listener, address: str) -> None:
        for _ in range(300):
            session, before = attacks.replay(random, _learner(), messages, 10), listener.told
            answered = await attacks.throw(address, session.wire, pieces=random.choice((1, 3)))
            assert attacks.is_welcome(answered)
            ends[session.messages - (listener.told - before)] += 1

    _with_listener(talk)
    assert set(ends) == {0, 1}


def test_a_member_that_is_refused_has_said_nothing_that_counts() -> None:
    hello = _learner()
    hello.expected_node_id = "n2"
    session = attacks.replay(Random(1), hello, record()["Heartbeat"], 3)

    async def talk(_: Listener, address: str) -> None:
        answered = await attacks.throw(address, session.wire)
        with pytest.raises(AssertionError, match="a member was refused: n9 dialled 'n2' and reached n1"):
            attacks.is_welcome(answered)

    _with_listener(talk)
    assert not attacks.is_welcome(b"")


def test_a_node_that_cannot_be_reached_has_looked_at_nothing() -> None:
    with pytest.raises(AssertionError, match=r"127\.0\.0\.1:9 cannot be reached"):
        asyncio.run(attacks.throw("127.0.0.1:9", b"anything"))


def test_connections_that_say_nothing_are_none_of_what_was_asked_for() -> None:
    done = Done(Slice("ports", 0, 5, 1), {"Append: OK": 3, "peer port noise: closed": 2, SILENT: 1_350}, 1.0)
    assert done.looked_at == 5
