"""``python -m bench COMMAND``; without one it is ``compare``."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import NoReturn

import click

from bench import compare as comparing
from bench import plots
from bench.gate import gate
from bench.peers import PEERS
from bench.report import as_markdown
from bench.results import RESULTS, UNPUBLISHED, save
from bench.scenarios.bulk import bulk
from bench.scenarios.catchup import catchup
from bench.scenarios.failover import failover
from bench.scenarios.flags import names_in
from bench.scenarios.groups import groups
from bench.scenarios.growth import growth
from bench.scenarios.idle import idle
from bench.scenarios.members import members
from bench.scenarios.reads import reads
from bench.scenarios.spark import spark
from bench.scenarios.spark_check import spark_check
from bench.scenarios.spark_lag import spark_lag
from bench.store.beside import store
from bench.store.size import store_size
from bench.targets import targets
from bench.work import MeasurementFailed, PeerMissing
from dledger.cli.options import Number

QUICK_DURATION_S = 1.5


@click.group(invoke_without_command=True)
@click.option(
    "--publish", is_flag=True, help="Results go to bench/results though the command has flags, or misses something."
)
@click.pass_context
def bench(context: click.Context, *, publish: bool) -> None:  # noqa: ARG001 – bench/results.py reads it
    """Our figures beside the peers' and beside the machine's limits, in one run."""
    if context.invoked_subcommand is None:
        context.invoke(compare)


@bench.command()
@click.option(
    "--rounds", default=comparing.ROUNDS, show_default=True, type=click.IntRange(1), help="Everybody's turns."
)
@click.option(
    "--duration",
    default=comparing.DURATION_S,
    show_default=True,
    type=Number(0.5, 600),
    help="Seconds a measurement.",
)
@click.option("--peers", default=",".join(PEERS), show_default=True, help="Which, comma-separated.")
@click.option("--quick", is_flag=True, help="One short round: shows that all of it works, measures little.")
@click.option("--fresh", is_flag=True, help="Begins anew, though an interrupted run could go on.")
@click.option(
    "--results",
    type=click.Path(path_type=Path, file_okay=False, writable=True),
    help="Where they go. By default bench/results, or .bench/results where anything is left out, missing or failed.",
)
def compare(*, rounds: int, duration: float, peers: str, quick: bool, fresh: bool, results: Path | None) -> None:
    """All systems, the same work in turn: a table, and compare.json, .md and .svg among the results."""
    names = tuple(names_in(peers))
    if not names:
        raise click.UsageError(f"--peers names nobody: there are {', '.join(PEERS)}")
    if unknown := [name for name in names if name not in PEERS]:
        raise click.UsageError(f"there is no peer {unknown[0]!r}: there are {', '.join(PEERS)}")
    plan = comparing.Plan(1, QUICK_DURATION_S, names) if quick else comparing.Plan(rounds, duration, names)
    if results is not None:
        results.mkdir(parents=True, exist_ok=True)
    run = comparing.compare(plan, fresh=fresh)
    is_wished = click.get_current_context().find_root().params["publish"]
    publish = run.is_whole or (is_wished and not run.failures)
    folder = results or (RESULTS if publish else UNPUBLISHED)
    result = run.as_dict()
    report = as_markdown(result)
    click.echo(report)
    folder = save("compare", result, folder=folder, report=report)
    plots.plot_comparison(result, folder / "compare.svg")
    if run.failures:
        raise MeasurementFailed(f"{len(run.failures)} measurements failed; the next run does those turns again")
    comparing.finished(plan)


for command in (
    gate,
    bulk,
    growth,
    catchup,
    failover,
    groups,
    idle,
    members,
    reads,
    spark,
    spark_lag,
    spark_check,
    store,
    store_size,
    targets,
):
    bench.add_command(command)


def _end(number: int, _frame: object) -> NoReturn:
    """What was begun is taken down, and no second signal cuts that short."""
    for each in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(each, signal.SIG_IGN)
    sys.exit(128 + number)


def main() -> int:
    """What cannot be measured is said in a line."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup
            signal.signal(number, _end)
    try:
        bench()
    except (MeasurementFailed, PeerMissing, OSError) as reason:
        click.echo(f"Error: {reason}", err=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
