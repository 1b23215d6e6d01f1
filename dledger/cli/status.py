"""``dledger status`` and ``dledger health``: who leads, how far everyone is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from dledger.cli.options import Target, client_options, output_option
from dledger.cli.output import print_fields, print_json, table
from dledger.cli.runtime import EXIT_BAD, EXIT_OK, run
from dledger.errors import DLedgerError

if TYPE_CHECKING:
    from dledger.client import ClusterStatus, NodeStatus

SHOWN = ("id", "role", "term", "first", "commit", "last", "position", "chain", "address", "http", "pid", "version")


@click.command(short_help="Shows every node: role, term, how far its log reaches.")
@output_option("table", "json")
@client_options
def status(*, target: Target, output: str) -> None:
    """Shows every node: role, term, how far its log reaches, and the chain checksum of what is committed.

    Two nodes with the same chain at the same position hold the same log up to there.
    """
    found = run(_status(target))
    if output == "json":
        print_json(found.as_dict())
        return
    leader = found.leader or click.style("none", fg="red", bold=True)
    click.echo(f"group {found.group}  leader {leader}  term {found.term}  cluster {found.cluster_id or '-'}\n")
    click.echo(table(SHOWN, [_row(node) for node in found.nodes]))


@click.command(short_help="Exits with 0 when appends can be acknowledged, with 1 otherwise.")
@output_option("text", "json")
@client_options
def health(*, target: Target, output: str) -> int:
    """Exits with 0 when there is a leader and a majority answers, with 1 otherwise."""
    try:
        found = run(_status(target))
    except DLedgerError as failure:
        fields: dict[str, Any] = {"healthy": False, "leader": None, "reachable": 0, "nodes": None}
        fields["reason"] = str(failure)
    else:
        fields = judge(found)
    if output == "json":
        print_json(fields)
    else:
        word = "healthy" if fields["healthy"] else "unhealthy"
        print_fields(word, {key: value for key, value in fields.items() if key != "healthy"})
    return EXIT_OK if fields["healthy"] else EXIT_BAD


def judge(found: ClusterStatus) -> dict[str, Any]:
    """Whether appends can be acknowledged: a leader that answers, and a majority."""
    reachable = sum(node.reachable for node in found.nodes)
    fields = {"healthy": found.healthy, "leader": found.leader, "reachable": reachable, "nodes": len(found.nodes)}
    if not found.healthy:
        fields["reason"] = "no majority" if 2 * reachable <= len(found.nodes) else "no leader"
    return fields


async def _status(target: Target) -> ClusterStatus:
    async with target.connect() as log:
        return await log.status()


def _row(node: NodeStatus) -> list[object]:
    if not node.reachable:
        return [node.id, "unreachable", *["-"] * 6, node.address, node.http_address or "-", "-", "-"]
    return [
        node.id, node.role, node.term, node.first_index, node.commit_index, node.last_index, node.position,
        node.chain, node.address, node.http_address or "-", node.pid, node.version,
    ]  # fmt: skip
