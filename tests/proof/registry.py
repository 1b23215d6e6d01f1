"""What is to be proved: families of slices, each a command that ends by itself and says what it counted."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from tests.crashes.scenarios import SCENARIOS
from tests.liveness.graphs import DIRECTED_THREE, UNDIRECTED_FIVE
from tests.liveness.run import Kind
from tests.simulation.plant import CANARIES, Mutant, mutants
from tests.support.imports import imported
from tests.support.sources import ROOT, blobs, is_apart, tree

SIMULATION, STORE_SIMULATION = "simulation", "simulation-store"
MUTANTS, CORRUPTION, FUZZ = "mutants", "corruption", "fuzz"
SUMMARISED = (SIMULATION, STORE_SIMULATION, MUTANTS, CORRUPTION, FUZZ)
"""Families whose command writes with ``--summary`` what the report shows of it."""
UNITS = {
    "crash-points": "crash points",
    CORRUPTION: "damages",
    "power-ext4": "power cuts",
    "power-xfs": "power cuts",
    "real-faults": "tests",
    "connection-graphs": "cases of graphs",
    FUZZ: "messages",
    MUTANTS: "planted bugs",
    SIMULATION: "seeds",
    STORE_SIMULATION: "seeds",
}
"""What the first of a family's counts counts."""
WRONGS = ("failed", "wrong", "missed", "lost", "doubled", "out_of_order", "skipped")
"""Of these no slice that holds counts any."""
PASSED_FAILED = r"(?P<passed>\d+) passed, (?P<failed>\d+) failed"
SEEDS = 20_000
SEEDS_A_SLICE = 500
STORE_SEEDS = 2_000
STORE_SEEDS_A_SLICE = 250
QUICK_SEEDS = 40
QUICK_STORE_SEEDS = 10
MUTANT_SEEDS = 1_000
GRAPH_CASES = len(Kind) * sum(shape.graph_count * shape.size for shape in (UNDIRECTED_FIVE, DIRECTED_THREE))
"""Each graph, with each node as the earlier leader."""
POINTS_A_SCENARIO = 1_200
"""At least: the smallest has some more."""
CORRUPTION_SLICES = 16
DAMAGES_A_SLICE = 150_000
"""At least: there are more than three million in all."""
REAL_FAULT_TESTS = 15
CUTS = 200
CUTS_A_SLICE = 20
MESSAGES_TO_PORTS = 1_000_000
MESSAGES_TO_DECODERS = 500_000
FRAMES_TO_THE_ENGINE = 1_000_000
MESSAGES_OF_A_MEMBER = 150_000
MESSAGES_A_SLICE = 100_000
REAL_FAULTS = "tests/root"
STARTED_BY_REAL_FAULTS = ("tests/power", "jepsen")
"""As programs of their own, which nothing in those tests imports."""
OWN_PROCESS = ("tests/simulation", "tests/crashes", "tests/corruption", "tests/liveness")
"""Their nodes run in the process of the proof: what it does not import it does not prove. The others start programs."""


class Slice(NamedTuple):
    """``python -m`` with ``arguments``. It holds when that exits with 0."""

    family: str
    arguments: tuple[str, ...]
    counts: str
    """A pattern whose named groups are numbers to be added up; the last place where it matches counts. It must."""
    asked: int = 1
    """So many of the first of them, at least: with fewer it has not done what it was told to."""
    patch: Path | None = None
    """Applied to the sources first."""

    @property
    def name(self) -> str:
        return " ".join(self.arguments).removeprefix("tests.")

    @property
    def package(self) -> str:
        """Where the proving programs are."""
        return self.arguments[1] if self.arguments[0] == "pytest" else self.arguments[0].replace(".", "/")

    def holds(self, counts: dict[str, int]) -> bool:
        """Whether they are as many as were asked for, and none of a kind that must not be."""
        return next(iter(counts.values()), 0) >= self.asked and not any(counts.get(name) for name in WRONGS)

    @property
    def command(self) -> str:
        """What runs it by itself."""
        return f"python -m {' '.join(self.arguments)}"

    @property
    def sources(self) -> dict[str, str]:
        """All files that the outcome rests on, as they are now: what is proved, and what proves it. A path has the id
        that git has for such a file."""
        return blobs([*places(self.package), *([self.patch] if self.patch else [])])

    @property
    def tree(self) -> str:
        """The id of the git tree of ``sources``."""
        return tree(self.sources)


def places(package: str) -> list[Path]:
    """Files and directories that the outcome of a package's proofs rests on."""
    programs = [ROOT / name for name in (package, *(STARTED_BY_REAL_FAULTS if package == REAL_FAULTS else ()))]
    mine = imported(chain.from_iterable(program.rglob("*.py") for program in programs))
    if package in OWN_PROCESS:
        return sorted(mine)
    settings = [ROOT / name for name in ("tests/conftest.py", "pyproject.toml") if package == REAL_FAULTS]
    named = [ROOT / "dledger", *programs, *settings]
    return [*named, *sorted(file for file in mine if is_apart(file) or not {*file.parents} & {*named})]


def full() -> list[Slice]:
    """All of it: hours."""
    return list(
        chain(
            (_crashes(name) for name in SCENARIOS),
            (
                _corruption(DAMAGES_A_SLICE, "--part", str(part), "--parts", str(CORRUPTION_SLICES))
                for part in range(CORRUPTION_SLICES)
            ),
            _power("ext4", CUTS, CUTS_A_SLICE),
            _power("xfs", CUTS, CUTS_A_SLICE),
            [Slice("real-faults", ("pytest", REAL_FAULTS), _PYTEST, REAL_FAULT_TESTS)],
            [Slice("connection-graphs", ("tests.liveness",), PASSED_FAILED, GRAPH_CASES)],
            [
                _fuzz(MESSAGES_TO_DECODERS, "--target", "decoders"),
                _fuzz(FRAMES_TO_THE_ENGINE, "--target", "http2"),
                _fuzz(MESSAGES_OF_A_MEMBER, "--target", "members"),
            ],
            (
                _fuzz(MESSAGES_A_SLICE, "--target", "ports", "--seed", str(seed))
                for seed in range(MESSAGES_TO_PORTS // MESSAGES_A_SLICE)
            ),
            (_mutant(each, MUTANT_SEEDS) for each in mutants()),
            (_seeds(first, first + SEEDS_A_SLICE) for first in range(0, SEEDS, SEEDS_A_SLICE)),
            (_store_seeds(first, first + STORE_SEEDS_A_SLICE) for first in range(0, STORE_SEEDS, STORE_SEEDS_A_SLICE)),
        )
    )


def quick(first_seed: int) -> list[Slice]:
    """A cut of each family but the real faults, which ``make test-root`` runs: it ends within minutes on two cores.

    What draws at random begins with ``first_seed``. Planted bugs are looked for in the seeds that find them."""
    seed = ("--seed", str(first_seed))
    return [
        Slice("crash-points", ("tests.crashes", "--quick"), _CRASH_POINTS),
        _corruption(10_000, "--quick"),
        *_power("ext4", 8, 8, *seed),
        *_power("xfs", 8, 8, *seed),
        Slice("connection-graphs", ("tests.liveness", "--graph", "341"), PASSED_FAILED),
        _fuzz(20_000, "--target", "decoders", *seed),
        _fuzz(20_000, "--target", "http2", *seed),
        _fuzz(2_000, "--target", "members", *seed),
        *(_mutant(each, 100) for each in mutants(*CANARIES)),
        _seeds(first_seed, first_seed + QUICK_SEEDS),
        _store_seeds(first_seed, first_seed + QUICK_STORE_SEEDS),
    ]


_CRASH_POINTS = (
    r"(?P<points>\d+) crash points, (?P<outcomes>\d+) outcomes, (?P<starts>\d+) starts, (?P<failed>\d+) failed"
)
_PYTEST = r"(?:(?P<passed>\d+) passed)?(?:, )?(?:(?P<skipped>\d+) skipped)? in \d"
_POWER = (
    r"(?P<cuts>\d+) power cuts .*, (?P<acknowledged>\d+) acknowledged, (?P<unknown>\d+) unknown, "
    r"(?P<tails_cut>\d+) tails cut, (?P<lost>\d+) lost, (?P<doubled>\d+) doubled, (?P<out_of_order>\d+) out of order"
)


def _crashes(scenario: str) -> Slice:
    return Slice("crash-points", ("tests.crashes", scenario), _CRASH_POINTS, POINTS_A_SCENARIO)


def _corruption(damages: int, *flags: str) -> Slice:
    return Slice(CORRUPTION, ("tests.corruption", *flags), r"(?P<damages>\d+) damages, (?P<wrong>\d+) wrong", damages)


def _power(filesystem: str, cuts: int, cuts_a_slice: int, *flags: str) -> Iterator[Slice]:
    for first in range(0, cuts, cuts_a_slice):
        seed = flags or ("--seed", str(first))
        arguments = ("tests.power", "--filesystem", filesystem, "--cuts", str(cuts_a_slice), *seed)
        yield Slice(f"power-{filesystem}", arguments, _POWER, cuts_a_slice)


def _fuzz(messages: int, *flags: str) -> Slice:
    counts = r"(?P<messages>\d+)  messages, calls and connections in all"
    return Slice(FUZZ, ("tests.fuzz", "--count", str(messages), *flags), counts, messages)


def _mutant(mutant: Mutant, seeds: int) -> Slice:
    arguments = ("tests.simulation", "--mutants", mutant.name, "--max-seeds", str(seeds))
    return Slice(MUTANTS, arguments, r"(?P<caught>\d+) caught, (?P<missed>\d+) missed", patch=mutant.patch)


def _seeds(first: int, end: int) -> Slice:
    return Slice(SIMULATION, ("tests.simulation", "--seeds", f"{first}:{end}"), PASSED_FAILED, end - first)


def _store_seeds(first: int, end: int) -> Slice:
    arguments = ("tests.simulation", "--store", "--seeds", f"{first}:{end}")
    return Slice(STORE_SIMULATION, arguments, PASSED_FAILED, end - first)


def counted(each: Slice, said: str) -> dict[str, int] | None:
    """What the slice's command counted, by what it said; None where it should have said something and has not."""
    matches = list(re.finditer(each.counts, said))
    return {name: int(number or 0) for name, number in matches[-1].groupdict().items()} if matches else None
