"""One of three nodes comes back to damage: the nodes make it good. All of it: ``python -m tests.corruption``."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

import pytest

from dledger.group.repair import repairer
from dledger.log import log_opening
from tests.corruption.damage import INVERTED, Damage, damaged_bytes, damaged_files
from tests.corruption.expected import Outcome
from tests.corruption.node import StoredDisk
from tests.corruption.trio import Trio, crashed, outcome_among_three
from tests.crashes.promises import LIMITS
from tests.simulation.process import WorldLoop
from tests.support.virtual_time import run_virtual

STRIDE = 4096


@pytest.fixture(scope="module")
def disk() -> StoredDisk:
    return crashed()


def outcome_of(disk: StoredDisk, damage: Damage) -> Outcome:
    """Fails when it is wrong."""
    outcome, reason = outcome_among_three(disk, damage)
    assert outcome is not Outcome.WRONG, f"{damage}: {reason}"
    return outcome


def outcomes(disk: StoredDisk, damages: Iterable[Damage]) -> dict[str, set[Outcome]]:
    found: dict[str, set[Outcome]] = {}
    for damage in damages:
        found.setdefault(damage.structure, set()).add(outcome_of(disk, damage))
    return found


def some_bytes(disk: StoredDisk) -> Iterable[Damage]:
    return islice(damaged_bytes(disk, disk.regions(), (INVERTED,), STRIDE), 0, None, 97)


def unsealed(disk: StoredDisk, path: str) -> Damage:
    """As a power cut leaves a segment that was about to be sealed: room behind its frames."""
    content = dict(disk.image.files)[path]
    (footer,) = [region for region in disk.regions()[path] if region.structure == "footer"]
    frames = content[: footer.begin].ljust(LIMITS.segment_max_bytes, b"\0")
    return Damage(path, "unsealed", "footer", footer.begin, len(content), frames, reaches_behind_the_mark=False)


def in_a_frame(disk: StoredDisk) -> Damage:
    return next(each for each in some_bytes(disk) if each.structure == "frame body")


def test_a_damaged_frame_comes_back_from_the_others_and_the_rest_from_what_the_node_has(disk: StoredDisk) -> None:
    found = outcomes(disk, some_bytes(disk))
    assert found["frame body"] == found["frame header"] == {Outcome.REPAIRED}
    assert found["frame body above the mark"] == found["frame header above the mark"] == {Outcome.FETCHED}
    assert found["segment header"] == found["trailer"] == found["identity, slot 0"] == {Outcome.REBUILT}


def test_a_file_that_is_gone_is_made_good_or_the_node_halts_and_the_others_go_on(disk: StoredDisk) -> None:
    found = outcomes(disk, islice(damaged_files(disk, disk.regions()), 0, None, 11))
    assert Outcome.HALTS in set().union(*found.values())


def gone_segments(disk: StoredDisk) -> list[Damage]:
    return [each for each in damaged_files(disk, disk.regions()) if each.structure == "gone: a segment"]


def test_a_node_of_whose_log_a_segment_is_gone_halts(disk: StoredDisk) -> None:
    """The one before it says that it was there."""
    assert {outcome_of(disk, each) for each in gone_segments(disk)} == {Outcome.HALTS}


def test_behind_one_that_was_not_sealed_it_comes_back(disk: StoredDisk) -> None:
    before, gone, *_ = gone_segments(disk)

    async def outcome() -> tuple[Outcome, str]:
        trio = Trio()
        try:
            await trio.crash()
            trio.put(unsealed(disk, before.path))
            return await trio.outcome_of(gone)
        finally:
            await trio.close()

    assert run_virtual(outcome(), loop_factory=WorldLoop) == (Outcome.REPAIRED, "")


def test_a_node_that_repairs_nothing_is_found_out(disk: StoredDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    async def in_vain(*_: object) -> bool:
        return False

    monkeypatch.setattr(repairer.Repairer, "_repair", in_vain)
    with pytest.raises(AssertionError, match="it should be repaired"):
        outcome_of(disk, in_a_frame(disk))


def test_a_start_that_takes_rot_for_a_torn_tail_is_found_out(disk: StoredDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_opening, "_check_durable", lambda *_: None)
    in_last_segment = [each for each in some_bytes(disk) if each.structure == "frame body"][-1]
    with pytest.raises(AssertionError, match=r"durable survives|it should be repaired"):
        outcome_of(disk, in_last_segment)
