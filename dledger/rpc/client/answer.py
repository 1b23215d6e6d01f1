"""A client's understanding of a server's header block, kept once for all equal blocks."""

from __future__ import annotations

from typing import NamedTuple

from dledger.rpc.http2.headers import Fields, MalformedHeaders, check_fields
from dledger.rpc.status import StatusCode, status_named, status_of_http
from dledger.rpc.wire import CONTENT_TYPE, Metadata, WireFault, metadata_of, percent_decoded

_PSEUDO = frozenset({b":status"})


class Answer(NamedTuple):
    """Headers of an answer, or trailers, or both in one."""

    is_informational: bool
    """1xx: the answer is still to come."""
    status: StatusCode | None
    """The status with which the call ends; None: it is still to come."""
    details: str
    metadata: Metadata
    encoding: bytes


def understand(fields: Fields) -> Answer:
    """Raises MalformedHeaders."""
    pseudo = check_fields(fields, _PSEUDO)
    last = dict(fields)
    try:
        metadata = metadata_of(fields)
    except WireFault as fault:
        return Answer(False, StatusCode.INTERNAL, str(fault), (), b"identity")
    details = percent_decoded(last.get(b"grpc-message", b""))
    http_status = _number(pseudo.get(b":status", b"200"))
    told = last.get(b"grpc-status")
    status = status_named(_number(told)) if told is not None else None
    if status is None and b":status" in pseudo and http_status >= 200:
        is_grpc = last.get(b"content-type", b"").startswith(CONTENT_TYPE)
        if http_status != 200 or not is_grpc:
            status = status_of_http(http_status)
            details = f"no answer of a gRPC server: HTTP status {http_status}, {last.get(b'content-type', b'')!r}"
    return Answer(http_status < 200, status, details, metadata, last.get(b"grpc-encoding", b"identity"))


def _number(value: bytes) -> int:
    if not value.isdigit():
        raise MalformedHeaders(f"{value!r} is no number")
    return int(value)
