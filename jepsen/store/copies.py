"""What every node holds in the end: a linearizable read of the keys at each, a serializable one, and the hash of all.

A note for each node::

    {"about":"copy","node":"n1","barrier":412,"revision":412,"hashed_at":412,"compact_revision":−1,"hash":3170414}
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dledger.common.errors import Code, error
from dledger.etcdpb import rpc_pb2 as rpc
from dledger.kernels.kernel import Findings
from dledger.kernels.store.register import Kind
from jepsen.store.client import StoreClient
from jepsen.store.journal import Journal, Note
from jepsen.store.kv import PREFIX, PREFIX_END, header_of, told_pair
from jepsen.store.lists import keys_until, read_lists
from jepsen.store.outcomes import Answered

logger = logging.getLogger(__name__)

READER = 1000
"""The process that reads the first node's copy; those of the other nodes follow."""
TIMEOUT_S = 5.0
PAUSE_S = 0.2
"""After a read that failed: nobody tells when a node can be read."""
COPY = "copy"


async def read_copies(nodes: Mapping[str, str], keys: Sequence[str], journal: Journal, within_s: float) -> int:
    """Returns the highest revision. Raises NETWORK_ERROR if one of the nodes cannot be read."""
    client = StoreClient(nodes, TIMEOUT_S, random.Random())
    try:
        async with asyncio.timeout(within_s):
            barriers = {
                node: await _read(client, node, keys, journal, READER + number, is_serializable=False)
                for number, node in enumerate(nodes)
            }
            lists = keys_until(journal.now_ns())
            for number, node in enumerate(nodes):
                await _read_lists(client, node, journal, READER + number, lists)
            revisions = {
                node: await _read(client, node, keys, journal, READER + number, is_serializable=True)
                for number, node in enumerate(nodes)
            }
            hashes = await _equally_compacted(client, nodes, min(barriers.values()))
    except TimeoutError:
        raise error(Code.NETWORK_ERROR, f"not every node could be read within {within_s:.0f} s") from None
    finally:
        await client.close()
    for node in nodes:
        hashed = hashes[node]
        journal.note(
            COPY,
            node=node,
            barrier=barriers[node],
            revision=revisions[node],
            hashed_at=hashed.hash_revision,
            compact_revision=hashed.compact_revision,
            hash=hashed.hash,
        )
        logger.info("%s is at revision %d, with hash %08x", node, revisions[node], hashed.hash)
    return max(revisions.values())


async def _read(
    client: StoreClient, node: str, keys: Sequence[str], journal: Journal, process: int, *, is_serializable: bool
) -> int:
    """Returns the revision of the read. It is written down as a get of each key."""
    request = rpc.RangeRequest(key=PREFIX.encode(), range_end=PREFIX_END.encode(), serializable=is_serializable)
    while True:
        gets = {key: journal.invoke(process, Kind.GET.value, key=key, serializable=is_serializable) for key in keys}
        asked = await client.call("KV.Range", request, node=node)
        answer = asked.outcome.message if isinstance(asked.outcome, Answered) else None
        pairs = {pair.key.decode(): told_pair(pair) for pair in answer.kvs} if answer is not None else {}
        header = header_of(answer) if answer is not None else {}
        for key, get in gets.items():
            journal.complete(get, asked, **header, changed=False, before=pairs.get(key))
        if answer is not None:
            return int(header["revision"])
        logger.warning("%s could not be read: %s", node, asked.outcome)
        await asyncio.sleep(PAUSE_S)


async def _read_lists(client: StoreClient, node: str, journal: Journal, process: int, lists: Sequence[str]) -> None:
    while True:
        if await read_lists(client, node, journal, process, lists):
            return
        await asyncio.sleep(PAUSE_S)


async def _equally_compacted(client: StoreClient, nodes: Iterable[str], revision: int) -> dict[str, rpc.HashKVResponse]:
    """The hashes of all nodes, between the same revisions: a compaction may come in between."""
    while True:
        hashes: dict[str, Any] = {}
        for node in nodes:
            asked = await client.call("Maintenance.HashKV", rpc.HashKVRequest(revision=revision), node=node)
            if isinstance(asked.outcome, Answered):
                hashes[node] = asked.outcome.message
            else:
                logger.warning("%s gave no hash: %s", node, asked.outcome)
        is_complete = len(hashes) == len(list(nodes))
        if is_complete and len({each.compact_revision for each in hashes.values()}) == 1:
            return hashes
        await asyncio.sleep(PAUSE_S)


def check_copies(notes: Iterable[Note], nodes: int) -> Findings:
    """``nodes``: how many copies there are to be.

    * copies_unread: nodes without a copy at the end;
    * copies_behind: serializable reads of less than the same node had shown before;
    * hashes_differ: nodes whose hash is not that of the first one.
    """
    copies = [note.told for note in notes]
    first = copies[0] if copies else None
    found = {
        "copies_unread": max(0, nodes - len(copies)),
        "copies_behind": sum(copy["revision"] < copy["barrier"] for copy in copies),
        "hashes_differ": sum(first is not None and copy["hash"] != first["hash"] for copy in copies),
    }
    examples = tuple(f"hash {copy['hash']:08x} of {copy['node']} at {copy['hashed_at']}" for copy in copies)
    return Findings({"final_reads": len(copies)}, found, examples if found["hashes_differ"] else ())
