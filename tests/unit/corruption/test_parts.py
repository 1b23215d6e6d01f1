"""The damages in parts, so that what was done of them is kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from tests.corruption import __main__ as corruption
from tests.corruption.damage import A_BYTE, Damage
from tests.corruption.expected import Outcome

TITLE = "numbers"
COUNT = 100


def numbers(quick: bool) -> corruption.Scene:
    del quick
    cases: Iterator[Damage] = (Damage("", A_BYTE, str(at), at, at, None, False) for at in range(COUNT))
    return cases, lambda _: (Outcome.HARMLESS, "")


@pytest.mark.parametrize("jobs", [1, 2, 3])
def test_all_parts_together_are_every_damage_once_whatever_works_at_them(
    monkeypatch: pytest.MonkeyPatch, jobs: int
) -> None:
    monkeypatch.setattr(corruption, "SCENES", {TITLE: numbers})
    parts = 4
    counted: Counter[str] = Counter()
    for part in range(parts):
        for first in corruption.shares(part, parts, jobs):
            table, _ = corruption.share(first, title=TITLE, quick=False, step=parts * jobs)
            counted.update(structure for structure, _ in table.elements())
    assert counted == dict.fromkeys(map(str, range(COUNT)), 1)


def test_a_part_that_there_is_not_is_refused_in_a_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["corruption", "--part", "4", "--parts", "4"])
    with pytest.raises(SystemExit):
        corruption.main()
    assert "there is no part 4 of 4: they are counted from 0" in capsys.readouterr().err
