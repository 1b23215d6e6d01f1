"""Which peers are what they were, and what the members' word changes about that."""

from __future__ import annotations

from pathlib import Path

import pytest

from dledger.common.errors import Code, DLedgerError, PeerRefused
from dledger.common.types import Member, NodeId, NodeStart
from dledger.disk.disk import OsDisk
from dledger.node.peer_book import MAX_PEERS, GroupPeers, PeerBook

N1 = NodeId("n1")
MEMBER = Member(N1, "h:1")
FIRST = NodeStart(b"u", 5, (1, 2, 3, 4, 5))
LATER = NodeStart(b"u", 6, (1, 2, 3, 4, 5, 6))
WIPED = NodeStart(b"v", 1, (9,))
RESTORED = NodeStart(b"u", 3, (1, 2, 9))
READMITTED = Member(N1, "h:1", voter=False, node_uuid=b"v", admitted_start_count=1, admitted_start_nonce=9)
NAMED = Member(N1, "h:1", node_uuid=b"u")


def book_of(*starts: NodeStart) -> GroupPeers:
    book = GroupPeers()
    for start in starts:
        book.remember(MEMBER, start)
    return book


async def open_book(directory: Path) -> tuple[PeerBook, GroupPeers]:
    """The node's, and one group's."""
    book = await PeerBook.open(OsDisk(), directory)
    return book, book.of("g")


@pytest.mark.parametrize(
    ("start", "is_fine"),
    [
        pytest.param(FIRST, True, id="the same start"),
        pytest.param(LATER, True, id="a later start"),
        pytest.param(NodeStart(b"u", 5, (1, 2, 3, 4, 8)), False, id="a copy"),
        pytest.param(RESTORED, False, id="an older state"),
        pytest.param(NodeStart(b"u", 7, (1, 2, 9, 8, 7, 6, 5)), False, id="an older state that was started often"),
        pytest.param(NodeStart(b"u", 300, tuple(range(200))), False, id="too many starts to tell"),
        pytest.param(WIPED, False, id="another disk"),
    ],
)
async def test_a_peer_is_judged_by_what_it_was_also_after_a_restart(
    tmp_path: Path, start: NodeStart, is_fine: bool
) -> None:
    node, book = await open_book(tmp_path)
    assert book.doubt(MEMBER, FIRST) is None
    assert book.remember(MEMBER, FIRST)
    await node.save()
    _, reopened = await open_book(tmp_path)
    assert (reopened.doubt(MEMBER, start) is None) is is_fine


@pytest.mark.parametrize(
    ("start", "is_fine"),
    [
        pytest.param(WIPED, True, id="the disk admitted"),
        pytest.param(NodeStart(b"v", 2, (9, 3)), True, id="a later start of it"),
        pytest.param(NodeStart(b"v", 0, (3,)), False, id="an earlier start of it"),
        pytest.param(NodeStart(b"v", 2, (8, 3)), False, id="an earlier state of it"),
        pytest.param(FIRST, False, id="the disk before"),
    ],
)
def test_whom_the_members_admit_is_judged_by_that_whatever_was_known(start: NodeStart, is_fine: bool) -> None:
    assert (book_of(FIRST).doubt(READMITTED, start) is None) is is_fine


def test_an_admission_that_is_taken_back_leaves_the_doubt_as_it_was() -> None:
    book = book_of(FIRST)
    assert not book.remember(READMITTED, WIPED)
    assert book.doubt(MEMBER, WIPED) is not None
    assert book.doubt(MEMBER, FIRST) is None


def test_a_committed_admission_is_the_base_of_later_judgements() -> None:
    book = book_of(FIRST)
    assert book.admit(READMITTED, WIPED)
    assert not book.admit(READMITTED, WIPED)
    assert book.doubt(READMITTED, WIPED) is None
    assert book.doubt(READMITTED, WIPED._replace(start_nonces=(8,))) is not None, "a copy of the disk admitted"
    assert book.remember(READMITTED, NodeStart(b"v", 4, (9, 2, 3, 4)))
    assert book.doubt(READMITTED, NodeStart(b"v", 3, (9, 2, 3))) is not None


def test_an_older_state_of_the_same_disk_can_be_admitted() -> None:
    book = book_of(FIRST)
    admitted = NAMED._replace(admitted_start_count=3, admitted_start_nonce=9)
    assert book.doubt(MEMBER, RESTORED) is not None
    book.admit(admitted, RESTORED)
    assert book.doubt(admitted, RESTORED) is None


def test_an_admission_heard_of_before_the_disk_was_met_is_of_that_disk() -> None:
    book = book_of(FIRST)
    book.admit(READMITTED, None)
    assert book.doubt(READMITTED, WIPED) is None
    assert book.doubt(READMITTED, WIPED._replace(start_nonces=(8,))) is not None, "a copy of the disk admitted"


def test_a_member_never_met_is_known_by_the_disk_that_the_members_name() -> None:
    book = book_of()
    assert book.admit(NAMED, None)
    assert book.doubt(NAMED, WIPED) is not None
    assert book.doubt(NAMED, FIRST) is None


def test_to_name_a_disk_ends_no_doubt() -> None:
    """The leader that named it had met no other: whoever did knows better."""
    book = book_of(FIRST)
    book.mark_lost_frames(MEMBER)
    assert not book.admit(NAMED, LATER)
    assert book.doubt(NAMED, LATER) is not None
    assert book.doubt(NAMED._replace(node_uuid=b"v"), WIPED) is not None


async def test_lost_frames_are_held_against_a_disk_until_it_is_admitted_anew(tmp_path: Path) -> None:
    node, book = await open_book(tmp_path)
    book.remember(MEMBER, FIRST)
    assert book.mark_lost_frames(MEMBER)
    assert not book.mark_lost_frames(MEMBER)
    await node.save()
    _, book = await open_book(tmp_path)
    assert book.has_lost_frames(MEMBER)
    assert book.doubt(MEMBER, LATER) is not None
    admitted = NAMED._replace(admitted_start_count=6)
    assert book.doubt(admitted, LATER) is None
    book.admit(admitted, LATER)
    assert not book.has_lost_frames(admitted)


def test_who_was_removed_is_forgotten_and_may_come_with_another_disk() -> None:
    book = book_of(FIRST)
    assert book.keep_only([NodeId("n2")])
    assert book.doubt(MEMBER, WIPED) is None


def test_the_book_has_an_end() -> None:
    book = GroupPeers()
    for at in range(MAX_PEERS):
        book.remember(Member(NodeId(f"m{at}"), "h:1"), FIRST)
    with pytest.raises(PeerRefused):
        book.remember(MEMBER, FIRST)


async def test_a_full_book_of_the_longest_ids_fits_its_file(tmp_path: Path) -> None:
    node, book = await open_book(tmp_path)
    for at in range(MAX_PEERS):
        member = Member(
            NodeId(f"{at:0255}"), "h:1", node_uuid=b"u" * 16, admitted_start_count=1 << 60, admitted_start_nonce=1 << 63
        )
        book.remember(member, NodeStart(b"u" * 16, 1 << 61, (1 << 63,)))
    await node.save()
    assert (await open_book(tmp_path))[1].doubt(MEMBER, FIRST) is None


# Groups --------------------------------------------------------------------------------------------------------------


async def test_what_one_group_forgets_another_keeps(tmp_path: Path) -> None:
    """A group that never had a peer as a member must not let another take an emptied disk for a new one."""
    node, book = await open_book(tmp_path)
    other = node.of("other")
    for each in (book, other):
        each.remember(MEMBER, FIRST)
    book.keep_only([])
    await node.save()
    node, book = await open_book(tmp_path)
    assert book.doubt(MEMBER, WIPED) is None
    assert node.of("other").doubt(MEMBER, WIPED) is not None


async def test_a_readmission_counts_in_the_group_whose_members_say_it(tmp_path: Path) -> None:
    node, book = await open_book(tmp_path)
    other = node.of("other")
    for each in (book, other):
        each.remember(MEMBER, FIRST)
    book.admit(READMITTED, WIPED)
    assert book.doubt(READMITTED, WIPED) is None
    assert other.doubt(MEMBER, WIPED) is not None


async def test_lost_frames_are_held_against_a_disk_in_that_group_alone(tmp_path: Path) -> None:
    node, book = await open_book(tmp_path)
    other = node.of("other")
    for each in (book, other):
        each.remember(MEMBER, FIRST)
    book.mark_lost_frames(MEMBER)
    await node.save()
    node, book = await open_book(tmp_path)
    assert book.has_lost_frames(MEMBER)
    assert not node.of("other").has_lost_frames(MEMBER)


async def test_groups_that_know_the_same_share_its_records(tmp_path: Path) -> None:
    """A thousand groups fit, since they mostly know the same five peers."""
    node, _ = await open_book(tmp_path)
    for group in range(1000):
        for at in range(5):
            node.of(f"group-{group}.{group}").remember(Member(NodeId(f"n{at}"), "h:1"), FIRST)
    await node.save()
    node, _ = await open_book(tmp_path)
    assert node.of("group-999.999").disk_of(NodeId("n4")) == b"u"


async def test_a_book_with_no_room_left_is_refused_and_stays_as_it_was(tmp_path: Path) -> None:
    node, book = await open_book(tmp_path)
    book.remember(MEMBER, FIRST)
    await node.save()
    for at in range(1000):
        node.of(f"{at}").remember(Member(NodeId(f"{at:0200}"), "h:1"), FIRST)
    with pytest.raises(DLedgerError) as refused:
        await node.save()
    assert refused.value.code is Code.RECORD_TOO_LARGE
    _, book = await open_book(tmp_path)
    assert book.disk_of(N1) == b"u"
