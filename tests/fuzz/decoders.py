"""Everything that takes a stranger's bytes apart, in this process: as fast as Python goes.

A case ends well when it is decoded, or refused with one of our own codes, within its time; anything else is a failure.
What was decoded must encode to what decodes to the same: nothing that is let in means one thing here and another there.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from random import Random

from dledger.batch import build_body, check_body, crc32c, records_of
from dledger.config import MIB
from dledger.errors import DLedgerError
from dledger.raft.messages import Append, FetchResponse, Message, Reset
from dledger.storage.control import check_control
from dledger.storage.frame import HEADER_BYTES, check_frame_body, check_link, parse_frames
from dledger.storage.log_state import LogState
from dledger.storage.record import RecordKind, pack_record, unpack_record
from dledger.transport import codec
from dledger.transport.api import PeerIdentity
from dledger.transport.framing import MAX_HEADER_BYTES, MessageReader, RawMessage, pack
from dledger.transport.hello import dial_hello, judge_answer, judge_dial
from dledger.transport.peer import MAX_MESSAGE_BYTES
from dledger.types import GENESIS, NodeId
from dledger.v1 import raft_pb2 as pb
from tests.fuzz.mutate import HOSTILE_UNSIGNED_64, mutate_message, mutated_bytes
from tests.fuzz.recorded import Recorded, record

MAX_REFUSAL_CHARS = 1_500
MAX_CASE_S = 2.0
"""Of one case on a busy machine; each takes well under a millisecond."""


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


class Decoders:
    """The cases, by name, and how each ended."""

    def __init__(self, seed: int) -> None:
        self.outcomes: Counter[str] = Counter()
        self._random = Random(seed)
        self._kinds = record()
        self._messages = [each for kind in sorted(self._kinds) for each in self._kinds[kind]]
        self._bodies = [build_body(records) for records in ([b"abc", b"", b"def"], [b""], [b"x" * 100] * 50)]
        self._hello = b"".join(dial_hello(Stranger("n0").local_identity(), NodeId("n1")))
        self._cases: tuple[Callable[[], str], ...] = (
            self._stream,
            self._stream,
            self._header,
            self._header,
            self._frames,
            self._hello_fields,
            self._small_state,
            self._batch_body,
        )

    def run(self, count: int) -> None:
        """Raises AssertionError, or whatever a decoder must not raise, with the case named."""
        for _ in range(count):
            case = self._random.choice(self._cases)
            began_s = time.perf_counter()
            outcome = _outcome(case)
            assert time.perf_counter() - began_s < MAX_CASE_S, f"{case.__name__} took too long"
            self.outcomes[f"{case.__name__[1:]}: {outcome}"] += 1

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
        """Frames with a wrong field, whose checksums are right all the same."""
        random = self._random
        chosen = random.choice(self._kinds["Append"])
        body = bytearray(chosen.body)
        at = 4 * random.randrange(HEADER_BYTES // 4)
        width = random.choice((4, 8))
        value = random.choice(HOSTILE_UNSIGNED_64) & ((1 << 8 * width) - 1)
        body[at : at + width] = value.to_bytes(width, "little")
        if random.random() < 0.5 and len(body) > HEADER_BYTES:
            body[random.randrange(HEADER_BYTES, len(body))] ^= 1 << random.randrange(8)
        _mend_checksums(body)
        return self._decode(chosen.header, bytes(body), chosen.source)

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
        LogState.decode(pack_record(RecordKind.LOG_STATE, 1, mutated_bytes(random, stored.payload)))
        return "decoded"

    def _batch_body(self) -> str:
        """What a client's stream brings, with the crc right: whatever is let in can be read."""
        random = self._random
        body = mutated_bytes(random, random.choice(self._bodies))
        count = random.choice((0, 1, 3, 50, 51, *HOSTILE_UNSIGNED_64[:11]))
        check_body(body, count, MIB)
        records = records_of(body, count)
        assert len(records) == count
        assert sum(map(len, records)) == len(body) - 4 * (count + 1)
        return "accepted"

    def _decode(self, header: bytes | memoryview, body: bytes | memoryview, sender: str) -> str:
        message = codec.decode(header, body, cluster_id="c", sender=NodeId(sender))
        again = codec.encode(message, cluster_id="c", sender=NodeId(sender))
        if not isinstance(message, Append | FetchResponse):
            same = codec.decode(again.header, b"".join(again.body), cluster_id="c", sender=NodeId(sender))
            assert same == message, f"{message} is not what it was"
        elif message.frames:
            self._check_frames(message)
        if isinstance(message, Reset):
            LogState.decode(message.log_state)
        return "decoded"

    def _check_frames(self, message: Append | FetchResponse) -> None:
        """As the EntryHandler does, on an empty log."""
        assert b"".join(frame.raw for frame in message.frames) == b"".join(
            frame.raw for frame in parse_frames(b"".join(frame.raw for frame in message.frames))
        )
        previous, next_index = GENESIS, 0
        for frame in message.frames:
            check_link(previous, next_index, frame.header, frame.buffers[0])
            check_frame_body(frame, MIB)
            if not frame.header.count:
                check_control(frame)
            previous, next_index = frame.header.point, frame.header.end_index


def _outcome(case: Callable[[], str]) -> str:
    refused: DLedgerError
    try:
        return case()
    except DLedgerError as refusal:
        refused = refusal
    assert str(refused).isprintable(), f"a refusal that a log should not hold: {refused!r}"
    assert len(str(refused)) <= MAX_REFUSAL_CHARS, f"an endless refusal: {refused}"
    return refused.code.value


def _mend_checksums(body: bytearray) -> None:
    """Of the first frame: body_crc, then header_crc, which covers the header but itself."""
    length = int.from_bytes(body[4:8], "little")
    body[12:16] = crc32c(bytes(body[HEADER_BYTES:length])).to_bytes(4, "little")
    crc = crc32c(bytes(body[12:HEADER_BYTES]), crc32c(bytes(body[:8])))
    body[8:12] = crc.to_bytes(4, "little")
