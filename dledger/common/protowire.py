"""Messages put together and taken apart by hand around their large part, a batch's body.

protobuf copies a body two or three times, a large one into fresh pages (half a millisecond for 512 KiB). In our
messages the body is the last field. So it can be joined to the encoded rest, and be looked at in place::

    the other fields, encoded by protobuf | tag of the body (length-delimited) | varint len(body) | body

A message of any other shape is left to protobuf.
"""

from __future__ import annotations

from typing import NamedTuple

from dledger.common.batch import Buffer

VARINT, DELIMITED = 0, 2
"""Wire types."""
_FIXED_BYTES = {1: 8, 5: 4}
"""Of the wire types that have them."""


class Span(NamedTuple):
    """The field that ends a message: from its tag on, and its bytes."""

    field_start: int
    start: int


def tag_of(field_number: int) -> int:
    """Of a length-delimited field; below 16 it takes one byte."""
    return field_number << 3 | DELIMITED


def encode_varint(value: int) -> bytes:
    """As protobuf does; ``value`` is not negative."""
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def decode_varint(message: Buffer, at: int) -> tuple[int, int]:
    """Its value, and where it ends. Raises IndexError if the message ends within it."""
    value = shift = 0
    while True:
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def last_field(message: Buffer, start: int, end: int, wanted_tag: int) -> Span | None:
    """The place of the field with the tag ``wanted_tag`` in the message from ``start`` to ``end``; None unless it is
    the last field."""
    at = start
    try:
        while at < end:
            tag = message[at]  # of one byte, as the tags of all known fields are
            if tag > 0x7F:
                return None
            kind, at_field, at = tag & 7, at, at + 1
            if kind in _FIXED_BYTES:
                at += _FIXED_BYTES[kind]
            elif kind not in (VARINT, DELIMITED):
                return None
            else:
                value, at = decode_varint(message, at)
                if tag == wanted_tag:
                    return Span(at_field, at) if at + value == end else None
                at += value if kind == DELIMITED else 0
    except IndexError:
        return None
    return None
