"""Each command as the shell sees it: stdout, stderr, exit code."""

from __future__ import annotations

import base64
import json
import re
from dataclasses import replace
from itertools import count

import pytest

from dledger.cli.main import SECTIONS
from dledger.cli.options import Target
from dledger.client import ClusterStatus, DiskInfo, NodeStatus, PeerRefusal
from dledger.common.errors import CODES, Code, error
from dledger.common.types import Consistency, GroupSettings, NodeId, PreferredLeader
from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_log import FakeLog, Unreachable, node


def test_help_shows_every_command_and_teaches_the_exit_codes(dledger: Run) -> None:
    outcome = dledger("--help")
    assert outcome.code == 0
    text = outcome.out.decode()
    assert all(f"  {name} " in text for commands in SECTIONS.values() for name in commands)
    assert "4 outcome unknown" in text


@pytest.mark.parametrize(
    "command",
    ["serve", "dev", "status", "health", "append", "get", "tail", "bench append", "bench get", "bench read",
     "bench kv",
     "log verify", "log dump", "config check", "config show",
     "admin transfer", "admin preferred", "admin add", "admin promote", "admin remove",
     "admin readmit", "admin trim", "admin retention", "demo",
     "kv put", "kv get", "kv del", "kv txn", "kv watch", "kv compact", "kv status",
     "kv lease grant", "kv lease keep-alive", "kv lease revoke", "kv lease list", "kv lock", "kv elect",
     "kv backup", "kv restore"],
)  # fmt: skip
def test_every_flag_names_its_environment_variable(dledger: Run, command: str) -> None:
    text = dledger(*command.split(), "--help").out.decode()
    flags = [line for line in text.splitlines() if re.match(r"  -(-|[a-z],)", line) and "--help" not in line]
    assert "".join(text.split()).count("envvar:DLEDGER_") == len(flags)


def test_the_version_is_one_line(dledger: Run) -> None:
    assert dledger("--version").out.startswith(b"dledger 0.")
    assert dledger("version").out == dledger("--version").out


def test_what_users_type_first_is_understood(dledger: Run, fake: FakeLog) -> None:
    assert dledger("help").out == dledger("--help").out
    assert dledger("help", "admin", "add").out == dledger("admin", "add", "--help").out
    assert dledger("help", "nonsense").code == 2
    assert dledger("members", log=fake).out == dledger("status", log=fake).out


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["append", "hello", "world"], "dledger append -d 'hello world'"),
        (["append", "x" * 5_000], "dledger append -d TEXT"),
        (["append", __file__], f"dledger append --file {__file__}"),
        (["get", "0", "10"], "dledger get 0:10"),
        (["get", "10:5"], "ends before it begins: write the smaller one first, 5:10"),
        (["get", "0", "--endpoint", "h:1"], "No such option '--endpoint'"),
        (["--endpoints", "h:1", "tail"], "dledger tail --endpoints …"),
        (["--endpoints", "h:1"], "dledger status --endpoints …"),
    ],
)
def test_a_slip_is_answered_with_what_to_type(dledger: Run, fake: FakeLog, arguments: list[str], told: str) -> None:
    outcome = dledger(*arguments, log=fake)
    assert (outcome.code, outcome.out, outcome.err.count("\n")) == (2, b"", 1)
    assert told in outcome.err


def test_get_is_also_called_as_the_client_calls_it(dledger: Run) -> None:
    log = FakeLog([b"one", b"two"])
    assert dledger("read", "-1", log=log).out == dledger("get", "-1", log=log).out == b"two\n"


@pytest.mark.parametrize("arguments", [["nonsense"], ["get"], ["get", "x"], ["status", "-o", "xml"], ["serve"]])
def test_wrong_usage_is_one_line_and_2(dledger: Run, arguments: list[str]) -> None:
    outcome = dledger(*arguments, log=FakeLog())
    assert outcome.code == 2
    assert outcome.err.startswith("dledger: ")
    assert outcome.err.count("\n") == 1
    assert not outcome.out


def test_a_format_of_other_commands_in_the_environment_is_passed_over(
    dledger: Run, fake: FakeLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DLEDGER_OUTPUT", "table")
    assert dledger("append", "-d", "x", log=fake).out.startswith(b"appended ")
    assert dledger("get", "0", log=fake).out == b"x\n"
    monkeypatch.setenv("DLEDGER_OUTPUT", "json")
    assert dledger("append", "-d", "x", log=fake).last_json["count"] == 1
    monkeypatch.setenv("DLEDGER_OUTPUT", "tabel")
    assert dledger("append", "-d", "x", log=fake).code == 2


@pytest.mark.parametrize("arguments", [["x" * 5_000], ["tail", "-n", "9" * 5_000], ["status", "-o", "x" * 5_000]])
def test_wrong_usage_is_not_repeated_at_any_length(dledger: Run, fake: FakeLog, arguments: list[str]) -> None:
    outcome = dledger(*arguments, log=fake)
    assert outcome.code == 2
    assert len(outcome.err) < 1_000


@pytest.mark.parametrize("command", [["status", "--timeout", "5s"], ["bench", "append", "--duration", "5s"]])
def test_seconds_with_a_unit_are_refused_with_how_to_write_them(
    dledger: Run, fake: FakeLog, command: list[str]
) -> None:
    outcome = dledger(*command, log=fake)
    assert outcome.code == 2
    assert "'5s' is no number of seconds: write it without a unit, as in 5." in outcome.err


def test_an_index_that_cannot_be_is_wrong_usage(dledger: Run, fake: FakeLog) -> None:
    assert dledger("append", "-d", "x", "--expect-index", str(2**64), log=fake).code == 2
    assert fake.records == []


@pytest.mark.parametrize("timeout", ["nan", "inf", "0", "-1", "1e300"])
def test_a_timeout_that_is_none_is_wrong_usage(dledger: Run, fake: FakeLog, timeout: str) -> None:
    outcome = dledger("status", "--timeout", timeout, log=fake)
    assert outcome.code == 2
    assert outcome.err.count("\n") == 1


def test_no_group_is_the_default_one(dledger: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    groups: list[str] = []

    def connect(target: Target, **_: object) -> FakeLog:
        groups.append(target.group)
        return FakeLog()

    monkeypatch.setattr(Target, "connect", connect)
    monkeypatch.setenv("DLEDGER_GROUP", "")
    assert dledger("health").code == 0
    assert dledger("status").code == 0
    assert dledger("admin", "remove", "n1").code == 0
    assert groups == ["default", "meta", "meta"]


@pytest.mark.parametrize(
    "command",
    [
        ["append", "-d", "x"], ["get", "0"], ["status"], ["health"], ["admin", "trim", "--before", "1"],
        ["admin", "remove", "n1"], ["admin", "remove", "n1", "--move"], ["log", "verify", "."],
    ],
)  # fmt: skip
def test_an_empty_group_is_refused_rather_than_taken_for_another(
    dledger: Run, fake: FakeLog, command: list[str]
) -> None:
    outcome = dledger(*command, "--group", "", log=fake)
    assert outcome.code == 2
    assert "it names no group: give a name, or leave --group out." in outcome.err


def test_a_learner_with_an_empty_log_is_no_cluster_that_is_being_founded(dledger: Run) -> None:
    nodes = (node("n0", "learner"), node("n1", "leader"))
    nodes = (replace(nodes[0], voter=False, founders_missing=("n2",)), nodes[1])
    outcome = dledger("status", "--group", "orders", log=FakeLog(status=ClusterStatus("orders", 3, "n1", "c1", nodes)))
    assert b"why" not in outcome.out


def test_a_member_at_the_address_of_another_cluster_is_told_of_with_the_remedy(dledger: Run) -> None:
    text = "nX refused: n0 dialled 'nX' and reached n7: check the peers' addresses"
    here = replace(node("n0", "leader"), refused_by=(PeerRefusal("nX", "UNEXPECTED_MEMBER", text),))
    there = replace(node("nX", "unknown", reachable=False), voter=False, peer_address="h:1")
    shown = dledger("status", log=FakeLog(status=ClusterStatus("meta", 3, "n0", "c1", (here, there)))).out.decode()
    remedy = "if another node is at h:1: dledger admin remove nX, then add the right one"
    assert f"why: nX refuses n0: {text}; {remedy}\n" in shown


def test_a_clock_that_is_ahead_is_told_of_by_status_and_health(dledger: Run) -> None:
    wrong = replace(node("n1", "leader"), clock_ahead_ms=3650 * 86_400_000, record_ahead_ms=90_000)
    fake = FakeLog(status=ClusterStatus("meta", 3, "n1", "c1", (node("n0", "follower"), wrong)))
    shown = dledger("status", log=fake).out.decode()
    assert "why: the clock of n1 is 3650 days ahead of the other voters': set it right\n" in shown
    assert "why: the last record's time is 90 seconds ahead of the clocks" in shown
    assert " clock_ahead=n1" in dledger("health", log=fake).out.decode()


def test_status_is_of_the_nodes_unless_a_group_is_named(dledger: Run) -> None:
    nodes = (replace(node("n0", "leader"), groups=3, groups_led=2, node_log_size_bytes=2048, node_damaged_frames=1),)
    away = node("n1", "unknown", reachable=False)
    log = FakeLog(status=ClusterStatus("meta", 3, "n0", "c1", (*nodes, away)))
    first, _, *lines = dledger("status", log=log).out.decode().splitlines()
    assert first == "cluster c1"
    head, up, down = (line.split() for line in lines[:3])
    told = dict(zip(head, up, strict=True))
    assert (told["state"], told["groups"], told["leads"], told["log"], told["damaged"]) == ("up", "3", "2", "2KiB", "1")
    assert dict(zip(head, down, strict=True))["state"] == "unreachable"


def large(node_id: str, role: str) -> NodeStatus:
    """A node whose numbers are as long as they may become."""
    return replace(
        node(node_id, role), address="203.0.113.101:20912", commit_index=10**11, last_index=10**11, position=10**9,
        lag_frames=99_999, disk=DiskInfo("full", 1023 << 30), log_size_bytes=1023 << 30, chain="0" * 16,
        node_log_size_bytes=1023 << 30, groups=1000, groups_led=999, pid=4_194_304, version="0.1.0",
    )  # fmt: skip


@pytest.mark.parametrize("flags", [[], ["--group", "default"]])
def test_the_table_of_status_fits_100_columns_and_wide_has_the_rest(dledger: Run, flags: list[str]) -> None:
    nodes = (large("n10", "leader"), large("n11", "recovering"), node("n12", "unknown", reachable=False))
    log = FakeLog(status=ClusterStatus("default", 3, "n10", "c1", nodes))
    narrow = dledger("status", *flags, log=log).out.decode().splitlines()[2:6]
    assert max(map(len, narrow)) <= 100
    wide = dledger("status", *flags, "-o", "wide", log=log).out.decode().splitlines()[2:6]
    assert {*narrow[0].split()} < {*wide[0].split()}
    assert "4194304" in wide[1]


def test_status_says_what_is_wrong_and_what_to_do(dledger: Run) -> None:
    doubted = replace(node("n0", "follower"), counts=False)
    others = [node(f"n{i}", "follower") for i in (2, 4)]
    nodes = (doubted, node("n1", "leader"), *others, node("n3", "unknown", reachable=False))
    log = FakeLog(status=ClusterStatus("default", 3, "n1", "c1", nodes))
    for flags in ([], ["--group", "default"]):
        told = [line for line in dledger("status", *flags, log=log).out.decode().splitlines() if line[:4] == "why:"]
        assert told == [
            "why: n3 cannot be reached: start it; if it is gone for good: dledger admin remove n3 --move",
            "why: n0 is in doubt, its disk is not the one that was admitted: dledger admin readmit n0",
        ]


@pytest.mark.parametrize("command", [["append", "-d", "x"], ["get", "0"], ["tail"], ["group", "list"]])
def test_a_command_that_finds_no_leader_gives_the_reason_that_health_gives(
    dledger: Run, fake: FakeLog, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    unfounded = ClusterStatus("meta", 0, None, "", (replace(node("n0", "follower"), founders_missing=("n1",)),))
    nobody_leads = error(Code.LEADER_NOT_READY, "no leader is known")

    async def refuse() -> None:
        raise nobody_leads

    monkeypatch.setattr(fake, "_status", unfounded)
    monkeypatch.setattr(fake, "bounds", refuse)
    monkeypatch.setattr(fake.cluster.groups, "list", refuse)
    fake.refusals[0] = nobody_leads
    outcome = dledger(*command, log=fake)
    first, second = outcome.err.splitlines()
    assert (outcome.code, first[:27]) == (3, "dledger: no leader is known")
    assert second == f"dledger: why: {dledger('health', '-o', 'json', log=fake).last_json['reason']}"


def test_a_removed_node_says_so_and_who_refused_it(dledger: Run) -> None:
    refusal = PeerRefusal("n1", "UNKNOWN_MEMBER", "n1 refused: 'n2' is not a member")
    removed = replace(node("n2", "removed"), peer_address="n2:0", refused_by=(refusal,))
    nodes = (node("n1", "unknown", reachable=False), removed)
    log = FakeLog(status=ClusterStatus("meta", 3, None, "c1", nodes))
    lines = dledger("status", log=log).out.decode().splitlines()
    assert [re.split(" {2,}", line)[:2] for line in lines[3:5]] == [["n1", "refuses n2"], ["n2", "removed"]]
    assert lines[6].startswith("why: n2 was removed from the cluster, n1 refused it: stop it")
    assert lines[6].endswith("dledger admin add n2=n2:0")


def test_status_and_health_of_a_cluster_that_is_being_founded_are_those_of_its_directory(
    dledger: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Founding(FakeLog):
        async def status(self) -> ClusterStatus:
            raise error(Code.LEADER_NOT_READY, "the cluster is being founded: try again after a moment")

    def connect(target: Target, **_: object) -> FakeLog:
        return Founding() if target.group == "default" else FakeLog()

    monkeypatch.setattr(Target, "connect", connect)
    assert dledger("health").out == b"healthy leader=n1 reachable=2 voters=3\n"
    assert dledger("status", "--group", "default", "-o", "json").last_json["leader"] == "n1"


def test_get_prints_lines_raw_or_json(dledger: Run) -> None:
    log = FakeLog([b"one", b"two", b"\xff"])
    assert dledger("get", "0:2", log=log).out == b"one\ntwo\n"
    assert dledger("get", "-2:", "-o", "raw", log=log).out == b"two\xff"
    line = json.loads(dledger("get", "2", "-o", "json", log=log).out)
    assert line == {"index": 2, "term": 3, "timestamp_ms": 1000, "value": base64.b64encode(b"\xff").decode()}


def test_get_of_a_record_that_is_not_there_is_refused(dledger: Run) -> None:
    outcome = dledger("get", "7", log=FakeLog([b"one"]))
    assert (outcome.code, outcome.out) == (5, b"")
    assert outcome.err == "dledger: there is no record 7 yet: the log holds 0 to 0\n"


def test_get_from_one_node_reads_what_that_node_knows_to_be_committed(dledger: Run) -> None:
    log = FakeLog([b"one", b"two", b"three"])
    assert dledger("get", ":", "--node", "n0", log=log).out == b"one\ntwo\n"
    assert log.reads == [{"consistency": Consistency.COMMITTED, "node": "n0"}]
    assert dledger("get", ":", "--node", "n7", log=log).code == CODES[Code.UNKNOWN_MEMBER].exit_code
    assert dledger("get", ":", "--node", "n2", log=log).code == 3


def test_tail_prints_the_last_ten_or_from_where_it_is_told(dledger: Run) -> None:
    log = FakeLog([b"%d" % i for i in range(20)])
    assert dledger("tail", log=log).out.split() == [b"%d" % i for i in range(10, 20)]
    assert dledger("tail", "-n", "1", log=log).out == b"19\n"
    assert dledger("tail", "--from", "18", log=log).out == b"18\n19\n"
    assert dledger("tail", "--from", "5", "-n", "2", log=log).out == b"5\n6\n"
    assert dledger("tail", "--from", "19", "-n", "5", log=log).out == b"19\n"
    assert dledger("tail", "-f", "--from", "5", "-n", "2", log=log).code == 2


def test_tail_follows_from_the_end_of_an_empty_log(dledger: Run, fake: FakeLog) -> None:
    assert dledger("tail", "-f", log=fake).code == 0
    assert fake.reads[0]["follow"] is True


def test_tail_from_latest_prints_only_what_comes(dledger: Run) -> None:
    log = FakeLog([b"one", b"two"])
    assert (dledger("tail", "-f", "--from", "latest", log=log).out, log.starts) == (b"", [2])
    outcome = dledger("tail", "--from", "latest", log=log)
    assert (outcome.code, "add -f, or write --from -1" in outcome.err) == (2, True)


def test_tail_from_a_time_leaves_the_search_to_the_client(dledger: Run) -> None:
    """So that of a time that has yet to come it prints nothing older."""
    log = FakeLog([b"one", b"two"])
    assert dledger("tail", "-f", "--from", "@1500", log=log).code == 0
    assert (log.starts, log.reads[0]["since"]) == ([0], 1500)


def test_status_tells_of_everyone(dledger: Run, fake: FakeLog) -> None:
    found = dledger("status", "-o", "json", log=fake).last_json
    assert (found["leader"], found["term"], found["cluster_id"]) == ("n1", 3, "c1")
    assert [(member["id"], member["reachable"]) for member in found["nodes"]] == [
        ("n0", True), ("n1", True), ("n2", False),
    ]  # fmt: skip
    assert set(found["nodes"][0]) == {
        "id", "address", "peer_address", "http_address", "role", "term", "first_index", "commit_index", "last_index",
        "position", "chain", "pid", "data_dir", "durability", "version", "reachable",
        "voter", "counts", "lag_frames", "disk", "log_size_bytes", "damaged_frames", "repair_stuck", "vote_blockers",
        "groups", "groups_led", "node_log_size_bytes", "node_damaged_frames", "refused_by", "clock_ahead_ms",
        "record_ahead_ms",
    }  # fmt: skip
    lines = dledger("status", "--group", "default", log=fake).out.decode().splitlines()
    assert lines[0].startswith("group default  leader n1  term 3")
    assert [line.split()[:2] for line in lines[3:6]] == [["n0", "follower"], ["n1", "leader"], ["n2", "unreachable"]]


def test_health_is_a_leader_and_a_majority(dledger: Run, fake: FakeLog) -> None:
    assert dledger("health", log=fake).code == 0
    leaderless = ClusterStatus("default", 3, None, "", (node("n0", "candidate"),))
    outcome = dledger("health", "-o", "json", log=FakeLog(status=leaderless))
    assert (outcome.code, outcome.last_json["reason"][:36]) == (1, "no leader: an election takes about a")
    alone = ClusterStatus("default", 3, "n0", "", (node("n0", "leader"), node("n1", "unknown", reachable=False)))
    outcome = dledger("health", "-o", "json", log=FakeLog(status=alone))
    assert (outcome.code, outcome.last_json["reason"]) == (1, "no majority; n1 cannot be reached: start it")


def test_health_of_endpoints_that_are_none_is_a_wrong_question(dledger: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DLEDGER_ENDPOINTS", "bad")
    assert dledger("health").code == 2


def test_health_tells_founders_that_are_waited_for_from_one_that_holds_a_log(dledger: Run) -> None:
    emptied = [replace(node(f"n{i}", "follower"), founders_missing=("n0",)) for i in (1, 2)]
    holder, down = replace(node("n0", "candidate"), position=9), node("n0", "unknown", reachable=False)
    for third, reason in [(holder, "no other is founded beside that of n0: see"), (down, "start n0; ")]:
        outcome = dledger(
            "health", "-o", "json", log=FakeLog(status=ClusterStatus("default", 3, None, "", (third, *emptied)))
        )
        assert outcome.code == 1
        assert reason in outcome.last_json["reason"]


def test_health_tells_what_keeps_the_nodes_from_voting(dledger: Run) -> None:
    owing = [
        replace(node(f"n{i}", "follower"), vote_blockers=("it may have lost what it acknowledged",)) for i in (0, 2)
    ]
    for third, begin in [(node("n1", "follower"), "no leader; "), (node("n1", "unknown", reachable=False), "no ")]:
        status = ClusterStatus("default", 3, None, "", (owing[0], third, owing[1]))
        outcome = dledger("health", "-o", "json", log=FakeLog(status=status))
        assert outcome.code == 1
        assert outcome.last_json["reason"].startswith(begin)
        assert "n0, n2: it may have lost what it acknowledged; see 'There is no leader'" in outcome.last_json["reason"]


def test_health_of_a_node_that_was_never_added_says_so(dledger: Run) -> None:
    outcome = dledger("health", "-o", "json", log=FakeLog(status=ClusterStatus("default", 0, None, "", ())))
    assert (outcome.code, outcome.last_json["voters"]) == (1, 0)
    assert "belong to no cluster yet" in outcome.last_json["reason"]


def test_a_node_in_doubt_shows_in_status_and_health(dledger: Run) -> None:
    doubted = [replace(node(f"n{i}", "follower"), counts=False) for i in (1, 2)]
    trusted = replace(doubted[0], counts=True)
    log = FakeLog(status=ClusterStatus("default", 3, "n0", "", (node("n0", "leader"), trusted, doubted[1])))
    shown = dledger("status", "--group", "default", log=log).out.decode().splitlines()
    assert [line.split()[2] for line in shown[3:6]] == ["yes", "yes", "doubt"]
    assert dledger("health", log=log).out == b"healthy leader=n0 reachable=3 voters=3 doubted=n2\n"
    log = FakeLog(status=ClusterStatus("default", 3, "n0", "", (node("n0", "leader"), *doubted)))
    outcome = dledger("health", "-o", "json", log=log)
    assert (outcome.code, outcome.last_json["doubted"]) == (1, ["n1", "n2"])
    assert outcome.last_json["reason"].endswith("dledger admin readmit n2")


def test_damage_shows_in_status_and_health_and_a_node_that_repairs_its_log_takes_no_appends(dledger: Run) -> None:
    damaged = replace(node("n1", "recovering"), damaged_frames=7, repair_stuck=True)
    nodes = (node("n0", "leader"), damaged, node("n2", "follower"))
    log = FakeLog(status=ClusterStatus("default", 3, "n0", "", nodes))
    head, _, row, _ = (
        line.split() for line in dledger("status", "--group", "a", "-o", "wide", log=log).out.decode().splitlines()[2:6]
    )
    assert row[head.index("damaged")] == "7"
    assert dledger("health", log=log).out == b"healthy leader=n0 reachable=3 voters=3 damaged=n1\n"
    alone = (node("n0", "leader"), damaged, node("n2", "unknown", reachable=False))
    outcome = dledger("health", "-o", "json", log=FakeLog(status=ClusterStatus("default", 3, "n0", "", alone)))
    assert outcome.code == 1
    assert "n1 found no good copy of damaged frames yet" in outcome.last_json["reason"]


def test_appends_that_a_full_disk_refuses_are_not_healthy(dledger: Run) -> None:
    full = DiskInfo("full", 0)
    leader, others = node("n0", "leader"), [node(f"n{i}", "follower") for i in (1, 2)]
    one_full = (leader, replace(others[0], disk=full), others[1])
    assert dledger("health", log=FakeLog(status=ClusterStatus("default", 3, "n0", "", one_full))).code == 0
    for nodes, reason in [
        ((replace(leader, disk=full), *others), "the disk of the leader, n0, is full"),
        ((leader, *(replace(each, disk=full) for each in others)), "docs/admin.md; the disk of n2 is full"),
    ]:
        outcome = dledger("health", "-o", "json", log=FakeLog(status=ClusterStatus("default", 3, "n0", "", nodes)))
        assert outcome.code == 1
        assert reason in outcome.last_json["reason"]


def test_health_counts_voters_alone(dledger: Run) -> None:
    learners = [replace(node(f"n{i}", "learner"), voter=False) for i in (1, 2, 3)]
    nodes = (node("n0", "leader"), *learners, node("n4", "unknown", reachable=False))
    outcome = dledger("health", "-o", "json", log=FakeLog(status=ClusterStatus("default", 3, "n0", "", nodes)))
    told = outcome.last_json
    assert (outcome.code, told["reachable"], told["voters"]) == (1, 1, 2)
    assert told["reason"] == "no majority; n4 cannot be reached: start it"


def test_status_shows_learners_lag_disks_and_what_was_set(dledger: Run) -> None:
    learner = replace(node("n5", "learner"), voter=False, lag_frames=12, disk=DiskInfo("low", 900 << 20))
    gone = replace(node("n6", "unknown", reachable=False), voter=False, lag_frames=99)
    settings = GroupSettings((PreferredLeader(NodeId("n1"), 10),), 72 * 3_600_000, 10 << 30)
    found = ClusterStatus("default", 3, "n1", "c1", (node("n1", "leader"), learner, gone), settings)
    text = dledger("status", "--group", "default", "-o", "wide", log=FakeLog(status=found)).out.decode().splitlines()
    head, rows = text[2].split(), [dict(zip(text[2].split(), line.split(), strict=True)) for line in text[3:6]]
    assert {"votes", "lag", "log", "disk", "free"} < set(head)
    assert [(row["id"], row["role"], row["votes"], row["lag"], row["disk"], row["free"]) for row in rows] == [
        ("n1", "leader", "yes", "-", "unknown", "-"),
        ("n5", "learner", "no", "12", "low", "900MiB"),
        ("n6", "unreachable", "no", "99", "-", "-"),
    ]
    assert text[7] == "preferred n1=10  retention max_age=72h max_bytes=10GiB"


def test_nobody_there_is_unhealthy_but_an_error_of_status(dledger: Run) -> None:
    assert dledger("health", log=Unreachable()).code == 1
    outcome = dledger("status", log=Unreachable())
    first, second = outcome.err.splitlines()
    assert (outcome.code, first) == (3, "dledger: no node answers: is the cluster up?")
    for way in ("dledger dev", "--endpoints", "DLEDGER_ENDPOINTS"):
        assert way in second
        assert way in dledger("health", "-o", "json", log=Unreachable()).last_json["reason"]


@pytest.fixture
def clock_of_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look at the clock finds it 0.1 ms later: what is measured does not depend on the machine's load."""
    looks = count()
    monkeypatch.setattr("time.perf_counter", lambda: next(looks) / 10_000)


@pytest.mark.usefixtures("clock_of_looks")
@pytest.mark.parametrize("shape", [[], ["--batch", "10"]])
def test_bench_append_says_what_it_measured(dledger: Run, fake: FakeLog, shape: list[str]) -> None:
    outcome = dledger("bench", "append", "--duration", "0.1", "--inflight", "2", *shape, "-o", "json", log=fake)
    found = outcome.last_json
    assert outcome.code == 0
    assert list(found) == [
        "records_per_s", "mb_per_s", "p50_ms", "p99_ms", "p999_ms", "records", "errors", "unknown", "duration_s",
        "inflight", "size_bytes", "batch", "durability", "latency_of",
    ]  # fmt: skip
    batch = 10 if shape else 1
    assert found["batch"] == batch
    assert found["records"] + batch == len(fake.records)  # one call before the clock starts
    assert found["p50_ms"] <= found["p99_ms"] <= found["p999_ms"]


@pytest.mark.usefixtures("clock_of_looks")
@pytest.mark.parametrize("what", ["get", "read"])
def test_bench_counts_the_bytes_it_was_given(dledger: Run, what: str) -> None:
    found = dledger("bench", what, "--duration", "0.1", "-o", "json", log=FakeLog([b"x" * 100] * 50)).last_json
    assert found["size_bytes"] == 100


@pytest.mark.parametrize("flag", ["--inflight", "--batch", "--size"])
def test_bench_refuses_what_would_take_all_memory(dledger: Run, fake: FakeLog, flag: str) -> None:
    outcome = dledger("bench", "append", flag, f"{1 << 40}", log=fake)
    assert outcome.code == 2
    assert f"{1 << 40} is not in the range" in outcome.err


def test_bench_tells_the_servers_limits_from_the_clients_own(
    dledger: Run, fake: FakeLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    too_large = error(Code.BATCH_TOO_LARGE, "the limit is 4")
    fake.refusals[0] = too_large
    assert "(max_batch_bytes of the servers: raise it" in dledger("bench", "append", log=fake).err

    def enqueue_many(_: list[bytes]) -> None:
        raise too_large

    monkeypatch.setattr(fake, "enqueue_many", enqueue_many)
    assert dledger("bench", "append", log=fake).err == "dledger: the limit is 4\n"


@pytest.mark.parametrize("what", ["get", "read"])
def test_bench_of_an_empty_log_says_how_to_fill_it(dledger: Run, fake: FakeLog, what: str) -> None:
    outcome = dledger("bench", what, log=fake)
    assert outcome.code == 5
    assert "dledger bench append" in outcome.err


def test_a_flag_can_come_from_the_environment(dledger: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DLEDGER_OUTPUT", "raw")
    assert dledger("get", ":", log=FakeLog([b"a", b"b"])).out == b"ab"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_the_script_of_a_shell(dledger: Run, shell: str) -> None:
    outcome = dledger("completion", shell)
    assert outcome.code == 0
    assert f"_DLEDGER_COMPLETE={shell}_complete" in outcome.out.decode()
    assert dledger("completion", "tcsh").code == 2
