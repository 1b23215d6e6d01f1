"""Numbers in a request that are known only when it is sent: "two revisions ago", "the third lease the server named".

An operation must be a function of the seed alone, and stay one when others are taken out of its sequence. So it carries
such a number as one that nobody would send, and ``resolved`` puts the true one in its place.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

AnyMessage = TypeVar("AnyMessage", bound=Message)

_REVISION = 1 << 50
_REACH = 1 << 20
_LEASE = 1 << 51
NO_SUCH_LEASE = 987_654_321


def revision(delta: int) -> int:
    """The store's revision when the request is sent, and so many more."""
    assert abs(delta) < _REACH
    return _REVISION + delta


def lease(number: int) -> int:
    """The lease that the server has named as its ``number``-th."""
    return _LEASE + number


def readable(text: str) -> str:
    """The text of a request with the meaning of such numbers in their place."""
    return re.sub(r"\b11258999\d{8}\b|\b22517998\d{8}\b", lambda found: _meaning(int(found[0])), text)


def _meaning(value: int) -> str:
    return f"lease {value - _LEASE}" if value >= _LEASE else f"now{value - _REVISION:+d}"


def resolved(message: AnyMessage, now: int, leases: list[int]) -> AnyMessage:
    """A copy for one server, whose revision is ``now`` and which has named these ``leases``."""

    def of(value: int) -> int:
        if abs(value - _REVISION) < _REACH:
            return now + value - _REVISION
        if value >= _LEASE:
            number = value - _LEASE
            return leases[number] if number < len(leases) else NO_SUCH_LEASE
        return value

    return _replaced(message, of)


def without_ids(message: AnyMessage, numbers: Mapping[int, int]) -> AnyMessage:
    """A copy of an answer in which each lease that the server has named is the relative one; ``numbers`` by its id."""
    return _replaced(message, lambda value: lease(numbers[value]) if value in numbers else value)


def _replaced(message: AnyMessage, of: Callable[[int], int]) -> AnyMessage:
    copy = type(message)()
    copy.CopyFrom(message)
    for each in _messages(copy):
        for field, value in each.ListFields():
            if field.type == FieldDescriptor.TYPE_INT64 and not field.is_repeated and (other := of(value)) != value:
                setattr(each, field.name, other)
    return copy


def _messages(message: Message) -> Iterator[Message]:
    yield message
    for field, value in message.ListFields():
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            children: Any = value if field.is_repeated else (value,)
            for child in children:
                yield from _messages(child)
