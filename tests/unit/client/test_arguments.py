"""What a caller gives is looked at where he gives it: nothing of a wrong type gets as far as a TypeError inside."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from dledger import client
from dledger.common.errors import InvalidRequest

Call = Callable[[client.Log], Coroutine[Any, Any, object]]
NO_TEXT = "\ud800"
"""A str that no encoding has."""


@pytest.mark.parametrize("endpoints", [5, b"a:1", [b"a:1"], ["a:1", 2], [None]])
def test_endpoints_are_text(endpoints: Any) -> None:
    with pytest.raises(InvalidRequest, match="endpoints"):
        client.connect(endpoints)
    with pytest.raises(InvalidRequest, match="endpoints"):
        client.connect_blocking(endpoints)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("group", 5),
        ("group", b"default"),
        ("group", NO_TEXT),
        ("cluster_id", 5),
        ("timeout_ms", "1000"),
        ("timeout_ms", None),
        ("timeout_ms", True),
        ("max_pending_bytes", "1"),
        ("max_pending_bytes", 1e9),
        ("max_batches_in_flight", "1"),
        ("max_batches_in_flight", 1.5),
        ("limits", {"max_record_bytes": 1}),
        ("rng", 7),
        ("on_wait", "print"),
    ],
)
def test_options_are_of_their_type(option: str, value: Any) -> None:
    with pytest.raises(InvalidRequest, match=option):
        client.connect("a:1", **{option: value})


async def append(log: client.Log) -> object:
    return await log.append("x")  # type: ignore[arg-type]


async def append_an_iterator(log: client.Log) -> object:
    return await log.append_many(iter(["x"]))  # type: ignore[arg-type]


def append_many(records: Any) -> Call:
    async def call(log: client.Log) -> object:
        return await log.append_many(records)

    return call


def named(name: Any, **more: Any) -> Call:
    async def call(log: client.Log) -> object:
        return log.producer(name, **more)

    return call


def named_body(body: Any, count: Any) -> Call:
    async def call(log: client.Log) -> object:
        async with log.producer("job") as producer:
            return await producer.enqueue_body(body, count)

    return call


def named_records(records: Any) -> Call:
    async def call(log: client.Log) -> object:
        async with log.producer("job") as producer:
            return await producer.enqueue_many(records)

    return call


def read(*range_: Any, **more: Any) -> Call:
    async def call(log: client.Log) -> object:
        return await anext(log.read(*range_, **more))

    return call


def admin(operation: str, *given: Any, **more: Any) -> Call:
    async def call(log: client.Log) -> object:
        return await getattr(log.admin, operation)(*given, **more)

    return call


@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize(
    "call",
    [
        append,
        append_an_iterator,
        append_many("records"),
        append_many(b"records"),
        append_many(memoryview(b"records").cast("c")),
        append_many(5),
        append_many(None),
        append_many([b"x", 5]),
        named(5),
        named(b"job"),
        named(None),
        named(NO_TEXT),
        named("job", epoch="1"),
        named("job", epoch=1.5),
        named("job", epoch=None),
        named("job", sequence="1"),
        named("job", sequence=1.5),
        named("job", sequence=True),
        named_records("records"),
        named_records(5),
        named_body("x", 1),
        named_body(b"x", "1"),
        named_body(b"x", 0),
        read("0"),
        read(0, "1"),
        read(0, 1.5),
        read(follow="yes"),
        read(node=5),
        read(node=NO_TEXT),
        lambda log: log.bounds("committed"),
        lambda log: log.bounds(timeout_ms="1"),
        lambda log: log.segments(node=5),
        lambda log: log.segments(timeout_ms="1"),
        lambda log: log.metadata(timeout_ms="1"),
        lambda log: log.status(timeout_ms="1"),
        admin("transfer_leadership", 5),
        admin("transfer_leadership", dry_run="yes"),
        admin("set_preferred", 5),
        admin("set_preferred", {5: 1}),
        admin("add_learner", 5, "h:1"),
        admin("add_learner", "n5", 5),
        admin("promote", 5),
        admin("promote", "n1", dry_run=None),
        admin("remove", None),
        admin("readmit", b"n1"),
        admin("trim", "5"),
        admin("trim", 5, dry_run="no"),
        admin("set_retention", max_bytes="1"),
        admin("set_retention", max_bytes=1, dry_run="no"),
    ],
)
async def test_what_is_of_another_type_is_refused_in_words(log: client.Log, call: Call) -> None:
    with pytest.raises(InvalidRequest):
        await call(log)


@pytest.mark.usefixtures("cluster")
async def test_what_an_iterator_of_records_raises_is_the_callers_own(log: client.Log) -> None:
    def records() -> Any:
        yield b"x"
        raise TypeError("mine")

    with pytest.raises(TypeError, match="mine"):
        await log.append_many(records())
