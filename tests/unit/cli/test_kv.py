"""``dledger kv`` on a store that a process beside this one serves."""

from __future__ import annotations

import json
import signal
from typing import Any

import pytest

from tests.unit.cli.conftest import Kv, Outcome, begin


def lines(outcome: Outcome) -> list[Any]:
    return [json.loads(line) for line in outcome.out.splitlines()]


def test_a_value_comes_back_byte_by_byte(kv: Kv) -> None:
    assert kv("put", "a", "one").out == b"put revision=2\n"
    assert kv("get", "a").out == b"one"
    assert kv("put", "a", "-", stdin=b"\xff\0\n").code == 0
    assert kv("get", "a").out == b"\xff\0\n"
    assert kv("get", "a", "--rev", "2").out == b"one"


def test_a_key_that_is_not_there_ends_with_1(kv: Kv) -> None:
    outcome = kv("get", "a")
    assert (outcome.code, outcome.out, outcome.err) == (1, b"", "dledger: there is no key 'a'\n")


def test_a_prefix_prints_each_key(kv: Kv) -> None:
    kv("put", "a/1", "one")
    kv("put", "a/2", "two")
    kv("put", "b", "")
    assert kv("get", "a/", "--prefix").out == b"a/1\tone\na/2\ttwo\n"
    assert kv("get", "a/", "--prefix", "--count").out == b"2\n"
    assert kv("get", "none", "--count", "-o", "json").last_json == {"count": 0}
    assert kv("get", "", "--prefix", "--count").out == b"3\n"
    table = kv("get", "a/", "--prefix", "-o", "table").out.decode().splitlines()
    assert table[0].split() == ["key", "value", "version", "created", "modified", "lease"]
    assert table[2].split() == ["a/2", "two", "1", "3", "3", "-"]


def test_json_has_text_or_base64(kv: Kv) -> None:
    kv("put", "a", "é")
    kv("put", "b", "-", stdin=b"\xff")
    first, second = lines(kv("get", "", "--prefix", "-o", "json"))
    assert first == {
        "key": "a",
        "value": "é",
        "create_revision": 2,
        "mod_revision": 2,
        "version": 1,
        "lease": None,
    }
    assert second["value"] == {"base64": "/w=="}


def test_a_deletion_tells_how_many(kv: Kv) -> None:
    kv("put", "a1", "")
    kv("put", "a2", "")
    assert kv("del", "a", "--prefix").out == b"deleted keys=2 revision=4\n"
    assert kv("del", "a1", "-o", "json").last_json == {"deleted": 0, "revision": 4}


def test_a_transaction_is_one_object_in_and_one_out(kv: Kv) -> None:
    kv("put", "a", "1")
    wanted = {
        "compare": [
            {"key": "a", "target": "value", "result": "=", "value": "1"},
            {"key": "a", "target": "version", "result": "<", "value": 2},
            {"key": "a", "target": "create", "result": ">", "value": 0},
            {"key": "a", "target": "mod", "result": "!=", "value": 9},
            {"key": "a", "target": "lease", "result": "=", "value": 0},
        ],
        "success": [
            {"op": "put", "key": {"base64": "/w=="}, "value": "2"},
            {"op": "get", "key": "a"},
            {"op": "get", "prefix": "a", "limit": 1},
            {"op": "delete", "prefix": "a"},
            {"op": "txn", "failure": [], "success": [{"op": "put", "key": "c", "value": ""}]},
        ],
    }
    told = kv("txn", stdin=json.dumps(wanted).encode()).last_json
    pair = {"key": "a", "value": "1", "create_revision": 2, "mod_revision": 2, "version": 1, "lease": None}
    assert told == {
        "succeeded": True,
        "revision": 3,
        "responses": [
            {"op": "put"},
            {"op": "get", "count": 1, "kvs": [pair]},
            {"op": "get", "count": 1, "kvs": [pair]},
            {"op": "delete", "deleted": 1},
            {"op": "txn", "succeeded": True, "revision": 3, "responses": [{"op": "put"}]},
        ],
    }


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("", "no JSON object"),
        ("[]", "the transaction is '[]': give an object"),
        ('{"then": []}', "'then'"),
        ('{"compare": {}}', "give a list"),
        ('{"compare": [{"key": "a", "target": "size", "value": 1}]}', "'size': give one of value, version"),
        ('{"compare": [{"key": "a", "target": "mod", "value": "1"}]}', "give a number"),
        ('{"compare": [{"key": "a", "target": "mod", "result": "~", "value": 1}]}', "give one of = != < >"),
        ('{"success": [{"op": "append"}]}', "one of put, get, delete, txn"),
        ('{"success": [{"op": "get"}]}', "key or by prefix"),
        ('{"success": [{"op": "put", "key": 1, "value": ""}]}', "the key of a put is '1'"),
        ('{"success": [{"op": "put", "key": {"base64": "?"}, "value": ""}]}', "no base64"),
        ('{"success": [{"op": "put", "key": "a", "value": "", "lease": 7}]}', "give its id as text"),
    ],
)
def test_a_transaction_that_is_none_is_refused_with_what_to_give(kv: Kv, given: str, told: str) -> None:
    outcome = kv("txn", stdin=given.encode())
    assert (outcome.code, outcome.out, outcome.err.count("\n")) == (2, b"", 1)
    assert told in outcome.err


def test_the_history_can_be_compacted(kv: Kv) -> None:
    kv("put", "a", "1")
    kv("put", "a", "2")
    assert kv("compact", "3").out == b"compacted revision=3\n"
    outcome = kv("get", "a", "--rev", "2")
    assert (outcome.code, outcome.err.count("\n")) == (5, 1)
    assert "no history" in outcome.err
    assert kv("compact", "3").code == 5


def test_the_status_has_what_there_is(kv: Kv) -> None:
    kv("put", "a", "1")
    told = kv("status", "-o", "json").last_json
    assert list(told) == ["revision", "compact_revision", "keys", "size_bytes", "leases", "watches", "hash"]
    assert (told["revision"], told["keys"]) == (2, 1)
    assert kv("status").out.startswith(b"store revision=2 compact_revision=0 keys=1 ")


def test_what_the_store_refuses_ends_with_5(kv: Kv) -> None:
    outcome = kv("put", "a", "1", "--lease", "ff")
    assert (outcome.code, outcome.err.count("\n")) == (5, 1)
    assert "no such lease" in outcome.err


def test_what_is_no_lease_is_wrong_usage(kv: Kv) -> None:
    outcome = kv("put", "a", "1", "--lease", "x")
    assert outcome.code == 2
    assert "'x' is no lease" in outcome.err


def test_a_watch_prints_changes_as_they_come_until_it_is_interrupted(kv: Kv, address: str) -> None:
    kv("put", "a", "1")
    with begin("watch", "a", "--rev", "2", "--endpoints", address, "-o", "json") as watching:
        assert watching.stdout is not None
        first = json.loads(watching.stdout.readline())
        kv("del", "a")
        second = json.loads(watching.stdout.readline())
        watching.send_signal(signal.SIGINT)
        assert watching.wait(timeout=20) == 130
    assert (first["revision"], first["type"], first["key"], first["value"]) == (2, "put", "a", "1")
    assert second == {"revision": 3, "type": "delete", "key": "a"}


def test_a_watch_prints_lines_for_people(kv: Kv, address: str) -> None:
    kv("put", "a", "two words")
    with begin("watch", "", "--prefix", "--rev", "1", "--endpoints", address) as watching:
        assert watching.stdout is not None
        assert watching.stdout.readline() == b"2\tput\ta\ttwo words\n"
        watching.send_signal(signal.SIGINT)
