"""The index of a segment, the hard state and the memory of producers, each against a model too simple to be wrong."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from dledger.common.batch import build_body, crc32c
from dledger.common.errors import Code, DLedgerError
from dledger.common.types import GENESIS, NodeId, Term
from dledger.group.hard_state import HardState, HardStateStore
from dledger.log.frame.frame import FrameHeader, make_frame
from dledger.log.frame.producers import RANGES_KEPT, Producers
from dledger.log.segment.index import INDEX_INTERVAL_BYTES, SparseIndex
from tests.crashes.medium import Depth, RecordedPlatter, RecordingDisk
from tests.crashes.promises import GROUP
from tests.support.virtual_time import run_virtual

SETTINGS = settings(max_examples=30, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck))


class IndexOfASegment(RuleBasedStateMachine):
    """Whatever is looked up, one begins at a frame at or before it, and not further back than the interval."""

    def __init__(self) -> None:
        super().__init__()
        self.index = SparseIndex()
        self.frames: list[tuple[FrameHeader, int]] = []
        self.previous, self.next_index, self.offset = GENESIS, 0, 4096

    @rule(count=st.integers(0, 3), size_bytes=st.integers(0, 5000))
    def add(self, count: int, size_bytes: int) -> None:
        body = build_body([bytes(size_bytes)] * count) if count else bytes(size_bytes)
        frame = make_frame(
            self.previous,
            term=1,
            base_index=self.next_index,
            count=count,
            body=body,
            body_crc=crc32c(body),
            timestamp_ms=len(self.frames),
        )
        header = frame.header
        self.index.add(frame, self.offset)
        self.frames.append((header, self.offset))
        self.previous, self.next_index = header.point, header.end_index
        self.offset += header.stored_bytes

    @rule()
    def store_and_load(self) -> None:
        loaded = SparseIndex.decode(self.index.encode())
        assert loaded is not None
        loaded.last_timestamp_ms = self.index.last_timestamp_ms
        self.index = loaded

    @invariant()
    def every_frame_is_found_soon(self) -> None:
        at = {offset: header for header, offset in self.frames}
        for header, offset in self.frames:
            position, begin = self.index.offset_before_position(header.position)
            assert at[begin].position == position <= header.position
            assert offset - begin < INDEX_INTERVAL_BYTES
            if header.count:
                position, begin = self.index.offset_before_index(header.base_index)
                assert at[begin].position == position <= header.position


class HardStateOverPowerCuts(RuleBasedStateMachine):
    """What a save has returned for is there for ever; what it was cut in may be."""

    store: HardStateStore

    def __init__(self) -> None:
        super().__init__()
        self.platter = RecordedPlatter()
        self.saved = HardState()

    @initialize()
    def start(self) -> None:
        self._open(must_exist=False)

    @rule(term_step=st.integers(0, 3), vote=st.sampled_from(["", "n0", "n1", "n2"]))
    def save(self, term_step: int, vote: str) -> None:
        self.saved = HardState(Term(self.saved.term + term_step), NodeId(vote))
        run_virtual(self.store.save(self.saved))

    @rule(term_step=st.integers(1, 3), call=st.integers(0, 7), outcome=st.integers(0, 1000))
    def save_and_lose_power(self, term_step: int, call: int, outcome: int) -> None:
        shots = [self.platter.shot()]
        self.disk.on_call = lambda _name, _after: shots.append(self.platter.shot())
        saving = HardState(Term(self.saved.term + term_step), NodeId("n9"))
        run_virtual(self.store.save(saving))
        shots.append(self.platter.shot())
        images = list(shots[call % len(shots)].images(Depth(8, 8), self.platter.random))
        self.platter = RecordedPlatter(images[outcome % len(images)])
        self._open(must_exist=True)
        assert self.store.state in (self.saved, saving)
        self.saved = self.store.state

    @rule()
    def restart(self) -> None:
        self._open(must_exist=True)

    @invariant()
    def it_is_what_was_saved(self) -> None:
        if hasattr(self, "store"):
            assert self.store.state == self.saved

    def _open(self, *, must_exist: bool) -> None:
        self.disk = RecordingDisk(self.platter)
        self.store = run_virtual(HardStateStore.open(self.disk, GROUP, must_exist=must_exist))


class MemoryOfAProducer(RuleBasedStateMachine):
    """A retry of what was appended is known by where it is, or refused as too old, and never taken for a new batch."""

    def __init__(self) -> None:
        super().__init__()
        self.producers = Producers()
        self.producers.register(7, 0)
        self.batches: list[FrameHeader] = []
        self.previous, self.next_index, self.sequence = GENESIS, 0, 0

    @rule(count=st.integers(1, 5), value=st.binary(max_size=4))
    def append(self, count: int, value: bytes) -> None:
        body = build_body([value] * count)
        assert self.producers.check(7, 0, self.sequence, count, crc32c(body)) is None
        frame = make_frame(
            self.previous,
            term=1,
            base_index=self.next_index,
            count=count,
            body=body,
            body_crc=crc32c(body),
            timestamp_ms=len(self.batches),
            producer_id=7,
            base_sequence=self.sequence,
        )
        self.producers.record(frame.header)
        self.batches.append(frame.header)
        self.previous, self.next_index = frame.header.point, frame.header.end_index
        self.sequence += count

    @rule(count=st.integers(1, 40))
    def append_many(self, count: int) -> None:
        for _ in range(count):
            self.append(1, b"")

    @rule(back=st.integers(1, 2 * RANGES_KEPT))
    def retry(self, back: int) -> None:
        if back > len(self.batches):
            return
        batch = self.batches[-back]
        if back > RANGES_KEPT:
            self._is_refused(Code.REPEATED_REQUEST, batch.base_sequence, batch.count, batch.body_crc)
            return
        known = self.producers.check(7, 0, batch.base_sequence, batch.count, batch.body_crc)
        assert known is not None
        assert (known.base_index, known.position) == (batch.base_index, batch.position)

    @rule(ahead=st.integers(1, 100))
    def leave_something_out(self, ahead: int) -> None:
        self._is_refused(Code.OUT_OF_ORDER, self.sequence + ahead, 1, 0)

    @rule(back=st.integers(1, RANGES_KEPT))
    def send_other_bytes(self, back: int) -> None:
        if back <= len(self.batches):
            batch = self.batches[-back]
            self._is_refused(Code.SEQUENCE_CONFLICT, batch.base_sequence, batch.count, batch.body_crc ^ 1)

    @rule()
    def store_and_load(self) -> None:
        loaded = Producers()
        loaded.decode(self.producers.freeze().encode())
        self.producers = loaded

    def _is_refused(self, code: Code, sequence: int, count: int, body_crc: int) -> None:
        with pytest.raises(DLedgerError) as refused:
            self.producers.check(7, 0, sequence, count, body_crc)
        assert refused.value.code is code


TestIndexOfASegment = IndexOfASegment.TestCase
TestIndexOfASegment.settings = SETTINGS
TestHardStateOverPowerCuts = HardStateOverPowerCuts.TestCase
TestHardStateOverPowerCuts.settings = SETTINGS
TestMemoryOfAProducer = MemoryOfAProducer.TestCase
TestMemoryOfAProducer.settings = SETTINGS
