"""Who is connected with whom: all undirected graphs of n nodes, or all directed ones, by number.

A graph's number has one bit for every pair, in the order of ``pairs``: 0 … 1,023 for the undirected ones of five nodes,
0 … 63 for the directed ones of three.
"""

from __future__ import annotations

from itertools import combinations, permutations
from typing import NamedTuple

Link = tuple[int, int]


class Shape(NamedTuple):
    """A family of graphs."""

    size: int
    is_directed: bool

    @property
    def pairs(self) -> list[Link]:
        nodes = range(self.size)
        return list(permutations(nodes, 2)) if self.is_directed else list(combinations(nodes, 2))

    @property
    def graph_count(self) -> int:
        return 1 << len(self.pairs)

    def graph(self, number: int) -> Graph:
        links = {pair for bit, pair in enumerate(self.pairs) if number >> bit & 1}
        if not self.is_directed:
            links |= {(b, a) for a, b in links}
        return Graph(self.size, frozenset(links))

    def number(self, *links: Link) -> int:
        """Of the graph that has these links, both ways where it is undirected."""
        return sum(1 << self.pairs.index(link) for link in links)


class Graph(NamedTuple):
    size: int
    links: frozenset[Link]
    """(from, to)."""

    @property
    def missing(self) -> list[Link]:
        return [pair for pair in permutations(range(self.size), 2) if pair not in self.links]

    def neighbours(self, node: int) -> list[int]:
        """With links both ways."""
        return [other for other in range(self.size) if {(node, other), (other, node)} <= self.links]

    @property
    def hubs(self) -> list[int]:
        """The nodes that have links both ways to a quorum, themselves counted."""
        return [node for node in range(self.size) if 2 * (len(self.neighbours(node)) + 1) > self.size]

    def can_elect(self, log_ends: list[tuple[int, int]]) -> bool:
        """Whether some node's log is at least as complete as those of a quorum that it has links both ways to: what an
        election asks for that changes no log. ``log_ends``: each node's (term, position)."""
        return any(
            2 * (1 + sum(log_ends[other] <= log_ends[hub] for other in self.neighbours(hub))) > self.size
            for hub in self.hubs
        )


UNDIRECTED_FIVE = Shape(5, is_directed=False)
DIRECTED_THREE = Shape(3, is_directed=True)
