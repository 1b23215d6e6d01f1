"""What is proved, for a reader: a line and a sentence for each family, and behind them what some have to show."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from functools import partial
from itertools import zip_longest

from tests.proof.history import WINDOW_DAYS, History, Known, Progress
from tests.proof.registry import CORRUPTION, FUZZ, MUTANTS, SIMULATION, STORE_SIMULATION
from tests.proof.results import Result
from tests.simulation.branches import OF_THE_LOG, Named, missing
from tests.simulation.store.branches import OF_THE_STORE

_KINDS = ("fault", "branch")
_NAMED_OF = {SIMULATION: OF_THE_LOG, STORE_SIMULATION: OF_THE_STORE}
"""By family of seeds: what so many of them must meet."""
_NAMED = 10
"""So many slices, or paths, of a kind are named."""
_OF_LATE = f"in the last {WINDOW_DAYS} days"


class Report:
    """Of a history, by the newest run of each slice: an older run that held never hides a newer one that did not."""

    def __init__(self, history: History, changed: Callable[[str, Result], list[str] | None]) -> None:
        """``changed`` names the paths of a family that are not what they were in a result's commit; None if git does
        not know it."""
        self._history = history
        self._changed = changed
        self._slices = history.slices
        self._families = list(dict.fromkeys(each.family for each in self._slices))
        self._known = [(each, known) for each in self._slices if (known := history.known(each)) is not None]

    @property
    def is_of_this_tree(self) -> bool:
        """Whether every slice holds of this tree."""
        return len(self._known) == len(self._slices) and all(known.holds_here for _, known in self._known)

    def word(self) -> str:
        """The verdict. ``shortcomings`` say why it is not proved."""
        if self.shortcomings():
            return "NOT PROVED"
        if self.is_of_this_tree:
            return "PROVED on this tree"
        elsewhere = [known.newest for _, known in self._known if not known.holds_here]
        oldest = min(elsewhere, key=lambda result: result.when).origin
        left = f"{len(elsewhere)} of {len(self._slices)} slices on other trees than this"
        return f"PROVED {_OF_LATE}, {left} (the oldest: {oldest})"

    def lines(self) -> list[str]:
        parts: dict[str, Callable[[], list[str]]] = {
            SIMULATION: partial(self._simulation, SIMULATION),
            STORE_SIMULATION: partial(self._simulation, STORE_SIMULATION),
            MUTANTS: self._mutants,
            CORRUPTION: self._corruption,
            FUZZ: self._fuzz,
        }
        lines = [*self.table(), "", *self.sentences()]
        for family, show in parts.items():
            if any(result.details for result in self._of(family)):
                lines += ["", *show()]
        return lines

    def shortcomings(self) -> list[str]:
        """Why this does not count as proved: what failed, was skipped, was never run or too long ago, or never met."""
        skipped = [(each, known) for each, known in self._known if known.newest.outcome == "skipped"]
        return [
            *(
                "; ".join([f"failed: {each.name}", *_remarks(known, known.failure)])
                for each, known in self._known
                if known.failure is not None
            ),
            *(
                "; ".join([f"skipped, as this machine cannot do it: {each.name}", *_remarks(known, known.newest)])
                for each, known in skipped
            ),
            *self._never_run(),
            *self._too_long_ago(),
            *self._never_met(),
        ]

    def _never_run(self) -> list[str]:
        run = {each.name for each, _ in self._known}
        return self._left("never run", [each.name for each in self._slices if each.name not in run])

    def _too_long_ago(self) -> list[str]:
        old = [each.name for each, known in self._known if not (known.is_recent or known.holds_here)]
        return self._left(f"last run more than {WINDOW_DAYS} days ago, of another tree", old)

    def _left(self, what: str, names: list[str]) -> list[str]:
        if not names:
            return []
        return [f"{what}, {len(names)} of {len(self._slices)} slices (make proof runs them): {_first(names)}"]

    def _never_met(self) -> list[str]:
        """The seeds of this tree must meet by themselves what so many seeds should meet. So must all seeds together:
        what hardly a seed meets is asked of no fewer."""
        return [line for family, named in _NAMED_OF.items() for line in self._never_met_in(family, named)]

    def _never_met_in(self, family: str, named: tuple[Named, ...]) -> list[str]:
        ours, all_seeds = self._of(family, here=True), self._of(family)
        seeds, in_all = _seeds(ours), _seeds(all_seeds)
        unmet = missing(_hits(ours), seeds, named)
        also = [name for name in missing(_hits(all_seeds), in_all, named) if name not in unmet]
        elsewhere = f"{in_all - seeds:,} of them of other trees, which may not have known it"
        return [
            *(f"never met in {seeds:,} seeds: {name}" for name in unmet),
            *(f"never met in {in_all:,} seeds, {elsewhere}: {name}" for name in also),
        ]

    def table(self) -> list[str]:
        """A line for each family."""
        runs = f"{'family':20s}{'slices':>7s}{'failed':>8s}{'skipped':>9s}"
        heading = f"{runs}{'on this tree':>14s}{f'in {WINDOW_DAYS} days':>14s}{'in all':>14s}{'hours':>8s}  of"
        return [heading, *map(self._row, self._families)]

    def _row(self, family: str) -> str:
        far = self._history.progress(family)
        runs = f"{family:20s}{far.slices:>7d}{far.failed:>8d}{far.skipped:>9d}"
        return f"{runs}{far.here:>14,}{far.of_late:>14,}{far.in_all:>14,}{far.duration_s / 3600:>8.2f}  {far.unit}"

    def sentences(self) -> list[str]:
        """Whether each family has reached its aim, and what has changed since it was last proved otherwise."""
        return [line for family in self._families for line in self._about(family)]

    def _about(self, family: str) -> list[str]:
        far = self._history.progress(family)
        said = [f"{family}: {_reached(far)}"]
        if far.elsewhere is None:
            return said
        paths = self._changed(family, far.elsewhere)
        if paths is None:
            return [*said, f"    What changed since {far.elsewhere.origin} is not known: git has no such commit here."]
        return [*said, f"    Changed since {far.elsewhere.origin}, {len(paths)} paths: {_first(paths) or 'none'}"]

    def _of(self, family: str, *, here: bool = False) -> list[Result]:
        """The newest results of a family's slices: of whatever tree, or of this one."""
        known = [known for each, known in self._known if each.family == family]
        return [each.here for each in known if each.here] if here else [each.newest for each in known]

    # The parts ---------------------------------------------------------------------------------------------------

    def _simulation(self, family: str) -> list[str]:
        done = [result for result in self._of(family) if result.details]
        seeds = _seeds(done)
        rate = seeds / max(sum(result.duration_s for result in done), 0.1)
        hours = sum(result.details["simulated_s"] for result in done) / 3600
        columns = []
        for kind in _KINDS:
            met = sorted(
                (name.removeprefix(f"{kind} "), count) for name, count in _hits(done).items() if name.startswith(kind)
            )
            columns.append([f"{count:>12,}  {name}" for name, count in met])
        return [
            f"{family}: {seeds:,} seeds, {rate:.2f} a second, {hours:,.1f} simulated hours",
            f"{'times':>12s}  {'fault':44s}{'times':>12s}  branch",
            *(f"{fault:58s}{branch}" for fault, branch in zip_longest(*columns, fillvalue="")),
        ]

    def _mutants(self) -> list[str]:
        found = [mutant for result in self._of(MUTANTS) for mutant in result.details.get("mutants", ())]
        return [
            f"mutants: {'name':35s}{'class':46s}{'caught by':44s}{'in seed':>7s}",
            *(
                f"{each['name']:44s}{each['class']:46s}{each['invariant'] or 'MISSED':44s}{each['seed']:>7d}"
                for each in sorted(found, key=lambda each: (int(each["class"].split()[0]), each["name"]))
            ),
        ]

    def _corruption(self) -> list[str]:
        tables: defaultdict[str, defaultdict[str, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
        for result in self._of(CORRUPTION):
            for title, structures in result.details.get("table", {}).items():
                for structure, found in structures.items():
                    tables[title][structure].update(found)
        lines = []
        for title, table in tables.items():
            columns = list(dict.fromkeys(outcome for found in table.values() for outcome in found))
            heading = f"corruption, {title}"
            lines.append(f"{heading:60s}" + "".join(f"{column:>20s}" for column in columns))
            for structure, found in sorted(table.items()):
                lines.append(f"{structure:60s}" + "".join(f"{found[each] or '–':>20}" for each in columns))
        return lines

    def _fuzz(self) -> list[str]:
        outcomes = _added(result.details.get("outcomes", {}) for result in self._of(FUZZ))
        return ["protocol fuzz", *(f"{count:>12,}  {name}" for name, count in sorted(outcomes.items()))]


def _reached(far: Progress) -> str:
    """The sentence that says where the family's aim is reached."""
    aim = f"The aim of {far.aim:,} {far.unit}"
    if not far.left_here:
        return f"{aim} is reached on this tree."
    here = f"{far.left_here} of {far.slices} slices are left on this tree"
    if not far.left_of_late:
        return f"{aim} is reached {_OF_LATE}; {here}."
    return f"{aim} is not reached: {here}, and {far.left_of_late} have not held {_OF_LATE} either."


def _remarks(known: Known, result: Result) -> list[str]:
    """What there is to say of a run that did not hold."""
    seeds = [f"seed {seed}: {invariant}" for seed, invariant in result.details.get("failed", ())]
    of_another = [] if result is known.here else [f"of another tree: {result.origin}"]
    held = [] if known.held is None else [f"held last: {known.held.origin}"]
    return [*seeds, *of_another, *held]


def _first(names: list[str]) -> str:
    return ", ".join(names[:_NAMED]) + (f", and {len(names) - _NAMED} more" if len(names) > _NAMED else "")


def _seeds(results: Iterable[Result]) -> int:
    return sum(result.counts["passed"] for result in results if result.details)


def _hits(results: Iterable[Result]) -> Counter[str]:
    return _added(result.details.get("hits", {}) for result in results)


def _added(counts: Iterable[dict[str, int]]) -> Counter[str]:
    total: Counter[str] = Counter()
    for each in counts:
        total.update(each)
    return total
