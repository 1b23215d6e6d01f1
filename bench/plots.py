"""The figures as pictures, with matplotlib; a run without it has its tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from bench.peers import PEERS
from bench.peers.dledger_python import DLedgerPython
from bench.report import WORKS, Figures

OURS_COLOUR, SYNCED_COLOUR, UNSYNCED_COLOUR = "#1b6ca8", "#5a9367", "#c9a66b"


def plot_comparison(result: dict[str, Any], path: Path) -> None:
    """A panel a work: a bar a system, the range over the rounds on it. Bars of those that do not sync are hatched."""
    plt = _pyplot(path)
    if plt is None:
        return
    figures = Figures(result)
    systems = result["systems"]
    figure, panels = plt.subplots(1, len(WORKS), figsize=(3.6 * len(WORKS), 0.45 * len(systems) + 1.4), sharey=True)
    for panel, work in zip(panels, WORKS, strict=True):
        for place, (name, about) in enumerate(systems.items()):
            rate = figures.spread(name, work)
            if rate is None:
                continue
            colour = OURS_COLOUR if issubclass(PEERS[name], DLedgerPython) else SYNCED_COLOUR
            colour = colour if about["syncs"] or colour == OURS_COLOUR else UNSYNCED_COLOUR
            reach = [[rate.middle - rate.low], [rate.high - rate.middle]]
            hatch = "" if about["syncs"] else "//"
            panel.barh(place, rate.middle, xerr=reach, color=colour, hatch=hatch, edgecolor="white", ecolor="#333333")
            panel.annotate(f" {rate.middle:,.0f}", (rate.high, place), va="center", fontsize=8)
        panel.set_title(work, fontsize=10)
        panel.set_xticks([])
        panel.margins(x=0.3)
        panel.spines[["top", "right", "bottom"]].set_visible(False)
    panels[0].set_yticks(range(len(systems)), [about["title"] for about in systems.values()])
    panels[0].invert_yaxis()
    figure.suptitle("records of 128 B a second; hatched: acknowledged before any fsync", fontsize=11)
    _save(plt, figure, path)


def plot_lines(series: dict[str, tuple[list[float], list[float]]], labels: tuple[str, str, str], path: Path) -> None:
    """``labels``: of the picture, of x, of y. Each series has its x and its y."""
    plt = _pyplot(path)
    if plt is None:
        return
    figure, panel = plt.subplots(figsize=(7, 3.5))
    for label, (xs, ys) in series.items():
        panel.plot(xs, ys, marker="o", markersize=3, label=label)
    panel.set(title=labels[0], xlabel=labels[1], ylabel=labels[2])
    panel.set_ylim(bottom=0)
    panel.legend()
    panel.spines[["top", "right"]].set_visible(False)
    _save(plt, figure, path)


def _save(plt: Any, figure: Any, path: Path) -> None:
    """No reader ever sees half of it."""
    figure.tight_layout()
    beside = path.with_name("new-" + path.name)
    figure.savefig(beside)
    plt.close(figure)
    beside.replace(path)


def _pyplot(path: Path) -> Any:
    """None, said, where matplotlib is not installed; a picture of earlier results is removed then."""
    try:
        import matplotlib as mpl  # noqa: PLC0415  # only this needs it
    except ModuleNotFoundError:
        path.unlink(missing_ok=True)
        click.echo("no picture: matplotlib is not installed (make .venv/.bench)", err=True)
        return None
    mpl.use("svg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    return plt
