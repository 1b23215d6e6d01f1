"""The guarantees of watches: none is found broken in what a right store tells, and each one where it was broken."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dledger.kernels.store.register import Pair
from dledger.kernels.store.timeline import Change, Seen, Timeline, timeline_of
from dledger.kernels.store.watches import GUARANTEES, Kind, Response, Watch, WatchCheck
from tests.unit.kernels.store.events import FIRST, changes_of, seen_of, watch_of

REVISIONS = 12


def timeline(changes: Sequence[Change]) -> Timeline:
    merged, findings = timeline_of([seen_of(changes)], FIRST, changes[-1].revision)
    assert findings.valid
    return merged


def broken(watch: Watch, changes: Sequence[Change], compacted: int = 0) -> set[str]:
    violations = WatchCheck([watch], timeline(changes), compacted).findings.violations
    return {name.removeprefix("watch_") for name, number in violations.items() if number}


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 1 << 32))
def test_a_right_watch_breaks_no_guarantee(seed: int) -> None:
    random = Random(seed)
    changes = changes_of(random, REVISIONS)
    assert not broken(watch_of(random, changes), changes)


def whole_watch(changes: Sequence[Change], **options: object) -> Watch:
    """Of all keys, from the beginning, a response for each revision, and progress at the end."""
    revisions = sorted({change.revision for change in changes})
    seen = seen_of(changes)
    responses = [
        Response(Kind.EVENTS, revision, tuple(each for each in seen if each.change.revision == revision))
        for revision in revisions
    ]
    told = (Response(Kind.CREATED, 1), *responses, Response(Kind.PROGRESS, revisions[-1]))
    return Watch(0, "a", "\0", FIRST, told, wants_before=True, **options)  # type: ignore[arg-type]


def with_responses(watch: Watch, responses: Sequence[Response]) -> Watch:
    return replace(watch, responses=tuple(responses))


Break = Callable[[Watch, int], Watch]
"""Does it at the response of that place, which has events, and has such a one before it and behind it."""


def swapped(watch: Watch, at: int) -> Watch:
    told = list(watch.responses)
    told[at], told[at + 1] = told[at + 1], told[at]
    return with_responses(watch, told)


def repeated(watch: Watch, at: int) -> Watch:
    told = list(watch.responses)
    return with_responses(watch, [*told[: at + 1], told[at], *told[at + 1 :]])


def split(watch: Watch, at: int) -> Watch:
    """One event of the response in two: of two keys."""
    told = list(watch.responses)
    [first, *_] = told[at].events
    other = first._replace(change=first.change._replace(key="z"))
    pieces = [told[at]._replace(events=(each,)) for each in (first, other)]
    return with_responses(watch, [*told[:at], *pieces, *told[at + 1 :]])


def dropped(watch: Watch, at: int) -> Watch:
    return with_responses(watch, [*watch.responses[:at], *watch.responses[at + 1 :]])


def dropped_first(watch: Watch, _at: int) -> Watch:
    return with_responses(watch, [watch.responses[0], *watch.responses[2:]])


def dropped_last(watch: Watch, _at: int) -> Watch:
    return with_responses(watch, [*watch.responses[:-2], watch.responses[-1]])


def ahead(watch: Watch, at: int) -> Watch:
    """Progress of a revision whose events come only then."""
    told = list(watch.responses)
    return with_responses(watch, [*told[:at], Response(Kind.PROGRESS, told[at].revision), *told[at:]])


def changed(watch: Watch, at: int, change: Callable[[Seen], Seen]) -> Watch:
    told = list(watch.responses)
    told[at] = told[at]._replace(events=tuple(map(change, told[at].events)))
    return with_responses(watch, told)


def other_value(watch: Watch, at: int) -> Watch:
    return changed(watch, at, lambda seen: seen._replace(change=seen.change._replace(pair=Pair("?", 1, 1, 1))))


def other_before(watch: Watch, at: int) -> Watch:
    return changed(watch, at, lambda seen: seen._replace(before=Pair("?", 1, 1, 1)))


def other_creation(watch: Watch, at: int) -> Watch:
    def change(seen: Seen) -> Seen:
        pair = seen.change.pair or Pair("?", 0, seen.change.revision, 1)
        return seen._replace(change=seen.change._replace(pair=pair._replace(create=pair.create - 1)))

    return changed(watch, at, change)


def started_later(watch: Watch, at: int) -> Watch:
    return replace(watch, start=watch.responses[at].revision + 1)


def of_one_key(watch: Watch, _at: int) -> Watch:
    return replace(watch, key="zz", end="")


def without_puts(watch: Watch, _at: int) -> Watch:
    return replace(watch, no_puts=True)


def without_before(watch: Watch, _at: int) -> Watch:
    """It asked for no pairs, and is told some."""
    return replace(watch, wants_before=False)


def compacted_needlessly(watch: Watch, _at: int) -> Watch:
    return with_responses(watch, [*watch.responses, Response(Kind.CANCELED, watch.responses[-1].revision)])


BREAKS: list[tuple[str, Break]] = [
    ("ordered", swapped),
    ("unique", repeated),
    ("atomic", split),
    ("reliable", dropped),
    ("reliable", other_value),
    ("resumable", dropped_first),
    ("bookmarkable", ahead),
    ("bookmarkable", dropped_last),
    ("prev_kv", other_before),
    ("prev_kv", without_before),
    ("is_create", other_creation),
    ("filter", started_later),
    ("filter", of_one_key),
    ("filter", without_puts),
    ("wrongly_compacted", compacted_needlessly),
]


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 1 << 32))
@pytest.mark.parametrize(("guarantee", "plant"), BREAKS, ids=[f"{name} {plant.__name__}" for name, plant in BREAKS])
def test_each_broken_guarantee_is_found(guarantee: str, plant: Break, seed: int) -> None:
    random = Random(seed)
    changes = changes_of(random, REVISIONS)
    watch = whole_watch(changes)
    assert not broken(watch, changes)
    assert guarantee in broken(plant(watch, random.randrange(2, len(watch.responses) - 2)), changes)


def test_every_guarantee_is_broken_by_some_test() -> None:
    assert {name for name, _ in BREAKS} == set(GUARANTEES)


def test_half_a_revision_is_not_made_whole_by_what_follows() -> None:
    pair = Pair("v", 2, 2, 1)
    changes = [Change(2, "a", pair), Change(2, "b", pair), Change(3, "c", Pair("w", 3, 3, 1))]
    told = [Response(Kind.EVENTS, 3, (Seen(changes[0]), Seen(changes[2])))]
    assert broken(Watch(0, "a", "\0", 2, tuple(told)), changes) == {"reliable"}


def test_fragments_are_one_response() -> None:
    pair = Pair("v", 2, 2, 1)
    changes = [Change(2, "a", pair), Change(2, "b", pair)]
    pieces = [Response(Kind.EVENTS, 2, (Seen(each),), is_fragment=each.key == "a") for each in changes]
    assert not broken(Watch(0, "a", "\0", 2, tuple(pieces)), changes)
    pieces[0] = pieces[0]._replace(is_fragment=False)
    assert broken(Watch(0, "a", "\0", 2, tuple(pieces)), changes) == {"atomic"}


def test_a_pair_that_was_compacted_may_be_left_out_and_may_not_be_wrong() -> None:
    changes = [Change(2, "a", Pair("v", 2, 2, 1)), Change(3, "a", Pair("w", 2, 3, 2))]
    bare = Watch(0, "a", "", 2, (Response(Kind.EVENTS, 3, (Seen(changes[0]), Seen(changes[1]))),), wants_before=True)
    assert broken(bare, changes) == {"prev_kv"}
    assert not broken(bare, changes, compacted=3)
    assert broken(other_before(bare, 0), changes, compacted=3) == {"prev_kv"}


def test_a_watch_that_was_behind_may_be_cancelled_as_compacted() -> None:
    changes = changes_of(Random(1), REVISIONS)
    watch = Watch(0, "a", "\0", 3, (Response(Kind.CREATED, 9), Response(Kind.CANCELED, 7)))
    assert not broken(watch, changes)
    assert WatchCheck([watch], timeline(changes)).findings.counts["compacted_watches"] == 1
    assert broken(replace(watch, start=7), changes) == {"wrongly_compacted"}


def test_a_watch_of_the_present_begins_behind_its_creation() -> None:
    changes = [Change(2, "a", Pair("v", 2, 2, 1)), Change(3, "a", Pair("w", 2, 3, 2))]
    told = (Response(Kind.CREATED, 2), Response(Kind.EVENTS, 3, (Seen(changes[1]),)))
    assert not broken(Watch(0, "a", "", 0, told), changes)
    early = (Response(Kind.CREATED, 2), Response(Kind.EVENTS, 3, (Seen(changes[0]), Seen(changes[1]))))
    assert broken(Watch(0, "a", "", 0, early), changes) == {"filter"}


def test_a_watch_that_was_never_created_says_nothing() -> None:
    assert not broken(Watch(0, "a", "", 0, ()), changes_of(Random(1), REVISIONS))
