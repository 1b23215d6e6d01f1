"""Are transactions on lists strictly serializable? By the method of Elle: each transaction appends elements to several
keys' lists, and reads lists whole.

No element is appended twice, and lists only grow. So the longest list of a key among all reads has all versions of the
key in order. They give reasons for the order of transactions (``cycles``):

* WW: their elements stand next to each other in a list.
* WR: the first one's element is the last one read by the second one.
* RW: the first one read a list, and the second one's element comes next in it. An element without a reader comes after
  the longest list.
* RT: the first one was completed before the second one was invoked.

A cycle proves that there is no order. There is one without a cycle, if every list was read whole behind all appends:
then the verdict is exact. Otherwise "violation" is always right, and "none" may be wrong.

A transaction of unknown outcome takes part if somebody has read one of its elements, and has no completion.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from dledger.kernels.history import FAIL, OK
from dledger.kernels.kernel import Findings
from dledger.kernels.store.cycles import NAMES, Cycle, Graph, Reason

MOST_EXAMPLES = 5
VIOLATIONS = (
    "unwritten_elements",
    "g1a_aborted_reads",
    "g1b_intermediate_reads",
    "doubled_elements",
    "incompatible_orders",
    "internal_reads",
    *NAMES,
)


class Append(NamedTuple):
    key: str
    element: str


class Read(NamedTuple):
    key: str
    elements: tuple[str, ...]


Step = Append | Read


@dataclass(frozen=True, slots=True)
class Transaction:
    id: int
    steps: tuple[Step, ...]
    """Of one without an answer: its appends alone."""
    invoked_ns: int
    completed_ns: int
    outcome: str = OK

    @property
    def appends(self) -> Iterator[Append]:
        return (step for step in self.steps if isinstance(step, Append))

    def __str__(self) -> str:
        told = (f"append {step.key} {step.element}" if isinstance(step, Append) else _text(step) for step in self.steps)
        return f"T{self.id}({', '.join(told)})"


def _text(read: Read) -> str:
    last = f"…{read.elements[-1]}" if read.elements else "nothing"
    return f"read {read.key} {last} ({len(read.elements)})"


class AppendCheck:
    """Of one history. ``findings`` has the numbers of Adya's anomalies, and

    * unwritten_elements: read, and appended by nobody;
    * doubled_elements: twice in one list;
    * incompatible_orders: two reads of one key, and neither begins with the other;
    * internal_reads: a transaction did not read its own append, or read it before.
    """

    def __init__(self, transactions: Iterable[Transaction]) -> None:
        self._violations = dict.fromkeys(VIOLATIONS, 0)
        self._examples: list[str] = []
        self._transactions = list(transactions)
        self._writers = {append: each for each in self._transactions for append in each.appends}
        """By their elements."""
        self._lists = self._longest_lists()
        shown = {Append(key, element) for key, elements in self._lists.items() for element in elements}
        self._judge_elements()
        self._committed = [
            each for each in self._transactions if each.outcome == OK or any(a in shown for a in each.appends)
        ]
        self._judge_reads()
        self._judge_order(shown)

    @property
    def findings(self) -> Findings:
        counts = {
            "transactions": sum(each.outcome == OK for each in self._transactions),
            "transactions_recovered": sum(each.outcome != OK for each in self._committed),
            "elements": sum(map(len, self._lists.values())),
        }
        return Findings(counts, self._violations, tuple(self._examples))

    def _against(self, violation: str, text: str) -> None:
        self._violations[violation] += 1
        if len(self._examples) < MOST_EXAMPLES:
            self._examples.append(f"{violation}: {text}")

    # Single lists ------------------------------------------------------------------------------------------------

    def _reads(self) -> Iterator[tuple[Transaction, Read]]:
        for each in self._transactions:
            if each.outcome == OK:
                yield from ((each, step) for step in each.steps if isinstance(step, Read))

    def _longest_lists(self) -> dict[str, tuple[str, ...]]:
        longest: defaultdict[str, tuple[str, ...]] = defaultdict(tuple)
        for _, read in self._reads():
            if len(read.elements) > len(longest[read.key]):
                longest[read.key] = read.elements
        return dict(longest)

    def _judge_elements(self) -> None:
        told: set[Append] = set()
        for each, read in self._reads():
            if read.elements != self._lists[read.key][: len(read.elements)]:
                self._against("incompatible_orders", f"{each}, and {read.key} was {self._lists[read.key]}")
                strange: Sequence[str] = read.elements
            else:
                strange = read.elements if read.elements == self._lists[read.key] else ()
            for element, times in Counter(strange).items():
                append = Append(read.key, element)
                if append not in told:
                    told.add(append)
                    self._judge_element(append, times)

    def _judge_element(self, append: Append, times: int) -> None:
        writer = self._writers.get(append)
        if times > 1:
            self._against("doubled_elements", f"{append.element} is {times} times in {append.key}")
        if writer is None:
            self._against("unwritten_elements", f"{append.element} in {append.key}")
        elif writer.outcome == FAIL:
            self._against("g1a_aborted_reads", f"{append.element} in {append.key} is of {writer}, which failed")

    # Reads within their transactions -----------------------------------------------------------------------------

    def _judge_reads(self) -> None:
        for each in self._committed:
            if each.outcome == OK:
                own: defaultdict[str, list[str]] = defaultdict(list)
                for step in each.steps:
                    if isinstance(step, Append):
                        own[step.key].append(step.element)
                    else:
                        self._judge_read(each, step, own[step.key])

    def _judge_read(self, each: Transaction, read: Read, own: Sequence[str]) -> None:
        split = len(read.elements) - len(own)
        mine = {append.element for append in each.appends if append.key == read.key}
        is_of_others = mine.isdisjoint(read.elements[:split])
        if split < 0 or list(read.elements[split:]) != list(own) or not is_of_others:
            self._against("internal_reads", f"{each} had appended {own} to {read.key}")
            return
        if split:
            last = Append(read.key, read.elements[split - 1])
            writer = self._writers.get(last)
            appended = [step for step in writer.appends if step.key == read.key] if writer is not None else []
            if writer is not each and appended and appended[-1] != last:
                self._against("g1b_intermediate_reads", f"{each} read {last.element} of {writer}")

    # Order -------------------------------------------------------------------------------------------------------

    def _judge_order(self, shown: set[Append]) -> None:
        graph = Graph()
        places = {each.id: place for place, each in enumerate(self._committed)}
        self._add_versions(graph, places, shown)
        self._add_times(graph)
        for cycle in graph.cycles():
            self._against(cycle.name, self._told(cycle))

    def _told(self, cycle: Cycle) -> str:
        """Times between transactions are nodes of the graph too; people need not see those."""
        parts = []
        for node, reason in zip(cycle.nodes, cycle.reasons, strict=True):
            if node < len(self._committed):
                parts.append(f"{self._committed[node]} -{reason.name}->")
        return " ".join(parts)

    def _add_versions(self, graph: Graph, places: dict[int, int], shown: set[Append]) -> None:
        unshown: defaultdict[str, list[int]] = defaultdict(list)
        for each in self._committed:
            for append in each.appends:
                if append not in shown:
                    unshown[append.key].append(places[each.id])
        nexts = {key: self._next_writers(key, places, unshown[key]) for key in {*self._lists, *unshown}}
        for key, elements in self._lists.items():
            for place, element in enumerate(elements):
                writer = self._place_of_writer(key, element, places)
                if writer is not None:
                    for after in nexts[key][place + 1]:
                        graph.add(writer, after, Reason.WW)
        for each, read in self._reads():
            before = self._read_before_own(each, read)
            if before is None:
                continue
            reader = places[each.id]
            writer = self._place_of_writer(read.key, read.elements[before - 1], places) if before else None
            if writer is not None:
                graph.add(writer, reader, Reason.WR)
            for after in nexts[read.key][before]:
                graph.add(reader, after, Reason.RW)

    def _next_writers(self, key: str, places: dict[int, int], unshown: list[int]) -> list[list[int]]:
        """Of the next version behind each number of elements."""
        writers = (self._place_of_writer(key, element, places) for element in self._lists.get(key, ()))
        return [*([] if writer is None else [writer] for writer in writers), unshown]

    def _place_of_writer(self, key: str, element: str, places: dict[int, int]) -> int | None:
        writer = self._writers.get(Append(key, element))
        return None if writer is None else places.get(writer.id)

    def _read_before_own(self, each: Transaction, read: Read) -> int | None:
        """How many elements of others the read shows; None if its list is not to be trusted."""
        if read.elements != self._lists[read.key][: len(read.elements)]:
            return None
        own = {append.element for append in each.appends if append.key == read.key}
        return next((place for place, element in enumerate(read.elements) if element in own), len(read.elements))

    def _add_times(self, graph: Graph) -> None:
        """A node for each completion, in their order. So a transaction has one step from there, instead of one from
        every transaction before."""
        first = len(self._committed)
        ended = sorted((each.completed_ns, place) for place, each in enumerate(self._committed) if each.outcome == OK)
        for number, (_, place) in enumerate(ended):
            graph.add(place, first + number, Reason.RT)
            if number:
                graph.add(first + number - 1, first + number, Reason.RT)
        for place, each in enumerate(self._committed):
            before = bisect_left(ended, (each.invoked_ns, -1))
            if before:
                graph.add(first + before - 1, place, Reason.RT)
