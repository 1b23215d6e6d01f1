"""The tail cache: the newest frames, dense, within its limit, and never one that the log does not hold any more."""

from __future__ import annotations

from weakref import ref

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger.common.types import GENESIS
from dledger.log.frame.frame import MAX_FRAMES_READ, Frame
from dledger.log.segment.tail_cache import FRAME_OVERHEAD_BYTES, TailCache
from tests.unit.log.harness import data_frame


def made(count: int, records: int = 2, after: Frame | None = None) -> list[Frame]:
    frames: list[Frame] = []
    previous, index = (after.header.point, after.header.end_index) if after is not None else (GENESIS, 0)
    for _ in range(count):
        frame = data_frame(previous, index, [b"x"] * records)
        frames.append(frame)
        previous, index = frame.header.point, frame.header.end_index
    return frames


FRAMES = made(50)
ONE_BYTES = FRAMES[0].header.frame_len + FRAME_OVERHEAD_BYTES


def cache_of(count: int, room: int = 50) -> TailCache:
    cache = TailCache(room * ONE_BYTES)
    cache.extend(FRAMES[:count])
    return cache


def positions(frames: list[Frame] | None) -> list[int] | None:
    return None if frames is None else [frame.header.position for frame in frames]


def held(cache: TailCache) -> list[int]:
    return [each for each in range(60) if cache.get(each, 1) is not None]


def test_frames_are_found_by_position_and_by_record() -> None:
    cache = cache_of(10)
    assert positions(cache.get(4, 1 << 20)) == [4, 5, 6, 7, 8, 9, 10]
    assert [(frame := cache.frame_of(index)) and frame.header.position for index in (0, 1, 2, 19)] == [1, 1, 2, 10]


@pytest.mark.parametrize("position", [0, 11])
def test_what_is_not_there_is_none(position: int) -> None:
    assert cache_of(10).get(position, 100) is None
    assert cache_of(10).frame_of(20) is None
    assert TailCache(100).get(1, 100) is None
    assert TailCache(100).frame_of(0) is None


def test_about_as_much_is_given_as_was_asked_for_and_always_one() -> None:
    size_bytes = FRAMES[0].header.frame_len
    assert [len(cache_of(10).get(2, asked) or []) for asked in (0, size_bytes, 3 * size_bytes)] == [1, 1, 3]


def test_no_more_small_frames_are_given_than_one_read_may_hold() -> None:
    many = made(MAX_FRAMES_READ + 10, records=1)
    cache = TailCache(1 << 30)
    cache.extend(many)
    assert positions(cache.get(3, 1 << 30)) == list(range(3, 3 + MAX_FRAMES_READ))


def test_the_oldest_go_first_and_the_newest_always_stays() -> None:
    assert held(cache_of(10, room=4)) == [7, 8, 9, 10]
    assert held(cache_of(10, room=0)) == [10]


def test_what_was_cut_off_is_forgotten_and_other_frames_take_its_place() -> None:
    cache = cache_of(10)
    cache.truncate(6)
    assert held(cache) == [1, 2, 3, 4, 5, 6]
    other = made(2, after=FRAMES[5], records=3)
    cache.extend(other)
    assert cache.get(7, 1) == other[:1]


def test_what_was_trimmed_is_forgotten() -> None:
    cache = cache_of(10)
    cache.begin_behind(6)
    assert held(cache) == [7, 8, 9, 10]
    assert cache.frame_of(11) is None


@pytest.mark.parametrize("forget", [lambda cache: cache.truncate(0), lambda cache: cache.begin_behind(10)])
def test_an_emptied_cache_begins_anywhere(forget: object) -> None:
    cache = cache_of(10)
    assert callable(forget)
    forget(cache)
    assert held(cache) == []
    cache.extend(FRAMES[30:33])
    assert held(cache) == [31, 32, 33]


@given(
    st.integers(1, 12),
    st.lists(
        st.tuples(st.sampled_from(["extend", "truncate", "begin_behind"]), st.floats(0, 1), st.integers(1, 9)),
        max_size=12,
    ),
)
def test_it_holds_a_dense_tail_of_the_log_and_nothing_else(room: int, steps: list[tuple[str, float, int]]) -> None:
    cache = TailCache(room * ONE_BYTES)
    log, start = list[Frame](), 0
    for what, fraction, count in steps:
        at = start + int((len(log) - start) * fraction)
        if what == "extend":
            new = made(count, after=log[-1] if log else None)
            log += new
            cache.extend(new)
        elif what == "truncate":
            del log[at:]
            cache.truncate(at)
        else:
            start = at
            cache.begin_behind(at)
        kept = [position for position in range(len(log) + 2) if cache.get(position, 1) is not None]
        assert kept == list(range(len(log) - len(kept) + 1, len(log) + 1))
        assert len(kept) <= room
        assert not kept or kept[0] > start
        assert all(cache.get(each, 1) == [log[each - 1]] for each in kept)
        assert all(cache.frame_of(log[each - 1].header.base_index) is log[each - 1] for each in kept)


class WatchedFrame(Frame):
    __slots__ = ("__weakref__",)


def test_what_was_evicted_leaves_the_memory_soon() -> None:
    """A few large frames and then many small ones: the large ones must not wait until they are few among the rest."""
    cache = TailCache(100 * ONE_BYTES)
    [large] = made(1, records=18 * ONE_BYTES)
    watched = WatchedFrame(large.header, large.body, large.buffers)
    small = made(50, after=large)
    cache.extend([watched])
    alive = ref(watched)
    del large, watched
    for frame in small:
        cache.extend([frame])
    assert alive() is None
