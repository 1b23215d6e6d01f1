"""What a damage must come to, by what is damaged: for a node that is alone, and beside others."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from enum import StrEnum

from tests.corruption.damage import FIRST_PAGE, FRAMES, FRAMES_ABOVE, FRAMES_ON_BOTH_SIDES, SEGMENT, Damage
from tests.corruption.node import FIRST_STATE, LATER_STATE, LOCK, RESERVE, ROOM, UNUSED
from tests.support.slots import TWO_SLOTS


class Outcome(StrEnum):
    """What became of one damage: ``outcome.py`` says what each means."""

    HARMLESS = "harmless"
    REBUILT = "rebuilt"
    HALTS = "halts"
    REFUSES = "refuses the read"
    REPAIRED = "repaired"
    CUT = "cut as a torn tail"
    FETCHED = "cut, fetched again"
    WRONG = "WRONG"


_GOOD = {Outcome.HARMLESS, Outcome.REBUILT}
_REBUILT = {Outcome.REBUILT}
_HALTS = {Outcome.HALTS}
"""Documented as beyond repair, beside others too: what nothing else tells, and what has no second copy."""
_TWO_SLOTS = tuple(TWO_SLOTS)

_ANYWHERE: dict[str, AbstractSet[Outcome]] = {
    LOCK: _GOOD,
    RESERVE: _GOOD,
    UNUSED: _GOOD,
    ROOM: _GOOD,
    LATER_STATE: _GOOD,  # the frames before it tell it
    "commit hint": _GOOD,
    "sync mark": _GOOD,  # an older one is written over by the next
    "footer": _GOOD,
    "trailer": _REBUILT,
    "segment header": _REBUILT,
    **{f"{name}, slot {slot}": _REBUILT for name in _TWO_SLOTS for slot in (0, 1)},
    **{f"{FIRST_STATE}, copy {copy}": _REBUILT for copy in (0, 1)},
    "origin": _HALTS,
    FIRST_PAGE: _HALTS,  # with it the segment is missing
    SEGMENT: _HALTS,
    FIRST_STATE: _HALTS,  # gone or cut to nothing: both copies
    **dict.fromkeys(_TWO_SLOTS, _HALTS),
}
_BELOW = (FRAMES, *(f"frame {part}" for part in ("header", "body", "padding")))
_ABOVE = (FRAMES_ABOVE, *(f"frame {part} above the mark" for part in ("header", "body", "padding")))
_ALONE: dict[str, AbstractSet[Outcome]] = {
    **{place: {Outcome.HALTS, Outcome.REFUSES} for place in _BELOW},
    **{place: {Outcome.CUT} for place in _ABOVE},
    FRAMES_ON_BOTH_SIDES: _HALTS,
}
_BESIDE: dict[str, AbstractSet[Outcome]] = {
    **{place: {Outcome.REPAIRED} for place in (*_BELOW, FRAMES_ON_BOTH_SIDES)},
    **{place: {Outcome.FETCHED} for place in _ABOVE},
    # Gone from behind one that a crash left unsealed, that one seems to have lost its end, and gets it from the others.
    f"gone: {SEGMENT}": {Outcome.HALTS, Outcome.REPAIRED},
}


def expected(damage: Damage, *, has_peers: bool) -> AbstractSet[Outcome]:
    """What is right."""
    frames = _BESIDE if has_peers else _ALONE
    return frames.get(damage.structure) or frames.get(damage.place) or _ANYWHERE[damage.place]
