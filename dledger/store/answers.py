"""Answers of the store as bytes: a letter for the kind, and the message.

They are kept so until their submitter has them. Every node makes each answer, and few are read where they are made.
"""

from __future__ import annotations

from google.protobuf.message import Message

from dledger.etcdpb import rpc_pb2 as pb
from dledger.store.records import Record, pair_of
from dledger.v1 import store_pb2

_KINDS: dict[bytes, type[Message]] = {
    b"p": pb.PutResponse,
    b"d": pb.DeleteRangeResponse,
    b"t": pb.TxnResponse,
    b"c": pb.CompactionResponse,
    b"g": pb.LeaseGrantResponse,
    b"r": pb.LeaseRevokeResponse,
    b"a": pb.AlarmResponse,
    b"f": store_pb2.FoundStoreAnswer,
    b"x": store_pb2.ExpireLeasesAnswer,
}
_LETTERS = {kind: letter for letter, kind in _KINDS.items()}
_PUT_WITH_REVISION = b"P"


def encode_answer(answer: Message) -> bytes:
    return _LETTERS[type(answer)] + answer.SerializeToString(deterministic=True)


def encode_put_answer(revision: int, before: Record | None) -> bytes:
    """Of most puts there is nothing to say but the revision: that needs no message."""
    if before is None:
        return _PUT_WITH_REVISION + b"%d" % revision
    header = pb.ResponseHeader(revision=revision)
    return encode_answer(pb.PutResponse(header=header, prev_kv=pair_of(before)))


def decode_answer(data: bytes) -> Message:
    if data.startswith(_PUT_WITH_REVISION):
        return pb.PutResponse(header=pb.ResponseHeader(revision=int(data[1:])))
    return _KINDS[data[:1]].FromString(data[1:])
