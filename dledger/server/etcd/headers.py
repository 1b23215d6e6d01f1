"""The header of every answer: who gave it, and of which revision."""

from __future__ import annotations

from typing import Any

from dledger.etcdpb.rpc_pb2 import ResponseHeader
from dledger.server.etcd.backend import StoreBackend


def new_header(backend: StoreBackend, revision: int = 0) -> ResponseHeader:
    """``revision``: of the store, if it is 0."""
    return ResponseHeader(
        cluster_id=backend.cluster_id,
        member_id=backend.member_id,
        revision=revision or backend.store.pairs.revision,
        raft_term=backend.term,
    )


def fill_header(backend: StoreBackend, answer: Any) -> None:
    """Of an answer of the store, which knows the revision alone."""
    answer.header.CopyFrom(new_header(backend, answer.header.revision))
