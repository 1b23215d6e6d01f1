"""A request that changes the store: judged, carried out by the leader, and applied here."""

from __future__ import annotations

from typing import Any

from dledger.server.etcd.backend import StoreBackend
from dledger.server.etcd.headers import fill_header
from dledger.server.etcd.room import ensure_room
from dledger.store.commands import Request, command


async def carry_out(backend: StoreBackend, request: Request, cost_bytes: int = 0) -> Any:
    """Returns its answer, with a whole header. ``cost_bytes``: of the room that it takes. Raises StoreRefused, and what
    ``submit`` raises."""
    submitted = command(request)
    await ensure_room(backend, cost_bytes)
    answer = await backend.submit(submitted)
    fill_header(backend, answer)
    return answer
