"""``python -m jepsen``: test, suite, store, check, mutants, serve."""

from __future__ import annotations

import contextlib
import json
import logging
import math
import random
import sys
import time
from collections.abc import Mapping
from itertools import chain, count
from pathlib import Path
from typing import Any

import click

from dledger.cli.runtime import exit_code_of, run
from dledger.cli.streams import discard_output
from dledger.common.config import Limits
from dledger.common.errors import ConfigError
from jepsen import analysis, judging
from jepsen.hosts.namespaces import check_root_and_tools
from jepsen.mutants import Verdict, hunt_down, hunts
from jepsen.nemesis.catalogue import NEMESES
from jepsen.nemesis.schedule import FIRST_FAULT_S, begins_in_time
from jepsen.plan import Plan
from jepsen.report.page import write_report
from jepsen.report.server import make_server
from jepsen.run import Run, check_control
from jepsen.workloads import APPENDERS, WORKLOADS

logger = logging.getLogger(__name__)

STORE = Path("jepsen-runs")
PACE_S = 30.0
"""How long a fault lasts, and how long all is whole then, where a run is long enough for two of them."""
LIMITS = Limits()


class Seconds(click.FloatRange):
    """A time; nan and inf are none."""

    name = "seconds"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        seconds = super().convert(value, param, ctx)
        if not math.isfinite(seconds):
            self.fail(f"{value!r} is no time.", param, ctx)
        return seconds


PACE = f"[default: {PACE_S:g}, or less in a short run]"


@click.group()
def main() -> None:
    """Tests dledger under faults, on hosts that are really cut off. Needs root."""
    logging.basicConfig(format="%(asctime)s %(message)s", level=logging.INFO, stream=sys.stderr)


def _plan_options(command: Any) -> Any:
    command = _options_of_all(command)
    return click.option("--workload", type=click.Choice(list(WORKLOADS)), default="set", show_default=True)(command)


def _options_of_all(command: Any) -> Any:
    options = [
        click.option("--clients", default=30, show_default=True, type=click.IntRange(1, len(APPENDERS))),
        click.option("--client", type=click.Choice(["sdk", "plain"]), default="sdk", help="The SDK, or plain gRPC."),
        click.option("--batch", default=1, show_default=True, type=click.IntRange(1), help="Records an append."),
        click.option("--record-bytes", default=16, show_default=True, type=click.IntRange(8, LIMITS.max_record_bytes)),
        click.option(
            "--rate",
            default=0.0,
            type=click.FloatRange(0, 1e9),
            help="Appends, or operations of the store, a second, all clients together; 0: as fast as answered.",
        ),
        click.option("--fault-seconds", type=Seconds(0.1), help=f"How long a fault lasts.  {PACE}"),
        click.option("--calm-seconds", type=Seconds(0), help=f"How long all is whole then.  {PACE}"),
        click.option("--nodes", type=click.IntRange(3, 9), help="[default: 5, or as many as --hosts names]"),
        click.option("--hosts", default="netns", show_default=True, help="netns, compose, or ssh:ADDRESS,ADDRESS,…"),
        click.option("--seed", type=int, default=None, help="Of what the nemesis chooses; a new one by default."),
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
@click.option("--time-limit", default=60.0, show_default=True, type=Seconds(1), help="Seconds of load.")
def test(nemeses: str, store: Path, **options: Any) -> int:
    """One run. The last line is one JSON object; exits with 1 when it is not valid."""
    plan = _plan(tuple(nemeses.split(",")), **options)
    told = _go(plan, store)
    tell(json.dumps(told))
    return 0 if told["valid"] else 1


@main.command()
@_plan_options
@click.option(
    "--time-limit", default=60.0, show_default=True, type=Seconds(1), help="Seconds of load for each nemesis."
)
@click.option("--only", default="", help="Nemeses, comma-separated; all by default.")
def suite(only: str, store: Path, **options: Any) -> int:
    """Every nemesis in turn. The last line is one JSON object."""
    chosen = only.split(",") if only else list(NEMESES)
    results = _in_turn("nemesis", {nemesis: _plan((nemesis,), **options) for nemesis in chosen}, store)
    bad = [nemesis for nemesis, told in results.items() if not told["valid"]]
    tell(json.dumps({"valid": not bad, "nemeses": len(results), "not_valid": bad}))
    return 1 if bad else 0


@main.command("store")
@_options_of_all
@click.option(
    "--nemesis",
    "nemeses",
    default="kill-leader,pause-leader,partition-leader",
    show_default=True,
    help="NAME,… in turn; every; all (by weight); none.",
)
@click.option(
    "--time-limit", default=30.0, show_default=True, type=Seconds(1), help="Seconds of load for each workload."
)
def store_suite(nemeses: str, store: Path, **options: Any) -> int:
    """Every workload of the store in turn. The last line is one JSON object."""
    chosen = [workload for workload in WORKLOADS.values() if workload.is_of_store]
    plans = {each.name: _plan(tuple(nemeses.split(",")), workload=each.name, **options) for each in chosen}
    results = _in_turn("workload", plans, store)
    bad = [workload for workload, told in results.items() if not told["valid"]]
    tell(json.dumps({"valid": not bad, "workloads": len(results), "not_valid": bad}))
    return 1 if bad else 0


def _in_turn(what: str, plans: Mapping[str, Plan], store: Path) -> dict[str, dict[str, Any]]:
    """One run after another; a line for each. The verdicts, by the plans' names."""
    for plan in plans.values():
        check_control(plan)
    results = {}
    for name, plan in plans.items():
        try:
            results[name] = _go(plan, store)
        except Exception as failure:  # the others are still to be run, and this one is told
            logger.exception("the run of %s broke", name)
            results[name] = {"valid": False, "reasons": [f"the run broke: {type(failure).__name__}: {failure}"]}
        tell(json.dumps({what: name, **results[name]}))
    return results


@main.command()
@click.argument("history", type=click.Path(path_type=Path, exists=True))
def check(history: Path) -> int:
    """Judges a run's directory, or a history.parquet, again."""
    told = judging.judge(history)
    run_dir = analysis.run_dir_of(history)
    if (run_dir / "plan.json").exists():
        write_report(run_dir)
    tell(json.dumps(told))
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
        tell(str(verdicts[-1]))
        if enough and sum(bool(each.signs) for each in verdicts) >= enough:
            break
    caught = [each.hunt.mutant for each in verdicts if each.signs]
    missed = [each.hunt.mutant for each in verdicts if not each.signs]
    seconds = round(time.monotonic() - began)
    tell(json.dumps({"caught": len(caught), "missed": missed, "seconds": seconds}))
    return 0 if len(caught) >= (enough or len(verdicts)) else 1


@main.command()
@click.option("--store", type=click.Path(path_type=Path), default=STORE, show_default=True)
@click.option("--port", default=8090, show_default=True, type=click.IntRange(0, 65_535))
def serve(store: Path, port: int) -> None:
    """Shows the runs in the store in a browser, until Ctrl-C."""
    with make_server(store, "127.0.0.1", port) as server:
        click.echo(f"http://127.0.0.1:{server.server_port}/")
        server.serve_forever()


def _plan(
    nemeses: tuple[str, ...],
    *,
    time_limit: float,
    rate: float,
    fault_seconds: float | None,
    calm_seconds: float | None,
    seed: int | None,
    nodes: int | None,
    hosts: str,
    **options: Any,
) -> Plan:
    """Raises CONFIG_ERROR for what cannot go together."""
    if options["batch"] * options["record_bytes"] > LIMITS.max_batch_bytes:
        raise ConfigError(f"an append may have {LIMITS.max_batch_bytes} bytes: take fewer --batch or --record-bytes")
    on_s, off_s = pace(fault_seconds, calm_seconds, time_limit)
    if nemeses != ("none",) and not begins_in_time(FIRST_FAULT_S, on_s, time_limit):
        raise ConfigError(
            f"no fault of {on_s:g} s fits into {time_limit:g} s, as the first one comes after {FIRST_FAULT_S:g} s: "
            "take a longer --time-limit, or fewer --fault-seconds"
        )
    return Plan(
        nemeses=nemeses,
        time_limit_s=time_limit,
        on_s=on_s,
        off_s=off_s,
        rate_per_s=rate,
        seed=random.SystemRandom().randrange(1 << 32) if seed is None else seed,
        nodes=nodes or (hosts.count(",") + 1 if hosts.startswith("ssh:") else 5),
        hosts=hosts,
        **options,
    )


def pace(on_s: float | None, off_s: float | None, time_limit_s: float) -> tuple[float, float]:
    """How long a fault lasts and the calm after it: as asked; else so that two of them fit."""
    is_short = (PACE_S if on_s is None else on_s) + (PACE_S if off_s is None else off_s) > time_limit_s / 2
    otherwise = max(2.0, time_limit_s / 6) if is_short else PACE_S
    return otherwise if on_s is None else on_s, otherwise if off_s is None else off_s


def _go(plan: Plan, store: Path) -> dict[str, Any]:
    check_control(plan)
    run_dir = new_directory(store, f"{time.strftime('%Y%m%d-%H%M%S')}-{plan.workload}-{'+'.join(plan.nemeses)}")
    told = run(Run(plan, run_dir).go())
    logger.info("the report is %s", write_report(run_dir))
    return told


def tell(line: str) -> None:
    """Prints it. The exit code is the verdict's also when nobody reads any more."""
    try:
        click.echo(line)
    except BrokenPipeError:
        discard_output()


def new_directory(store: Path, name: str) -> Path:
    """Makes one that no other run has, also none that begins in the same second."""
    for each in chain([name], (f"{name}-{number}" for number in count(2))):
        with contextlib.suppress(FileExistsError):
            (store / each).mkdir(parents=True)
            return store / each
    raise AssertionError


if __name__ == "__main__":
    sys.exit(exit_code_of(lambda: main(standalone_mode=False)))
