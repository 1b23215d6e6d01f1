"""The pictures of a run, as SVG: latency and rate over time with the faults shaded, and who led in which term."""

from __future__ import annotations

import io
import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
import pyarrow as pa
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection
from matplotlib.figure import Figure

from dledger.kernels.history import Column, column
from dledger.kernels.rates import OUTCOMES, SLOT_NS, latency_ms
from jepsen.nemesis.schedule import Window

COLOURS = {"ok": "#3b6fd4", "fail": "#d1343a", "info": "#e0a800"}
"""As in DLedger's published picture: blue, red and yellow."""
WORDS = {"ok": "acknowledged", "fail": "failed", "info": "unknown"}
ROLE_COLOURS = {"leader": "#3b6fd4", "candidate": "#e0a800", "follower": "#dfe5ee", "learner": "#cfe8d5", "": "#555a63"}
FAULT_COLOUR = "#e9d3c3"
COLUMNS = 600
"""Of dots over the whole time: more than a screen shows are drawn as one."""

mpl.rcParams.update(
    {
        "svg.fonttype": "none",
        "font.family": "sans-serif",
        "font.size": 9,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "grid.color": "#eceff3",
        "axes.axisbelow": True,
        "axes.edgecolor": "#aab2bd",
    }
)


class Told(NamedTuple):
    """A node's role and term, from a time on until the next."""

    at_s: float
    role: str
    term: int


def latency_figure(rates: pa.Table, windows: Sequence[Window], seconds: float) -> str:
    """A dot for each class of latency in each bit of time: the more calls, the larger."""
    figure, axes = _figure(seconds, windows, height=2.9)
    width = max(1, int(seconds * 1e9 / SLOT_NS / COLUMNS))
    outcome, slot = column(rates, "outcome"), column(rates, "slot") // width * width
    latency, calls = column(rates, "latency_class"), column(rates, "calls")
    for number, name in enumerate(OUTCOMES):
        at, level, count = _summed(slot[outcome == number], latency[outcome == number], calls[outcome == number])
        sizes = 1.5 + 1.6 * np.log1p(count)
        label = f"{WORDS[name]} ({int(count.sum()):,} calls)"
        axes.scatter(
            at * SLOT_NS / 1e9,
            latency_ms(level),
            s=sizes,
            color=COLOURS[name],
            alpha=0.55,
            linewidths=0,
            label=label,
            rasterized=True,
        )
    if not len(calls):
        axes.set_ylim(1, 1000)  # nothing to take the scale from
    axes.set_yscale("log")
    axes.set_ylabel("latency, ms")
    _legend(axes)
    return _svg(figure)


def rate_figure(rates: pa.Table, windows: Sequence[Window], seconds: float) -> str:
    """Records a second, by outcome."""
    figure, axes = _figure(seconds, windows, height=2.2)
    slot, records, outcome = column(rates, "slot"), column(rates, "records"), column(rates, "outcome")
    second = slot * SLOT_NS // 1_000_000_000
    span = np.arange(int(seconds) + 1)
    for number, name in enumerate(OUTCOMES):
        mine = outcome == number
        a_second = np.bincount(np.clip(second[mine], 0, span[-1]), weights=records[mine], minlength=len(span))
        if name == "ok" or a_second.any():
            axes.step(span, a_second, where="post", color=COLOURS[name], linewidth=1.2, label=WORDS[name])
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.set_ylabel("records a second")
    _legend(axes)
    return _svg(figure)


def leader_figure(probe_file: Path, windows: Sequence[Window], seconds: float) -> str:
    """A line for each node: what it said it was, and the terms of those who led."""
    told = read_roles(probe_file)
    figure, axes = _figure(seconds, windows, height=0.35 * max(len(told), 1) + 0.8)
    for row, node in enumerate(sorted(told, reverse=True)):
        for begin, end, role, term in bars_of(told[node], seconds):
            axes.barh(row, end - begin, left=begin, height=0.62, color=ROLE_COLOURS.get(role, "#000000"))
            if role == "leader" and end - begin > seconds / 60:
                axes.text(begin + seconds / 400, row, f"{term}", va="center", color="white", fontsize=8)
    axes.set_yticks(range(len(told)), sorted(told, reverse=True))
    axes.grid(visible=False)
    shown = [mpl.patches.Patch(color=colour, label=role or "no answer") for role, colour in ROLE_COLOURS.items()]
    axes.legend(
        handles=shown, loc="lower left", bbox_to_anchor=(0, 1.0), ncols=5, frameon=False, fontsize=8, borderaxespad=0.2
    )
    return _svg(figure)


def bars_of(told: Sequence[Told], seconds: float) -> Iterator[tuple[float, float, str, int]]:
    """From when until when a node was what it said; what it said before time began anew does not count."""
    backwards = [place for place in range(1, len(told)) if told[place].at_s < told[place - 1].at_s]
    told = told[max(backwards, default=0) :]
    ends = [each.at_s for each in told[1:]] + [seconds]
    for each, end in zip(told, ends, strict=True):
        begin = max(each.at_s, 0.0)
        if end > begin:
            yield begin, end, each.role, each.term


def read_roles(probe_file: Path) -> dict[str, list[Told]]:
    """What the probe wrote, by node."""
    told: dict[str, list[Told]] = defaultdict(list)
    if probe_file.exists():
        for line in probe_file.read_text(encoding="ascii").splitlines():
            each: dict[str, Any] = json.loads(line)
            told[each["node"]].append(Told(each["ns"] / 1e9, each["role"], each["term"]))
    return told


def _figure(seconds: float, windows: Sequence[Window], *, height: float) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(11, height))
    # The same left and right edge in every picture, so that they can be read from top to bottom.
    axes = figure.add_axes((0.075, 0.45 / height, 0.915, 1 - 0.75 / height))
    axes.set_xlim(0, max(seconds, 1))
    axes.set_xlabel("seconds")
    for window in windows:
        axes.axvspan(
            window.began_ns / 1e9, window.ended_ns / 1e9, color=FAULT_COLOUR, alpha=0.75, linewidth=0, zorder=0
        )
    return figure, axes


def _legend(axes: Axes) -> None:
    legend = axes.legend(
        loc="lower left", bbox_to_anchor=(0, 1.0), ncols=3, frameon=False, fontsize=8, borderaxespad=0.2
    )
    for handle in legend.legend_handles:
        if isinstance(handle, PathCollection):
            handle.set_sizes([24.0])
            handle.set_alpha(1.0)


def _summed(slot: Column, level: Column, calls: Column) -> tuple[Column, Column, Column]:
    """Calls of one slot and one class, added up."""
    if not len(slot):
        return slot, level, calls
    keys, place = np.unique(np.stack([slot, level]), axis=1, return_inverse=True)
    return keys[0], keys[1], np.bincount(place.reshape(-1), weights=calls).astype(np.int64)


def _svg(figure: Figure) -> str:
    out = io.StringIO()
    figure.savefig(out, format="svg", dpi=150)
    return out.getvalue().partition("<svg")[1] + out.getvalue().partition("<svg")[2]
