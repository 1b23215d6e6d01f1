"""Every command of etcdctl that has a meaning here does to our server what it does to etcd, and prints the same."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from dledger.server.etcd.backup import backup_parts
from tests.etcd.etcdctl import Printed, run, run_until
from tests.etcd.servers import etcd, ours

pytestmark = pytest.mark.timeout(300)

TXN = """mod("foo") > "0"
create("missing") = "0"
value("foo") = "bar"

put a/1 "by a transaction"
get foo
del nothing

put a/1 "by the other branch"

"""
SAME = [
    "put foo bar",
    "put foo bar2 --prev-kv",
    "put foo bar -w json",
    "put foo --ignore-value --prev-kv",
    "put new --ignore-value",
    "put a/1 one",
    "put a/2 two",
    "put a/3 three -w fields",
    "get foo",
    "get foo -w json",
    "get foo -w fields",
    "get foo --hex",
    "get foo --rev 2",
    "get foo --rev 1000",
    "get foo --consistency s",
    "get missing",
    "get a/ --prefix",
    "get a/ --prefix --keys-only",
    "get a/ --prefix --count-only -w fields",
    "get a/ --prefix --print-value-only",
    "get a/ --prefix --limit 2 -w json",
    "get a/ --prefix --order DESCEND --sort-by MODIFY",
    "get a/ --prefix --order ASCEND --sort-by VALUE",
    "get a/ --prefix --min-create-rev 7 -w json",
    "get a/2 --from-key",
    "get a/1 a/3",
    "get --prefix ",
    "del a/1 --prev-kv",
    "del a/2 a/3 -w json",
    "del missing",
    "del a/ --prefix",
    "del a/ --from-key --prev-kv",
    "put foo bar",
    "put leased value --lease {lease}",
    "put leased value --lease 1234",
    "put leased --ignore-value --ignore-lease -w json",
    "get leased -w json",
    "lease timetolive {lease}",
    "lease timetolive {lease} --keys",
    "lease timetolive {lease} --keys -w json",
    "lease timetolive 1234",
    "lease keep-alive {lease} --once",
    "lease keep-alive 1234 --once",
    "lease list",
    "lease list -w json",
    "lease revoke {lease}",
    "lease revoke {lease}",
    "lease timetolive {lease} -w json",
    "get leased",
    "compaction 5",
    "compaction 5",
    "compaction 9 --physical",
    "compaction 100000",
    "get foo --rev 3",
    "watch foo --rev 3",
    "lock a-lock -- echo locked",
    "lock a-lock --ttl 5 -- printenv ETCD_LOCK_KEY",
    "endpoint health",
    "endpoint health --cluster",
    "alarm list",
    "alarm disarm",
    "put '' value",
    "version",
]
"""A line of each is run on both in this order; ``{lease}`` stands for a lease that each has granted."""


class Pair(NamedTuple):
    etcd: str
    ours: str


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    with etcd() as reference, ours() as subject:
        yield Pair(reference, subject)


def granted(address: str) -> str:
    found = re.search(r"lease ([0-9a-f]+) granted with TTL\(1000s\)", run(address, ["lease", "grant", "1000"]).text)
    assert found
    return found[1]


def both(pair: Pair, arguments: list[str], stdin: str = "") -> Printed:
    expected, printed = (run(address, arguments, stdin) for address in pair)
    assert printed.comparable() == expected.comparable()
    return printed


def test_the_same_commands_print_the_same(pair: Pair) -> None:
    leases = [granted(address) for address in pair]
    wrong = []
    for line in SAME:
        expected, printed = (
            run(address, line.replace("{lease}", lease).replace("''", "").split(" "))
            for address, lease in zip(pair, leases, strict=True)
        )
        if printed.comparable() != expected.comparable():
            wrong.append(f"{line}\n  etcd: {expected.comparable()}\n  ours: {printed.comparable()}")
    assert not wrong, "\n".join(wrong)


def test_a_transaction_prints_the_same(pair: Pair) -> None:
    both(pair, ["put", "foo", "bar"])
    both(pair, ["txn"], TXN)
    both(pair, ["txn", "-w", "json"], TXN.replace('"bar"', '"other"'))


@pytest.mark.parametrize(
    ("arguments", "lines"),
    [
        (["watch", "w/", "--prefix", "--prev-kv"], 13),
        (["watch", "w/1", "-w", "json"], 1),
        (["watch", "w/1", "--", "sh", "-c", "echo $ETCD_WATCH_EVENT_TYPE $ETCD_WATCH_KEY $ETCD_WATCH_VALUE"], 6),
    ],
)
def test_a_watch_prints_the_same(pair: Pair, arguments: list[str], lines: int) -> None:
    begin = int(json.loads(both(pair, ["get", "x", "-w", "json"]).text)["header"]["revision"]) + 1
    both(pair, ["put", "w/1", "one"])
    both(pair, ["put", "w/2", "two"])
    both(pair, ["put", "w/1", "other"])
    both(pair, ["del", "w/1"])
    arguments = [arguments[0], arguments[1], f"--rev={begin}", *arguments[2:]]
    expected, printed = (run_until(address, arguments, lines, lambda: None) for address in pair)
    assert printed.comparable() == expected.comparable()


def test_an_election_prints_the_same(pair: Pair) -> None:
    printed = []
    for address in pair:

        def listen(address: str = address) -> None:
            printed.append(run_until(address, ["elect", "-l", "an-election"], 2, lambda: None))

        printed.append(run_until(address, ["elect", "an-election", "me"], 2, listen))
    expected, subject = printed[:2], printed[2:]
    assert [each.comparable() for each in subject] == [each.comparable() for each in expected]


def test_a_mirror_has_the_same_keys(pair: Pair) -> None:
    """From ours to etcd, and what etcd then has is what ours has."""
    run(pair.ours, ["put", "mirrored/1", "one"])
    run(pair.ours, ["put", "mirrored/2", "two"])
    arguments = ["make-mirror", "--prefix", "mirrored/", "--dest-prefix", "copied/", pair.etcd]

    def until_copied() -> None:
        printed = run_until(pair.etcd, ["watch", "copied/", "--prefix", "--rev=1"], 0, lambda: None)
        assert printed.code is None

    run_until(pair.ours, arguments, 1, until_copied)
    assert run(pair.etcd, ["get", "copied/", "--prefix", "--print-value-only"]).text == "one\ntwo\n"


def test_the_state_of_an_endpoint_is_told(pair: Pair) -> None:
    (state,) = json.loads(run(pair.ours, ["endpoint", "status", "-w", "json"]).text)
    (expected,) = json.loads(run(pair.etcd, ["endpoint", "status", "-w", "json"]).text)
    told = state["Status"]
    assert told["version"] == expected["Status"]["version"]
    assert told["leader"] == told["header"]["member_id"]
    assert told.keys() >= {"dbSize", "raftTerm", "raftIndex", "raftAppliedIndex", "dbSizeInUse"}
    (hashed,) = json.loads(run(pair.ours, ["endpoint", "hashkv", "-w", "json"]).text)
    assert hashed["HashKV"]["hash"]


def test_members_are_listed(pair: Pair) -> None:
    listed = json.loads(run(pair.ours, ["member", "list", "-w", "json"]).text)
    assert [each["clientURLs"] for each in listed["members"]] == [[f"http://{pair.ours}"]]


def test_a_snapshot_is_a_whole_backup(pair: Pair, tmp_path: Path) -> None:
    file = tmp_path / "backup"
    printed = run(pair.ours, ["snapshot", "save", str(file)])
    assert printed.code == 0, printed.errors
    assert backup_parts(file.read_bytes())


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("defrag", "nothing to defragment"),
        ("member add other --peer-urls=http://127.0.0.1:1", "dledger members"),
        ("member remove 1", "dledger members"),
        ("member update 1 --peer-urls=http://127.0.0.1:1", "dledger members"),
        ("member promote 1", "dledger members"),
        ("move-leader 1", "bad leader transferee"),
        ("downgrade cancel", "not downgraded"),
        ("auth status", "there is no method"),
        ("user list", "there is no method"),
        ("role list", "there is no method"),
    ],
)
def test_what_has_no_meaning_here_says_so(pair: Pair, line: str, why: str) -> None:
    printed = run(pair.ours, line.split())
    assert printed.code != 0
    assert why in printed.errors
