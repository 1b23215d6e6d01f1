"""``dledger serve --join``: a node that is no member yet asks the cluster for its members."""

from __future__ import annotations

import logging
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dledger.cli.runtime import run
from dledger.common.config import split_address
from dledger.common.errors import ConfigError, DLedgerError, Unavailable
from dledger.common.types import META_GROUP

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dledger.client import Metadata

logger = logging.getLogger(__name__)


def joining(settings: Mapping[str, Any]) -> dict[str, Any]:
    """``settings`` with what the endpoints in ``join`` tell: the members as peers, and the cluster's id.

    This node itself is never among the peers: an empty directory must not take itself for a member. When no endpoint
    answers, the log knows the members, if it has any frames; else it raises Unavailable. Raises CONFIG_ERROR for
    settings that do not fit the members.
    """
    for key in ("id", "address", "data"):
        if not settings.get(key):
            raise ConfigError(
                f"a node that joins needs {key!r}: give --{key}, DLEDGER_{key.upper()} or {key} in --config"
            )
    if settings.get("peers"):
        raise ConfigError("peers are for the cluster's first start, join is for a node that comes later: give one")
    own_place = split_address(settings["address"])
    try:
        told = run(_ask(settings["join"]))
    except Unavailable as nobody:
        if not _has_frames(Path(settings["data"])):
            raise Unavailable(f"{nobody}; {settings['id']} cannot join a cluster that it does not find") from None
        logger.warning("no endpoint to join answers: the log knows the members", extra={"why": str(nobody)})
        return dict(settings)
    _check(settings, told, own_place)
    peers = {member.id: member.peer_address for member in told.members if member.id != settings["id"]}
    return {**settings, "peers": peers, "cluster_id": told.cluster_id}


def _check(settings: Mapping[str, Any], told: Metadata, own_place: tuple[str, int]) -> None:
    own_id, address = settings["id"], settings["address"]
    if not told.members:
        raise Unavailable(f"the nodes at {settings['join']} know no members: name nodes that belong to a cluster")
    if settings.get("cluster_id") not in (None, "", told.cluster_id):
        wanted = settings["cluster_id"]
        raise ConfigError(f"the nodes at {settings['join']} are of cluster {told.cluster_id}, not {wanted}: fix one")
    for member in told.members:
        is_here = split_address(member.peer_address) == own_place
        if member.id == own_id and not is_here:
            text = f"{own_id} is a member at {member.peer_address} already, not at {address}"
            raise ConfigError(f"{text}: give it that --address, choose another --id, or remove the member first")
        if member.id != own_id and is_here:
            raise ConfigError(f"{address} is the address of the member {member.id}: choose another --address")


async def _ask(endpoints: str) -> Metadata:
    from dledger.client import connect  # noqa: PLC0415  # gRPC is slow to import, and most nodes do not join

    async with connect(endpoints, group=META_GROUP) as log:
        return await log.metadata()


def _has_frames(data_dir: Path) -> bool:
    """Whether a leader has sent this node something already: then it knows its cluster."""
    from dledger.log.verify import dump  # noqa: PLC0415

    with suppress(DLedgerError):  # no log, or one that the start will complain about
        return next(dump(data_dir, group=META_GROUP), None) is not None
    return False
