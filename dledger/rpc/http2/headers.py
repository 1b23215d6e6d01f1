"""Header blocks: HPACK (RFC 7541) behind a cache, and HTTP/2's rules for header fields (RFC 9113, section 8).

A client that repeats a call sends the same block byte for byte, once its connection's table has all its fields. So a
dictionary finds the meaning of such a block. It is emptied whenever a block changes the table, as the same bytes mean
something else then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from hpack import Decoder, HPACKError, OversizedHeaderListError

from dledger.common.http2_frames import ConnectionFault, ErrorCode

Fields = Sequence[tuple[bytes, bytes]]
"""Names and values in their order, pseudo-header fields first."""
Meaning = TypeVar("Meaning")

MAX_CACHED_BYTES = 128 * 1024
"""Of one connection, in blocks and decoded fields: a block of two hundred bytes may decode to 64 KiB."""
FIELD_COST_BYTES = 64
"""A field takes so much beside its bytes."""
MAX_CACHED_BLOCK_BYTES = 4_096
MAX_HEADER_LIST_BYTES = 64 * 1024
TIMEOUT_FIELD = b"\x00\x0cgrpc-timeout"
"""The beginning of a literal field of that name that enters no table. Its value changes with each call. Clients that
write it last, and in this form, have the rest of their blocks found in the cache."""

_FORBIDDEN = frozenset({b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"})
_IN_NAMES = bytes(each for each in range(0x21, 0x7F) if chr(each) != ":" and not chr(each).isupper())


class MalformedHeaders(Exception):
    """The fields are not what HTTP/2 allows: the stream is reset with PROTOCOL_ERROR."""


class HeaderDecoder(Generic[Meaning]):
    """Of one connection. ``understand`` turns decoded fields into the connection's own form. Its results are cached, so
    they must not be changed. It may raise MalformedHeaders."""

    def __init__(self, understand: Callable[[Fields], Meaning]) -> None:
        self._hpack = Decoder(max_header_list_size=MAX_HEADER_LIST_BYTES)
        self._understand = understand
        self._cache: dict[bytes, Meaning] = {}
        self._cached_bytes = 0

    def decode(self, block: bytes) -> Meaning:
        """Raises ConnectionFault if the block cannot be decoded: the table is unknown then. Raises MalformedHeaders."""
        meaning = self._cache.get(block)
        if meaning is None:
            meaning = self._decode(block)
        return meaning

    def known_prefix(self, block: bytes) -> tuple[Meaning, bytes] | None:
        """For a block with a plain ``grpc-timeout`` as its last field: the meaning of the rest, and the field's value.
        None for a block of another form, or with a rest not seen before. A decoded block ends where a field ends, so
        the literal behind it begins a field."""
        at = block.rfind(TIMEOUT_FIELD)
        if at < 0 or (meaning := self._cache.get(block[:at])) is None:
            return None
        value = block[at + len(TIMEOUT_FIELD) :]
        if not value or value[0] != len(value) - 1 or value[0] > 9:  # gRPC's timeouts have up to 8 digits and a unit
            return None
        return meaning, value[1:]

    def _decode(self, block: bytes) -> Meaning:
        table = self._hpack.header_table
        entries, before = table.dynamic_entries, (len(table.dynamic_entries), table.maxsize)
        first = entries[0] if entries else None
        try:
            fields: list[tuple[bytes, bytes]] = list(self._hpack.decode(block, raw=True))
        except OversizedHeaderListError as reason:
            raise ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, str(reason)) from reason
        except (HPACKError, IndexError, UnicodeDecodeError) as reason:
            raise ConnectionFault(ErrorCode.COMPRESSION_ERROR, f"a header block: {reason}") from reason
        entries = table.dynamic_entries
        # Every insertion puts a new object in front.
        is_same = (len(entries), table.maxsize) == before and (entries[0] if entries else None) is first
        if not is_same:
            self._empty_cache()
            return self._understand(fields)
        meaning = self._understand(fields)
        size = len(block) + sum(len(name) + len(value) + FIELD_COST_BYTES for name, value in fields)
        if size <= MAX_CACHED_BLOCK_BYTES:
            if self._cached_bytes + size > MAX_CACHED_BYTES:
                self._empty_cache()
            self._cached_bytes += size
            self._cache[block] = meaning
        return meaning

    def _empty_cache(self) -> None:
        self._cache.clear()
        self._cached_bytes = 0


def check_fields(fields: Fields, pseudo: frozenset[bytes]) -> dict[bytes, bytes]:
    """The pseudo-header fields, each of which is one of ``pseudo``. Raises MalformedHeaders for what section 8.2 and
    8.3 forbid."""
    found: dict[bytes, bytes] = {}
    is_regular = False
    values = b"".join([value for _, value in fields])
    if b"\n" in values or b"\r" in values or b"\0" in values:
        raise MalformedHeaders("a field's value has a line end, or a zero")
    for name, value in fields:
        if name[:1] == b":":
            if is_regular:
                raise MalformedHeaders("a pseudo-header field stands behind others")
            if name not in pseudo or name in found:
                raise MalformedHeaders(f"{name[:100]!r} does not belong here, or stands here twice")
            found[name] = value
            continue
        is_regular = True
        if not name or name.translate(None, _IN_NAMES):
            raise MalformedHeaders(f"the name {name[:100]!r} is empty, or has letters that names may not have")
        if name in _FORBIDDEN or (name == b"te" and value != b"trailers"):
            raise MalformedHeaders(f"{name!r} is a matter of HTTP/1.1 connections")
    return found
