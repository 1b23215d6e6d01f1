from __future__ import annotations

import asyncio
from random import Random

import pytest

from dledger.common.errors import Code, ConfigError, PeerRefused
from dledger.common.types import NodeId
from dledger.raft.messages import Append, Heartbeat
from dledger.testing.memory_network import KEEPALIVE_S, RETRY_S, MemoryNetwork, MemoryTransport
from dledger.testing.network_faults import Rule
from dledger.transport.transport_api import PeerIdentity
from tests.support.virtual_time import run_virtual, settle, virtual_time
from tests.unit.transport.messages import append, heartbeat
from tests.unit.transport.recorder import Recorder

A, B, C = NodeId("a"), NodeId("b"), NodeId("c")
ALL = dict.fromkeys((A, B, C), "")
LATENCY_S = 0.001


class Net:
    """Three connected nodes."""

    def __init__(self, seed: int = 1) -> None:
        self.network = MemoryNetwork(Random(seed), latency_s=LATENCY_S)
        self.handlers: dict[NodeId, Recorder] = {}
        self.transports: dict[NodeId, MemoryTransport] = {}

    async def join(self, node: NodeId, handler: Recorder | None = None) -> None:
        self.handlers[node] = handler or Recorder(node)
        self.transports[node] = self.network.transport(node)
        await self.transports[node].start(self.handlers[node])
        self.transports[node].set_peers(ALL)

    async def pass_s(self, seconds: float = 0.01) -> None:
        await asyncio.sleep(seconds)

    def rounds(self, node: NodeId) -> list[int]:
        """The rounds of the heartbeats that ``node`` got."""
        return [message.round for _, message in self.handlers[node].messages if isinstance(message, Heartbeat)]

    def send(self, *rounds: int, source: NodeId = A, target: NodeId = B) -> list[bool]:
        return [self.transports[source].send(target, heartbeat(round_)) for round_ in rounds]


async def three(seed: int = 1) -> Net:
    net = Net(seed)
    for node in ALL:
        await net.join(node)
    await net.pass_s()
    return net


@virtual_time
async def test_nodes_that_are_there_connect_each_way() -> None:
    net = await three()
    assert {node: sorted(handler.connected) for node, handler in net.handlers.items()} == {
        A: [B, C],
        B: [A, C],
        C: [A, B],
    }
    assert net.transports[A].is_connected(B)


@virtual_time
async def test_messages_arrive_in_order_after_the_latency() -> None:
    net = await three()
    assert all(net.send(*range(50)))
    await net.pass_s(LATENCY_S * 0.9)
    assert net.rounds(B) == []
    await net.pass_s(LATENCY_S * 0.2)
    assert net.rounds(B) == list(range(50))


@virtual_time
async def test_order_stays_under_jitter() -> None:
    net = await three()
    net.network.jitter_s = 0.05
    net.send(*range(50))
    await net.pass_s(1)
    assert net.rounds(B) == list(range(50))


@virtual_time
async def test_messages_pass_through_the_real_codec() -> None:
    net = await three()
    sent = append([b"one"], [b"two"])
    net.transports[A].send(B, sent)
    await net.pass_s()
    ((sender, received),) = net.handlers[B].messages
    assert sender == A
    assert isinstance(received, Append)
    assert received.frames[0] is not sent.frames[0]
    assert [frame.raw for frame in received.frames] == [frame.raw for frame in sent.frames]


@virtual_time
async def test_nothing_is_sent_to_a_node_that_is_not_connected() -> None:
    net = Net()
    await net.join(A)
    assert net.send(1) == [False]
    assert net.network.counters.refused == 1


@virtual_time
async def test_a_cut_loses_one_direction_silently() -> None:
    net = await three()
    net.network.faults.cut(A, B)
    assert net.send(1) == [True]
    assert net.send(2, source=B, target=A) == [True]
    await net.pass_s()
    assert (net.rounds(B), net.rounds(A)) == ([], [2])
    assert net.network.counters.dropped == 1
    net.network.heal()
    net.send(3)
    await net.pass_s()
    assert net.rounds(B) == [3]


@virtual_time
async def test_a_cut_loses_what_is_in_flight() -> None:
    net = await three()
    net.send(1)
    net.network.faults.cut_both(A, B)
    await net.pass_s()
    assert net.rounds(B) == []


@virtual_time
async def test_a_partition_cuts_between_its_sides_only() -> None:
    net = await three()
    net.network.faults.partition([A, B], [C])
    net.send(1)
    net.send(2, target=C)
    net.send(3, source=C)
    await net.pass_s()
    assert (net.rounds(B), net.rounds(C)) == ([1], [])


@virtual_time
async def test_nobody_connects_across_a_cut_until_it_heals() -> None:
    net = Net()
    net.network.faults.cut(B, A)
    await net.join(A)
    await net.join(B)
    await net.pass_s()
    assert not net.transports[A].is_connected(B)
    net.network.heal()
    await net.pass_s()
    assert net.transports[A].is_connected(B)


@virtual_time
async def test_a_disconnect_is_seen_once_for_each_direction_and_mended() -> None:
    net = await three()
    net.send(1)
    net.network.disconnect(A, B)
    assert net.send(2) == [False]
    await net.pass_s()
    assert net.handlers[A].disconnected == [B, B]
    assert net.handlers[B].disconnected == [A, A]
    assert net.rounds(B) == []
    assert net.transports[A].is_connected(B)


@virtual_time
async def test_what_a_closing_node_sent_arrives_before_its_end_is_seen() -> None:
    net = await three()
    net.send(1)
    await net.transports[A].close()
    await net.handlers[B].until(lambda: bool(net.handlers[B].disconnected))
    assert net.rounds(B) == [1]
    await net.pass_s()
    assert net.handlers[B].disconnected == [A, A]
    assert not net.transports[B].is_connected(A)


@virtual_time
async def test_a_crash_is_noticed_by_the_next_to_send_or_by_keepalive() -> None:
    net = await three()
    net.send(1)
    net.transports[A].crash()
    await net.pass_s()
    assert net.rounds(B) == []
    assert net.handlers[B].disconnected == net.handlers[C].disconnected == []
    assert net.send(2, source=B, target=A) == [True]
    await net.pass_s()
    assert net.handlers[B].disconnected == [A]
    await net.pass_s(KEEPALIVE_S)
    assert net.handlers[C].disconnected == [A]


@virtual_time
async def test_the_next_life_of_a_node_is_connected_to_and_gets_nothing_of_the_last() -> None:
    net = await three()
    net.transports[B].crash()
    net.send(1)
    await net.join(B)
    await net.pass_s()
    net.send(2)
    await net.pass_s()
    assert net.rounds(B) == [2]
    assert net.send(3, source=B, target=A) == [True]


@virtual_time
async def test_two_lives_of_a_node_at_once_are_a_config_error() -> None:
    net = await three()
    with pytest.raises(ConfigError):
        await net.join(A)


@virtual_time
async def test_a_refused_node_is_dialled_again_until_it_is_accepted() -> None:
    refuse = True

    def judge(identity: PeerIdentity) -> None:
        if refuse and identity.node_id == A:
            raise PeerRefused("not yet", code=Code.UNKNOWN_MEMBER)

    net = Net()
    await net.join(A)
    await net.join(B, Recorder(B, judge=judge))
    await net.pass_s()
    assert not net.transports[A].is_connected(B)
    assert net.transports[A].last_refusal is not None
    refuse = False
    await net.pass_s(2 * RETRY_S)
    assert net.transports[A].is_connected(B)


@virtual_time
async def test_a_peer_taken_from_the_list_is_no_longer_sent_to() -> None:
    net = await three()
    net.transports[A].set_peers({C: ""})
    assert net.send(1) == [False]
    assert net.send(2, target=C) == [True]


@virtual_time
async def test_a_message_of_another_cluster_ends_the_connection() -> None:
    net = await three()
    net.handlers[A].cluster_id = "other"
    net.send(1)
    await net.pass_s()
    assert net.rounds(B) == []
    assert net.handlers[B].disconnected == [A]
    refusal = net.transports[B].last_refusal
    assert refusal is not None
    assert refusal.code is Code.UNKNOWN_CLUSTER


# Rules. ------------------------------------------------------------------------------------------------------------


@virtual_time
async def test_every_nth_message_is_dropped() -> None:
    net = await three()
    rule = net.network.faults.add(Rule(drop_every=3))
    net.send(*range(1, 10))
    await net.pass_s()
    assert net.rounds(B) == [1, 2, 4, 5, 7, 8]
    assert (rule.seen, rule.dropped) == (9, 3)


@virtual_time
async def test_a_share_is_dropped() -> None:
    net = await three()
    net.network.faults.add(Rule(drop_share=0.25))
    net.send(*range(1_000))
    await net.pass_s()
    assert 150 < net.network.counters.dropped < 350


@virtual_time
async def test_a_predicate_picks_messages() -> None:
    net = await three()
    rule = Rule(lambda source, _, message: source == A and isinstance(message, Append), drop_share=1)
    net.network.faults.add(rule)
    net.transports[A].send(B, append([b"x"]))
    net.send(1)
    await net.pass_s()
    assert [type(message) for _, message in net.handlers[B].messages] == [Heartbeat]
    net.network.faults.remove(rule)
    net.transports[A].send(B, append([b"x"]))
    await net.pass_s()
    assert len(net.handlers[B].messages) == 2


@virtual_time
async def test_a_delayed_message_holds_up_those_behind_it() -> None:
    net = await three()
    net.network.faults.add(Rule(lambda _s, _t, m: m == heartbeat(1), delay_s=5))
    net.send(1, 2)
    await net.pass_s(4.9)
    assert net.rounds(B) == []
    await net.pass_s(0.2)
    assert net.rounds(B) == [1, 2]


@virtual_time
async def test_messages_are_doubled() -> None:
    net = await three()
    net.network.faults.add(Rule(duplicate_share=1))
    net.send(1, 2)
    await net.pass_s()
    assert net.rounds(B) == [1, 1, 2, 2]
    assert net.network.counters.duplicated == 2


@virtual_time
async def test_a_second_copy_may_come_long_after_the_first() -> None:
    net = await three()
    rule = net.network.faults.add(Rule(duplicate_share=1, echo_s=10))
    net.send(1)
    net.network.faults.remove(rule)
    net.send(2)
    await net.pass_s(0.01)
    assert net.rounds(B) == [1, 2]
    await net.pass_s(10)
    assert net.rounds(B) == [1, 2, 1]


@virtual_time
async def test_messages_are_reordered() -> None:
    net = await three()
    net.network.faults.add(Rule(reorder_share=0.3))
    net.send(*range(100))
    await net.pass_s(1)
    assert net.rounds(B) != list(range(100))
    assert sorted(net.rounds(B)) == list(range(100))


def test_the_same_seed_gives_the_same_run() -> None:
    async def run() -> tuple[list[int], object]:
        net = await three(seed=42)
        net.network.jitter_s = 0.01
        net.network.faults.add(Rule(drop_share=0.2, duplicate_share=0.2, reorder_share=0.2))
        for round_ in range(300):
            net.send(round_)
            await net.pass_s(0.0005)
        await net.pass_s(1)
        return net.rounds(B), net.network.counters

    assert run_virtual(run()) == run_virtual(run())


@virtual_time
async def test_every_message_accepted_is_delivered_or_dropped() -> None:
    net = await three()
    net.network.faults.add(Rule(drop_share=0.2, duplicate_share=0.1))
    net.send(*range(200))
    await settle()
    net.network.disconnect(A, B)
    net.send(*range(100), target=C)
    await net.pass_s(1)
    counters = net.network.counters
    assert counters.sent + counters.duplicated == counters.delivered + counters.dropped
