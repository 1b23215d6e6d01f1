"""Checkpoints, their confirmation and the trim, on a log that all agree on: three nodes, one damaged memory.

The log holds BEGIN, END, CONFIRMED and TRIM alone. What commands do is one bit a node: its state is right, or damaged.
A checkpoint has the bit that its writer's state had at BEGIN; who loads it gets that bit. Raft is not modelled: the log
is committed as it is appended, by whoever leads, and anybody may lead next.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from tests.models.search import Found, search

NODES = 3
MAJORITY = 2
ABSENT = -1


class Entry(NamedTuple):
    kind: str
    """One of B, E, K (CONFIRMED) and T, or C: the first command."""
    begin: int
    """Which checkpoint it is about: where its BEGIN stands. T: where the log is to begin."""
    is_damaged: bool = False
    """E: what was written."""


class Node(NamedTuple):
    applied: int = 1
    """So much of the log is in its state; ABSENT: nothing is, it has just started."""
    is_damaged: bool = False
    own: tuple[tuple[int, bool], ...] = ()
    """By checkpoint to whose BEGIN it applied its way: whether its state was damaged there."""
    differed: tuple[int, ...] = ()
    """Which checkpoints it was found to differ from, once."""
    confirmed: int = ABSENT
    """The last confirmed checkpoint that it has seen, or loaded."""
    least: int = 0
    """Of the checkpoint that it may load."""
    start: int = 0
    """Its log begins here."""


class State(NamedTuple):
    log: tuple[Entry, ...] = (Entry("C", 0),)
    nodes: tuple[Node, ...] = (Node(),) * NODES
    """The leader first; of the others it does not matter which is which, so they are in order."""
    writing: int = ABSENT
    """Which checkpoint the leader is writing."""
    may_rot: bool = True
    crashes: int = 1


@dataclass(frozen=True)
class Rules:
    """The rules as they are; each can be broken."""

    minority_confirms: bool = False
    trims_unconfirmed: bool = False
    """The leader trims to its last complete checkpoint."""
    loads_unconfirmed: bool = False
    trims_behind_begin: bool = False
    """A trim takes the BEGIN, too."""
    most_entries: int = 6
    """Behind the first command."""
    most_begun: int = 2


def check(rules: Rules) -> Found[State]:
    return search(State(), lambda state: steps(rules, state), broken)


def broken(state: State) -> str:
    right = {each.begin for each in state.log if each.kind == "E" and not each.is_damaged}
    confirmed = {each.begin for each in state.log if each.kind == "K"}
    if confirmed - right:
        return "only a right checkpoint is confirmed"
    for node in state.nodes:
        if node.start and not any(each >= node.start for each in confirmed):
            return "a trimmed log has a confirmed checkpoint"
    if not state.may_rot and sum(node.is_damaged for node in state.nodes) > 1:
        return "a damaged state stays alone"
    return ""


def steps(rules: Rules, state: State) -> Iterator[tuple[str, State]]:
    for at, node in enumerate(state.nodes):
        yield from _steps_of_node(rules, state, at, node)
        if at:
            others = [each for number, each in enumerate(state.nodes) if number != at]
            yield f"{at} leads", state._replace(nodes=(node, *sorted(others)), writing=ABSENT)
    if len(state.log) <= rules.most_entries:
        yield from _steps_of_leader(rules, state, state.nodes[0])


def _steps_of_node(rules: Rules, state: State, at: int, node: Node) -> Iterator[tuple[str, State]]:
    if node.applied == ABSENT:
        loaded = _load(rules, state, node)
        if loaded is not None:
            yield f"{at} loads", _with(state, at, loaded)
        return
    if node.applied < len(state.log):
        yield f"{at} applies {state.log[node.applied]}", _with(state, at, _apply(rules, state, node))
    if state.may_rot:
        yield f"{at} rots", _with(state, at, node._replace(is_damaged=True))._replace(may_rot=False)
    if state.crashes:
        after = _with(state, at, Node(ABSENT, start=node.start))._replace(crashes=state.crashes - 1)
        yield f"{at} crashes", after if at else after._replace(writing=ABSENT)


def _load(rules: Rules, state: State, node: Node) -> Node | None:
    if node.start == 0 and not node.least:
        return node._replace(applied=1, is_damaged=False)
    confirmed = {each.begin for each in state.log if each.kind == "K"}
    for each in state.log:
        is_there = each.kind == "E" and each.begin >= max(node.start, node.least)
        if is_there and (each.begin in confirmed or rules.loads_unconfirmed):
            own: tuple[tuple[int, bool], ...] = ()  # who loads it has no word on it
            return Node(each.begin + 1, each.is_damaged, own, node.differed, each.begin, node.least, node.start)
    return None


def _apply(rules: Rules, state: State, node: Node) -> Node:
    entry, after = state.log[node.applied], node._replace(applied=node.applied + 1)
    own = dict(node.own)
    match entry.kind:
        case "B":
            own[entry.begin] = node.is_damaged
            return after._replace(own=tuple(sorted(own.items())[-2:]))
        case "E":
            differs = entry.begin in own and own[entry.begin] is not entry.is_damaged
            if differs and entry.begin not in node.differed:
                return _anew(node, entry.begin)
        case "K":
            said = next(each.is_damaged for each in state.log if each.kind == "E" and each.begin == entry.begin)
            if entry.begin in own and own[entry.begin] is not said:
                return _anew(node, entry.begin)._replace(least=entry.begin)
            return after._replace(confirmed=max(node.confirmed, entry.begin))
        case "T":
            if node.confirmed >= entry.begin or rules.trims_unconfirmed or rules.trims_behind_begin:
                beyond = 1 if rules.trims_behind_begin else 0
                return after._replace(start=max(node.start, entry.begin + beyond))
    return after


def _anew(node: Node, begin: int) -> Node:
    """It keeps its word on what it differs from: the leader is to hear of it."""
    return Node(ABSENT, own=node.own, differed=(*node.differed, begin), least=node.least, start=node.start)


def _steps_of_leader(rules: Rules, state: State, leader: Node) -> Iterator[tuple[str, State]]:
    end, log = len(state.log), state.log
    if leader.applied == ABSENT:
        return
    if state.writing == ABSENT and sum(each.kind == "B" for each in log) < rules.most_begun:
        yield "BEGIN", state._replace(log=(*log, Entry("B", end)), writing=end)
    own = dict(leader.own)
    if state.writing in own:
        entry = Entry("E", state.writing, own[state.writing])
        yield "END", state._replace(log=(*log, entry), writing=ABSENT)
    ended = [each for each in log[: leader.applied] if each.kind == "E" and each.begin in own]
    if ended:
        yield from _judge(rules, state, leader, ended[-1])
    complete = [each.begin for each in log[: leader.applied] if each.kind == "E"]
    most = complete[-1] if rules.trims_unconfirmed and complete else leader.confirmed
    if not any(each.kind == "T" for each in log):
        for to in {1, most} if most > 0 else ():  # where its segments end is chance
            yield f"TRIM to {to}", state._replace(log=(*log, Entry("T", to)))


def _judge(rules: Rules, state: State, leader: Node, ended: Entry) -> Iterator[tuple[str, State]]:
    mine = dict(leader.own)[ended.begin]
    words = [dict(node.own).get(ended.begin) for node in state.nodes]
    needed = 1 if rules.minority_confirms else MAJORITY
    if words.count(mine) >= needed and mine is ended.is_damaged and ended.begin > leader.confirmed:
        if Entry("K", ended.begin) not in state.log:
            yield "CONFIRMED", state._replace(log=(*state.log, Entry("K", ended.begin)))
    elif words.count(not mine) >= MAJORITY:
        anew = _anew(leader, ended.begin)._replace(own=())
        yield "is contradicted", _with(state, 0, anew)._replace(writing=ABSENT)


def _with(state: State, at: int, node: Node) -> State:
    nodes = [*state.nodes[:at], node, *state.nodes[at + 1 :]]
    return state._replace(nodes=(nodes[0], *sorted(nodes[1:])))
