"""A graph of transactions and the reasons for their order: its cycles, by the reasons they need."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from enum import IntFlag
from itertools import islice
from typing import NamedTuple


class Reason(IntFlag):
    """For one transaction to stand before another one, in every serial order."""

    WW = 1
    """The other one wrote the next version."""
    WR = 2
    """The other one read its version."""
    RW = 4
    """The other one wrote the next version after the one it read."""
    RT = 8
    """It was completed before the other one was invoked."""


class Cycle(NamedTuple):
    name: str
    nodes: tuple[int, ...]
    """The first one is also the one after the last."""
    reasons: tuple[Reason, ...]
    """Of the step from each node to the next."""


DATA = Reason.WW | Reason.WR
LEVELS = (
    ("g0", Reason.WW, False),
    ("g1c", DATA, False),
    ("g_single", DATA, True),
    ("g2", DATA | Reason.RW, False),
    ("g0_realtime", Reason.WW | Reason.RT, False),
    ("g1c_realtime", DATA | Reason.RT, False),
    ("g_single_realtime", DATA | Reason.RT, True),
    ("g2_realtime", DATA | Reason.RW | Reason.RT, False),
)
"""Adya's names: each with the reasons of its steps, and whether exactly one step more is RW. The worst ones first."""
NAMES = tuple(name for name, _, _ in LEVELS)
MOST_TRIED = 200
"""Steps of a component to begin a search for a short cycle with."""


class Graph:
    def __init__(self) -> None:
        self._edges: defaultdict[int, dict[int, Reason]] = defaultdict(dict)

    def add(self, before: int, after: int, reason: Reason) -> None:
        """A transaction is no reason against itself."""
        if before != after:
            known = self._edges[before].get(after, Reason(0))
            self._edges[before][after] = known | reason

    def cycles(self) -> Iterator[Cycle]:
        """Of each strongly connected component one: the worst by ``LEVELS``, and of those a short one."""
        for component in self._components():
            yield next(filter(None, (self._cycle(component, *level) for level in LEVELS)))

    def _cycle(self, component: AbstractSet[int], name: str, reasons: Reason, has_one_rw: bool) -> Cycle | None:
        if not has_one_rw:
            component = min(self._part(component, reasons)._components(), key=len, default=set())
        steps = self._steps(component, Reason.RW if has_one_rw else reasons)
        ways = (self._way(after, before, component, reasons) for before, after in islice(steps, MOST_TRIED))
        shortest = min(filter(None, ways), key=len, default=None)
        if shortest is None:
            return None
        nodes = (shortest[-1], *shortest[:-1])
        told = [self._edges[one][other] for one, other in zip(nodes, (*nodes[1:], nodes[0]), strict=True)]
        first = Reason.RW if has_one_rw else told[0] & reasons
        return Cycle(name, nodes, (first, *(each & reasons for each in told[1:])))

    def _steps(self, component: AbstractSet[int], reasons: Reason) -> Iterator[tuple[int, int]]:
        for before in component:
            for after, known in self._edges[before].items():
                if after in component and known & reasons:
                    yield before, after

    def _part(self, component: AbstractSet[int], reasons: Reason) -> Graph:
        part = Graph()
        for before, after in self._steps(component, reasons):
            part.add(before, after, reasons)
        return part

    def _way(self, start: int, goal: int, within: AbstractSet[int], reasons: Reason) -> list[int] | None:
        """The shortest one, by steps for these reasons."""
        came_from: dict[int, int] = {start: start}
        queue = deque([start])
        while queue:
            node = queue.popleft()
            if node == goal:
                way = [node]
                while node != start:
                    node = came_from[node]
                    way.append(node)
                return way[::-1]
            for after, known in self._edges[node].items():
                if after in within and after not in came_from and known & reasons:
                    came_from[after] = node
                    queue.append(after)
        return None

    def _components(self) -> Iterator[set[int]]:
        """Those of several nodes: Tarjan's way, with a stack of its own."""
        index: dict[int, int] = {}
        low: dict[int, int] = {}
        path: list[int] = []
        on_path: set[int] = set()
        for root in list(self._edges):
            if root in index:
                continue
            work = [(root, iter(self._neighbours(root)))]
            while work:
                node, rest = work[-1]
                if node not in index:
                    index[node] = low[node] = len(index)
                    path.append(node)
                    on_path.add(node)
                entered = _next_unseen(node, rest, index, low, on_path)
                if entered is not None:
                    work.append((entered, iter(self._neighbours(entered))))
                    continue
                work.pop()
                if work:
                    above = work[-1][0]
                    low[above] = min(low[above], low[node])
                if low[node] == index[node]:
                    component = set()
                    while node not in component:
                        component.add(path.pop())
                    on_path -= component
                    if len(component) > 1:
                        yield component

    def _neighbours(self, node: int) -> Sequence[int]:
        return list(self._edges.get(node, ()))


def _next_unseen(
    node: int, rest: Iterator[int], index: dict[int, int], low: dict[int, int], on_path: set[int]
) -> int | None:
    for after in rest:
        if after not in index:
            return after
        if after in on_path:
            low[node] = min(low[node], index[after])
    return None
