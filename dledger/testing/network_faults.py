"""Faults between nodes of a simulation: cuts, and rules that drop, delay, double and reorder messages."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from random import Random
from typing import Any, NamedTuple

from dledger.common.types import NodeId
from dledger.raft.messages import PeerMessage

Matches = Callable[[NodeId, NodeId, Any], bool]
"""(source, target, message), for any message on the network."""


def every_message(_source: NodeId, _target: NodeId, _message: PeerMessage) -> bool:
    return True


@dataclass(slots=True, eq=False)
class Rule:
    """The fate of the messages picked by ``matches`` (source, target, message). All rules that apply add up."""

    matches: Matches = every_message
    drop_share: float = 0.0
    """0 … 1; 1 drops all of them."""
    drop_every: int = 0
    """n: drops every n-th one; 0: none."""
    delay_s: float = 0.0
    """Added to the latency; what comes behind on the connection waits too."""
    duplicate_share: float = 0.0
    """0 … 1: how many arrive twice."""
    echo_s: float = 0.0
    """How much later than the first the second one arrives, at most, others passing it in between."""
    reorder_share: float = 0.0
    """0 … 1: how many leave the order and arrive up to ``reorder_s`` late, others passing them."""
    reorder_s: float = 0.01
    seen: int = field(default=0, init=False)
    dropped: int = field(default=0, init=False)


class Fate(NamedTuple):
    """What becomes of one message."""

    is_dropped: bool = False
    copies: int = 1
    echo_s: float = 0.0
    """How much later than the first all further copies arrive."""
    delay_s: float = 0.0
    overtakes: bool = False
    """It may pass, and be passed by, others."""


class Faults:
    """The cuts and rules in force. All are deterministic, given the ``random.Random``."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._cuts: set[tuple[NodeId, NodeId]] = set()
        self._rules: list[Rule] = []

    # Cuts. ---------------------------------------------------------------------------------------------------------

    def cut(self, source: NodeId, target: NodeId) -> None:
        """Loses everything from ``source`` to ``target``; what comes back still arrives."""
        self._cuts.add((source, target))

    def cut_both(self, a: NodeId, b: NodeId) -> None:
        self.cut(a, b)
        self.cut(b, a)

    def partition(self, *sides: Iterable[NodeId]) -> None:
        """Cuts every link between nodes of different sides; those within a side, and other cuts, stay as they are."""
        groups = [list(side) for side in sides]
        for side in groups:
            for other in groups:
                if other is not side:
                    self._cuts.update((a, b) for a in side for b in other)

    def is_cut(self, source: NodeId, target: NodeId) -> bool:
        return (source, target) in self._cuts

    def heal(self) -> None:
        """Ends all cuts. ``MemoryNetwork.heal`` does this and lets the nodes dial."""
        self._cuts.clear()

    # Rules. --------------------------------------------------------------------------------------------------------

    def add(self, rule: Rule) -> Rule:
        """Puts ``rule`` in force, and returns it for ``remove`` and its counters."""
        self._rules.append(rule)
        return rule

    def remove(self, rule: Rule) -> None:
        self._rules.remove(rule)

    def clear(self) -> None:
        """Ends all rules; cuts stay."""
        self._rules.clear()

    def judge(self, source: NodeId, target: NodeId, message: PeerMessage) -> Fate:
        """The fate of a message that is sent now."""
        if self.is_cut(source, target):
            return Fate(is_dropped=True)
        fate = Fate()
        for rule in self._rules:
            if rule.matches(source, target, message):
                fate = self._apply(rule, fate)
                if fate.is_dropped:
                    break
        return fate

    def _apply(self, rule: Rule, fate: Fate) -> Fate:
        rule.seen += 1
        if self._draw(rule.drop_share) or (rule.drop_every and rule.seen % rule.drop_every == 0):
            rule.dropped += 1
            return Fate(is_dropped=True)
        overtakes = self._draw(rule.reorder_share)
        late_s = self._random.uniform(0, rule.reorder_s) if overtakes else 0.0
        is_doubled = self._draw(rule.duplicate_share)
        echo_s = self._random.uniform(0, rule.echo_s) if is_doubled and rule.echo_s else 0.0
        return Fate(
            copies=fate.copies + is_doubled,
            echo_s=max(fate.echo_s, echo_s),
            delay_s=fate.delay_s + rule.delay_s + late_s,
            overtakes=fate.overtakes or overtakes,
        )

    def _draw(self, share: float) -> bool:
        return share > 0 and self._random.random() < share
