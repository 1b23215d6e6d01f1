"""A run as one HTML page: the verdict, what it counts, pictures, every fault with its proof, and where the rest is."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from dledger.kernels.history import column
from dledger.kernels.rates import OUTCOMES, percentile_ms
from jepsen.analysis import VIOLATIONS
from jepsen.nemesis.schedule import Window, read_windows
from jepsen.report.figures import latency_figure, leader_figure, rate_figure
from jepsen.workloads import WORKLOADS

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #1d2330; background: #fff; margin: 2rem auto; max-width: 72rem;
       padding: 0 1.5rem }
h1 { font-size: 1.5rem; margin: 0 } h2 { font-size: 1.1rem; margin: 2.2rem 0 .5rem }
p.lead { color: #5b6472; margin: .2rem 0 1.4rem }
.verdict { display: inline-block; padding: .25rem .8rem; border-radius: .4rem; color: #fff; font-weight: 600 }
.valid { background: #1f8a4c } .invalid { background: #c5303a }
dl { display: grid; grid-template-columns: repeat(auto-fill, minmax(9.5rem, 1fr)); gap: .6rem; margin: 1.2rem 0 }
dl div { background: #f5f7fa; border-radius: .5rem; padding: .6rem .8rem }
dl div.bad { background: #fbe3e4 }
dt { color: #5b6472; font-size: .82rem } dd { margin: 0; font-size: 1.25rem; font-variant-numeric: tabular-nums }
table { border-collapse: collapse; width: 100%; font-size: .87rem }
th, td { text-align: left; padding: .35rem .6rem; border-bottom: 1px solid #e6eaf0; vertical-align: top }
th { color: #5b6472; font-weight: 500 } td.number { text-align: right; font-variant-numeric: tabular-nums }
svg { width: 100%; height: auto } code { font-size: .82rem; color: #444c5a; overflow-wrap: anywhere }
a { color: #2456b3 }
@media (prefers-color-scheme: dark) { svg { background: #fff; border-radius: .5rem } }
"""

COUNTED = ("attempts", "acknowledged", "unknown", "failed", "recovered")
WORST_MAJORITY_WAIT_S = 2.0


def write_report(run_dir: Path) -> Path:
    """Writes report.html beside the verdict that it tells."""
    told = json.loads((run_dir / "verdict.json").read_text(encoding="utf-8"))
    plan = json.loads((run_dir / "plan.json").read_text(encoding="utf-8"))
    windows = read_windows(run_dir / "faults.jsonl")
    rates = pq.read_table(run_dir / "rates.parquet")
    seconds = float(plan["time_limit_s"])
    ok = column(rates, "outcome") == OUTCOMES.index("ok")
    latency, calls = column(rates, "latency_class")[ok], column(rates, "calls")[ok]
    percentiles = {f"p{100 * share:g}": percentile_ms(latency, calls, share) for share in (0.5, 0.99, 0.999)}
    parts = [
        _head(plan, told),
        _listed("Why it is not valid", told.get("reasons", [])),
        _counts(told, percentiles, seconds),
        _checks(told.get("checks", {})),
        "<h2>Latency</h2>",
        latency_figure(rates, windows, seconds),
        "<h2>Rate</h2>",
        rate_figure(rates, windows, seconds),
        "<h2>Who led, in which term</h2>",
        leader_figure(run_dir / "probe.jsonl", windows, seconds),
        _faults(windows, told.get("unavailability_s", {})),
        _listed("For instance", told.get("examples", [])),
        _files(run_dir),
    ]
    title = escape(f"{plan['workload']} under {', '.join(plan['nemeses'])}")
    page = f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title><style>{STYLE}</style>'
    target = run_dir / "report.html"
    target.write_text(page + "\n".join(parts) + "</html>\n", encoding="utf-8")
    return target


def _head(plan: Mapping[str, Any], told: Mapping[str, Any]) -> str:
    word = "valid" if told["valid"] else "not valid"
    kind = "valid" if told["valid"] else "invalid"
    if WORKLOADS[plan["workload"]].is_of_store:
        work, unit = f"{plan['clients']} clients of the store", "operations"
    else:
        records = f"{plan['batch']} records an append of {plan['record_bytes']} bytes"
        work, unit = f"{plan['clients']} clients ({plan['client']}), {records}", "appends"
    rate = f"{plan['rate_per_s']:,.0f} {unit} a second" if plan["rate_per_s"] else "as fast as they are answered"
    lead = (
        f"{plan['nodes']} nodes, {work}, {rate}; {plan['time_limit_s']:g} s, faults {plan['on_s']:g} s on, "
        f"{plan['off_s']:g} s off; seed {plan['seed']}"
    )
    heading = f"{plan['workload']} under {', '.join(plan['nemeses'])}"
    return f'<h1>{escape(heading)} <span class="verdict {kind}">{word}</span></h1><p class="lead">{escape(lead)}</p>'


def _counts(told: Mapping[str, Any], percentiles: Mapping[str, float], seconds: float) -> str:
    boxes = [_box(name, f"{told[name]:,}") for name in COUNTED if name in told]
    violations = told.get("violations", VIOLATIONS)
    boxes += [_box(name.replace("_", " "), f"{told.get(name, 0):,}", bad=bool(told.get(name))) for name in violations]
    boxes.append(_box("a second", f"{told.get('acknowledged', 0) / seconds:,.0f}"))
    boxes += [_box(f"latency {name}", f"{value:,.1f} ms") for name, value in percentiles.items()]
    share = told.get("availability")
    with_acks, with_majority = told.get("seconds_with_acks"), told.get("seconds_with_majority")
    boxes.append(_box("seconds with acks", f"{share:.1%} of {with_majority}" if share is not None else str(with_acks)))
    wait_s = told.get("longest_unavailability_s", 0.0)
    boxes.append(_box("longest without acks", f"{wait_s:g} s", bad=wait_s > WORST_MAJORITY_WAIT_S))
    return f"<dl>{''.join(boxes)}</dl>"


def _checks(checks: Mapping[str, Mapping[str, int]]) -> str:
    """The numbers of each check of the store."""
    if not checks:
        return ""
    rows = "".join(
        f"<tr><td>{escape(check)}</td><td>{escape(name.replace('_', ' '))}</td><td class=number>{number:,}</td></tr>"
        for check, numbers in checks.items()
        for name, number in numbers.items()
    )
    return f"<h2>Checks</h2><table><tr><th>check</th><th>number</th><th></th></tr>{rows}</table>"


def _box(name: str, value: str, *, bad: bool = False) -> str:
    return f"<div{' class=bad' if bad else ''}><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>"


def _faults(windows: Sequence[Window], waits_s: Mapping[str, float]) -> str:
    if not windows:
        return "<h2>Faults</h2><p>None.</p>"
    rows = "".join(_fault(window, waits_s) for window in windows)
    head = "".join(
        f"<th>{name}</th>"
        for name in ("from", "to", "fault", "what", "hosts", "majority", "longest without acks", "it bit", "proof")
    )
    return f"<h2>Faults</h2><table><tr>{head}</tr>{rows}</table>"


def _fault(window: Window, waits_s: Mapping[str, float]) -> str:
    began_s = window.began_ns / 1e9
    evidence = ", ".join(f"{name} {_plain(value)}" for name, value in window.evidence.items())
    wait_s = waits_s.get(window.key)
    return (
        f'<tr><td class="number">{began_s:.1f}</td><td class="number">{window.ended_ns / 1e9:.1f}</td>'
        f"<td>{escape(window.fault)}</td><td>{escape(window.what)}</td><td>{escape(' '.join(window.targets))}</td>"
        f"<td>{'connected' if window.majority else 'no'}</td>"
        f'<td class="number">{"" if wait_s is None else f"{wait_s:g} s"}</td>'
        f"<td>{'yes' if window.bit else '<b>no</b>'}</td><td><code>{escape(evidence)}</code></td></tr>"
    )


def _plain(value: object) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


def _listed(heading: str, sentences: Iterable[str]) -> str:
    items = "".join(f"<li>{escape(sentence)}</li>" for sentence in sentences)
    return f"<h2>{escape(heading)}</h2><ul>{items}</ul>" if items else ""


def _files(run_dir: Path) -> str:
    names = ["history.parquet", "operations.jsonl", "plan.json", "verdict.json", "faults.jsonl", "probe.jsonl"]
    # Also of those who joined later.
    names += sorted((file.name for file in run_dir.glob("n*.log")), key=lambda name: (len(name), name))
    links = " · ".join(f'<a href="{name}">{name}</a>' for name in names if (run_dir / name).exists())
    return f"<h2>Files</h2><p>{links}</p>"
