"""What a node makes of the checkpoints in its log, step by step."""

from __future__ import annotations

from collections.abc import Sequence

from dledger.statemachine.applier import Begun, Ended
from dledger.statemachine.checkpoints import MAX_REMEMBERED, Checkpoints
from dledger.statemachine.finder import Checkpoint, CheckpointFinder
from dledger.statemachine.records import Begin, Confirmed, End, Head, MachineRecord, Part, encode

MINE, OTHER = b"mine", b"other"


def ended(id: int, digest: bytes = MINE, said: bytes = MINE) -> Ended:  # noqa: A002  # as in the class
    return Ended(id, digest, said, 100)


def test_a_state_that_differs_is_built_anew_and_goes_on_if_it_differs_in_the_same_way_again() -> None:
    checkpoints = Checkpoints()
    assert not checkpoints.ended(ended(5, said=OTHER))
    checkpoints.forget_state()
    assert checkpoints.ended(ended(5, said=OTHER))
    own = checkpoints.own
    assert own is not None
    assert (own.digest, own.said) == (MINE, OTHER)


def test_a_state_that_differs_in_another_way_the_second_time_is_not_trusted_either() -> None:
    checkpoints = Checkpoints()
    assert not checkpoints.ended(ended(5, said=OTHER))
    assert not checkpoints.ended(ended(5, digest=b"third", said=OTHER))


def test_a_leader_that_was_contradicted_is_not_asked_by_its_own_checkpoint_again() -> None:
    checkpoints = Checkpoints()
    assert checkpoints.ended(ended(5))
    checkpoints.contradicted(5)
    assert checkpoints.own is None
    assert checkpoints.ended(ended(5, digest=OTHER))


def test_who_has_no_word_on_a_checkpoint_does_not_differ_from_it() -> None:
    checkpoints = Checkpoints()
    assert checkpoints.ended(ended(5, digest=b"", said=OTHER))
    assert checkpoints.own is None


def test_a_majority_that_has_another_state_is_right() -> None:
    checkpoints = Checkpoints()
    checkpoints.ended(ended(5, said=OTHER))
    checkpoints.ended(ended(5, said=OTHER))
    assert not checkpoints.confirmed(Confirmed(5, OTHER))
    assert checkpoints.confirmed_id == -1
    assert checkpoints.confirmed(Confirmed(3, OTHER)), "it has no word on that one"


def test_the_last_confirmed_checkpoint_counts_in_whatever_order_they_are_confirmed() -> None:
    checkpoints = Checkpoints()
    checkpoints.restored(Checkpoint(9, 12, 1, MINE), is_confirmed=True)
    assert checkpoints.confirmed(Confirmed(5, MINE))
    assert checkpoints.confirmed_id == 9
    checkpoints.forget_state()
    assert checkpoints.confirmed_id == -1


def test_the_log_is_measured_from_the_begin_of_the_last_complete_checkpoint() -> None:
    checkpoints = Checkpoints()
    checkpoints.applied(1_000)
    assert checkpoints.behind_bytes == 1_000
    checkpoints.begun(Begun(5, MINE, 0))
    checkpoints.applied(1_300)
    assert checkpoints.is_one_left
    checkpoints.ended(ended(5))
    assert not checkpoints.is_one_left
    assert checkpoints.behind_bytes == 300
    assert checkpoints.state_bytes == 100


def test_a_damaged_checkpoint_is_no_complete_one() -> None:
    checkpoints = Checkpoints()
    checkpoints.begun(Begun(5, MINE, 0))
    checkpoints.applied(1_300)
    checkpoints.ended(ended(5, said=OTHER))
    checkpoints.ended(ended(5, said=OTHER))
    assert checkpoints.behind_bytes == 1_300


def test_of_many_that_were_left_few_are_remembered() -> None:
    checkpoints = Checkpoints()
    for at in range(3 * MAX_REMEMBERED):
        checkpoints.begun(Begun(at, MINE, 0))
    checkpoints.ended(ended(3 * MAX_REMEMBERED - 1))
    assert not checkpoints.is_one_left


# Which one a log is restored from ------------------------------------------------------------------------------------

WHOLE: list[MachineRecord] = [Begin(0), Head(0, 0, b"h"), Part(0, 0, b"a"), Part(0, 1, b"b"), End(0, 2, 3, MINE, 1)]


def found(finder: CheckpointFinder, records: Sequence[MachineRecord], start: int = 0) -> list[Checkpoint]:
    fed = [finder.feed(index, encode(record)) for index, record in enumerate(records, start)]
    return [each for each in fed if each is not None]


def test_a_checkpoint_counts_when_it_ends_where_nobody_confirms() -> None:
    assert found(CheckpointFinder(), WHOLE) == [Checkpoint(0, 4, 2, MINE, 3)]


def test_on_a_node_it_counts_when_it_is_confirmed() -> None:
    finder = CheckpointFinder(needs_confirmation=True)
    assert not found(finder, WHOLE)
    assert not found(finder, [Confirmed(0, OTHER), Confirmed(7, MINE)], 5)
    assert found(finder, [Confirmed(0, MINE)], 7) == [Checkpoint(0, 4, 2, MINE, 3)]


def test_one_that_lacks_a_piece_never_counts() -> None:
    for at in range(len(WHOLE)):
        finder = CheckpointFinder(needs_confirmation=True)
        records = [each for each in WHOLE if each is not WHOLE[at]]
        assert not found(finder, [*records, Confirmed(0, MINE)], 0 if at else 1)


def test_one_before_the_least_that_counts_is_passed_over() -> None:
    finder = CheckpointFinder(least_id=1)
    assert not found(finder, WHOLE)
    later: list[MachineRecord] = [Begin(0), Part(5, 0, b"a"), End(5, 1, 1, MINE)]
    assert found(finder, later, 5) == [Checkpoint(5, 7, 1, MINE, 1)]
