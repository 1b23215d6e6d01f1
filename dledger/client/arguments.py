"""Checks of a caller's arguments, before anything is queued: an argument that cannot be served is refused at the
call."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeGuard

from dledger.common.errors import InvalidRequest
from dledger.common.types import MAX_INDEX, Consistency, check_group_name

MAX_PRIORITY = (1 << 32) - 1
"""Of a preferred leader."""
MAX_EPOCH = (1 << 32) - 1
MAX_TIMEOUT_MS = 366 * 24 * 3_600_000
"""A year: beyond it clocks and gRPC begin to differ on what is meant."""


def check_index(index: object) -> None:
    """Raises UNEXPECTED_ARGUMENT for what can be no record's index."""
    if not is_int(index):
        raise InvalidRequest(f"an index is an int, not {type(index).__name__}: {index!r} names no record")
    if index < 0:
        raise InvalidRequest(f"indexes start at 0: there is no record {index}")
    if index > MAX_INDEX:
        raise InvalidRequest(f"indexes end at {MAX_INDEX}: there is no record {index}")


def check_amount(name: str, amount: object, *, least: int = 0, most: int = MAX_INDEX) -> None:
    """Raises UNEXPECTED_ARGUMENT unless ``amount`` is such a number."""
    if not is_int(amount) or not least <= amount <= most:
        raise InvalidRequest(f"{name} is {amount!r}: give an int from {least} to {most}")


def is_int(amount: object) -> TypeGuard[int]:
    return isinstance(amount, int) and not isinstance(amount, bool)


def check_timeout_ms(timeout_ms: object) -> None:
    """Raises UNEXPECTED_ARGUMENT for what is no number of milliseconds to wait."""
    if not is_timeout_ms(timeout_ms):
        raise InvalidRequest(f"timeout_ms is {timeout_ms!r}: give a positive number of milliseconds, a year at most")


def is_timeout_ms(timeout_ms: object) -> bool:
    if isinstance(timeout_ms, bool) or not isinstance(timeout_ms, int | float):
        return False
    return 0 < timeout_ms <= MAX_TIMEOUT_MS


def check_text(name: str, text: object) -> None:
    """Raises UNEXPECTED_ARGUMENT unless ``text`` is a str that can be sent."""
    if not isinstance(text, str):
        raise InvalidRequest(f"{name} is {text!r}: give a str")
    try:
        text.encode()
    except UnicodeEncodeError as why:
        raise InvalidRequest(f"{name} is {text!r}, which is no text ({why.reason}): give another") from None


def check_group(name: object) -> None:
    """Raises UNEXPECTED_ARGUMENT for what can be no group's name."""
    if not isinstance(name, str):
        raise InvalidRequest(f"group is {name!r}: give a str")
    check_group_name(name)


def check_flag(name: str, flag: object) -> None:
    """Raises UNEXPECTED_ARGUMENT for what is neither True nor False."""
    if not isinstance(flag, bool):
        raise InvalidRequest(f"{name} is {flag!r}: give True or False")


def check_endpoints(endpoints: object) -> None:
    """Raises UNEXPECTED_ARGUMENT for what is neither a str nor a list of them."""
    if isinstance(endpoints, str):
        return
    if isinstance(endpoints, bytes) or not isinstance(endpoints, Iterable):
        raise InvalidRequest(f"endpoints is {endpoints!r}: give host:port as a str, comma-separated or in a list")


def check_names(name: str, listed: object) -> None:
    """Raises UNEXPECTED_ARGUMENT for what is no list of strs."""
    if isinstance(listed, str | bytes) or not isinstance(listed, Sequence):
        raise InvalidRequest(f"{name} is {listed!r}: give a list of strs")
    for each in listed:
        check_text(f"one of {name}", each)


def check_producer(name: object, epoch: object, sequence: object) -> None:
    """Raises UNEXPECTED_ARGUMENT for what can be no producer's name, epoch or sequence."""
    check_text("a producer's name", name)
    if not name or not is_int(epoch) or not 0 <= epoch <= MAX_EPOCH:
        text = f"producer {name!r} with epoch {epoch!r}: give a name, and an int for the epoch, from 0 to {MAX_EPOCH}"
        raise InvalidRequest(text)
    check_amount("sequence", sequence)


def check_priorities(priorities: object) -> None:
    """Raises UNEXPECTED_ARGUMENT unless they give a priority to each of some nodes' ids."""
    if not isinstance(priorities, Mapping):
        raise InvalidRequest(f"priorities is {priorities!r}: give a dict of nodes' ids, each with its priority")
    for node, priority in priorities.items():
        check_text("a node's id", node)
        check_amount(f"the priority of {node}", priority, least=1, most=MAX_PRIORITY)


def check_place(consistency: object, node: object) -> None:
    """Raises UNEXPECTED_ARGUMENT unless they say how consistent a read is to be, and at which node."""
    if not isinstance(consistency, Consistency):
        known = ", ".join(f"Consistency.{each.name}" for each in Consistency)
        raise InvalidRequest(f"consistency is {consistency!r}: give one of {known}")
    if node is not None:
        check_text("node", node)
