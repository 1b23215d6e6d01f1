"""The truth of the store: what its committed commands come to, and what its clients may be told because of that."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from google.protobuf.message import Message

from dledger.etcdpb import rpc_pb2 as rpc
from dledger.statemachine.api import Refused
from dledger.statemachine.records import Command
from dledger.statemachine.sessions import Answer
from dledger.store.machine import Store
from dledger.store.refusals import StoreCode, StoreRefused
from dledger.v1 import store_pb2
from tests.simulation.machine_truth import MachineTruth
from tests.simulation.store.history import History
from tests.simulation.store.lease_truth import LeaseTruth
from tests.simulation.violation import Violation

if TYPE_CHECKING:
    from tests.simulation.groups import SimGroup

Told = Message | StoreRefused
"""What becomes of a command that is carried out."""


class Done:
    """A command was carried out."""

    __slots__ = ("answer", "at_s", "is_claimed")

    def __init__(self, answer: Answer, at_s: float) -> None:
        self.answer = answer
        self.at_s = at_s
        self.is_claimed = False
        """Somebody was told of it, who gave the command without a session of their own."""


class StoreTruth(MachineTruth[Store]):
    """Its store is never cleaned, so that nothing of what it was is forgotten."""

    def __init__(self, group: SimGroup) -> None:
        super().__init__(group, Store())
        self.history = History()
        self._world = group.cluster.world
        self._done: dict[bytes, list[Done]] = defaultdict(list)
        """By command."""
        self.answers: dict[tuple[int, int], Answer] = {}
        """By session and request."""
        self._hashes: dict[tuple[int, int], int] = {}
        """That were told, by their revision and the compacted one."""
        self.given_once: set[bytes] = set()
        """Commands that a client gives once, and that say which they are."""
        config = group.cluster.config_of(next(iter(group.cluster.hosts.values())))
        self.leases = LeaseTruth(1 + config.timings.max_clock_drift / 2, self._hit)
        self.refused: set[bytes] = set()
        """Of these, what was surely not appended, by what the client was told."""

    def contents(self, machine: Store) -> bytes:
        return machine.digest()

    @property
    def revision(self) -> int:
        return self.history.revision

    @property
    def compact_revision(self) -> int:
        return self._machine.pairs.compact_revision

    def carry_out(self, index: int, command: Command) -> None:
        store, payload = self._machine, command.payload
        try:
            answer = Answer(store.apply(payload))
        except Refused as refusal:
            answer = Answer(store.encode_refusal(refusal), is_refusal=True)
        self.history.take(store.pairs)
        self.leases.applied(store_pb2.StoreCommand.FromString(payload), store.leases, self._world.time())
        self.answers[command.session, command.request] = answer
        done = self._done[payload]
        done.append(Done(answer, self._world.time()))
        if payload in self.refused:
            raise Violation("what failed is not applied", f"record {index}: {payload!r}")
        if len(done) > 1 and payload in self.given_once:
            raise Violation("a command is applied once", f"record {index}: {payload!r}")

    # What clients are told ---------------------------------------------------------------------------------------

    def refuse(self, command: bytes) -> None:
        """Its client was told that it was not carried out, nor will be."""
        if command not in self.given_once:
            return
        self.refused.add(command)
        if self._done.get(command):
            raise Violation("what failed is not applied", f"{command!r}")

    def check_answer(self, command: bytes, told: Told, asked_s: float) -> None:
        """``command`` was given without a session, at ``asked_s``, and is answered now."""
        for done in self._done.get(command, ()):
            if not done.is_claimed and done.at_s >= asked_s and self._is_alike(told, done.answer):
                done.is_claimed = True
                return
        known = [(done.answer, done.at_s) for done in self._done.get(command, ())]
        raise Violation("what is answered was applied", f"{command!r}, asked at {asked_s:.3f}: {told!r} of {known}")

    def check_first_answer(self, session: int, request: int, told: Told) -> None:
        """It was given in a session, perhaps several times."""
        first = self.answers.get((session, request))
        if first is None:
            raise Violation("what is answered was applied", f"request {request} of session {session}")
        if not self._is_alike(told, first):
            raise Violation("a command has its first answer", f"{request} of session {session}: {told!r}, not {first}")

    def check_expired(self, session: int) -> None:
        """Its client was told so. It acknowledged nothing that it asks for again."""
        if session in self._sessions:
            raise Violation("a session that is used does not end", f"{session}")

    def _is_alike(self, told: Told, answer: Answer) -> bool:
        if isinstance(told, StoreRefused):
            return answer.is_refusal and self._machine.encode_refusal(told) == answer.value
        return not answer.is_refusal and _without_header(told) == _without_header(
            self._machine.decode_answer(answer.value)
        )

    def check_range(self, request: rpc.RangeRequest, told: rpc.RangeResponse, least: int, compacted: int) -> None:
        """``least``: the revision when it was asked; 0: it need not be there. ``compacted``: the compacted one then."""
        revision = told.header.revision
        self._check_revision(revision, least)
        if request.revision > revision or 0 < request.revision < compacted:
            raise Violation("what is compacted is not read", f"{request} at {revision}, compacted at {compacted}")
        expected = self.history.range(request, revision)
        if list(told.kvs) != expected or told.count != len(expected):
            raise Violation("a read is of its revision", f"{request} gave {told}, and should have {expected}")

    def check_hash(self, told: rpc.HashKVResponse) -> None:
        known = self._hashes.setdefault((told.hash_revision, told.compact_revision), told.hash)
        if known != told.hash:
            raise Violation("equal keys have equal hashes", f"{told}, and {known} before")

    def _check_revision(self, revision: int, least: int) -> None:
        if revision < least:
            raise Violation("linearizable reads", f"a read of revision {revision}, {least} was there before it")
        if revision > self.revision:
            raise Violation("only what is committed is read", f"revision {revision} of {self.revision}")

    def check_read_refused(self, request: rpc.RangeRequest, refusal: StoreRefused, least: int) -> None:
        """``least`` as in ``check_range``."""
        asked = request.revision
        is_right = {
            StoreCode.COMPACTED: 0 < asked < self.compact_revision,
            StoreCode.FUTURE_REVISION: asked > least,
        }
        if not is_right.get(refusal.code, False):
            raise Violation("a refusal has its reason", f"{request}: {refusal!r}, asked at {least}")


def _without_header(answer: Any) -> Message:
    """But for its revision: the rest says who answers."""
    plain: Any = type(answer)()
    plain.CopyFrom(answer)
    if plain.DESCRIPTOR.fields_by_name.get("header") is not None:
        revision = plain.header.revision
        plain.header.Clear()
        plain.header.revision = revision
    message: Message = plain
    return message
