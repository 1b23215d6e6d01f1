"""gRPC's part of the wire: length-prefixed messages, timeouts, metadata and status messages.

Source: "gRPC over HTTP2", PROTOCOL-HTTP2.md of grpc/grpc.
"""

from __future__ import annotations

import base64
import binascii
import gzip
import struct
import zlib
from collections.abc import Iterable
from urllib.parse import quote_from_bytes, unquote

from dledger.common.http2_frames import literal
from dledger.rpc.status import StatusCode

Metadata = tuple[tuple[str, str | bytes], ...]
"""Names in lower case; the values of names that end in ``-bin`` are bytes."""

PREFIX_BYTES = 5
TINY_BYTES = 1_024
MAX_BINARY_VALUES = 128
"""Of one field: each takes far more than the comma that makes it."""
CONTENT_TYPE = b"application/grpc"
ENCODINGS = (b"identity", b"deflate", b"gzip")
_PREFIX = struct.Struct(">BI")
_UNITS_S = {b"H": 3600.0, b"M": 60.0, b"S": 1.0, b"m": 1e-3, b"u": 1e-6, b"n": 1e-9}
_MOST_DIGITS = 8
RESERVED = frozenset({b"te", b"content-type", b"user-agent", b"content-length"})


class WireFault(Exception):
    """What came is not gRPC, or more than is taken: the call ends with ``status``."""

    def __init__(self, status: StatusCode, text: str, metadata: Metadata = ()) -> None:
        super().__init__(text)
        self.status = status
        self.metadata = metadata


def prefixed(message: bytes, *, is_compressed: bool = False) -> tuple[bytes, bytes]:
    return _PREFIX.pack(is_compressed, len(message)), message


def is_one_message(data: bytes) -> bool:
    """Whether it is one whole message that is not compressed, as nearly all unary calls' are."""
    size = len(data) - PREFIX_BYTES
    return size >= 0 and not data[0] and int.from_bytes(data[1:PREFIX_BYTES], "big") == size


class Messages:
    """Puts the messages of one direction of a call together from what arrives. ``feed`` is called with each piece."""

    __slots__ = ("_encoding", "_limit_bytes", "_need", "_parts", "_size")

    def __init__(self, limit_bytes: int, encoding: bytes = b"identity") -> None:
        """``limit_bytes``: of one message, compressed or not. ``encoding``: as the headers name it."""
        self._limit_bytes = limit_bytes
        self._encoding = encoding
        self._parts: list[bytes | bytearray] = []
        self._size = 0
        self._need = PREFIX_BYTES

    @property
    def begun_bytes(self) -> int:
        """The size of an unfinished message, as far as its beginning tells. 0: there is none."""
        return max(self._size, self._need) if self._size else 0

    @property
    def is_between(self) -> bool:
        """Nothing of a further message is there."""
        return not self._size

    def feed(self, data: bytes) -> list[bytes]:
        """The messages that are complete now. Raises WireFault."""
        self._add(data)
        if self._size < self._need:
            return []
        if len(self._parts) > 1 or len(data) < self._size:
            data = b"".join(self._parts)
        found, at, unpacked = [], 0, 0
        while True:
            self._need = PREFIX_BYTES
            if len(data) - at < PREFIX_BYTES:
                break
            is_compressed, size = _PREFIX.unpack_from(data, at)
            if size > self._limit_bytes:
                raise WireFault(StatusCode.RESOURCE_EXHAUSTED, _too_large(size, self._limit_bytes))
            self._need = PREFIX_BYTES + size
            if len(data) - at < self._need:
                break
            message = data[at + PREFIX_BYTES : at + self._need]
            at += self._need
            if is_compressed:
                message = decompressed(message, self._encoding, self._limit_bytes - unpacked)
                unpacked += len(message)
            found.append(message)
        self._size = len(data) - at
        self._parts = [data[at:]] if self._size else []
        return found

    def _add(self, data: bytes) -> None:
        """Tiny pieces share a buffer: a list of them takes twenty times their bytes."""
        self._size += len(data)
        last = self._parts[-1] if self._parts else None
        if last is None or len(data) >= TINY_BYTES:
            self._parts.append(data)
        elif isinstance(last, bytearray):
            last += data
        elif len(last) < TINY_BYTES:
            self._parts[-1] = bytearray(last) + data
        else:
            self._parts.append(data)


def _too_large(size: int, limit_bytes: int) -> str:
    return f"a message of {size} bytes; at most {limit_bytes} are taken"


def check_encoding(encoding: bytes) -> None:
    """Of the messages of a call. Raises WireFault for one that is not known here."""
    if encoding not in ENCODINGS:
        names = b", ".join(ENCODINGS).decode()
        text = f"messages in the encoding {encoding!r} are not taken; {names} are"
        raise WireFault(StatusCode.UNIMPLEMENTED, text, (("grpc-accept-encoding", names.replace(" ", "")),))


def decompressed(message: bytes, encoding: bytes, limit_bytes: int) -> bytes:
    """Raises WireFault, also for what would be larger than ``limit_bytes``."""
    if encoding not in ENCODINGS[1:]:
        text = "a message is compressed, and the headers do not say how"
        raise WireFault(StatusCode.INTERNAL, text)
    unzip = zlib.decompressobj(zlib.MAX_WBITS | 32)
    try:
        plain = unzip.decompress(message, limit_bytes + 1)
    except zlib.error as reason:
        raise WireFault(StatusCode.INTERNAL, f"a message cannot be decompressed: {reason}") from reason
    if len(plain) > limit_bytes:
        raise WireFault(StatusCode.RESOURCE_EXHAUSTED, _too_large(len(plain), limit_bytes))
    if not unzip.eof:
        raise WireFault(StatusCode.INTERNAL, "a compressed message has no end")
    return plain


def compressed(message: bytes) -> bytes:
    return gzip.compress(message, compresslevel=1, mtime=0)


def timeout_s(value: bytes) -> float:
    """Of a ``grpc-timeout``. Raises WireFault."""
    digits, unit = value[:-1], value[-1:]
    if not digits.isdigit() or len(digits) > _MOST_DIGITS or unit not in _UNITS_S:
        raise WireFault(StatusCode.INTERNAL, f"{value!r} is no timeout")
    return int(digits) * _UNITS_S[unit]


def timeout_field(seconds: float) -> bytes:
    """Of at least ``seconds``, in as fine a unit as there is room for."""
    for unit, size_s in ((b"u", 1e-6), (b"m", 1e-3), (b"S", 1.0)):
        number = int(max(0.0, seconds) / size_s) + 1
        if number < 10**_MOST_DIGITS:
            return b"%d%s" % (number, unit)
    return b"99999999S"


def metadata_of(fields: Iterable[tuple[bytes, bytes]]) -> Metadata:
    """Of what is no pseudo-header field, and not gRPC's own. Raises WireFault."""
    found: list[tuple[str, str | bytes]] = []
    for name, value in fields:
        if name[:1] == b":" or (name[:5] == b"grpc-" and name not in _TOLD) or name in RESERVED:
            continue
        if name[-4:] == b"-bin":
            if value.count(b",") >= MAX_BINARY_VALUES:
                raise WireFault(StatusCode.RESOURCE_EXHAUSTED, f"more than {MAX_BINARY_VALUES} values in one field")
            found += [(name.decode("ascii", "replace"), _from_base64(part)) for part in value.split(b",")]
        else:
            found.append((name.decode("ascii", "replace"), value.decode("latin-1")))
    return tuple(found)


_TOLD = frozenset({b"grpc-status-details-bin", b"grpc-trace-bin", b"grpc-tags-bin", b"grpc-previous-rpc-attempts"})


def _from_base64(value: bytes) -> bytes:
    value = value.strip()
    try:
        return base64.b64decode(value + b"=" * (-len(value) % 4), validate=True)
    except binascii.Error as reason:
        raise WireFault(StatusCode.INTERNAL, f"metadata that is no base64: {reason}") from reason


def metadata_block(metadata: Iterable[tuple[str, str | bytes]]) -> bytes:
    """As fields of a header block that enter no table. Raises ValueError for what may not stand in metadata."""
    block = b""
    for name, value in metadata:
        key = name.encode("ascii")
        if key != key.lower() or not key or key[:1] == b":":
            raise ValueError(f"{name!r} cannot be the name of metadata: write it in lower-case letters")
        if key.endswith(b"-bin"):
            raw = value if isinstance(value, bytes) else value.encode()
            block += literal(key, base64.b64encode(raw).rstrip(b"="))
        else:
            text = value if isinstance(value, bytes) else value.encode("ascii")
            block += literal(key, text)
    return block


def percent_encoded(text: str) -> bytes:
    """A status message: everything but printable ASCII, and ``%``, is written as ``%XX``."""
    return quote_from_bytes(text.encode(), safe=_PRINTABLE).encode()


_PRINTABLE = "".join(chr(each) for each in range(0x20, 0x7F) if chr(each) != "%")


def percent_decoded(value: bytes) -> str:
    return unquote(value.decode("ascii", "replace"), errors="replace")


def status_fields(status: int, message: str, metadata: Iterable[tuple[str, str | bytes]] = ()) -> bytes:
    """The trailers of a call, as a header block."""
    block = literal(b"grpc-status", b"%d" % status)
    if message:
        block += literal(b"grpc-message", percent_encoded(message))
    return block + metadata_block(metadata)
