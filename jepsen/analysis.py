"""From a run's directory to its verdict: the checks, what the faults proved, how available the log was."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dledger.kernels.checks import CHECKS, verdict
from dledger.kernels.history import Column
from dledger.kernels.kernel import Findings
from dledger.kernels.rates import SLOT_NS, RateKernel, acknowledged_slots
from jepsen.history import read_history
from jepsen.nemesis.api import majority_connected
from jepsen.nemesis.schedule import Window, read_windows

VIOLATIONS = (
    "lost",
    "unexpected",
    "vanished",
    "duplicated",
    "conflicts",
    "out_of_order",
    "reordered",
    "stale",
    "premature",
    "gaps",
    "incomplete",
    "overfull",
    "copies_unread",
)
"""The numbers in a verdict that must be 0."""
SECOND_SLOTS = 1_000_000_000 // SLOT_NS
AFTERMATH_NS = 3_000_000_000
"""What a fault's end may cost belongs to the fault."""


def judge(run_dir: Path) -> dict[str, Any]:
    """Reads the history once; writes verdict.json and rates.parquet beside it. Raises CONFIG_ERROR."""
    findings, rates = findings_of(run_dir)
    windows = read_windows(run_dir / "faults.jsonl")
    plan = _plan(run_dir)
    told = verdict(findings)
    slots = acknowledged_slots(rates)
    told |= availability(slots, windows, plan.get("time_limit_s", 0.0), plan.get("nodes", 5))
    toothless = [window.fault for window in windows if not window.bit]
    is_missing = plan.get("nemeses", ["none"]) != ["none"] and not windows
    unread = max(0, plan.get("nodes", 0) + 1 - told["final_reads"])
    told |= {"copies_unread": unread, "faults": len(windows), "faults_that_did_not_bite": toothless}
    told["valid"] = bool(told["valid"] and not toothless and not is_missing and not unread)
    told["examples"] = [example for found in findings.values() for example in found.examples]
    if run_dir.is_dir():
        (run_dir / "verdict.json").write_text(json.dumps(told, indent=1), encoding="utf-8")
        pq.write_table(rates, run_dir / "rates.parquet")
    return told


def findings_of(history: Path) -> tuple[dict[str, Findings], pa.Table]:
    """Every check's findings, and the merged partial of the rates."""
    kernels = (*CHECKS, RateKernel())
    partials: list[list[pa.Table]] = [[] for _ in kernels]
    for batch in read_history(history):
        for kernel, mine in zip(kernels, partials, strict=True):
            mine.append(kernel.partial(batch))
    merged = [kernel.merge(mine) for kernel, mine in zip(kernels, partials, strict=True)]
    found = {kernel.name: kernel.findings(whole) for kernel, whole in zip(CHECKS, merged, strict=False)}
    return found, merged[-1]


def availability(slots: Column, windows: list[Window], time_limit_s: float, nodes: int = 5) -> dict[str, Any]:
    """The share of the seconds with acknowledgements, and the longest time without, in all and for each fault.

    Only seconds in which a majority was connected count, and faults that left one so.
    """
    seconds = np.arange(int(time_limit_s))
    names = [f"n{number}" for number in range(nodes)]
    connected = np.array([_connected(windows, second, names) for second in range(len(seconds))], dtype=np.bool_)
    busy = np.isin(seconds, slots // SECOND_SLOTS)
    counted = int(connected.sum())
    begins_ns = sorted(window.began_ns for window in windows)
    waits = {}
    for window in windows:
        later_ns = [ns for ns in begins_ns if ns > window.began_ns]
        waits[window.key] = _longest_wait_s(slots, window, min([*later_ns, int(time_limit_s * 1e9)]))
    kept = [waits[window.key] for window in windows if window.majority]
    return {
        "seconds_with_majority": counted,
        "seconds_with_acks": int((busy & connected).sum()),
        "availability": round(float((busy & connected).sum()) / counted, 4) if counted else None,
        "longest_unavailability_s": max(kept, default=0.0),
        "unavailability_s": waits,
    }


def _longest_wait_s(slots: Column, window: Window, next_ns: int) -> float:
    """The longest time without an acknowledgement from the fault's begin until the next one's: its aftermath is its."""
    begin, end = window.began_ns // SLOT_NS, next_ns // SLOT_NS
    within = slots[(slots >= begin) & (slots <= end)]
    waits = np.diff(np.concatenate([[begin], within, [max(begin, end)]]))
    return round(float(waits.max()) * SLOT_NS / 1e9, 2)


def _connected(windows: list[Window], second: int, names: list[str]) -> bool:
    """Whether a majority was connected all through this second, for all that was cut and down then."""
    begin, end = second * 1_000_000_000, (second + 1) * 1_000_000_000
    now = [window for window in windows if window.began_ns < end and begin <= window.ended_ns + AFTERMATH_NS]
    cut = frozenset((sender, receiver) for window in now for sender, receiver in window.cut)
    down = frozenset(name for window in now for name in window.down)
    return majority_connected(names, cut, down)


def _plan(run_dir: Path) -> dict[str, Any]:
    file = run_dir / "plan.json"
    return dict(json.loads(file.read_text(encoding="utf-8"))) if file.exists() else {}
