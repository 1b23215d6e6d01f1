"""A log in memory behind the client's interface: what commands do with answers and refusals, without a server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any, Self

from dledger.client import (
    Acks,
    AckSpan,
    Batch,
    ClusterStatus,
    GroupInfo,
    MembershipChange,
    NodeStatus,
    RetentionChange,
    SegmentInfo,
    TrimResult,
)
from dledger.common.batch import build_body
from dledger.common.errors import Code, DLedgerError, error
from dledger.common.types import Ack, Consistency, Entry, GroupSettings, Member, NodeId, PreferredLeader

TIMESTAMP_MS = 1_000


class FakeAdmin:
    """Every operation succeeds, but for the next ``refusals``; ``calls`` tells what was asked for."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.refusals: list[DLedgerError] = []
        self.refusals_of: dict[str, DLedgerError] = {}
        """By the name of the operation: all calls of it are refused."""
        self.may_be_earlier = False
        self.trims_to: TrimResult | None = None

    async def transfer_leadership(self, to: str | None, *, dry_run: bool) -> tuple[str, int]:
        self.calls.append(("transfer", to, dry_run))
        return to or "n1", 4

    async def add_learner(self, node_id: str, peer_address: str, *, dry_run: bool) -> MembershipChange:
        return self._change(("add", node_id, peer_address, dry_run), node_id, voter=False)

    async def promote(self, node_id: str, *, dry_run: bool = False, timeout_ms: float = 0) -> MembershipChange:
        return self._change(("promote", node_id, dry_run), node_id, voter=True)

    async def remove(self, node_id: str, *, dry_run: bool = False, timeout_ms: float = 0) -> MembershipChange:
        return self._change(("remove", node_id, dry_run), node_id, voter=None)

    async def readmit(self, node_id: str, *, dry_run: bool = False, timeout_ms: float = 0) -> MembershipChange:
        return self._change(("readmit", node_id, dry_run), node_id, voter=False)

    def _change(self, call: tuple[Any, ...], node_id: str, *, voter: bool | None) -> MembershipChange:
        self.calls.append(call)
        if self.refusals:
            raise self.refusals.pop(0)
        if call[0] in self.refusals_of:
            raise self.refusals_of[call[0]]
        others = [Member(NodeId(each), f"{each}:2") for each in ("n0", "n1", "n2") if each != node_id]
        named = [] if voter is None else [Member(NodeId(node_id), f"{node_id}:2", voter=voter)]
        dry_run = call[-1]
        if self.may_be_earlier:
            return MembershipChange((*others, *named), 0, may_be_earlier=True)
        return MembershipChange((*others, *named), 0 if dry_run else 7)

    async def set_preferred(self, priorities: dict[str, int], *, dry_run: bool) -> GroupSettings:
        self.calls.append(("preferred", priorities, dry_run))
        return GroupSettings(tuple(PreferredLeader(NodeId(each), of) for each, of in priorities.items()))

    async def trim(self, before: int, *, dry_run: bool) -> TrimResult:
        self.calls.append(("trim", before, dry_run))
        return self.trims_to or TrimResult(before - 1, 10, 2048)

    async def set_retention(self, *, max_age_ms: int | None, max_bytes: int | None, dry_run: bool) -> RetentionChange:
        self.calls.append(("retention", max_age_ms, max_bytes, dry_run))
        return RetentionChange(GroupSettings((), max_age_ms or 0, max_bytes or 0), 10, 2048)


class FakeGroups:
    """The directory of groups; ``calls`` tells what was asked for."""

    def __init__(self) -> None:
        self.groups: dict[str, GroupInfo] = {}
        self.calls: list[tuple[Any, ...]] = []
        self.ids = 0
        self.behind_a_look: Callable[[], object] = lambda: None
        """Called behind each dry run of a deletion."""

    def make(self, name: str, members: Sequence[str] = ("n0", "n1")) -> GroupInfo:
        self.ids += 1
        founders = tuple(Member(NodeId(each), f"{each}:2") for each in members)
        self.groups[name] = GroupInfo(name, self.ids, founders, founders)
        return self.groups[name]

    async def create(self, name: str, members: Sequence[str] | None, *, dry_run: bool) -> GroupInfo:
        self.calls.append(("create", name, members, dry_run))
        if name in self.groups:
            raise error(Code.GROUP_EXISTS, f"there is a group {name!r} already")
        group = self.make(name, members or ("n0", "n1", "n2"))
        if dry_run:
            del self.groups[name]
        return group

    async def describe(self, name: str) -> GroupInfo:
        if name not in self.groups:
            raise error(Code.UNKNOWN_GROUP, f"there is no group {name!r}")
        return self.groups[name]

    async def delete(self, name: str, *, id: int = 0, force: bool = False, dry_run: bool = False) -> GroupInfo:  # noqa: A002
        self.calls.append(("delete", name, force, dry_run))
        group = await self.describe(name)
        if id not in (0, group.id):
            raise error(Code.CHANGE_REFUSED, f"group {name!r} has id {group.id} by now, not {id}")
        if dry_run:
            self.behind_a_look()
        else:
            del self.groups[name]
        return group

    async def list(self) -> list[GroupInfo]:
        return [self.groups[name] for name in sorted(self.groups)]


class FakeCluster:
    """The same log for every group."""

    def __init__(self, log: FakeLog) -> None:
        self._log = log
        self.groups = FakeGroups()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        return None

    def log(self, _: str) -> FakeLog:
        return self._log


class FakeLog:
    """Appends succeed, until ``refusals`` has one for the call; ``reads`` tells how it was read."""

    def __init__(self, records: Sequence[bytes] = (), status: ClusterStatus | None = None) -> None:
        self.records = list(records)
        self.refusals: dict[int, DLedgerError] = {}
        self.reads: list[dict[str, Any]] = []
        self.starts: list[int] = []
        self.on_records: Callable[[], object] = lambda: None
        """Called when records have been acknowledged."""
        self.endpoints = ""
        self.on_wait: Callable[[DLedgerError], object] | None = None
        """What the command that is connected to it gave to be told of waits."""
        self.admin = FakeAdmin()
        self.cluster = FakeCluster(self)
        self._status = status or healthy()
        self._calls = 0
        self.cut: list[SegmentInfo] = []
        """How it is cut into segments."""

    def connected(self, *, on_wait: Callable[[DLedgerError], object] | None = None, **_: object) -> Self:
        """As by ``dledger.connect``."""
        self.on_wait = on_wait
        return self

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        return None

    def enqueue_many(self, records: Sequence[bytes], *, expect_index: int | None = None) -> asyncio.Future[Acks]:
        answer: asyncio.Future[Acks] = asyncio.get_running_loop().create_future()
        refusal = self.refusals.get(self._calls)
        if expect_index not in (None, len(self.records)):
            text = f"{expect_index} is expected, {len(self.records)} comes"
            refusal = error(Code.WRONG_EXPECTED_INDEX, text, next_index=len(self.records))
        if refusal:
            answer.get_loop().call_soon(answer.set_exception, refusal)
        else:
            acks = Acks([AckSpan(len(self.records), len(records), 3, TIMESTAMP_MS)])
            self.records += records
            answer.get_loop().call_soon(answer.set_result, acks)
            answer.add_done_callback(lambda _: self.on_records())
        self._calls += 1
        return answer

    def enqueue(self, record: bytes) -> asyncio.Future[Ack]:
        return asyncio.ensure_future(self._one(record))

    async def _one(self, record: bytes) -> Ack:
        return (await self.enqueue_many([record]))[0]

    async def get(
        self, index: int, consistency: Consistency = Consistency.LINEARIZABLE, *, node: str | None = None
    ) -> Entry:
        await asyncio.sleep(0)
        return Entry(index, 3, TIMESTAMP_MS + index, self.records[index])

    async def bounds(self) -> tuple[int, int]:
        return 0, len(self.records) - 1

    async def status(self) -> ClusterStatus:
        return self._status

    async def segments(self) -> list[SegmentInfo]:
        return self.cut

    async def read_batches(self, start: int = 0, end: int | None = None, **how: Any) -> AsyncGenerator[Batch]:
        self.reads.append(how)
        self.starts.append(start)
        for index in range(start, len(self.records) if end is None else end):
            yield Batch(index, 1, 3, TIMESTAMP_MS, build_body([self.records[index]]))


class Unreachable(FakeLog):
    """Nobody answers."""

    async def status(self) -> ClusterStatus:
        raise error(Code.NETWORK_ERROR, "no node answers: is the cluster up?")


def node(node_id: str, role: str, *, reachable: bool = True, commit_index: int = -1) -> NodeStatus:
    """A node as the status tells of it."""
    return NodeStatus(
        node_id, f"{node_id}:1", role=role, term=3, commit_index=commit_index, chain="00ff", reachable=reachable
    )


def healthy() -> ClusterStatus:
    """n1 leads, n2 cannot be reached."""
    nodes = (node("n0", "follower", commit_index=1), node("n1", "leader"), node("n2", "unknown", reachable=False))
    return ClusterStatus("default", 3, "n1", "c1", nodes)
