"""Whether an effect came before its cause is looked at where it may have, and nowhere else."""

from __future__ import annotations

from dledger.kernels.causes import CauseCheck
from dledger.kernels.kernel import whole_partial
from dledger.kernels.overview import Overview, OverviewKernel
from tests.unit.kernels.histories import Row, append, batch_of, final, read, value

A0, A1 = value(1, 0), value(1, 1)


def rows_kept(history: list[Row]) -> int:
    batch = batch_of(history)
    overview = Overview(whole_partial(OverviewKernel(), [batch]))
    return len(CauseCheck().partial(batch, overview))


def test_values_that_were_all_invoked_before_one_was_found_need_no_second_look() -> None:
    appends = [append(1, 0, (0, 10), index=0), append(1, 1, (11, 20), index=1)]
    assert rows_kept([*appends, *read((21, 25), [A0, A1]), *final([A0, A1])]) == 0


def test_a_value_that_was_found_while_others_were_to_come_is_looked_at_again() -> None:
    appends = [append(1, 0, (0, 10), index=0), append(1, 1, (30, 40), index=1)]
    assert rows_kept([*appends, *read((21, 25), [A0])]) == 3
