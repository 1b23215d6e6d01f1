"""The log's small state: what follows from headers alone."""

from __future__ import annotations

import pytest

from dledger.common.errors import Code, CorruptLog, DLedgerError
from dledger.common.types import (
    GENESIS,
    GroupSettings,
    LogPoint,
    Member,
    NodeId,
    Position,
    PreferredLeader,
    Term,
    TrimPoint,
)
from dledger.disk.record import RecordKind, pack_record
from dledger.log.frame.control import check_control, membership_body, no_op_body, settings_body, trim_body
from dledger.log.frame.frame import ControlKind, make_frame
from dledger.log.frame.log_snapshot import LogSnapshot, read_start
from tests.unit.log.harness import MEMBERS, control_frame, data_frame


def applied(*terms: int) -> LogSnapshot:
    state = LogSnapshot("default", MEMBERS)
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
    body = no_op_body("c", [Member(NodeId("n7"), "h:1")])
    state.apply(control_frame(state.last, state.next_index, ControlKind.NO_OP, body))
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
            LogSnapshot.decode(bytes(encoded))
        encoded[at] ^= 0x10


def test_a_copy_goes_its_own_way() -> None:
    state = applied(1)
    copy = state.copy()
    copy.apply(data_frame(copy.last, copy.next_index))
    assert (state.last.position, copy.last.position) == (1, 2)


def test_a_membership_frame_says_all_members_and_where_it_stands() -> None:
    state = applied(1)
    members = (
        Member(NodeId("n1"), "h:1", node_uuid=b"u" * 16, admitted_start_count=7),
        Member(NodeId("n2"), "h:2", voter=False),
    )
    state.apply(control_frame(state.last, state.next_index, ControlKind.MEMBERSHIP, membership_body(members)))
    assert (state.members, state.members_position) == (members, 2)


def test_a_settings_frame_replaces_all_settings() -> None:
    state = applied(1)
    first = GroupSettings((PreferredLeader(NodeId("n1"), 3),), retention_max_age_ms=5)
    for settings in (first, GroupSettings(retention_max_bytes=9)):
        state.apply(control_frame(state.last, state.next_index, ControlKind.SETTINGS, settings_body(settings)))
        assert state.settings == settings


def test_a_trim_frame_is_remembered_and_moves_nothing_by_itself() -> None:
    state = applied(1, 1)
    to = TrimPoint(state.last, state.next_index)
    state.apply(control_frame(state.last, state.next_index, ControlKind.TRIM, trim_body(to)))
    assert (state.trim, state.trim_position, state.start) == (to, 3, GENESIS)


def test_of_several_trims_the_one_that_goes_furthest_is_kept() -> None:
    """They may be under way together; whoever saw the first one committed has trimmed there already."""
    state = applied(1, 1)
    near, far = (TrimPoint(LogPoint(Position(at), Term(1), 0), at) for at in (1, 2))
    for to in (far, near):
        state.apply(control_frame(state.last, state.next_index, ControlKind.TRIM, trim_body(to)))
    assert (state.trim, state.trim_position) == (far, 3)


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        pytest.param(ControlKind.MEMBERSHIP, membership_body([]), id="no member"),
        pytest.param(
            ControlKind.MEMBERSHIP, membership_body([Member(NodeId("n1"), "h:1", voter=False)]), id="no voter"
        ),
        pytest.param(ControlKind.MEMBERSHIP, membership_body([Member(NodeId("n1"), "h:1")] * 2), id="one twice"),
        pytest.param(ControlKind.MEMBERSHIP, membership_body([Member(NodeId(""), "h:1")]), id="no id"),
        pytest.param(ControlKind.TRIM, b"", id="no trim point"),
        pytest.param(ControlKind.TRIM, trim_body(TrimPoint(LogPoint(Position(2), Term(1), 0), 2)), id="itself"),
        pytest.param(99, b"", id="unknown kind"),
    ],
)
def test_a_control_frame_that_makes_no_sense_is_refused_before_it_is_written(kind: int, body: bytes) -> None:
    state = applied(1)
    before = state.encode()
    frame = control_frame(state.last, state.next_index, kind, body)
    with pytest.raises(CorruptLog):
        check_control(frame)
    with pytest.raises(CorruptLog):
        state.apply(frame)
    assert state.encode() == before


def test_everything_survives_being_stored() -> None:
    state = applied(1, 1, 3)
    for kind, body in (
        (ControlKind.MEMBERSHIP, membership_body(MEMBERS)),
        (ControlKind.SETTINGS, settings_body(GroupSettings((PreferredLeader(NodeId("n1"), 3),), 5, 9))),
        (ControlKind.TRIM, trim_body(TrimPoint(state.last, state.next_index))),
        (ControlKind.PRODUCER, b""),
    ):
        state.apply(control_frame(state.last, state.next_index, kind, body))
    again = LogSnapshot.decode(state.encode())
    assert all(getattr(again, name) == getattr(state, name) for name in LogSnapshot.__slots__ if name != "producers")
    assert again.encode() == state.encode()


def test_a_log_that_begins_later_knows_the_terms_from_there_on() -> None:
    state = applied(1, 1, 3, 3, 7)
    begin = data_frame(GENESIS, 0, term=1)
    state.begin_at(TrimPoint(LogPoint(Position(3), Term(3), 33), 6))
    assert (state.start.position, state.first_index) == (3, 6)
    assert [state.term_at(Position(each)) for each in (3, 4, 5)] == [3, 3, 7]
    assert state.first_position_of_term_at(4) == 3
    with pytest.raises(DLedgerError) as below:
        state.term_at(Position(2))
    assert (below.value.code, below.value.metadata) == (Code.INDEX_LESS_THAN_LOCAL_BEGIN, {"first_index": "6"})
    state.begin_at(TrimPoint(begin.header.point, 2))
    assert state.start.position == 3


def start_of(group: str = "default", frames: int = 3) -> LogSnapshot:
    state = LogSnapshot(group, MEMBERS)
    for _ in range(frames):
        state.apply(data_frame(state.last, state.next_index))
    state.begin_at(TrimPoint(state.last, state.next_index))
    return state


def test_a_state_to_begin_from_is_taken_as_it_is() -> None:
    state = start_of()
    assert read_start("default", state.encode(), GENESIS).encode() == state.encode()


@pytest.mark.parametrize(
    "encoded",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(start_of().encode()[:-1], id="torn"),
        pytest.param(start_of("other").encode(), id="of another group"),
        pytest.param(applied(1, 1, 1).encode(), id="of a log with frames"),
        pytest.param(start_of(frames=2).encode(), id="not behind the log's end"),
        pytest.param(pack_record(RecordKind.LOG_STATE, 3, b"\xff"), id="unreadable under a good checksum"),
    ],
)
def test_a_state_that_no_log_can_begin_from_is_refused(encoded: bytes) -> None:
    with pytest.raises(CorruptLog):
        read_start("default", encoded, applied(1, 1).last)


MOVED = [Member(each.id, f"elsewhere-{each.id}:1") for each in MEMBERS]


def test_a_cluster_whose_members_never_changed_may_move_as_a_whole() -> None:
    state = LogSnapshot("default", MEMBERS)
    state.apply(control_frame(GENESIS, 0, ControlKind.NO_OP, no_op_body("c", MEMBERS)))
    state.readdress([*MOVED, Member(NodeId("n9"), "h:9")])
    assert state.members == tuple(MOVED)


def test_once_members_have_changed_the_log_says_where_they_are() -> None:
    state = LogSnapshot("default", MEMBERS)
    state.apply(control_frame(GENESIS, 0, ControlKind.MEMBERSHIP, membership_body(MEMBERS)))
    state.readdress(MOVED)
    assert state.members == tuple(MEMBERS)
