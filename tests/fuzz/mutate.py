"""What is done to good bytes, and to good messages, until they are not. A function of the ``random.Random`` alone."""

from __future__ import annotations

from random import Random
from typing import Any, Protocol

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

HOSTILE_UNSIGNED = (0, 1, 2, 127, 128, 255, 256, 2**16, 2**31 - 1, 2**31, 2**32 - 1)
HOSTILE_UNSIGNED_64 = (*HOSTILE_UNSIGNED, 2**32, 2**53, 2**62, 2**63 - 1, 2**63, 2**64 - 2, 2**64 - 1)
HOSTILE_SIGNED = (0, 1, -1, 2, -2, 127, -128, 2**31 - 1, -(2**31))
HOSTILE_SIGNED_64 = (*HOSTILE_SIGNED, 2**32, 2**53, -(2**53), 2**63 - 1, -(2**63))
HOSTILE_TEXTS = (
    *("", "n0", "n1", "n9", "default", "other", "x" * 255, "x" * 300, "x" * 5_000, "../..", "a\nb", "\x00"),
    *("ü" * 100, "\u202e", "127.0.0.1:1", ":0", "[::1]:99999", "127.0.0.1:-1"),
)

_BY_TYPE = {
    FieldDescriptor.TYPE_UINT32: HOSTILE_UNSIGNED,
    FieldDescriptor.TYPE_FIXED32: HOSTILE_UNSIGNED,
    FieldDescriptor.TYPE_UINT64: HOSTILE_UNSIGNED_64,
    FieldDescriptor.TYPE_FIXED64: HOSTILE_UNSIGNED_64,
    FieldDescriptor.TYPE_INT32: HOSTILE_SIGNED,
    FieldDescriptor.TYPE_INT64: HOSTILE_SIGNED_64,
    FieldDescriptor.TYPE_BOOL: (False, True),
    FieldDescriptor.TYPE_ENUM: (*range(20), 99, 2**31 - 1, -1),
    FieldDescriptor.TYPE_STRING: HOSTILE_TEXTS,
}


class _Edit(Protocol):
    def __call__(self, random: Random, data: bytearray) -> None: ...


def _flip_bits(random: Random, data: bytearray) -> None:
    for _ in range(random.choice((1, 1, 1, 2, 8))):
        data[random.randrange(len(data))] ^= 1 << random.randrange(8)


def _cut_off(random: Random, data: bytearray) -> None:
    del data[random.randrange(len(data)) :]


def _cut_out(random: Random, data: bytearray) -> None:
    at = random.randrange(len(data))
    del data[at : at + random.randint(1, 16)]


def _insert(random: Random, data: bytearray) -> None:
    at = random.randrange(len(data) + 1)
    data[at:at] = random.randbytes(random.choice((1, 4, 8, 100)))


def _double(random: Random, data: bytearray) -> None:
    at = random.randrange(len(data))
    end = at + random.randint(1, 64)
    data[at:at] = data[at:end]


def _lie(random: Random, data: bytearray) -> None:
    """A number where there may be one: a length, a count, an offset."""
    width = random.choice((1, 2, 4, 8))
    value = random.choice(HOSTILE_UNSIGNED_64) & ((1 << 8 * width) - 1)
    at = random.randrange(len(data))
    data[at : at + width] = value.to_bytes(width, "little")


def _swap(random: Random, data: bytearray) -> None:
    a, b = sorted(random.randrange(len(data)) for _ in range(2))
    data[a : a + 8], data[b : b + 8] = data[b : b + 8], data[a : a + 8]


_EDITS: tuple[_Edit, ...] = (_flip_bits, _flip_bits, _cut_off, _cut_out, _insert, _double, _lie, _lie, _swap)


def mutated_bytes(random: Random, data: bytes) -> bytes:
    """Always something else than ``data``, for all but a few chances; noise now and then."""
    if random.random() < 0.02:
        return random.randbytes(random.choice((1, 12, 100, 2_000)))
    copy = bytearray(data)
    for _ in range(random.choice((1, 1, 2, 4))):
        if not copy:
            return random.randbytes(12)
        random.choice(_EDITS)(random, copy)
    return bytes(copy)


def mutate_message(random: Random, message: Message) -> None:
    """Sets some fields, at any depth, to what nobody sane would."""
    for _ in range(random.choice((1, 1, 2, 3))):
        owner, field = random.choice(_fields(message))
        _mutate_field(random, owner, field)


def _fields(message: Any) -> list[tuple[Any, FieldDescriptor]]:
    """Of a oneof, what is set, and the fields in it as if they stood outside: else most mutations would only make
    another, empty kind of it."""
    found: list[tuple[Any, FieldDescriptor]] = []
    for field in message.DESCRIPTOR.fields:
        if field.containing_oneof is None:
            found.append((message, field))
        elif message.HasField(field.name):
            found += [(message, field), *_fields(getattr(message, field.name))]
    return found


def _mutate_field(random: Random, message: Any, field: FieldDescriptor) -> None:
    if random.random() < 0.1:
        message.ClearField(field.name)
    elif field.is_repeated:
        _mutate_repeated(random, message, field)
    elif field.type == FieldDescriptor.TYPE_MESSAGE:
        mutate_message(random, getattr(message, field.name))
    else:
        setattr(message, field.name, hostile_value(random, field))


def _mutate_repeated(random: Random, message: Any, field: FieldDescriptor) -> None:
    repeated = getattr(message, field.name)
    for _ in range(random.choice((1, 1, 2, 300))):
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            mutate_message(random, repeated.add())
        else:
            repeated.append(hostile_value(random, field))


def hostile_value(random: Random, field: FieldDescriptor) -> Any:
    """One that the field's type can hold."""
    if field.type == FieldDescriptor.TYPE_BYTES:
        return random.randbytes(random.choice((0, 1, 15, 16, 17, 255, 256, 4_000)))
    return random.choice(_BY_TYPE[field.type])
