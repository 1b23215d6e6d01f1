"""``dledger.Node`` inside a host program: three nodes in one event loop, over real sockets and files."""

from __future__ import annotations

import asyncio
import errno
import os
import random
import re
import shutil
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import uvloop

import dledger
from dledger.cli.ports import free_base
from dledger.common.errors import Code
from dledger.common.types import NodeId, Term
from dledger.disk.disk import OsDisk
from dledger.disk.syncer import Handle, Syncer, SyncThreads, ThreadSyncer
from dledger.server.cluster_node import ClusterNode
from tests.integration.nodes import eventually

DEADLINE_S = 10.0
COMMITTED = dledger.Consistency.COMMITTED
TIMINGS = dledger.Timings(heartbeat_interval_ms=50, election_timeout_min_ms=250, election_timeout_max_ms=500)


def hosted(inner: ClusterNode, *, serves_clients: bool = True) -> dledger.Node:
    """A host's node around one with parts of the test's own."""
    node = dledger.Node(inner.config, serves_clients=serves_clients)
    node._inner = inner
    return node


class Told(NamedTuple):
    role: dledger.Role
    term: int
    leader_id: str


class Broker:
    """A host as a message broker is one: master while its node leads, slave while another does."""

    def __init__(self, node: dledger.Node) -> None:
        self.node = node
        self.told: list[Told] = []
        self._changed = asyncio.Event()
        node.add_listener(self._on_role)

    def _on_role(self, group: str, role: dledger.Role, term: Term, leader_id: NodeId) -> None:
        if group != "default":
            return
        self.told.append(Told(role, term, leader_id))
        self._changed.set()

    @property
    def is_master(self) -> bool:
        return bool(self.told) and self.told[-1].role is dledger.Role.LEADER

    @property
    def master(self) -> str:
        """Whom it would name to its clients."""
        return self.told[-1].leader_id if self.told else ""

    async def until(self, seen: Callable[[], bool]) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while not seen():
                self._changed.clear()
                await self._changed.wait()


class Brokers(list[Broker]):
    async def master(self, *others_than: Broker) -> Broker:
        """The one that all of the rest take for the master."""
        rest = [broker for broker in self if broker not in others_than]
        gone = {broker.node.config.id for broker in others_than}
        for broker in rest:
            await broker.until(lambda broker=broker: broker.master not in {"", *gone})  # type: ignore[misc]
        [master] = [broker for broker in rest if broker.is_master]
        return master


def config(data: Path, node_id: str, base: int, nodes: int, cluster_id: str = "") -> dledger.NodeConfig:
    peers = {f"n{number}": f"127.0.0.1:{base + 10 * number}" for number in range(nodes)}
    return dledger.NodeConfig(id=node_id, peers=peers, data_dir=data / node_id, timings=TIMINGS, cluster_id=cluster_id)


@asynccontextmanager
async def brokers(
    data: Path, nodes: int = 3, cluster_id: str = "", *, serves_clients: bool = True
) -> AsyncIterator[Brokers]:
    base = free_base(nodes)
    async with AsyncExitStack() as stack:
        started = Brokers()
        for number in range(nodes):
            own = config(data, f"n{number}", base, nodes, cluster_id)
            node = hosted(ClusterNode(own, random=random.Random(number)), serves_clients=serves_clients)
            started.append(Broker(node))
            await stack.enter_async_context(node)
        yield started


async def values(node: dledger.Node, consistency: dledger.Consistency = COMMITTED) -> list[bytes]:
    return [entry.value async for entry in node.read(consistency=consistency)]


async def test_three_nodes_choose_a_master_and_tell_every_host_in_order(tmp_path: Path) -> None:
    async with brokers(tmp_path) as all_three:
        master = await all_three.master()
        assert master.node.role is dledger.Role.LEADER
        for broker in all_three:
            terms = [told.term for told in broker.told]
            assert terms == sorted(terms)
            assert broker.told[-1].leader_id == master.node.config.id == broker.node.leader_id
            if broker is not master:
                assert broker.told[-1].role is dledger.Role.FOLLOWER
        roles = [told.role for told in master.told]
        assert roles[-2:] == [dledger.Role.CANDIDATE, dledger.Role.LEADER]


async def test_the_master_appends_and_every_host_reads(tmp_path: Path) -> None:
    async with brokers(tmp_path) as all_three:
        master = await all_three.master()
        ack = await master.node.append(b"one")
        acks = await master.node.append_many([b"two", b"", b"four"])
        assert (ack.index, ack.term) == (0, master.told[-1].term)
        assert [each.index for each in acks] == [1, 2, 3]
        assert await master.node.get(3) == dledger.Entry(3, acks[2].term, acks[2].timestamp_ms, b"four")
        assert await values(master.node, dledger.Consistency.LINEARIZABLE) == [b"one", b"two", b"", b"four"]
        for broker in all_three:
            async with aclosing(broker.node.read(1, follow=True, consistency=COMMITTED)) as following:
                assert [(await anext(following)).value for _ in range(3)] == [b"two", b"", b"four"]
            assert (await broker.node.get(0, COMMITTED)).value == b"one"


async def test_appends_side_by_side_keep_the_order_of_the_calls(tmp_path: Path) -> None:
    async with brokers(tmp_path) as all_three:
        master = await all_three.master()
        acks = await asyncio.gather(*(master.node.append(b"%d" % number) for number in range(1_000)))
        assert [ack.index for ack in acks] == list(range(1_000))
        assert await values(master.node) == [b"%d" % number for number in range(1_000)]


async def test_what_a_slave_is_asked_the_master_answers(tmp_path: Path) -> None:
    async with brokers(tmp_path) as all_three:
        master = await all_three.master()
        slave = next(broker for broker in all_three if broker is not master)
        ack = await slave.node.append(b"one")
        assert [each.index for each in await slave.node.append_many([b"two", b""])] == [ack.index + 1, ack.index + 2]
        entry = dledger.Entry(ack.index, ack.term, ack.timestamp_ms, b"one")
        assert await slave.node.get(ack.index) == await master.node.get(ack.index) == entry
        assert await values(slave.node, dledger.Consistency.LINEARIZABLE) == [b"one", b"two", b""]
        with pytest.raises(dledger.WrongExpectedIndex) as refused:
            await slave.node.append(b"x", expect_index=0)
        assert refused.value.next_index == ack.index + 3


async def test_a_client_reaches_the_log_at_the_port_of_any_host(tmp_path: Path) -> None:
    async with brokers(tmp_path) as all_three:
        await all_three.master()
        for number, broker in enumerate(all_three):
            async with dledger.connect(broker.node.config.client_address) as log:
                assert (await log.append(b"%d" % number)).index == number


async def test_a_slave_of_a_master_that_serves_no_clients_refuses_and_names_it(tmp_path: Path) -> None:
    async with brokers(tmp_path, serves_clients=False) as all_three:
        master = await all_three.master()
        slave = next(broker for broker in all_three if broker is not master)
        calls: list[Awaitable[object]] = [
            slave.node.append(b"x"),
            slave.node.get(0),
            values(slave.node, dledger.Consistency.LINEARIZABLE),
        ]
        for call in calls:
            with pytest.raises(dledger.NotLeader) as refused:
                await call
            assert refused.value.leader_id == master.node.config.id
            assert refused.value.leader_address == master.node.config.client_address


async def test_bad_input_is_refused_with_its_type_and_nothing_is_written(tmp_path: Path) -> None:
    async with brokers(tmp_path, nodes=1) as [broker]:
        await broker.until(lambda: broker.is_master)
        node = broker.node
        for call, code in (
            (node.append_many([]), Code.REQUEST_WITH_EMPTY_BODYS),
            (node.append(bytes((1 << 20) + 1)), Code.RECORD_TOO_LARGE),
            (node.append_many([bytes(1 << 20)] * 4), Code.BATCH_TOO_LARGE),
            (node.get(0), Code.INDEX_OUT_OF_RANGE),
            (node.get(-1), Code.INDEX_LESS_THAN_LOCAL_BEGIN),
        ):
            with pytest.raises(dledger.DLedgerError) as refused:
                await call
            assert refused.value.code is code
        assert (await node.append(b"first")).index == 0


async def test_when_the_master_stops_another_host_becomes_master_with_everything(tmp_path: Path) -> None:
    async with brokers(tmp_path) as all_three:
        old = await all_three.master()
        await old.node.append(b"kept")
        await old.node.stop()
        assert old.told[-1].role is not dledger.Role.LEADER, "a host whose node stopped is no master"
        new = await all_three.master(old)
        assert new.told[-1].term > old.told[0].term
        assert (await new.node.append(b"more")).index == 1
        assert await values(new.node, dledger.Consistency.LINEARIZABLE) == [b"kept", b"more"]
        with pytest.raises(dledger.Unavailable):
            await old.node.append(b"too late")


async def test_a_single_node_leads_at_once_and_after_a_restart_in_a_higher_term(tmp_path: Path) -> None:
    terms = []
    for number in range(2):
        async with brokers(tmp_path, nodes=1) as [broker]:
            await broker.until(lambda broker=broker: broker.is_master)  # type: ignore[misc]
            terms.append(broker.told[-1].term)
            assert (await broker.node.append(b"%d" % number)).index == number
            assert await values(broker.node) == [b"0", b"1"][: number + 1]
        assert not broker.is_master
    assert terms[1] > terms[0]


def test_a_host_may_bring_an_event_loop_of_its_own(tmp_path: Path) -> None:
    async def host() -> list[bytes]:
        async with brokers(tmp_path) as all_three:
            master = await all_three.master()
            await asyncio.gather(*(master.node.append(b"%d" % number) for number in range(100)))
            await master.node.stop()
            new = await all_three.master(master)
            await new.node.append(b"last")
            return await values(new.node)

    assert uvloop.run(host()) == [*(b"%d" % number for number in range(100)), b"last"]


@pytest.mark.parametrize("cluster_id", ["", "given"])
async def test_a_majority_of_emptied_directories_founds_no_second_cluster(tmp_path: Path, cluster_id: str) -> None:
    """Whatever the nodes are told of their cluster: the one that holds the log says so to whoever comes."""
    async with brokers(tmp_path, cluster_id=cluster_id) as all_three:
        keeper = await all_three.master()
        await keeper.node.append(b"acknowledged")
        emptied = [broker.node.config for broker in all_three if broker is not keeper]
        for broker in all_three:
            if broker is not keeper:
                await broker.node.stop()
        async with AsyncExitStack() as stack:
            for each in emptied:
                shutil.rmtree(each.data_dir)
                again = Broker(dledger.Node(each))
                all_three.append(again)
                await stack.enter_async_context(again.node)
            keeper_id = NodeId(keeper.node.config.id)
            for broker in all_three[3:]:

                async def has_met(node: dledger.Node = broker.node) -> bool:
                    return bool(node._inner.client_address(keeper_id))

                await eventually(has_met, f"{keeper_id} is met")
                assert keeper_id in broker.node._inner.founders_missing
            assert await values(keeper.node) == [b"acknowledged"]


async def test_a_member_that_starts_at_another_address_than_the_log_has_is_warned(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The others look for it where the log says that it is."""
    base = free_base(2)
    first, moved = config(tmp_path, "n0", base, 1), config(tmp_path, "n0", base + 10, 1)
    for here, warned in [(first, 0), (first, 0), (moved, 1)]:
        caplog.clear()
        broker = Broker(dledger.Node(here))
        async with broker.node:
            await broker.until(lambda broker=broker: broker.is_master)  # type: ignore[misc]
            await broker.node.append(b"committed in its term")
            await broker.node._inner.replica("").members.add(NodeId("n1"), "127.0.0.1:9")
        told = [record for record in caplog.records if "the log has this node at another address" in record.message]
        assert len(told) == warned


async def test_a_node_that_starts_twice_in_a_directory_is_refused(tmp_path: Path) -> None:
    async with brokers(tmp_path, nodes=1) as [broker]:
        second = dledger.Node(config(tmp_path, "n0", free_base(1), 1))
        with pytest.raises(dledger.ConfigError, match="is in use by process"):
            await second.start()
        await broker.until(lambda: broker.is_master)
        assert (await broker.node.append(b"unharmed")).index == 0


async def test_a_port_for_clients_in_use_is_refused_and_the_directory_is_free_again(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        own = replace(config(tmp_path, "n0", free_base(1), 1), grpc_port=taken.getsockname()[1])
        with pytest.raises(dledger.ConfigError, match="cannot listen"):
            await dledger.Node(own).start()
    async with dledger.Node(own) as node:
        assert node.config.client_port == own.grpc_port


class BreakableDisk(OsDisk):
    """Real until ``is_broken``; then fdatasync says that what was written is lost."""

    is_broken = False

    def __init__(self) -> None:
        super().__init__()
        self._threads = SyncThreads(self)

    def fdatasync(self, handle: Handle) -> None:
        if self.is_broken:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        super().fdatasync(handle)

    def syncer(self) -> Syncer:
        return ThreadSyncer(self._threads)


async def test_a_host_is_told_of_a_node_that_cannot_go_on(tmp_path: Path) -> None:
    disk = BreakableDisk()
    node = hosted(ClusterNode(config(tmp_path, "n0", free_base(1), 1), disk=disk))
    broker = Broker(node)
    async with node:
        await broker.until(lambda: broker.is_master)
        await node.append(b"good")
        watch = asyncio.create_task(node.failed())
        assert not watch.done()
        disk.is_broken = True
        with pytest.raises(dledger.OutcomeUnknown):
            await node.append(b"lost?")
        failure = await asyncio.wait_for(watch, DEADLINE_S)
        assert isinstance(failure, dledger.DiskError)
        assert not broker.is_master
        assert node.leader_id == ""
        with pytest.raises(dledger.DiskError):
            await node.append(b"never")


# What a host sees ------------------------------------------------------------------------------------------------

README = Path(__file__).parents[2] / "README.md"
PUBLIC = {
    "add_listener", "append", "append_many", "config", "create_group", "failed", "get", "group", "leader_id", "read",
    "role", "start", "stop", "term",
}  # fmt: skip


def test_a_node_shows_what_a_host_needs_and_nothing_of_what_it_is_made_of(tmp_path: Path) -> None:
    node = dledger.Node(config(tmp_path, "n0", 1_000, 1))
    assert {name for name in dir(node) if not name.startswith("_")} == PUBLIC


async def test_the_program_that_the_readme_shows_appends_on_a_first_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    [shown] = re.findall(r"```python\n([^`]*dledger\.Node\(.*?)asyncio\.run\(main\(\)\)", README.read_text(), re.DOTALL)
    names: dict[str, Any] = {}
    shown = shown.replace("127.0.0.1:20911", f"127.0.0.1:{free_base(1)}").replace("broker-log", str(tmp_path / "n0"))
    exec(shown, names)
    await asyncio.wait_for(names["main"](), DEADLINE_S)
    assert "value=b'hello'" in capsys.readouterr().out


async def test_a_host_reads_its_role_before_the_start_and_before_the_cluster_is_founded(tmp_path: Path) -> None:
    node = dledger.Node(config(tmp_path, "n0", free_base(3), 3))
    assert (node.role, node.leader_id, node.term) == (dledger.Role.FOLLOWER, "", 0)
    async with node:
        assert (node.role, node.leader_id, node.term) == (dledger.Role.FOLLOWER, "", 0)
        with pytest.raises(dledger.Unavailable, match="being founded"):
            await node.append(b"nobody leads")


async def test_a_host_makes_a_group_and_hears_of_it_by_its_name(tmp_path: Path) -> None:
    async with brokers(tmp_path, nodes=1) as [broker]:
        leads = asyncio.Event()
        broker.node.add_listener(
            lambda group, role, *_: leads.set() if (group, role) == ("orders", dledger.Role.LEADER) else None
        )
        await broker.until(lambda: broker.is_master)
        await broker.node.create_group("orders")
        await asyncio.wait_for(leads.wait(), DEADLINE_S)
        orders = broker.node.group("orders")
        assert (orders.role, orders.leader_id) == (dledger.Role.LEADER, "n0")
        assert (await orders.append(b"first")).index == 0
        assert [entry.value async for entry in orders.read()] == [b"first"]
        assert await values(broker.node) == [], "the log default is another one"
        with pytest.raises(dledger.GroupExists):
            await broker.node.create_group("orders")


@pytest.mark.parametrize("name", ["", "a b", None])
async def test_what_is_no_group_is_refused_when_it_is_named(tmp_path: Path, name: Any) -> None:
    node = dledger.Node(config(tmp_path, "n0", 1_000, 1))
    with pytest.raises(dledger.InvalidRequest):
        node.group(name)


class Sum(dledger.StateMachine):
    def __init__(self) -> None:
        self.value = 0

    def apply(self, command: bytes) -> int:
        self.value += len(command)
        return self.value

    def checkpoint(self) -> Iterator[bytes]:
        return iter([b"%d" % self.value])

    async def restore(self, parts: AsyncIterator[bytes]) -> None:
        self.value = int(b"".join([part async for part in parts]))


async def test_a_state_machine_follows_a_log_of_the_hosts_own_node(tmp_path: Path) -> None:
    async with brokers(tmp_path, nodes=1) as [broker]:
        await broker.until(lambda: broker.is_master)
        async with dledger.replicate(broker.node.group(), Sum) as one:
            assert await one.submit(b"123") == 3
            await one.checkpoint()
            await one.barrier()
        async with dledger.replicate(broker.node.group(), Sum) as later:
            await later.barrier()
            assert later.machine.value == 3
