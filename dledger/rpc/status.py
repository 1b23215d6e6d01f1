"""gRPC's status codes, by the names that the protocol gives them. Without gRPC's own library."""

from __future__ import annotations

from enum import IntEnum

from dledger.common.http2_frames import ErrorCode


class StatusCode(IntEnum):
    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


_OF_RESETS = {
    ErrorCode.REFUSED_STREAM: StatusCode.UNAVAILABLE,
    ErrorCode.CANCEL: StatusCode.CANCELLED,
    ErrorCode.ENHANCE_YOUR_CALM: StatusCode.RESOURCE_EXHAUSTED,
    ErrorCode.INADEQUATE_SECURITY: StatusCode.PERMISSION_DENIED,
}
_OF_HTTP = {
    400: StatusCode.INTERNAL,
    401: StatusCode.UNAUTHENTICATED,
    403: StatusCode.PERMISSION_DENIED,
    404: StatusCode.UNIMPLEMENTED,
    429: StatusCode.UNAVAILABLE,
    502: StatusCode.UNAVAILABLE,
    503: StatusCode.UNAVAILABLE,
    504: StatusCode.UNAVAILABLE,
}


def status_of_reset(code: ErrorCode) -> StatusCode:
    """A client's status for a stream that the server has reset (gRPC over HTTP/2, "Errors")."""
    return _OF_RESETS.get(code, StatusCode.INTERNAL)


def status_of_http(status: int) -> StatusCode:
    """A client's status for an answer that is none of gRPC's."""
    return _OF_HTTP.get(status, StatusCode.UNKNOWN)


def status_named(number: int) -> StatusCode:
    return StatusCode(number) if 0 <= number <= StatusCode.UNAUTHENTICATED else StatusCode.UNKNOWN
