"""``dledger status`` and ``dledger health``: who leads, how far everyone is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from dledger.cli.options import Target, client_options, member_options, output_option
from dledger.cli.output import print_fields, print_json, table
from dledger.cli.retention_commands import describe
from dledger.cli.runtime import EXIT_BAD, EXIT_OK, run
from dledger.cli.units import format_size
from dledger.common.errors import Code, ConfigError, DLedgerError, InvalidRequest, UnknownGroup
from dledger.common.types import META_GROUP

if TYPE_CHECKING:
    from dledger.client import ClusterStatus, NodeStatus

DOCS = "docs/admin.md"
SHOWN = (
    "id", "role", "votes", "term", "first", "commit", "last", "position", "lag", "chain", "log", "damaged", "disk",
    "free", "address", "pid", "version",
)  # fmt: skip
NODE_COLUMNS = ("id", "votes", "groups", "leads", "log", "damaged", "disk", "free", "address", "pid", "version")


@click.command(short_help="Shows every node, or every member of a group.")
@output_option("table", "json")
@member_options
def status(*, target: Target, output: str) -> None:
    """Shows every node of the cluster; with --group, every member of that group as its leader knows it: its role, term
    and log. -o json tells more.

    \b
    groups  how many groups the node has a replica of
    leads   how many of these it leads (dledger group list: all groups)
    log     what the logs of all its groups take; with --group, of this one
    damaged frames that are not what was written: they are not served, and are repaired from the other nodes
    disk    ok; low: a warning; full: appends are refused; hung: a write does not come back
    votes   in the group, without --group in meta, which holds the directory of groups. no: a learner, it only
            replicates; doubt: its disk is another one, or an older state, than the one that was admitted, so its vote
            and its copies do not count (dledger admin readmit ID)
    first   the first record that was not trimmed
    lag     frames behind the leader; all of them for one whose log this leader has not compared with its own yet
    chain   two nodes with the same chain at the same position hold the same log up to there
    """
    found = run(_status(target))
    if output == "json":
        print_json(found.as_dict())
        return
    if target.is_cluster:
        click.echo(f"cluster {found.cluster_id or '-'}\n")
        click.echo(table(NODE_COLUMNS, [_node_row(node) for node in found.nodes]))
        return
    leader = found.leader or click.style("none", fg="red", bold=True)
    click.echo(f"group {found.group}  leader {leader}  term {found.term}  cluster {found.cluster_id or '-'}\n")
    click.echo(table(SHOWN, [_row(node) for node in found.nodes]))
    if settings := _settings(found):
        click.echo("\n" + "  ".join(settings))


@click.command(short_help="Exits with 0 when appends can be acknowledged, with 1 otherwise.")
@output_option("text", "json")
@client_options
def health(*, target: Target, output: str) -> int:
    """Exits with 0 when appends can be acknowledged, else with 1 and the reason.

    There is a leader whose disk takes appends, and a majority of the voters answers, is not in doubt, and has room.
    """
    try:
        found = run(_status(target))
    except (ConfigError, InvalidRequest, UnknownGroup):
        raise  # the question is wrong: that says nothing of the cluster
    except DLedgerError as failure:
        fields: dict[str, Any] = {"healthy": False, "leader": None, "reachable": 0, "voters": None}
        fields["reason"] = str(failure)
    else:
        fields = judge(found)
    if output == "json":
        print_json(fields)
    else:
        word = "healthy" if fields["healthy"] else "unhealthy"
        for several in ("doubted", "damaged", "full"):
            if several in fields:
                fields[several] = ",".join(fields[several])
        print_fields(word, {key: value for key, value in fields.items() if key != "healthy"})
    return EXIT_OK if fields["healthy"] else EXIT_BAD


def judge(found: ClusterStatus) -> dict[str, Any]:
    """Whether appends can be acknowledged: a leader that answers, and a majority of the voters that counts."""
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
    if not found.healthy:
        fields["reason"] = _reason(found)
    return fields


def _reason(found: ClusterStatus) -> str:
    """What is wrong, and what to do."""
    waiting = {node.id: node.founders_missing for node in found.nodes if node.founders_missing}
    if waiting:
        missing = set[str]().union(*waiting.values()) - waiting.keys()
        holding = [node.id for node in found.nodes if node.position > 0 and node.id in missing]
        empty = f"no leader; nothing is in the log of {', '.join(waiting)}, and "
        if holding:
            return f"{empty}no other is founded beside that of {', '.join(holding)}: see 'A majority is gone' in {DOCS}"
        to_start = ", ".join(sorted(missing)) or "them all"
        return (
            f"{empty}a cluster is founded when all its founders have met, all of them new: start {to_start}; if one "
            f"holds a log already, see 'A majority is gone' in {DOCS}"
        )
    if not found.nodes:
        return "the nodes that answer belong to no cluster yet: add them to one, or ask its members"
    if found.has_majority:
        leader = found.node(found.leader) if found.leader else None
        if leader is None or not leader.reachable:
            return "; ".join(["no leader", *_hindered(found)])
        return f"the disk of the leader, {leader.id}, is {leader.disk.state}: it refuses appends until another can lead"
    away = [node.id for node in found.voters if not node.reachable]
    told = ["no majority"]
    if away:
        told.append(f"{', '.join(away)} cannot be reached")
    told += [f"{node.id} is in doubt (dledger admin readmit {node.id})" for node in found.doubted]
    told += [f"the disk of {node.id} is {node.disk.state}" for node in found.full]
    told += [f"{node.id} is repairing its log" for node in found.voters if node.role == "recovering"]
    stuck = [node.id for node in found.damaged if node.repair_stuck]
    if stuck:
        told.append(f"{', '.join(stuck)} found no good copy of damaged frames yet: start the nodes that are down")
    return "; ".join(told + _hindered(found))


def _hindered(found: ClusterStatus) -> list[str]:
    """Why nodes do not stand, or do not vote either, and where it is told what to do."""
    told = [
        f"{', '.join(node.id for node in found.nodes if why in node.vote_blockers)}: {why}"
        for why in sorted({why for node in found.nodes for why in node.vote_blockers})
    ]
    return [*told, f"see 'There is no leader' in {DOCS}"] if told else []


async def _status(target: Target) -> ClusterStatus:
    """Of the group, or of ``meta`` while the cluster is being founded and `default` is not there yet."""
    try:
        async with target.connect() as log:
            return await log.status()
    except DLedgerError as failure:
        if failure.code is not Code.LEADER_NOT_READY or target.group == META_GROUP:
            raise
    async with target._replace(group=META_GROUP).connect() as log:
        return await log.status()


def _votes(node: NodeStatus) -> str:
    return ("doubt" if node.counts is False else "yes") if node.voter else "no"


def _node_row(node: NodeStatus) -> list[object]:
    """A node of the cluster, whatever group told of it."""
    if not node.reachable:
        return [node.id, _votes(node), "unreachable", *["-"] * 5, node.address or node.peer_address, "-", "-"]
    free = "-" if node.disk.free_bytes is None else format_size(node.disk.free_bytes)
    return [
        node.id, _votes(node), node.groups, node.groups_led, format_size(node.node_log_size_bytes),
        node.node_damaged_frames, node.disk.state, free, node.address, node.pid, node.version or "-",
    ]  # fmt: skip


def _row(node: NodeStatus) -> list[object]:
    """A member of a group."""
    votes = _votes(node)
    lag = "-" if node.lag_frames is None else node.lag_frames
    if not node.reachable:
        return [node.id, "unreachable", votes, *["-"] * 5, lag, *["-"] * 5, node.address or node.peer_address, "-", "-"]
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
