"""A sequence of operations, on two new servers: where they answer otherwise, that is the difference."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from typing import NamedTuple

import grpc

from dledger.etcdpb.rpc_pb2_grpc import KVStub
from dledger.store.keys import prefix_end
from dledger.store.system import SYSTEM_PREFIX
from tests.etcd.client import Client
from tests.etcd.operations import Operation
from tests.etcd.servers import START_S
from tests.etcd.stubs import rpc
from tests.etcd.watching import ANSWER_S, Broken

Server = Callable[[], AbstractContextManager[str]]
CATCH_UP_EVERY = 100
QUIET_S = 0.2
"""At the end: what comes later than it should is seen, if it comes within that."""


class ReferenceEnded(Exception):
    """etcd has ended by itself, as it does where a key was put twice at one revision that is compacted at."""


class Difference(NamedTuple):
    position: int
    """Of the operation behind which it showed."""
    what: str

    @property
    def kind(self) -> str:
        """For a shrinker: the same difference, and no other."""
        return self.what.split(":", 1)[0]


def play(operations: Sequence[Operation], reference: Server, subject: Server) -> Difference | None:
    """``reference`` and ``subject`` start a server each. Raises ReferenceEnded."""
    with ExitStack() as stack:
        addresses = [stack.enter_context(server()) for server in (reference, subject)]
        copy_system_keys(addresses[1], addresses[0])
        sides = [Client(address) for address in addresses]
        for side in sides:
            stack.callback(side.close)
        return _Episode(sides[0], sides[1]).play(operations)


def copy_system_keys(origin: str, target: str) -> None:
    """A cluster of ours begins with records of its own: the other store gets the same ones, in their order."""
    with grpc.insecure_channel(origin) as ours, grpc.insecure_channel(target) as theirs:
        request = rpc.RangeRequest(
            key=SYSTEM_PREFIX, range_end=prefix_end(SYSTEM_PREFIX), sort_target=rpc.RangeRequest.MOD
        )
        for pair in KVStub(ours).Range(request, timeout=START_S).kvs:
            KVStub(theirs).Put(rpc.PutRequest(key=pair.key, value=pair.value), timeout=START_S)


class _Episode:
    def __init__(self, reference: Client, subject: Client) -> None:
        self._reference = reference
        self._subject = subject
        self._sides = (("reference", reference), ("subject", subject))

    def play(self, operations: Sequence[Operation]) -> Difference | None:
        for position, operation in enumerate(operations):
            is_due = position % CATCH_UP_EVERY == CATCH_UP_EVERY - 1
            # What a watch has not been told yet would go with a compaction, or not, by chance.
            what = self._catch_up() if is_due or operation.kind in ("Compact", "WatchCancel") else ""
            if what := what or self._do(operation):
                return Difference(position, what)
        what = self._catch_up()
        if not what:
            time.sleep(QUIET_S)  # for what nobody should send
            what = self._catch_up()
        return Difference(len(operations), what) if what else None

    def _do(self, operation: Operation) -> str:
        if operation.kind in ("WatchCreate", "WatchCancel"):
            return self._watch(operation)
        begun = [(side, side.begin(operation)) for _, side in self._sides]
        reference, subject = (side.end(operation, call) for side, call in begun)
        if reference == subject:
            return ""
        if reference.is_lost:
            raise ReferenceEnded
        kind = f"{operation.kind} {reference.status}/{subject.status}"
        return f"{kind}: to {operation}\n  reference: {reference}\n  subject:   {subject}"

    def _watch(self, operation: Operation) -> str:
        for name, side in self._sides:
            if what := self._try(name, partial(side.watch, operation)):
                return f"{operation.kind}, {what}"
        return ""

    def _catch_up(self) -> str:
        """What differs in what the watches have been told up to now."""
        revision = self._reference.revision
        for name, side in self._sides:
            if what := self._try(name, partial(side.now.catch_up, revision)):
                return what
        return self._compare_transcripts()

    def _try(self, name: str, action: Callable[[], None]) -> str:
        try:
            action()
        except Broken as broken:
            return f"watches of {name}: {broken}"
        except grpc.RpcError as failure:
            if name == "reference":
                raise ReferenceEnded from failure
            return f"watches of {name} end: {failure}"
        return ""

    def _compare_transcripts(self) -> str:
        for reference, subject in (
            (self._reference.now, self._subject.now),
            (self._reference.later, self._subject.later),
        ):
            deadline_s = time.monotonic() + ANSWER_S
            while (expected := reference.transcripts()) != (told := subject.transcripts()):
                behind = reference if _fewer(expected, told) else subject
                if time.monotonic() > deadline_s:
                    return _describe(expected, told)
                behind.wait_for_more(0.05)
        return ""


def _fewer(one: dict[int, list[str]], other: dict[int, list[str]]) -> bool:
    return sum(map(len, one.values())) < sum(map(len, other.values()))


def _describe(expected: dict[int, list[str]], told: dict[int, list[str]]) -> str:
    for watch in sorted(expected.keys() | told.keys()):
        reference, subject = expected.get(watch, []), told.get(watch, [])
        if reference != subject:
            same = next((n for n, pair in enumerate(zip(reference, subject, strict=False)) if len(set(pair)) > 1), None)
            first = min(len(reference), len(subject)) if same is None else same
            lines = [f"transcripts: watch {watch} is told, from its line {first} on"]
            lines += [f"  reference: {line}" for line in reference[first : first + 5]]
            lines += [f"  subject:   {line}" for line in subject[first : first + 5]]
            return "\n".join(lines)
    raise AssertionError("there is no difference")
