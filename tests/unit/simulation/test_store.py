"""The store's simulation: a run is a function of its seed, and the judge sees what is wrong."""

from __future__ import annotations

from tests.simulation.store.run import run_store_seed


def test_a_seed_of_the_store_passes_and_is_repeated_exactly() -> None:
    first, second = (run_store_seed(1) for _ in range(2))
    assert not first.failure
    assert first.digest == second.digest
    assert first.hits["branch call to the leader"]
