"""Real nodes under attack at every port, and what must be so afterwards: they serve, their logs are equal and hold what
was acknowledged and nothing else, and they have not grown.

Three voters, and a learner that was never started: who speaks as it is let in.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import grpc

from dledger.common.batch import records_of
from dledger.common.config import MIB
from dledger.transport.framing import pack
from dledger.v1 import admin_pb2, log_pb2
from dledger.v1 import raft_pb2 as pb
from tests.fuzz import attacks
from tests.fuzz.recorded import Recorded, record
from tests.integration.nodes import CALL_TIMEOUT_S, Nodes, Stubs, everything, running

LEARNER = "n9"
WORKERS = 24
TAIL_CACHE_BYTES = 1 * MIB
"""What a node keeps of its log in memory: with more it would still be filling at the end, and be taken for a leak."""
MAX_GROWTH_BYTES = 16 * MIB
"""Of a node's memory in the second half of a run. Of one of 100,000 messages it is up to 9 MB, most of it the hundred
bytes that gRPC keeps of each stream that is cancelled; 170 more lost with every message would be seen."""
MAX_LOG_BYTES = 8 * MIB
"""Of a node's own log, however many were turned away."""
SWARM = 150
"""Connections that say nothing, or half a hello, at each port at a time."""
SILENT = "silent connections"
"""An outcome that is told beside the others: nothing came to be looked at, so it is none of what was asked for."""
MESSAGES_A_SESSION = 10
"""At most; most end sooner, with one that is refused."""

Attack = Callable[[], Awaitable[int]]


class Footprint(NamedTuple):
    memory_bytes: int
    files: int
    threads: int

    @classmethod
    def of(cls, pid: int) -> Footprint:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        files, threads = (sum(1 for _ in Path(f"/proc/{pid}/{kind}").iterdir()) for kind in ("fd", "task"))
        return cls(pages * os.sysconf("SC_PAGE_SIZE"), files, threads)


class Ports:
    """One run against one cluster."""

    def __init__(self, nodes: Nodes, messages: list[Recorded], seed: int, swarm: int) -> None:
        self.outcomes: Counter[str] = Counter()
        self._nodes = nodes
        self._random = Random(seed)
        self._messages = messages
        self._swarm_size = swarm
        self._acknowledged: dict[int, bytes] = {}
        self._possible: Counter[bytes] = Counter()
        """How often a record may be in the log beside those, from calls whose outcome is unknown."""
        self._refused: dict[bytes, str] = {}
        """Why the call of such a record was refused, for good: that is why it must not be there."""
        self._hellos: dict[str, pb.Hello] = {}
        self._turns = {node_id: asyncio.Lock() for node_id in nodes.ids}
        """At each peer port one at a time speaks as the learner: it would take the place of another, unheard."""
        self._leader = ""
        self._footprints: list[dict[str, Footprint]] = []
        """Of each node behind the first tenth of a run, the first half of the rest, and the second."""
        self._channels = {node_id: grpc.aio.insecure_channel(nodes[node_id].address) for node_id in nodes.ids}

    async def run(self, count: int, progress: Callable[[int], None]) -> None:
        """``count`` messages and calls that were looked at, or a few more. Raises AssertionError for what must not
        be."""
        await self._begin()
        done = 0

        async def work(until: int) -> None:
            nonlocal done
            while done < until:
                looked_at = await self._random.choice(self._attacks)()
                done += looked_at
                progress(done)

        for until in (count // 10, count // 10 + count * 9 // 20, count):
            async with asyncio.TaskGroup() as tasks:
                for _ in range(WORKERS):
                    tasks.create_task(work(until))
            self._footprints.append(self._footprints_now())
        self._check_growth()
        await self._swarm()
        await self._check()

    @property
    def _attacks(self) -> tuple[Attack, ...]:
        return (*(self._call,) * 30, *(self._replay,) * 4, self._peer_noise, *(self._grpc_noise,) * 4, self._http_noise)

    # Before ------------------------------------------------------------------------------------------------------

    async def _begin(self) -> None:
        self._leader = await self._nodes.leader()
        leader = self._nodes[self._leader]
        await leader.append(b"before", b"the fuzz")
        self._acknowledged = {0: b"before", 1: b"the fuzz"}
        for group in ("meta", "default"):
            leading = self._nodes[(await leader.status(group)).leader_id]
            learner = admin_pb2.AddLearnerRequest(group=group, id=LEARNER, peer_address="127.0.0.1:9")
            await leading.admin.AddLearner(learner, timeout=CALL_TIMEOUT_S)
        cluster_id = (await leader.status()).cluster_id
        await self._nodes.settled()
        for node_id in self._nodes.ids:
            self._hellos[node_id] = pb.Hello(
                version=1,
                cluster_id=cluster_id,
                node_id=LEARNER,
                node_uuid=b"u" * 16,
                start_count=1,
                start_nonces=[1],
                client_address="127.0.0.1:9",
                peer_address="127.0.0.1:9",
                expected_node_id=node_id,
            )

    def _footprints_now(self) -> dict[str, Footprint]:
        return {node_id: Footprint.of(pid) for node_id, pid in self._nodes.pids().items()}

    # Attacks -----------------------------------------------------------------------------------------------------

    async def _call(self) -> int:
        # The leader does most of what can be asked for.
        node_id = self._leader if self._random.random() < 0.5 else self._random.choice(self._nodes.ids)
        sent = attacks.make_call(self._random)
        ended = await attacks.call(self._channels[node_id], sent)
        for answer, records in zip(ended.answers, sent.records, strict=False):
            self._acknowledge(sent.method, answer, records)
        for records in sent.records[len(ended.answers) :]:
            if ended.is_outcome_known:
                self._refused.update(dict.fromkeys(records, ended.how))
            else:
                self._possible.update(records)
        self.outcomes[f"{sent.method.path.rpartition('/')[2]}: {ended.how}"] += 1
        return 1

    def _acknowledge(self, method: attacks.Method, answer: bytes, records: list[bytes]) -> None:
        if method is attacks.APPEND:
            base = log_pb2.AppendResponse.FromString(answer).base_index
        elif method is attacks.APPEND_STREAM:
            base = log_pb2.AppendStreamResponse.FromString(answer).base_index
        else:
            return
        for index, value in enumerate(records, base):
            assert self._acknowledged.setdefault(index, value) == value, f"index {index} was acknowledged twice"

    async def _replay(self) -> int:
        """As the learner; now and then twice at once. A second connection of the same start takes the first one's
        place, so that one of the two is surely heard to its end, and one counts."""
        node_id = self._random.choice(self._nodes.ids)
        address = self._nodes.cluster.nodes[node_id].peer_address
        session = attacks.replay(self._random, self._hellos[node_id], self._messages, MESSAGES_A_SESSION)
        times = 2 if self._random.random() < 0.1 else 1
        async with self._turns[node_id]:
            answers = await asyncio.gather(*(self._throw(address, session.wire) for _ in range(times)))
        is_heard = sum(map(attacks.is_welcome, answers)) > 0
        # Where a reset overtook the answer to the hello, there is no telling what came behind that.
        return self._count("a member's session", session.messages if is_heard else 1, is_answered=is_heard)

    async def _peer_noise(self) -> int:
        """One message, whatever comes behind it: as a rule that is not looked at."""
        node_id = self._random.choice(self._nodes.ids)
        data = attacks.noise_for_peers(self._random, self._hellos[node_id], self._messages)
        async with self._turns[node_id]:
            answered = await self._throw(self._nodes.cluster.nodes[node_id].peer_address, data)
        return self._count("peer port noise", 1, is_answered=bool(answered))

    async def _grpc_noise(self) -> int:
        node = self._nodes.cluster.nodes[self._random.choice(self._nodes.ids)]
        answered = await self._throw(node.client_address, attacks.noise_for_grpc(self._random))
        return self._count("gRPC port noise", 1, is_answered=bool(answered))

    async def _http_noise(self) -> int:
        node = self._nodes.cluster.nodes[self._random.choice(self._nodes.ids)]
        answered = await self._throw(node.http_address, attacks.noise_for_http(self._random))
        return self._count("HTTP port noise", 1, is_answered=bool(answered))

    async def _throw(self, address: str, data: bytes) -> bytes:
        return await attacks.throw(address, data, pieces=self._random.choice((1, 1, 3)), pause_s=0.0)

    def _count(self, what: str, looked_at: int, *, is_answered: bool) -> int:
        self.outcomes[f"{what}: {'answered' if is_answered else 'closed'}"] += looked_at
        return looked_at

    async def _swarm(self) -> None:
        """At every port as many connections as that do not come to the point; and a follower that comes back into it,
        and appends go on."""
        async with _silent(self._swarmed_addresses(), self._swarm_size):
            follower = (await self._nodes.followers())[0]
            await self._nodes.terminate(follower)
            await self._nodes.restart(follower)
            self._footprints[0][follower] = self._footprints_now()[follower]
            await self._append(b"in the swarm")
            await self._nodes.settled()
        self.outcomes[SILENT] += self._swarm_size * len(self._swarmed_addresses())

    def _swarmed_addresses(self) -> list[tuple[str, bytes]]:
        """Where, and the first words."""
        found = []
        for node in self._nodes.cluster.nodes.values():
            hello = self._hellos[node.id].SerializeToString()
            half = b"".join(pack(hello))[:20]
            found += [(node.peer_address, half), (node.client_address, b"PRI"), (node.http_address, b"GET /me")]
        return found

    # Afterwards --------------------------------------------------------------------------------------------------

    async def _append(self, value: bytes) -> None:
        base = (await self._nodes[await self._nodes.leader()].append(value)).base_index
        self._acknowledged[base] = value

    async def _check(self) -> None:
        await self._append(b"after the fuzz")
        last_index, *_ = await self._nodes.settled()
        for node_id in self._nodes.ids:
            await self._check_log(self._nodes[node_id], last_index)
            self._check_handles(node_id)
            self._check_words(node_id)
        for channel in self._channels.values():
            await channel.close()

    async def _check_log(self, node: Stubs, last_index: int) -> None:
        request = log_pb2.ReadRequest(consistency=log_pb2.CONSISTENCY_COMMITTED)
        read: list[Any] = await everything(node.log.Read(request, timeout=120))
        batches = [batch for answer in read for batch in answer.batches]
        found = [value for batch in batches for value in records_of(batch.body, batch.count)]
        assert len(found) == last_index + 1
        check_records(found, self._acknowledged, self._possible, self._refused)
        assert max(self._acknowledged) == last_index

    def _check_growth(self) -> None:
        """Caches fill, and the allocator keeps what it had once: then less comes in the second half. What goes on as it
        did is a leak."""
        for node_id in self._nodes.ids:
            warm, half, full = (footprints[node_id].memory_bytes for footprints in self._footprints)
            first, second = half - warm, full - half
            assert second < max(first / 2, MAX_GROWTH_BYTES), f"{node_id} grew by {first} bytes, then by {second}"

    def _check_handles(self, node_id: str) -> None:
        before, after = self._footprints[0][node_id], self._footprints_now()[node_id]
        assert after.files - before.files < 3 * WORKERS + 20, f"{node_id}: {before} → {after}"
        assert after.threads - before.threads < 3 * WORKERS + 20, f"{node_id}: {before} → {after}"

    def _check_words(self, node_id: str) -> None:
        said = self._nodes.log_of(node_id)
        bugs = [line for line in said.splitlines() if "Traceback" in line]
        assert not bugs, f"{node_id} met a bug: {bugs[0][:2_000]}"
        assert " critical " not in said
        assert len(said) < MAX_LOG_BYTES, f"{node_id} wrote {len(said)} bytes of log"


def check_records(
    found: Sequence[bytes], acknowledged: dict[int, bytes], possible: Counter[bytes], refused: dict[bytes, str]
) -> None:
    """Each is what was acknowledged at its index, or came with a call whose outcome is unknown, once for each."""
    left = possible.copy()
    for index, value in enumerate(found):
        if index in acknowledged:
            assert acknowledged[index] == value, f"record {index} is {value!r}, not {acknowledged[index]!r}"
        else:
            why = f"its call was refused with {refused[value]}" if value in refused else "it is of no open call"
            assert left[value], f"record {index} is {value!r}, though {why}"
            left[value] -= 1


@asynccontextmanager
async def _silent(addresses: list[tuple[str, bytes]], swarm: int) -> AsyncIterator[None]:
    """``swarm`` connections at each address that begin to speak and go silent; one that is closed is made anew."""

    async def hang(address: str, words: bytes) -> None:
        while True:
            with contextlib.suppress(OSError):
                async with attacks.connected(address) as (reader, writer):
                    writer.write(words)
                    await reader.read()
            await asyncio.sleep(1.0)

    async with asyncio.TaskGroup() as tasks:
        hanging = [tasks.create_task(hang(*each)) for each in addresses for _ in range(swarm)]
        try:
            await asyncio.sleep(1.0)
            yield
        finally:
            for task in hanging:
                task.cancel()


def fuzz_ports(
    data: Path, seed: int, count: int, progress: Callable[[int], None], *, swarm: int = SWARM
) -> Counter[str]:
    """A cluster of its own in ``data``. Raises AssertionError for what must not be."""
    kinds = record()
    messages = [each for kind in sorted(kinds) for each in kinds[kind]]

    data.mkdir(parents=True, exist_ok=True)
    config = data / "limits.toml"
    config.write_text(f"[limits]\ntail_cache_bytes = {TAIL_CACHE_BYTES}\n")

    async def run() -> Counter[str]:
        async with running(data, nodes=3, serve_flags=["--config", str(config)]) as nodes:
            ports = Ports(nodes, messages, seed, swarm)
            await ports.run(count, progress)
            return ports.outcomes

    return asyncio.run(run())
