"""``dledger status`` and ``dledger health``: the leader, and how far every node is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from dledger.cli.diagnosis import NOBODY_ANSWERS, look, refused, troubles
from dledger.cli.options import Target, client_options, member_options, output_option
from dledger.cli.output import print_fields, print_json, table
from dledger.cli.retention_commands import describe
from dledger.cli.runtime import EXIT_BAD, EXIT_OK, EXIT_UNAVAILABLE, run
from dledger.cli.units import format_size
from dledger.common.errors import ConfigError, DLedgerError, InvalidRequest, UnknownGroup

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dledger.client import ClusterStatus, NodeStatus

MEMBER_COLUMNS = (
    "id", "role", "votes", "term", "first", "commit", "last", "position", "lag", "chain", "log", "damaged", "disk",
    "free", "address", "pid", "version",
)  # fmt: skip
NODE_COLUMNS = (
    "id",
    "state",
    "meta",
    "groups",
    "leads",
    "log",
    "damaged",
    "disk",
    "free",
    "address",
    "pid",
    "version",
)
WIDE = frozenset({"term", "first", "position", "chain", "pid", "version"})
"""Columns of -o wide alone: the others fit a terminal of 100 columns."""
WIDE_OF_MEMBERS = WIDE | {"damaged", "free"}


@click.command(short_help="Shows every node, or every member of a group.")
@output_option("table", "wide", "json")
@member_options
def status(*, target: Target, output: str) -> None:
    """Shows every node of the cluster; with --group, every member of that group as its leader knows it: its role, term
    and log. Below stands what is wrong, and what to do. -o wide has all columns, -o json tells more.

    \b
    state   up, unreachable, recovering, removed (others say that it is no member any more), or whom it refuses
    groups  how many groups the node has a replica of
    leads   how many of these it leads (dledger group list: all groups)
    log     what the logs of all its groups take; with --group, of this one
    damaged frames that are not what was written: they are not served, and are repaired from the other nodes
    disk    ok; low: a warning; full: appends are refused; hung: a write does not come back
    meta    what the node is in meta, which holds the directory of groups: voter, learner or doubt. A learner there may
            vote, and lead, in other groups
    votes   with --group, in that group. no: a learner, it only replicates; doubt: its disk is another one, or an older
            state, than the one that was admitted, so its vote and its copies do not count (dledger admin readmit ID)
    first   the first record that was not trimmed (wide)
    lag     frames behind the leader; all of them for one whose log this leader has not compared with its own yet
    chain   (wide) two nodes with the same chain at the same position hold the same log up to there
    """
    found = run(look(target))
    if output == "json":
        print_json(found.as_dict())
        return
    is_wide = output == "wide"
    if target.is_cluster:
        click.echo(f"cluster {found.cluster_id or '-'}\n")
        rows = [_node_row(found, node) for node in found.nodes]
        click.echo(_narrowed(NODE_COLUMNS, rows, frozenset() if is_wide else WIDE))
    else:
        leader = found.leader or click.style("none", fg="red", bold=True)
        click.echo(f"group {found.group}  leader {leader}  term {found.term}  cluster {found.cluster_id or '-'}\n")
        rows = [_row(found, node) for node in found.nodes]
        click.echo(_narrowed(MEMBER_COLUMNS, rows, frozenset() if is_wide else WIDE_OF_MEMBERS))
        if settings := _settings(found):
            click.echo("\n" + "  ".join(settings))
    if told := troubles(found):
        click.echo("\n" + "\n".join(f"why: {trouble}" for trouble in told))


def _narrowed(columns: Sequence[str], rows: Sequence[Sequence[object]], hidden: frozenset[str]) -> str:
    """The table without the ``hidden`` columns."""
    shown = [at for at, column in enumerate(columns) if column not in hidden]
    return table([columns[at] for at in shown], [[row[at] for at in shown] for row in rows])


@click.command(short_help="Exits with 0 when appends can be acknowledged, with 1 otherwise.")
@output_option("text", "json")
@client_options
def health(*, target: Target, output: str) -> int:
    """Exits with 0 when appends can be acknowledged, else with 1 and the reason.

    There is a leader whose disk takes appends, and a majority of the voters answers, is not in doubt, and has room.
    """
    try:
        found = run(look(target))
    except (ConfigError, InvalidRequest, UnknownGroup):
        raise  # the question is wrong: that says nothing of the cluster
    except DLedgerError as failure:
        fields: dict[str, Any] = {"healthy": False, "leader": None, "reachable": 0, "voters": None}
        fields["reason"] = f"{failure}; {NOBODY_ANSWERS}" if failure.exit_code == EXIT_UNAVAILABLE else str(failure)
    else:
        fields = judge(found)
    if output == "json":
        print_json(fields)
    else:
        word = "healthy" if fields["healthy"] else "unhealthy"
        for several in ("doubted", "damaged", "full", "clock_ahead"):
            if several in fields:
                fields[several] = ",".join(fields[several])
        print_fields(word, {key: value for key, value in fields.items() if key != "healthy"})
    return EXIT_OK if fields["healthy"] else EXIT_BAD


def judge(found: ClusterStatus) -> dict[str, Any]:
    """Whether appends can be acknowledged: a leader answers, and a majority of the voters counts."""
    reachable = sum(node.reachable for node in found.voters)
    voters = len(found.voters)
    fields: dict[str, Any] = {
        "healthy": found.healthy,
        "leader": found.leader,
        "reachable": reachable,
        "voters": voters,
    }
    if found.doubted:
        fields["doubted"] = [node.id for node in found.doubted]
    if found.damaged:
        fields["damaged"] = [node.id for node in found.damaged]
    if found.full:
        fields["full"] = [node.id for node in found.full]
    if ahead := [node.id for node in found.nodes if node.clock_ahead_ms]:
        fields["clock_ahead"] = ahead
    if not found.healthy:
        fields["reason"] = "; ".join(troubles(found))
    return fields


def _votes(node: NodeStatus) -> str:
    if not node.voter or node.role == "removed":
        return "no"
    return "doubt" if node.counts is False else "yes"


def _in_meta(node: NodeStatus) -> str:
    return {"yes": "voter", "no": "learner"}.get(_votes(node), "doubt") if node.role != "removed" else "-"


def _state(found: ClusterStatus, node: NodeStatus) -> str:
    if node.reachable:
        return node.role if node.role in ("removed", "recovering") else "up"
    refused_ids = refused(found, node)
    return f"refuses {','.join(refused_ids)}" if refused_ids else "unreachable"


def _node_row(found: ClusterStatus, node: NodeStatus) -> list[object]:
    """A node of the cluster, from whichever group told of it."""
    state = _state(found, node)
    if not node.reachable:
        return [node.id, state, _in_meta(node), *["-"] * 6, node.address or "-", "-", "-"]
    free = "-" if node.disk.free_bytes is None else format_size(node.disk.free_bytes)
    return [
        node.id, state, _in_meta(node), node.groups, node.groups_led, format_size(node.node_log_size_bytes),
        node.node_damaged_frames, node.disk.state, free, node.address, node.pid, node.version or "-",
    ]  # fmt: skip


def _row(found: ClusterStatus, node: NodeStatus) -> list[object]:
    """A member of a group."""
    votes = _votes(node)
    lag = "-" if node.lag_frames is None else node.lag_frames
    if not node.reachable:
        return [node.id, _state(found, node), votes, *["-"] * 5, lag, *["-"] * 5, node.address or "-", "-", "-"]
    free = "-" if node.disk.free_bytes is None else format_size(node.disk.free_bytes)
    return [
        node.id, node.role, votes, node.term, node.first_index, node.commit_index, node.last_index, node.position, lag,
        node.chain, format_size(node.log_size_bytes), node.damaged_frames, node.disk.state, free,
        node.address, node.pid, node.version or "-",
    ]  # fmt: skip


def _settings(found: ClusterStatus) -> list[str]:
    """What was set, in words."""
    settings = found.settings
    told = []
    if settings.preferred:
        told.append("preferred " + ",".join(f"{each.id}={each.priority}" for each in settings.preferred))
    limits = {name: limit for name, limit in describe(settings).items() if limit is not None}
    if limits:
        told.append("retention " + " ".join(f"{name}={limit}" for name, limit in limits.items()))
    return told
