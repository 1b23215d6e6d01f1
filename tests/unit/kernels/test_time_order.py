"""What the order in real time keeps of a history is enough, and does not grow with how often a record is read."""

from __future__ import annotations

import pytest

from dledger.kernels.time_order import TimeOrderKernel
from tests.unit.kernels.histories import append, batch_of, read, value

A0 = value(1, 0)


def test_a_record_that_is_read_again_and_again_takes_no_more_room() -> None:
    kernel = TimeOrderKernel()
    history = [append(1, 0, (0, 10), index=0)]
    sizes = []
    for reads in (1, 100):
        found = [kernel.partial(batch_of([*read((20, 25 + at), [A0])])) for at in range(reads)]
        sizes.append(kernel.merge([kernel.partial(batch_of(history)), *found]).num_rows)
    assert sizes[0] == sizes[1]


@pytest.mark.parametrize("order", [(8, 25), (25, 8)])
def test_of_what_was_found_twice_the_earlier_time_counts(order: tuple[int, int]) -> None:
    kernel = TimeOrderKernel()
    history = [append(1, 0, (9, 30), index=0)]
    found = [kernel.partial(batch_of([*read((0, at), [A0])])) for at in order]
    merged = kernel.merge([kernel.partial(batch_of(history)), *found])
    assert kernel.findings(merged).violations["premature"] == 1
