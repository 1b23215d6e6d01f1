"""Is a history of the store's keys linearizable? (``register`` has the model.) Exact, and mostly without a search.

Answers carry revisions, and so the order is known. An operation that changes its key and is answered with revision r
raises the revision to r. An operation that changes nothing and is answered with r stands behind it, and before the
next change. So operations with an answer have a **rank**, (r, changes nothing), and every linearization has them in the
order of their ranks. Operations of equal rank change nothing, so their order changes no answer. Such a history is
therefore linearizable if and only if

1. no two of them change something at one revision;
2. none was completed before another one of lower rank was invoked: one sweep over the times tells;
3. every answer is right when they are carried out in the order of their ranks: each key is replayed by itself.

An operation of **unknown outcome** has no answer. As no two operations write one value, a value in anybody's answer
names its writer, and the revision in the same pair is the writer's. So it has a rank from then on, and no completion.
Nobody's answer shows the others. If the replay of their key is right without them, the check leaves them out. The
verdict stays exact, as it has found a linearization. If the replay is not right, and only then, ``search`` tries to
place them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from dledger.kernels.kernel import Findings
from dledger.kernels.store.register import FAIL, FOREVER, INFO, OK, Operation, Pair, after, agrees, changes
from dledger.kernels.store.search import BUDGET, Doubt, Placed, Verdict, solve

MOST_EXAMPLES = 5
VIOLATIONS = (
    "stale_reads",
    "reordered_writes",
    "wrong_answers",
    "unwritten_values",
    "doubled_writes",
    "shared_revisions",
)


class _Late(NamedTuple):
    """An operation was invoked after one of a higher rank had been completed."""

    operation: Placed
    overtook: Placed


class RegisterCheck:
    """Of one history. ``findings`` has

    * stale_reads: an answer of a revision below one known at the read's invocation;
    * reordered_writes: the same of an operation with a change;
    * wrong_answers: the keys before it do not give this answer, wherever unknown operations are placed;
    * unwritten_values: an answer shows a value, and nobody wrote it, or only an operation that surely failed;
    * doubled_writes: one operation changed its key at two revisions;
    * shared_revisions: two operations changed something at one revision.

    ``undecided``: keys for which the search gave up. They are no violations, and no proof.
    """

    def __init__(self, operations: Iterable[Operation], budget: int = BUDGET) -> None:
        self._budget = budget
        self._counts = dict.fromkeys(("operations", "recovered", "searched", "undecided"), 0)
        self._violations = dict.fromkeys(VIOLATIONS, 0)
        self._examples: list[str] = []
        self._operations = list(operations)
        self._revisions = self._recovered_revisions()
        self._placed = sorted(self._place(), key=lambda each: each.rank)
        self._judge_revisions()
        self._judge_times()
        self._judge_answers()

    @property
    def findings(self) -> Findings:
        return Findings(self._counts, self._violations, tuple(self._examples))

    def _against(self, violation: str, text: str) -> None:
        self._violations[violation] += 1
        if len(self._examples) < MOST_EXAMPLES:
            self._examples.append(f"{violation}: {text}")

    # Ranks -------------------------------------------------------------------------------------------------------

    def _recovered_revisions(self) -> dict[int, int]:
        """Of the operations of unknown outcome shown by somebody's answer."""
        writers = {each.value: each for each in self._operations if each.value}
        assert len(writers) == sum(bool(each.value) for each in self._operations), "two operations write one value"
        revisions: dict[int, int] = {}
        for each in self._operations:
            answer = each.answer
            if answer is None or not answer.shows_before or answer.before is None:
                continue
            pair = answer.before
            writer = writers.get(pair.value)
            if writer is None or not _may_have_written(writer, each.key):
                self._against("unwritten_values", f"{each} shows a value of {writer or 'nobody'}")
            elif pair.mod != (known := _revision_of(writer, revisions, pair)):
                self._against("doubled_writes", f"{each} shows what {writer} wrote at revision {known}")
        return revisions

    def _place(self) -> Iterable[Placed]:
        for each in self._operations:
            answer = each.answer
            if each.outcome == OK:
                assert answer is not None
                self._counts["operations"] += 1
                yield Placed(each, answer.revision, answer.changed)
            elif each.id in self._revisions:
                self._counts["recovered"] += 1
                yield Placed(each, self._revisions[each.id], changed=True)

    def _judge_revisions(self) -> None:
        before: Placed | None = None
        for each in self._placed:
            if each.changed:
                if before is not None and before.revision == each.revision:
                    self._against("shared_revisions", f"{before.operation} and {each.operation}")
                before = each

    def _judge_times(self) -> None:
        for late, overtook in _late(self._placed):
            violation = "reordered_writes" if late.changed else "stale_reads"
            self._against(violation, f"{late.operation} was invoked after {overtook.operation} was completed")

    # Answers -----------------------------------------------------------------------------------------------------

    def _judge_answers(self) -> None:
        chains: defaultdict[str, list[Placed]] = defaultdict(list)
        for each in self._placed:
            chains[each.operation.key].append(each)
        doubts = self._doubts()
        wrong = {key: found for key, chain in chains.items() if (found := _wrong_answers(chain))}
        in_doubt = {key: (chains[key], doubts[key]) for key in wrong if key in doubts}
        for key in wrong.keys() - in_doubt.keys():
            self._tell_wrong(wrong[key])
        if not in_doubt:
            return
        self._counts["searched"] = len(in_doubt)
        taken = {each.revision for each in self._placed if each.changed}
        for key, verdict in solve(in_doubt, taken, self._budget).items():
            if verdict is Verdict.IMPOSSIBLE:
                self._tell_wrong(wrong[key])
            elif verdict is Verdict.UNDECIDED:
                self._counts["undecided"] += 1

    def _tell_wrong(self, wrong: Sequence[tuple[Placed, Pair | None]]) -> None:
        for each, before in wrong:
            self._against("wrong_answers", f"{each.operation}, where the key should have been {before}")

    def _doubts(self) -> dict[str, list[Doubt]]:
        """The operations of unknown outcome shown by no answer, by key, in the order of their invocations."""
        unshown = [
            each for each in self._operations if each.outcome == INFO and each.writes and each.id not in self._revisions
        ]
        unshown.sort(key=lambda each: each.invoked_ns)
        doubts: defaultdict[str, list[Doubt]] = defaultdict(list)
        known = _Known(self._placed)
        for each in unshown:
            doubts[each.key].append(Doubt(each, known.highest_rank_before(each.invoked_ns) // 2))
        return doubts


def _may_have_written(writer: Operation, key: str) -> bool:
    if writer.key != key or writer.outcome == FAIL:
        return False
    return writer.answer is None or writer.answer.changed


def _revision_of(writer: Operation, recovered: dict[int, int], pair: Pair) -> int:
    """The revision of its write, by its own answer, or by the first answer with its value."""
    if writer.answer is not None:
        return writer.answer.revision
    return recovered.setdefault(writer.id, pair.mod)


class _Known:
    """The highest rank known at a time. To be asked about times in ascending order."""

    def __init__(self, placed: Iterable[Placed]) -> None:
        ended = [each for each in placed if each.operation.ends_ns < FOREVER]
        ended.sort(key=lambda each: each.operation.ends_ns, reverse=True)
        self._ahead = ended
        self.highest: Placed | None = None

    def before(self, at_ns: int) -> Placed | None:
        """Of the operations completed before, the one with the highest rank."""
        ahead = self._ahead
        while ahead and ahead[-1].operation.ends_ns < at_ns:
            ended = ahead.pop()
            if self.highest is None or ended.rank > self.highest.rank:
                self.highest = ended
        return self.highest

    def highest_rank_before(self, at_ns: int) -> int:
        known = self.before(at_ns)
        return 0 if known is None else known.rank


def _late(placed: Sequence[Placed]) -> Iterable[_Late]:
    known = _Known(placed)
    for each in sorted(placed, key=lambda each: each.operation.begins_ns):
        highest = known.before(each.operation.begins_ns)
        if highest is not None and highest.rank > each.rank:
            yield _Late(each, highest)


def _wrong_answers(chain: Iterable[Placed]) -> list[tuple[Placed, Pair | None]]:
    """The replay of one key, without operations that have no rank: its wrong answers, each with the pair due to it. The
    replay goes on from the pair met by a change."""
    wrong = []
    pair: Pair | None = None
    for each in chain:
        answer = each.operation.answer
        is_right = changes(each.operation, pair) if answer is None else agrees(each.operation, pair)
        if not is_right:
            wrong.append((each, pair))
            if each.changed and answer is not None and answer.shows_before:
                pair = answer.before
        if each.changed:
            pair = after(each.operation, pair, each.revision)
    return wrong
