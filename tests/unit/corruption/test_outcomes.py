"""What is damaged is served to nobody, and nothing is cut without a word. All of it: ``python -m tests.corruption``."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice
from typing import NoReturn

import pytest

from dledger.common.errors import CorruptLog
from dledger.disk.syncer import Handle
from dledger.disk.two_slot import SLOT_BYTES, TwoSlotFile
from dledger.log import log_opening
from dledger.log.frame import scan
from dledger.log.frame.frame import HEADER_BYTES, Frame, FrameHeader
from dledger.log.segment import frame_reader
from tests.corruption import outcome
from tests.corruption.damage import FLIPS, INVERTED, Damage, damaged_bytes, damaged_files, damaged_sectors
from tests.corruption.expected import Outcome
from tests.corruption.node import StoredDisk, stored_node
from tests.corruption.outcome import outcome_of
from tests.support.virtual_time import run_virtual

STRIDE = 4096
EVERY = 7
"""Of the bytes of records and frames."""


def outcomes(damages: Callable[[StoredDisk], Iterable[Damage]], *, has_peers: bool = False) -> dict[str, set[Outcome]]:
    """By structure. Fails when one of them is wrong."""

    async def all_of_them() -> dict[str, set[Outcome]]:
        node = await stored_node()
        found: dict[str, set[Outcome]] = {}
        for damage in damages(node.disk):
            came, reason = await outcome_of(node, damage, has_peers=has_peers)
            assert came is not Outcome.WRONG, f"{damage}: {reason}"
            found.setdefault(damage.structure, set()).add(came)
        return found

    return run_virtual(all_of_them())


def some_bytes(disk: StoredDisk) -> Iterable[Damage]:
    return islice(damaged_bytes(disk, disk.regions(), (INVERTED,), STRIDE), 0, None, EVERY)


def test_a_damaged_byte_is_made_good_or_refused_or_was_behind_the_mark() -> None:
    found = outcomes(some_bytes)
    assert found["frame body"] == found["frame header"] == {Outcome.HALTS, Outcome.REFUSES}
    assert found["frame body above the mark"] == {Outcome.CUT}
    assert found["hard_state, slot 0"] == found["identity, slot 1"] == found["peers, slot 0"] == {Outcome.REBUILT}
    assert found["segment header"] == {Outcome.REBUILT}
    assert found["origin"] == {Outcome.HALTS}
    assert found["trailer"] == {Outcome.REBUILT}
    assert found["LOCK"] == {Outcome.REBUILT}, "whoever takes it writes who it is"


def test_a_slot_is_made_good_also_where_its_count_comes_to_what_it_was_damaged_to() -> None:
    def counts(disk: StoredDisk) -> Iterable[Damage]:
        damages = damaged_bytes(disk, disk.regions(), FLIPS, STRIDE)
        return (each for each in damages if each.path.endswith("/identity") and each.offset % SLOT_BYTES == 16)

    assert outcomes(counts) == {f"identity, slot {slot}": {Outcome.REBUILT} for slot in (0, 1)}


def test_beside_others_every_damaged_frame_is_repaired() -> None:
    found = outcomes(some_bytes, has_peers=True)
    assert found["frame body"] == found["frame header"] == found["frame padding"] == {Outcome.REPAIRED}
    assert found["frame body above the mark"] == found["frame header above the mark"] == {Outcome.FETCHED}


@pytest.mark.timeout(240)
@pytest.mark.parametrize("has_peers", [False, True])
def test_a_sector_or_a_file_that_is_gone_is_made_good_or_refused(has_peers: bool) -> None:
    found = outcomes(lambda disk: damaged_sectors(disk, disk.regions()), has_peers=has_peers)
    assert {structure.partition(":")[0] for structure in found} == {"a sector zeroed", "a sector misdirected"}
    found = outcomes(lambda disk: damaged_files(disk, disk.regions()), has_peers=has_peers)
    assert {structure.partition(":")[0] for structure in found} == {"gone", "cut to nothing", "cut short"}


def test_a_node_that_halts_on_what_others_have_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    async def gives_up(*_args: object, why: CorruptLog, **_options: object) -> NoReturn:
        raise why

    monkeypatch.setattr(outcome, "open_damaged", gives_up)
    with pytest.raises(AssertionError, match="halts; it should be repaired"):
        outcomes(some_bytes, has_peers=True)


def test_a_start_that_asks_nobody_for_what_it_cut_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_opening, "torn_bytes", lambda *_: 0)
    with pytest.raises(AssertionError, match="nobody is asked for them"):
        outcomes(some_bytes, has_peers=True)


def test_a_start_that_takes_rot_for_a_torn_tail_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_opening, "_check_durable", lambda *_: None)
    with pytest.raises(AssertionError, match="frames below the mark are cut"):
        outcomes(some_bytes)


def test_a_second_copy_that_is_not_made_good_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def badly(self: TwoSlotFile, handle: Handle, slot: int) -> None:
        self._disk.pwritev(handle, [bytes(SLOT_BYTES)], slot * SLOT_BYTES)

    node = run_virtual(stored_node())
    vote = next(each for each in some_bytes(node.disk) if each.structure == "hard_state, slot 0")
    monkeypatch.setattr(TwoSlotFile, "_write_slot", badly)
    outcome, reason = run_virtual(outcome_of(node, vote))
    assert (outcome, reason) == (Outcome.WRONG, "AssertionError: the slots are not what a start leaves on sound ones")


def test_rot_that_a_start_copies_for_good_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    node = run_virtual(stored_node())
    vote = next(each for each in some_bytes(node.disk) if each.structure == "hard_state, slot 0")
    load = TwoSlotFile._load

    def loaded(self: TwoSlotFile) -> bool:
        is_there = load(self)
        handle = self._disk.open(self.path)
        self._disk.pwritev(handle, [vote.content[:SLOT_BYTES] if vote.content else b""] * 2, 0)
        self._disk.close(handle)
        return is_there

    monkeypatch.setattr(TwoSlotFile, "_load", loaded)
    outcome, reason = run_virtual(outcome_of(node, vote))
    assert (outcome, reason) == (Outcome.WRONG, "AssertionError: the slots are not what a start leaves on sound ones")


def test_a_reader_that_trusts_what_it_reads_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def trusting(header: FrameHeader, raw: memoryview) -> Frame:
        return Frame(header, raw[HEADER_BYTES : header.frame_len], (raw[: header.stored_bytes],))

    monkeypatch.setattr(scan, "parse_body", trusting)
    monkeypatch.setattr(frame_reader, "parse_body", trusting)
    with pytest.raises(AssertionError, match="other frames are served than were stored"):
        outcomes(some_bytes)
