"""``dledger kv txn``: a transaction as one JSON object."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from dledger.cli.kv_format import from_json, from_stdin, pair_fields, parse_lease
from dledger.cli.options import Target, cluster_options
from dledger.cli.output import print_json
from dledger.cli.runtime import run
from dledger.common.errors import ConfigError, quoted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dledger.client.store import Compare, Is, Op, TxnDone, TxnResponse

SIGNS: Mapping[str, Is] = {
    "=": "==",
    "==": "==",
    "equal": "==",
    "!=": "!=",
    "not_equal": "!=",
    "<": "<",
    "less": "<",
    ">": ">",
    "greater": ">",
}
TARGETS = ("value", "version", "create", "mod", "lease")
OPS = ("put", "get", "delete", "txn")
_FIELDS = {
    "put": {"key", "value", "lease"},
    "get": {"key", "prefix", "limit"},
    "delete": {"key", "prefix"},
    "txn": {"compare", "success", "failure"},
}


@click.command(short_help="Comparisons and operations, all or nothing.")
@cluster_options
def txn(*, target: Target) -> None:
    """Reads one JSON object from stdin, carries it out at one revision or not at all, and prints one JSON object.

    \b
    {"compare": [{"key": "color", "target": "value", "result": "=", "value": "red"}],
     "success": [{"op": "put", "key": "color", "value": "blue"}],
     "failure": [{"op": "get", "key": "color"}]}

    \b
    target     value, version, create, mod (revisions), lease
    result     = != < >
    op         put (key, value, lease), get (key or prefix, limit), delete (key or prefix), txn (as the whole)

    A key that is not there has version, revisions and lease 0. Prints {"succeeded", "revision", "responses"}: one
    response for each operation of success if all comparisons held, else of failure.
    """
    print_json(done_fields(run(_txn(target))))


async def _txn(target: Target) -> TxnDone:
    wanted = parse_txn(await from_stdin())
    async with target.connect_cluster() as cluster:
        return await cluster.store().txn(*wanted)


Parsed = tuple[list["Compare"], list["Op"], list["Op"]]


def parse_txn(data: bytes) -> Parsed:
    """Raises CONFIG_ERROR."""
    try:
        given = json.loads(data)
    except ValueError as why:
        raise ConfigError(f"stdin has no JSON object ({why}): see dledger kv txn --help for one") from None
    return _parsed(given, "the transaction")


def _parsed(given: Any, what: str) -> Parsed:
    _check_fields(given, _FIELDS["txn"], what)
    return (
        [_compare(each) for each in _list(given, "compare")],
        [_op(each) for each in _list(given, "success")],
        [_op(each) for each in _list(given, "failure")],
    )


def _list(given: Mapping[str, Any], name: str) -> list[Any]:
    listed = given.get(name, [])
    if not isinstance(listed, list):
        raise ConfigError(f"{name} is {quoted(str(listed))}: give a list")
    return listed


def _check_fields(given: Any, known: set[str], what: str) -> None:
    if not isinstance(given, dict):
        raise ConfigError(f"{what} is {quoted(str(given))}: give an object")
    unknown = sorted(given.keys() - known)
    if unknown:
        raise ConfigError(f"{what} has {quoted(unknown[0])}: it takes {', '.join(sorted(known))}")


def _compare(given: Any) -> Compare:
    from dledger.client.store import Compare  # noqa: PLC0415  # not for --help

    _check_fields(given, {"key", "target", "result", "value"}, "a comparison")
    key = from_json("the key of a comparison", given.get("key"))
    target, value = str(given.get("target", "")).lower(), given.get("value")
    sign = SIGNS.get(str(given.get("result", "=")).lower())
    if sign is None:
        raise ConfigError(f"a comparison has the result {quoted(str(given['result']))}: give one of = != < >")
    match target:
        case "value":
            return Compare.value(key, sign, from_json("the value of a comparison", value))
        case "lease":
            return Compare.lease(key, sign, _lease(value))
        case "version":
            return Compare.version(key, sign, _number(value))
        case "create":
            return Compare.created(key, sign, _number(value))
        case "mod":
            return Compare.modified(key, sign, _number(value))
    raise ConfigError(f"a comparison has the target {quoted(target)}: give one of {', '.join(TARGETS)}")


def _number(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise ConfigError(f"a comparison has the value {quoted(str(value))}: give a number for this target")
    return value


def _lease(value: Any) -> int:
    if value in (None, 0, "0"):
        return 0
    if not isinstance(value, str):
        raise ConfigError(f"a lease is {quoted(str(value))}: give its id as text, as `lease list` shows it")
    return parse_lease(value)


def _op(given: Any) -> Op:
    from dledger.client.store import Op  # noqa: PLC0415  # as above

    kind = given.get("op") if isinstance(given, dict) else None
    if kind not in OPS:
        raise ConfigError(f"{quoted(str(given))} is no operation: give an object with op, one of {', '.join(OPS)}")
    rest = {name: value for name, value in given.items() if name != "op"}
    _check_fields(rest, _FIELDS[kind], f"the operation {kind}")
    if kind == "txn":
        return Op.txn(*_parsed(rest, "the operation txn"))
    if kind == "put":
        key = from_json("the key of a put", rest.get("key"))
        return Op.put(key, from_json("the value of a put", rest.get("value")), lease=_lease(rest.get("lease")))
    given_keys = {name: from_json(f"the {name} of a {kind}", rest[name]) for name in ("key", "prefix") if name in rest}
    if len(given_keys) != 1:
        raise ConfigError(f"a {kind} names its keys by key or by prefix: give one of the two")
    if kind == "delete":
        return Op.delete(**given_keys)
    if "key" in given_keys:
        return Op.get(given_keys["key"])
    return Op.range(prefix=given_keys["prefix"], limit=rest.get("limit", 0))


# Answers ----------------------------------------------------------------------------------------------------------


def done_fields(done: TxnDone) -> dict[str, Any]:
    responses = [_response_fields(each) for each in done.responses]
    return {"succeeded": done.succeeded, "revision": done.revision, "responses": responses}


def _response_fields(response: TxnResponse) -> dict[str, Any]:
    from dledger.client.store import Deleted, Pairs, PutDone  # noqa: PLC0415  # as above

    match response:
        case PutDone():
            return {"op": "put"}
        case Deleted():
            return {"op": "delete", "deleted": response.deleted}
        case Pairs():
            return {"op": "get", "count": response.total, "kvs": [pair_fields(each) for each in response]}
        case _:
            return {"op": "txn"} | done_fields(response)
