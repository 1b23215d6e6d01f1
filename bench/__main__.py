"""``python -m bench COMMAND``; without one it is ``compare``."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from bench import compare as comparing
from bench import plots
from bench.gate import gate
from bench.peers import PEERS
from bench.report import as_markdown
from bench.results import RESULTS, save
from bench.scenarios.bulk import bulk
from bench.scenarios.catchup import catchup
from bench.scenarios.failover import failover
from bench.scenarios.growth import growth
from bench.scenarios.idle import idle
from bench.scenarios.members import members
from bench.scenarios.reads import reads
from bench.scenarios.spark import spark
from bench.scenarios.spark_check import spark_check
from bench.scenarios.spark_lag import spark_lag

QUICK_DURATION_S = 1.5


@click.group(invoke_without_command=True)
@click.pass_context
def bench(context: click.Context) -> None:
    """Our figures beside the peers' and beside the machine's limits, in one run."""
    if context.invoked_subcommand is None:
        context.invoke(compare)


@bench.command()
@click.option("--rounds", default=3, show_default=True, type=click.IntRange(1), help="Each system's turns.")
@click.option("--duration", default=3.0, show_default=True, type=click.FloatRange(0.5), help="Seconds a measurement.")
@click.option("--peers", default=",".join(PEERS), show_default=True, help="Which, comma-separated.")
@click.option("--quick", is_flag=True, help="One short round: shows that all of it works, measures little.")
@click.option("--fresh", is_flag=True, help="Begins anew, though an interrupted run could go on.")
@click.option("--results", default=RESULTS, type=click.Path(path_type=Path, file_okay=False), help="Where they go.")
def compare(*, rounds: int, duration: float, peers: str, quick: bool, fresh: bool, results: Path) -> None:
    """All systems, the same work in turn: a table, and compare.json, .md and .svg among the results."""
    names = tuple(dict.fromkeys(name.strip() for name in peers.split(",") if name.strip()))
    if unknown := [name for name in names if name not in PEERS]:
        raise click.UsageError(f"there is no peer {unknown[0]!r}: there are {', '.join(PEERS)}")
    plan = comparing.Plan(1, QUICK_DURATION_S, names) if quick else comparing.Plan(rounds, duration, names)
    result = comparing.compare(plan, fresh=fresh).as_dict()
    report = as_markdown(result)
    save("compare", result, folder=results, report=report)
    plots.plot_comparison(result, results / "compare.svg")
    click.echo(report)


for command in (gate, bulk, growth, catchup, failover, idle, members, reads, spark, spark_lag, spark_check):
    bench.add_command(command)

if __name__ == "__main__":
    sys.exit(bench())
