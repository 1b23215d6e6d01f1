"""Breadth-first search over the states of a model: the shortest way to a state that must not be."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable
from typing import Generic, NamedTuple, TypeVar

S = TypeVar("S", bound=Hashable)


class Found(NamedTuple, Generic[S]):
    """What a search came to."""

    states: int
    broken: str
    """Which invariant does not hold; empty: all hold in every state."""
    steps: tuple[str, ...]
    """The shortest way there."""


def search(
    start: S, steps: Callable[[S], Iterable[tuple[str, S]]], broken: Callable[[S], str], *, most: int = 5_000_000
) -> Found[S]:
    """Every state that ``steps`` lead to from ``start``. ``broken`` names the invariant that does not hold in a state.
    Raises RuntimeError when there are more states than ``most``."""
    came_from: dict[S, tuple[S, str] | None] = {start: None}
    waiting = deque([start])
    while waiting:
        state = waiting.popleft()
        if name := broken(state):
            return Found(len(came_from), name, _way(came_from, state))
        for step, after in steps(state):
            if after not in came_from:
                came_from[after] = state, step
                waiting.append(after)
        if len(came_from) > most:
            raise RuntimeError(f"the model has more than {most} states")
    return Found(len(came_from), "", ())


def _way(came_from: dict[S, tuple[S, str] | None], state: S) -> tuple[str, ...]:
    way = []
    while (before := came_from[state]) is not None:
        state, step = before
        way.append(step)
    return tuple(reversed(way))
