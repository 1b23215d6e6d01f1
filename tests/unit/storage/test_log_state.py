"""The log's small state: what follows from headers alone."""

from __future__ import annotations

import pytest

from dledger.errors import CorruptLog
from dledger.storage.frame import ControlKind, make_frame
from dledger.storage.log_state import LogState
from dledger.types import Position
from dledger.v1.raft_pb2 import ControlRecord, MemberRecord
from tests.unit.storage.harness import MEMBERS, control_frame, data_frame


def applied(*terms: int) -> LogState:
    state = LogState("default", MEMBERS)
    for term in terms:
        state.apply(data_frame(state.last, state.next_index, term=term))
    return state


def test_terms_are_found_by_position() -> None:
    state = applied(1, 1, 3, 3, 7)
    assert [state.term_at(Position(each)) for each in range(6)] == [0, 1, 1, 3, 3, 7]


def test_the_first_position_of_a_term_is_known() -> None:
    state = applied(1, 1, 3, 3, 7)
    assert state.first_position_of_term_at(4) == 3


def test_a_no_op_brings_cluster_id_and_members() -> None:
    state = applied(1)
    record = ControlRecord(cluster_id="c", members=[MemberRecord(id="n7", peer_address="h:1", voter=True)])
    state.apply(control_frame(state.last, state.next_index, ControlKind.NO_OP, record))
    assert (state.cluster_id, [member.id for member in state.members]) == ("c", ["n7"])


def test_a_no_op_without_them_leaves_both() -> None:
    state = applied(1)
    state.apply(control_frame(state.last, state.next_index, ControlKind.NO_OP))
    assert state.members == MEMBERS


def test_control_frames_take_no_index() -> None:
    state = applied(1)
    state.apply(control_frame(state.last, state.next_index, ControlKind.NO_OP))
    assert (state.last.position, state.next_index) == (2, 2)


def test_a_control_frame_that_cannot_be_read_changes_nothing() -> None:
    state = applied(1)
    before = state.encode()
    bad = make_frame(
        state.last, term=1, base_index=2, count=0, body=b"\xff", body_crc=0, timestamp_ms=9999, attributes=1
    )
    with pytest.raises(CorruptLog):
        state.apply(bad)
    assert state.encode() == before


def test_every_damaged_byte_of_an_encoded_state_is_found() -> None:
    encoded = bytearray(applied(1, 2).encode())
    for at in range(len(encoded)):
        encoded[at] ^= 0x10
        with pytest.raises(CorruptLog):
            LogState.decode(bytes(encoded))
        encoded[at] ^= 0x10


def test_a_copy_goes_its_own_way() -> None:
    state = applied(1)
    copy = state.copy()
    copy.apply(data_frame(copy.last, copy.next_index))
    assert (state.last.position, copy.last.position) == (1, 2)
