"""What a server makes of a request's headers, once for all requests with the same header block."""

from __future__ import annotations

from typing import Any, NamedTuple

from dledger.rpc.http2.headers import Fields, MalformedHeaders, check_fields
from dledger.rpc.status import StatusCode
from dledger.rpc.wire import CONTENT_TYPE, Metadata, WireFault, check_encoding, metadata_of, timeout_s

_PSEUDO = frozenset({b":method", b":scheme", b":path", b":authority"})
_NEEDED = frozenset({b":method", b":scheme", b":path"})


MAX_HEADER_BYTES = 16 * 1024
"""Of a call's headers, unpacked and counted as HTTP/2 does; as many as gRPC's own library takes."""
FIELD_OVERHEAD_BYTES = 32
MAX_LENGTH_DIGITS = 18


class Request(NamedTuple):
    """The headers of a call."""

    path: str
    metadata: Metadata
    timeout_s: float | None
    encoding: bytes
    """Of its messages: ``identity``, or how those are compressed that say so."""
    takes_gzip: bool
    content_length: int | None
    fault: WireFault | None
    """Why it is no call, though good HTTP/2."""
    http_status: int
    """200, or the answer to a client that does not speak gRPC."""
    handler: Any = None
    """What the server does for ``path``; None: it knows no such method."""


class Trailers(NamedTuple):
    """Headers behind a request's data. gRPC has none: they are checked, and passed over."""


def understand(fields: Fields) -> Request | Trailers:
    """Raises MalformedHeaders."""
    pseudo = check_fields(fields, _PSEUDO)
    if not pseudo:
        return Trailers()
    if not pseudo.keys() >= _NEEDED or not pseudo[b":path"]:
        raise MalformedHeaders("a request has a method, a scheme and a path")
    last = dict(fields)
    fault: WireFault | None = None
    metadata: Metadata = ()
    timeout: float | None = None
    try:
        _check_size(fields)
        metadata = metadata_of(fields)
        check_encoding(last.get(b"grpc-encoding", b"identity"))
        if (value := last.get(b"grpc-timeout")) is not None:
            timeout = timeout_s(value)
    except WireFault as reason:
        fault = reason
    return Request(
        path=pseudo[b":path"].decode("latin-1"),
        metadata=metadata,
        timeout_s=timeout,
        encoding=last.get(b"grpc-encoding", b"identity"),
        takes_gzip=b"gzip" in last.get(b"grpc-accept-encoding", b""),
        content_length=_content_length(last.get(b"content-length")),
        fault=fault,
        http_status=_http_status(pseudo[b":method"], last.get(b"content-type", b"")),
    )


def _check_size(fields: Fields) -> None:
    size = sum(len(name) + len(value) + FIELD_OVERHEAD_BYTES for name, value in fields)
    if size > MAX_HEADER_BYTES:
        text = f"headers of {size} bytes; a call may have {MAX_HEADER_BYTES}"
        raise WireFault(StatusCode.RESOURCE_EXHAUSTED, text)


def _content_length(value: bytes | None) -> int | None:
    if value is None:
        return None
    if not value.isdigit() or len(value) > MAX_LENGTH_DIGITS:
        raise MalformedHeaders("content-length is no number")
    return int(value)


def _http_status(method: bytes, content_type: bytes) -> int:
    if method != b"POST":
        return 405
    rest = content_type[len(CONTENT_TYPE) :]
    is_grpc = content_type.startswith(CONTENT_TYPE) and (not rest or rest[:1] in b"+;")
    return 200 if is_grpc else 415
