"""Everything that takes a stranger's bytes apart, in this process: as fast as Python goes.

A case ends well when it is decoded, or refused with one of our own codes, within its time; anything else is a failure.
What was decoded must encode to what decodes to the same: nothing that is let in means one thing here and another there.

A check that never refuses is one that is not there, or that nothing reaches: over many cases each has to.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from random import Random
from typing import NamedTuple, Self

from dledger.common.batch import build_body, check_body, crc32c, records_of
from dledger.common.config import MIB
from dledger.common.errors import Code, DLedgerError
from dledger.common.types import GroupSettings, LogPoint, Member, NodeId, Position, PreferredLeader, Term, TrimPoint
from dledger.disk.record import RecordKind, pack_record, unpack_record
from dledger.log.frame.control import (
    check_control,
    membership_body,
    no_op_body,
    producer_body,
    settings_body,
    trim_body,
)
from dledger.log.frame.frame import (
    HEADER_BYTES,
    ControlKind,
    Frame,
    FrameHeader,
    chain_of,
    following,
    make_frame,
    parse_frames,
    parse_header,
)
from dledger.log.frame.log_snapshot import LogSnapshot
from dledger.raft import codec
from dledger.raft.messages import Append, FetchResponse, Message, Reset
from dledger.transport.framing import MAX_HEADER_BYTES, MessageReader, RawMessage, pack
from dledger.transport.hello import dial_hello, judge_answer, judge_dial
from dledger.transport.peer import MAX_MESSAGE_BYTES
from dledger.transport.transport_api import PeerIdentity
from dledger.v1 import raft_pb2 as pb
from tests.fuzz.mutate import HOSTILE_UNSIGNED_64, mutate_message, mutated_bytes
from tests.fuzz.recorded import Recorded, record

MAX_REFUSAL_CHARS = 1_500
MAX_CASE_S = 2.0
"""Of one case on a busy machine; each takes well under a millisecond."""
ENOUGH_CASES = 20_000
"""For every check to have refused something: the rarest does so a hundred times."""
REFUSALS = {
    f"{Code.CORRUPT_LOG.value} by following": "check_link",
    f"{Code.CORRUPT_BATCH.value} by following": "check_frame_body",
    f"{Code.CORRUPT_LOG.value} by check_control": "check_control",
    f"{Code.CORRUPT_BATCH.value} by check_body": "check_body",
}
"""How a refusal shows in the outcomes, and whose it is."""

NO_CHAIN, ANOTHER_CHAIN = 0, 1
"""Of the frame before the first one that a message brings: in the receiver's log, and in one that is not its own."""
_FRAMED = ("Append", "FetchResponse")
_MEMBERS = tuple(Member(NodeId(f"n{n}"), f"127.0.0.1:{n}", voter=n < 3) for n in range(1, 4))
_TRIM = TrimPoint(LogPoint(Position(1), Term(1), 1), 0)
_SETTINGS = GroupSettings((PreferredLeader(NodeId("n1"), 1),), 1_000, 1_000)
_CONTROL_BODIES = {
    ControlKind.NO_OP: no_op_body("c", _MEMBERS),
    ControlKind.PRODUCER: producer_body("name"),
    ControlKind.MEMBERSHIP: membership_body(_MEMBERS),
    ControlKind.TRIM: trim_body(_TRIM),
    ControlKind.SETTINGS: settings_body(_SETTINGS),
}


class Stranger:
    """A TransportHandler that lets everybody in."""

    def __init__(self, node_id: str) -> None:
        self._identity = PeerIdentity(NodeId(node_id), b"u" * 16, 3, (1, 2, 3), "c", "a:1", "a:2", "a:3")

    def local_identity(self) -> PeerIdentity:
        return self._identity

    def check_peer(self, identity: PeerIdentity) -> None: ...

    def on_message(self, sender: NodeId, message: Message) -> None: ...

    def on_connected(self, peer: NodeId) -> None: ...

    def on_disconnected(self, peer: NodeId) -> None: ...


class End(NamedTuple):
    """Of the log that a message's frames are to go on."""

    last: LogPoint
    next_index: int

    @classmethod
    def before(cls, header: FrameHeader) -> Self:
        """Of the log that the frame goes on, as far as it tells: nothing of that log's chain."""
        return cls(LogPoint(Position(header.position - 1), Term(header.term), NO_CHAIN), header.base_index)


class Decoders:
    """The cases, by name, and how each ended."""

    def __init__(self, seed: int) -> None:
        self.outcomes: Counter[str] = Counter()
        self._random = Random(seed)
        self._refused_by = ""
        """The check that refused, when it was one of those whose refusals are told apart."""
        self._kinds = record()
        for kind in _FRAMED:
            self._kinds[kind] = [_chained(each) for each in self._kinds[kind]]
        self._framed = [[each for each in self._kinds[kind] if each.body] for kind in _FRAMED]
        self._messages = [each for kind in sorted(self._kinds) for each in self._kinds[kind]]
        self._bodies = [build_body(records) for records in ([b"abc", b"", b"def"], [b""], [b"x" * 100] * 50)]
        self._hello = b"".join(dial_hello(Stranger("n0").local_identity(), NodeId("n1")))
        self._cases: tuple[Callable[[], str], ...] = (
            self._stream,
            self._stream,
            self._header,
            self._header,
            self._frames,
            self._control,
            self._hello_fields,
            self._small_state,
            self._batch_body,
        )

    def run(self, count: int) -> None:
        """Raises AssertionError, or whatever a decoder must not raise, with the case named; and, where there were
        enough cases, for a check that refused nothing."""
        for _ in range(count):
            case = self._random.choice(self._cases)
            began_s = time.perf_counter()
            outcome = self._outcome(case)
            assert time.perf_counter() - began_s < MAX_CASE_S, f"{case.__name__} took too long"
            self.outcomes[f"{case.__name__[1:]}: {outcome}"] += 1
        if self.outcomes.total() >= ENOUGH_CASES:
            self._check_refusals()

    def _check_refusals(self) -> None:
        seen = {outcome.partition(": ")[2] for outcome in self.outcomes}
        idle = ", ".join(check for refusal, check in REFUSALS.items() if refusal not in seen)
        assert not idle, (
            f"of {self.outcomes.total()} cases none was refused by {idle}: it lets everything in, or is idle"
        )

    def _outcome(self, case: Callable[[], str]) -> str:
        refused: DLedgerError
        self._refused_by = ""
        try:
            return case()
        except DLedgerError as refusal:
            refused = refusal
        assert str(refused).isprintable(), f"a refusal that a log should not hold: {refused!r}"
        assert len(str(refused)) <= MAX_REFUSAL_CHARS, f"an endless refusal: {refused}"
        return f"{refused.code.value} by {self._refused_by}" if self._refused_by else refused.code.value

    @contextmanager
    def _by(self, check: str) -> Iterator[None]:
        """What is refused within is refused by ``check``, or by the one that is named further in."""
        try:
            yield
        except DLedgerError:
            self._refused_by = self._refused_by or check
            raise

    # Cases -------------------------------------------------------------------------------------------------------

    def _stream(self) -> str:
        """A connection: a hello and messages, in whatever order and pieces, with something wrong in them."""
        random = self._random
        chosen = random.sample(self._messages, random.randint(1, 4))
        wire = b"".join((self._hello, *(b"".join(pack(each.header, [each.body])) for each in chosen)))
        wire = mutated_bytes(random, wire)
        reader = MessageReader(random.choice((MAX_HEADER_BYTES, MAX_MESSAGE_BYTES)))
        taken = 0
        while wire:
            length = random.choice((1, 11, 12, 100, len(wire)))
            for raw in reader.feed(wire[:length]):
                self._take(raw, is_first=taken == 0)
                taken += 1
            assert reader.buffered_bytes <= len(self._hello) + MIB
            wire = wire[length:]
        return "all taken" if taken else "nothing whole"

    def _take(self, raw: RawMessage, *, is_first: bool) -> None:
        if is_first:
            judge_dial(raw.header, Stranger("n1"))
        else:
            self._decode(raw.header, raw.body, pb.PeerMessage.FromString(bytes(raw.header)).leader_id or "n0")

    def _header(self) -> str:
        """A PeerMessage whose framing is right, with fields that nobody sends."""
        chosen = self._random.choice(self._messages)
        header = self._hostile_header(chosen)
        return self._decode(header, chosen.body, chosen.source)

    def _hostile_header(self, chosen: Recorded) -> bytes:
        random = self._random
        if random.random() < 0.3:
            return mutated_bytes(random, chosen.header)
        fields = pb.PeerMessage.FromString(chosen.header)
        mutate_message(random, fields)
        return fields.SerializeToString()

    def _frames(self) -> str:
        """Frames with a wrong field, whose checksums and chain are right all the same: they go on the receiver's log,
        but for a few that go on another one."""
        random = self._random
        chosen = random.choice(random.choice(self._framed))
        frames = parse_frames(chosen.body)
        body = bytearray(chosen.body)
        self._lie(body, sum(frame.header.stored_bytes for frame in frames[: random.randrange(len(frames))]))
        _mend(body, NO_CHAIN if random.random() < 0.9 else ANOTHER_CHAIN)
        return self._decode(chosen.header, bytes(body), chosen.source, End.before(frames[0].header))

    def _lie(self, body: bytearray, begin: int) -> None:
        """In a field of the header at ``begin``, and now and then anywhere."""
        random = self._random
        at = begin + 4 * random.randrange(HEADER_BYTES // 4)
        width = random.choice((4, 8))
        value = random.choice(HOSTILE_UNSIGNED_64) & ((1 << 8 * width) - 1)
        body[at : at + width] = value.to_bytes(width, "little")
        if random.random() < 0.5 and len(body) > HEADER_BYTES:
            body[random.randrange(HEADER_BYTES, len(body))] ^= 1 << random.randrange(8)

    def _control(self) -> str:
        """A control frame that says what no leader writes, and fits the log in everything else."""
        random = self._random
        chosen = random.choice(self._kinds["Append"])
        before = parse_header(chosen.body)
        end = End(before.point, before.end_index)
        kind = random.choice(list(_CONTROL_BODIES))
        body = self._control_body(kind)
        frame = make_frame(
            end.last,
            term=before.term,
            base_index=end.next_index,
            count=0,
            body=body,
            body_crc=crc32c(body),
            timestamp_ms=before.timestamp_ms,
            attributes=kind if random.random() < 0.9 else random.randrange(256),
        )
        return self._decode(chosen.header, frame.raw, chosen.source, end)

    def _control_body(self, kind: ControlKind) -> bytes:
        control = pb.ControlRecord.FromString(_CONTROL_BODIES[kind])
        mutate_message(self._random, control)
        body = control.SerializeToString()
        return body if self._random.random() < 0.9 else mutated_bytes(self._random, body)

    def _hello_fields(self) -> str:
        random = self._random
        hello = pb.Hello.FromString(self._hello[12:])
        mutate_message(random, hello)
        if random.random() < 0.5:
            judge_dial(hello.SerializeToString(), Stranger("n1"))
        else:
            judge_answer(hello.SerializeToString(), Stranger("n1"), NodeId("n0"))
        return "accepted"

    def _small_state(self) -> str:
        """What comes behind a RESET, with the checksum right."""
        random = self._random
        stored = unpack_record(RecordKind.LOG_STATE, random.choice(self._kinds["Reset"]).body)
        assert stored is not None
        LogSnapshot.decode(pack_record(RecordKind.LOG_STATE, 1, mutated_bytes(random, stored.payload)))
        return "decoded"

    def _batch_body(self) -> str:
        """What a client's stream brings, with the crc right: whatever is let in can be read."""
        random = self._random
        body = mutated_bytes(random, random.choice(self._bodies))
        count = random.choice((0, 1, 3, 50, 51, *HOSTILE_UNSIGNED_64[:11]))
        with self._by("check_body"):
            check_body(body, count, MIB)
        records = records_of(body, count)
        assert len(records) == count
        assert sum(map(len, records)) == len(body) - 4 * (count + 1)
        return "accepted"

    def _decode(self, header: bytes | memoryview, body: bytes | memoryview, sender: str, end: End | None = None) -> str:
        """Frames have to fit a log that ends at ``end``; by itself one that ends where the first of them begins."""
        message = codec.decode(header, body, cluster_id="c", sender=NodeId(sender))
        again = codec.encode(message, cluster_id="c", sender=NodeId(sender))
        if not isinstance(message, Append | FetchResponse):
            same = codec.decode(again.header, b"".join(again.body), cluster_id="c", sender=NodeId(sender))
            assert same == message, f"{message} is not what it was"
        elif message.frames:
            self._check_frames(message.frames, end or End.before(message.frames[0].header))
        if isinstance(message, Reset):
            LogSnapshot.decode(message.log_state)
        return "decoded"

    def _check_frames(self, frames: Sequence[Frame], end: End) -> None:
        """As the EntryHandler, and behind it the log, do."""
        raw = b"".join(frame.raw for frame in frames)
        assert raw == b"".join(frame.raw for frame in parse_frames(raw))
        with self._by("following"):
            for frame in following(frames, end.last, end.next_index, MIB):
                if not frame.header.count:
                    with self._by("check_control"):
                        check_control(frame)


def _chained(each: Recorded) -> Recorded:
    """The same to a log that ends where its frames begin (``End.before``)."""
    body = bytearray(each.body)
    _mend(body, NO_CHAIN)
    return each._replace(body=bytes(body))


def _mend(body: bytearray, chain: int) -> None:
    """The checksums and the chain of all frames, as far as their lengths lead: as if whoever made them, behind one with
    ``chain``, had meant what they say."""
    at = 0
    while at + HEADER_BYTES <= len(body):
        length = int.from_bytes(body[at + 4 : at + 8], "little")
        body_crc = crc32c(bytes(body[at + HEADER_BYTES : at + length]))
        body[at + 12 : at + 16] = body_crc.to_bytes(4, "little")
        chain = chain_of(chain, body[at : at + HEADER_BYTES])
        body[at + 80 : at + HEADER_BYTES] = chain.to_bytes(8, "little")
        header_crc = crc32c(bytes(body[at + 12 : at + HEADER_BYTES]), crc32c(bytes(body[at : at + 8])))
        body[at + 8 : at + 12] = header_crc.to_bytes(4, "little")
        if length < HEADER_BYTES:
            break
        at += (length + 7) & ~7
