"""``python -m jepsen``: test, suite, check, serve."""

from __future__ import annotations

import json
import logging
import random
import sys
import time
from pathlib import Path
from typing import Any

import click

from dledger.cli.runtime import exit_code_of, run
from dledger.errors import ConfigError
from jepsen import analysis
from jepsen.hosts.namespaces import check_root_and_tools
from jepsen.mutants import Verdict, hunt_down, hunts
from jepsen.nemesis.catalogue import NEMESES
from jepsen.report.page import write_report
from jepsen.report.server import make_server
from jepsen.run import Plan, Run
from jepsen.workloads import APPENDERS, WORKLOADS

STORE = Path("jepsen-runs")
DEFAULT_ON_S = 30.0


@click.group()
def main() -> None:
    """Tests dledger under faults, on hosts that are really cut off. Needs root."""
    logging.basicConfig(format="%(asctime)s %(message)s", level=logging.INFO, stream=sys.stderr)


def _plan_options(command: Any) -> Any:
    options = [
        click.option("--workload", type=click.Choice(list(WORKLOADS)), default="set", show_default=True),
        click.option("--clients", default=30, show_default=True, type=click.IntRange(1, len(APPENDERS))),
        click.option("--client", type=click.Choice(["sdk", "plain"]), default="sdk", help="The SDK, or plain gRPC."),
        click.option("--batch", default=1, show_default=True, help="Records an append."),
        click.option("--record-bytes", default=16, show_default=True, type=click.IntRange(8)),
        click.option("--rate", default=0.0, help="Appends a second, all clients together; 0: as fast as answered."),
        click.option("--fault-seconds", default=DEFAULT_ON_S, show_default=True, help="How long a fault lasts."),
        click.option("--calm-seconds", default=DEFAULT_ON_S, show_default=True, help="How long all is whole then."),
        click.option("--nodes", default=5, show_default=True, type=click.IntRange(3, 9)),
        click.option("--hosts", default="netns", show_default=True, help="netns, compose, or ssh:ADDRESS,ADDRESS,…"),
        click.option("--seed", type=int, default=None, help="Of all choices; a new one by default."),
        click.option("--store", type=click.Path(path_type=Path), default=STORE, show_default=True),
    ]
    for option in reversed(options):
        command = option(command)
    return command


@main.command()
@_plan_options
@click.option(
    "--nemesis",
    "nemeses",
    default="none",
    show_default=True,
    help="NAME,… in turn; every; all (by weight); none.",
)
@click.option("--time-limit", default=60.0, show_default=True, help="Seconds of load.")
def test(nemeses: str, store: Path, **options: Any) -> int:
    """One run. The last line is one JSON object; exits with 1 when it is not valid."""
    plan = _plan(tuple(nemeses.split(",")), **options)
    told = _go(plan, store)
    click.echo(json.dumps(told))
    return 0 if told["valid"] else 1


@main.command()
@_plan_options
@click.option("--time-limit", default=60.0, show_default=True, help="Seconds of load for each nemesis.")
@click.option("--only", default="", help="Nemeses, comma-separated; all by default.")
def suite(only: str, store: Path, **options: Any) -> int:
    """Every nemesis in turn. The last line is one JSON object."""
    chosen = only.split(",") if only else list(NEMESES)
    results = {}
    for nemesis in chosen:
        results[nemesis] = _go(_plan((nemesis,), **options), store)
        click.echo(json.dumps({"nemesis": nemesis, **results[nemesis]}))
    bad = [nemesis for nemesis, told in results.items() if not told["valid"]]
    click.echo(json.dumps({"valid": not bad, "nemeses": len(results), "not_valid": bad}))
    return 1 if bad else 0


@main.command()
@click.argument("history", type=click.Path(path_type=Path, exists=True))
def check(history: Path) -> int:
    """Judges a run's directory, or a history.parquet, again."""
    told = analysis.judge(history)
    run_dir = analysis.run_dir_of(history)
    if (run_dir / "plan.json").exists():
        write_report(run_dir)
    click.echo(json.dumps(told))
    return 0 if told["valid"] else 1


@main.command()
@click.option("--only", default="", help="Planted bugs, comma-separated; all by default.")
@click.option("--enough", default=0, help="Stop once so many were caught.")
@click.option("--store", type=click.Path(path_type=Path), default=STORE, show_default=True)
def mutants(only: str, enough: int, store: Path) -> int:
    """Runs planted bugs. The last line is one JSON object; exits with 1 when too few were caught."""
    check_root_and_tools()
    began = time.monotonic()
    verdicts: list[Verdict] = []
    for hunt in hunts(filter(None, only.split(","))):
        verdicts.append(hunt_down(hunt, store, run))
        click.echo(str(verdicts[-1]))
        if enough and sum(bool(each.signs) for each in verdicts) >= enough:
            break
    caught = [each.hunt.mutant for each in verdicts if each.signs]
    missed = [each.hunt.mutant for each in verdicts if not each.signs]
    seconds = round(time.monotonic() - began)
    click.echo(json.dumps({"caught": len(caught), "missed": missed, "seconds": seconds}))
    return 0 if len(caught) >= (enough or len(verdicts)) else 1


@main.command()
@click.option("--store", type=click.Path(path_type=Path), default=STORE, show_default=True)
@click.option("--port", default=8090, show_default=True)
def serve(store: Path, port: int) -> None:
    """Shows the runs in the store in a browser, until Ctrl-C."""
    with make_server(store, "127.0.0.1", port) as server:
        click.echo(f"http://127.0.0.1:{server.server_port}/")
        server.serve_forever()


def _plan(nemeses: tuple[str, ...], *, time_limit: float, rate: float, **options: Any) -> Plan:
    on_s, off_s = options.pop("fault_seconds"), options.pop("calm_seconds")
    if on_s + off_s > time_limit / 2:
        on_s = off_s = max(2.0, time_limit / 6)
    seed = options.pop("seed")
    return Plan(
        nemeses=nemeses,
        time_limit_s=time_limit,
        on_s=on_s,
        off_s=off_s,
        rate_per_s=rate,
        seed=random.SystemRandom().randrange(1 << 32) if seed is None else seed,
        **options,
    )


def _go(plan: Plan, store: Path) -> dict[str, Any]:
    check_root_and_tools()
    name = f"{time.strftime('%Y%m%d-%H%M%S')}-{plan.workload}-{'+'.join(plan.nemeses)}"
    run_dir = store / name
    if run_dir.exists():
        raise ConfigError(f"{run_dir} exists already: wait a second")
    told = run(Run(plan, run_dir).go())
    click.echo(f"the report is {write_report(run_dir)}", err=True)
    return told


if __name__ == "__main__":
    sys.exit(exit_code_of(lambda: main(standalone_mode=False)))
