"""``dledger serve``: one node."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from dledger.cli.join import joining
from dledger.cli.lifeline import stop_when_released
from dledger.cli.options import node_logging_options, option
from dledger.cli.runtime import run
from dledger.common.config_file import CHOICES, load_config_file, node_config, parse_peers
from dledger.common.logs import setup_logging
from dledger.common.memory import keep_freed_memory
from dledger.common.types import Durability


@click.command(short_help="Runs one node.")
@option("--id", env="ID", metavar="ID", help="This node's id.")
@option("--peers", env="PEERS", metavar="ID=HOST:PORT,…", help="Every node of the first start, this one included.")
@option("--join", env="JOIN", metavar="HOST:PORT,…", help="Instead: gRPC addresses of the cluster that it joins.")
@option("--address", env="ADDRESS", metavar="HOST:PORT", help="With --join: this node's own address for other nodes.")
@option("--data", env="DATA", metavar="DIR", help="Where the log lives. One node each.")
@option("--listen", env="LISTEN", metavar="HOST", help="Address to bind; the peer address's host by default.")
@option("--advertise", env="ADVERTISE", metavar="HOST:PORT", help="What clients are told; where it listens by default.")
@option("--grpc-port", env="GRPC_PORT", type=int, help="For clients; the peer port + 1 by default.")
@option("--http-port", env="HTTP_PORT", type=int, help="For /metrics; the peer port + 2 by default, 0 for none.")
@option("--cluster-id", env="CLUSTER_ID", metavar="ID", help="Minted by the first leader when not given.")
@option(
    "--durability",
    env="DURABILITY",
    type=click.Choice(CHOICES["durability"]),
    help="When a copy counts.  [default: fsync]",
)
@option("--lease-reads", env="LEASE_READS", is_flag=True, default=None,
        help="Linearizable reads without a round to a majority; trusts the clocks' rate.")  # fmt: skip
@option("--config", env="CONFIG", metavar="FILE.toml", help="The same settings from a file; flags win over it.")
@option("--stop-with", env="STOP_WITH", metavar="FILE", help="Stop once no process holds a lock on FILE any more.")
@node_logging_options
def serve(config: str | None, stop_with: str | None, **flags: Any) -> None:
    """Runs one node until SIGTERM or SIGINT (a clean stop: handing leadership over; a second one ends it at once).

    A node uses three ports: its peer port for other nodes, + 1 for clients (gRPC), + 2 for metrics (HTTP).

    \b
    a new cluster, on each machine with its own --id:
      dledger serve --id n0 --peers n0=10.0.0.1:20911,n1=10.0.0.2:20911,n2=10.0.0.3:20911 --data DIR
    a node more, later:
      dledger admin add n5=10.0.0.5:20911
      dledger serve --id n5 --address 10.0.0.5:20911 --join 10.0.0.1:20912,10.0.0.2:20912 --data DIR

    The members are in the log: a restart with the same line works whatever became of them, and of the endpoints.
    """
    settings = load_config_file(Path(config)) if config else {}
    settings |= given(flags)
    setup_logging(settings.get("log_format", "text"), settings.get("log_level", "info"))
    # gRPC's own library tells of a port in use on lines of its own, beside ours; it serves where DLEDGER_GRPC=grpcio.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    if settings.get("join"):
        settings = joining(settings)
    chosen = node_config(settings)
    if stop_with:
        stop_when_released(Path(stop_with))
    keep_freed_memory()
    from dledger.server.serve import serve as serve_node  # noqa: PLC0415  # not for --help

    run(serve_node(chosen))


def given(flags: dict[str, Any]) -> dict[str, Any]:
    """The flags that were set, as the types of ``NodeConfig``."""
    given = {name: value for name, value in flags.items() if value is not None}
    if "peers" in given:
        given["peers"] = parse_peers(given["peers"])
    if "durability" in given:
        given["durability"] = Durability(given["durability"])
    return given
