"""Which peers are what they were, and what the members' word changes about that."""

from __future__ import annotations

from pathlib import Path

import pytest

from dledger.common.errors import PeerRefused
from dledger.common.types import Member, NodeId, NodeStart
from dledger.disk.disk import OsDisk
from dledger.node.peer_book import MAX_PEERS, PeerBook

N1 = NodeId("n1")
MEMBER = Member(N1, "h:1")
FIRST = NodeStart(b"u", 5, (1, 2, 3, 4, 5))
LATER = NodeStart(b"u", 6, (1, 2, 3, 4, 5, 6))
WIPED = NodeStart(b"v", 1, (9,))
RESTORED = NodeStart(b"u", 3, (1, 2, 9))
READMITTED = Member(N1, "h:1", voter=False, node_uuid=b"v", admitted_start_count=1, admitted_start_nonce=9)
NAMED = Member(N1, "h:1", node_uuid=b"u")


async def write_nothing(_payload: bytes) -> None:
    """Durability is not what these tests are about."""


def book_of(*starts: NodeStart) -> PeerBook:
    book = PeerBook(b"", write_nothing)
    for start in starts:
        book.remember(MEMBER, start)
    return book


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
    book = await PeerBook.open(OsDisk(), tmp_path)
    assert book.doubt(MEMBER, FIRST) is None
    assert book.remember(MEMBER, FIRST)
    await book.save()
    reopened = await PeerBook.open(OsDisk(), tmp_path)
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
    book = await PeerBook.open(OsDisk(), tmp_path)
    book.remember(MEMBER, FIRST)
    assert book.mark_lost_frames(MEMBER)
    assert not book.mark_lost_frames(MEMBER)
    await book.save()
    book = await PeerBook.open(OsDisk(), tmp_path)
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
    book = PeerBook(b"", write_nothing)
    for at in range(MAX_PEERS):
        book.remember(Member(NodeId(f"m{at}"), "h:1"), FIRST)
    with pytest.raises(PeerRefused):
        book.remember(MEMBER, FIRST)


async def test_a_full_book_of_the_longest_ids_fits_its_file(tmp_path: Path) -> None:
    book = await PeerBook.open(OsDisk(), tmp_path)
    for at in range(MAX_PEERS):
        member = Member(
            NodeId(f"{at:0255}"), "h:1", node_uuid=b"u" * 16, admitted_start_count=1 << 60, admitted_start_nonce=1 << 63
        )
        book.remember(member, NodeStart(b"u" * 16, 1 << 61, (1 << 63,)))
    await book.save()
    assert (await PeerBook.open(OsDisk(), tmp_path)).doubt(MEMBER, FIRST) is None
