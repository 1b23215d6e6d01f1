"""``dledger dev``: a whole cluster on this machine, for development and tests."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import click

from dledger.cli.cluster import LocalCluster, LocalNode, last_words
from dledger.cli.options import DEV_ENDPOINTS, DEV_NODES, DEV_PORT, node_logging_options, option
from dledger.cli.output import print_fields
from dledger.cli.runtime import run
from dledger.common.config_file import CHOICES
from dledger.common.errors import ConfigError
from dledger.common.types import Durability

DEFAULT_DATA = "dledger-data"


@click.command(short_help="Runs a cluster on this machine.")
@option("--nodes", env="NODES", default=DEV_NODES, type=click.IntRange(1, 99), help="How many; n0, n1, …")
@option(
    "--data", env="DATA", default=DEFAULT_DATA, metavar="DIR", help="Node n0 lives in DIR/n0 and logs to DIR/n0.log."
)
@option("--port", env="PORT", default=DEV_PORT, type=click.IntRange(0, 65535), help="Of n0; 0 for any free block.")
@option("--durability", env="DURABILITY", type=click.Choice(CHOICES["durability"]), default="fsync",
        help="When a copy counts.")  # fmt: skip
@node_logging_options
def dev(
    *,
    nodes: int,
    data: str,
    port: int,
    durability: str,
    log_format: str | None,
    log_level: str | None,
) -> None:
    """Runs a cluster here, one process a node, until SIGTERM or Ctrl-C (twice: at once).

    Node i is n<i>; its peer port is --port + 10·i, for clients (gRPC) + 1, for metrics (HTTP) + 2. Prints one line to
    stdout when the cluster is ready:

    \b
    ready leader=n2 term=1 endpoints=127.0.0.1:20912,… data=DIR

    A node that dies stays dead, and its serve line is printed so that you can bring it back. The nodes end when this
    process does, however it ends; the data stays.
    """
    _check_data(Path(data), nodes)
    flags = ["--log-format", log_format] if log_format else []
    flags += ["--log-level", log_level] if log_level else []
    cluster = LocalCluster(
        Path(data), nodes=nodes, port=port, durability=Durability(durability), serve_flags=flags,
        program=_program(), on_exit=lambda node, code: _tell_of_death(cluster, node, code),
    )  # fmt: skip
    run(_run(cluster))


def _check_data(data: Path, nodes: int) -> None:
    """Raises CONFIG_ERROR if ``data`` holds another number of nodes: those beyond its members would be refused."""
    known = [place for place in data.glob("n*") if place.is_dir() and any(place.iterdir())]
    if known and len(known) != nodes:
        raise ConfigError(
            f"{data} holds a cluster of {len(known)} nodes, not {nodes}: give --nodes {len(known)} or another --data; "
            "dledger admin add gives a running cluster another node"
        )


async def _run(cluster: LocalCluster) -> None:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _on_signal, cluster, stopping)
    await cluster.start()
    try:
        getting_ready = asyncio.create_task(_announce(cluster), name="ready")
        waiting = asyncio.create_task(stopping.wait(), name="stop")
        await asyncio.wait((getting_ready, waiting), return_when=asyncio.FIRST_COMPLETED)
        if getting_ready.done():
            getting_ready.result()
            await waiting
        getting_ready.cancel()
    finally:
        await cluster.stop()


def _on_signal(cluster: LocalCluster, stopping: asyncio.Event) -> None:
    if stopping.is_set():
        cluster.kill_all()
    stopping.set()


async def _announce(cluster: LocalCluster) -> None:
    ready = await cluster.wait_ready()
    where = {"endpoints": cluster.endpoints, "data": cluster.data}
    print_fields("ready", {"leader": ready.leader, "term": ready.term, **where})
    click.echo(f"The nodes log to {cluster.data}/n*.log. Ctrl-C stops them.", err=True)
    if not set(cluster.endpoints.split(",")) <= set(DEV_ENDPOINTS.split(",")):
        click.echo(f"For commands in another terminal:  export DLEDGER_ENDPOINTS={cluster.endpoints}", err=True)


def _tell_of_death(cluster: LocalCluster, node: LocalNode, code: int) -> None:
    how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
    why = "" if code < 0 else f": {last_words(node.log_file)}"
    click.echo(f"{node.id} {how}{why}. It stays down until you bring it back:", err=True)
    click.echo(f"  {cluster.serve_line(node.id)}", err=True)


def _program() -> tuple[str, ...]:
    """This very program, as a command that works from any directory."""
    called_as = Path(sys.argv[0])
    if called_as.name == "dledger" and os.access(called_as, os.X_OK):
        return (str(called_as.absolute()),)
    return (sys.executable, "-m", "dledger")
