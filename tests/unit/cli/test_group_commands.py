"""``dledger group`` as the shell sees it, and --group of every other command."""

from __future__ import annotations

import click
import pytest

from dledger.cli import group_commands
from dledger.cli.main import SECTIONS, cli
from dledger.cli.options import Target
from dledger.common.errors import Code, error
from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_log import FakeLog, Unreachable

WITHOUT_GROUP = {"kv", "serve", "dev", "demo", "group"}
"""Commands that are about no group."""


def test_a_group_is_made(dledger: Run, fake: FakeLog) -> None:
    assert dledger("group", "create", "orders", log=fake).out == b"created name=orders id=1 founders=n0,n1,n2\n"
    outcome = dledger("group", "create", "b", "--members", "n1, n2", "--dry-run", "-o", "json", log=fake)
    founders = [{"id": "n1", "peer_address": "n1:2"}, {"id": "n2", "peer_address": "n2:2"}]
    members = [{**each, "voter": True} for each in founders]
    told = {"name": "b", "id": 2, "founders": founders, "members": members, "is_being_deleted": False, "dry_run": True}
    assert outcome.last_json == told
    assert dledger("group", "create", "b", "--dry-run", log=fake).out.startswith(b"dry-run name=b ")
    groups = fake.cluster.groups
    assert list(groups.groups) == ["orders"]
    assert groups.calls == [
        ("create", "orders", None, False),
        ("create", "b", ["n1", "n2"], True),
        ("create", "b", None, True),
    ]
    outcome = dledger("group", "create", "orders", log=fake)
    assert (outcome.code, outcome.out) == (5, b"")
    assert outcome.err == "dledger: there is a group 'orders' already\n"


@pytest.mark.parametrize("members", ["", "n0,", "n0,n0", ","])
def test_members_that_are_none_are_wrong_usage(dledger: Run, fake: FakeLog, members: str) -> None:
    assert dledger("group", "create", "orders", "--members", members, log=fake).code == 2
    assert fake.cluster.groups.calls == []


@pytest.mark.parametrize(
    "arguments",
    [
        ["group", "create", "a b"],
        ["group", "delete", ""],
        ["get", "0", "--group", "ä"],
        ["group", "create", "--", "-x"],
    ],
)
def test_a_bad_name_is_wrong_usage(dledger: Run, fake: FakeLog, arguments: list[str]) -> None:
    outcome = dledger(*arguments, log=fake)
    assert outcome.code == 2
    assert "is not a group name: use 1 to 64 letters, digits, '-' and '_', not '-' first." in outcome.err
    assert outcome.err.count("\n") == 1


def test_groups_are_listed(dledger: Run, fake: FakeLog) -> None:
    assert dledger("group", "list", log=fake).out.decode().split() == ["name", "id", "voters", "learners", "state"]
    fake.cluster.groups.make("orders")
    fake.cluster.groups.make("audit", ["n2"])
    lines = dledger("group", "list", log=fake).out.decode().splitlines()
    assert [line.split() for line in lines[1:]] == [["audit", "2", "n2", "-", "-"], ["orders", "1", "n0,n1", "-", "-"]]
    told = dledger("group", "list", "-o", "json", log=fake).last_json
    assert [each["name"] for each in told["groups"]] == ["audit", "orders"]


def test_a_group_is_described(dledger: Run, fake: FakeLog) -> None:
    fake.cluster.groups.make("orders")
    lines = dledger("group", "describe", "orders", log=fake).out.decode().splitlines()
    assert lines[0] == "orders id=1 founders=n0,n1 leader=n1 term=3 records=2"
    assert [line.split()[:2] for line in lines[3:]] == [["n0", "follower"], ["n1", "leader"], ["n2", "unreachable"]]
    told = dledger("group", "describe", "orders", "-o", "json", log=fake).last_json
    assert (told["name"], told["status"]["leader"], told["problem"]) == ("orders", "n1", None)
    assert dledger("group", "describe", "other", log=fake).code == 5


def test_a_group_of_which_nobody_answers_is_described_as_the_directory_has_it(dledger: Run) -> None:
    away = Unreachable()
    away.cluster.groups.make("orders")
    outcome = dledger("group", "describe", "orders", log=away)
    assert outcome.code == 0
    assert outcome.out.decode().startswith("orders id=1 founders=n0,n1 leader=- term=- records=- problem=")
    told = dledger("group", "describe", "orders", "-o", "json", log=away).last_json
    assert told["status"] is None
    assert "no node answers" in told["problem"]


def test_nothing_is_deleted_without_a_terminal_unless_one_says_so(dledger: Run, fake: FakeLog) -> None:
    groups = fake.cluster.groups
    groups.make("orders")
    outcome = dledger("group", "delete", "orders", log=fake)
    assert (outcome.code, outcome.out) == (2, b"")
    assert "The group orders and its 2 records will be gone from n0,n1,n2, for good. Nothing was deleted" in outcome.err
    assert "give --yes" in outcome.err
    assert dledger("group", "delete", "orders", "--dry-run", log=fake).out == (
        b"dry-run name=orders id=1 founders=n0,n1 records=2\n"
    )
    assert list(groups.groups) == ["orders"]
    told = dledger("group", "delete", "orders", "--yes", "-o", "json", log=fake).last_json
    assert (told["name"], told["records"], told["dry_run"]) == ("orders", 2, False)
    assert not groups.groups
    assert dledger("group", "delete", "orders", "--yes", log=fake).code == 5


@pytest.mark.parametrize(("answer", "code", "left"), [("y", 0, []), ("n", 130, ["orders"]), ("", 130, ["orders"])])
def test_a_terminal_is_asked(
    dledger: Run, monkeypatch: pytest.MonkeyPatch, answer: str, code: int, left: list[str]
) -> None:
    away = Unreachable()
    away.cluster.groups.make("orders")
    monkeypatch.setattr(group_commands, "is_at_terminal", lambda: True)
    monkeypatch.setattr(click.termui, "visible_prompt_func", lambda _: answer)
    outcome = dledger("group", "delete", "orders", log=away)
    assert outcome.code == code
    assert "all its records (how many is not known: no node answers" in outcome.err
    assert list(away.cluster.groups.groups) == left


def test_another_group_that_took_the_name_meanwhile_is_not_deleted(dledger: Run, fake: FakeLog) -> None:
    groups = fake.cluster.groups
    first = groups.make("orders")
    groups.behind_a_look = lambda: groups.make("orders")
    outcome = dledger("group", "delete", "orders", "--yes", log=fake)
    assert (outcome.code, outcome.out) == (5, b"")
    assert f"by now, not {first.id}" in outcome.err
    assert groups.groups["orders"].id > first.id


def test_a_group_without_a_quorum_is_deleted_by_force(dledger: Run, fake: FakeLog) -> None:
    groups = fake.cluster.groups
    groups.make("orders")
    assert dledger("group", "delete", "orders", "--yes", "--force", log=fake).code == 0
    assert groups.calls[-1] == ("delete", "orders", True, False)
    assert not groups.groups


def commands(group: click.Command, names: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], click.Command]]:
    """Every command, by the words that name it."""
    if not isinstance(group, click.Group):
        return [(names, group)]
    context = click.Context(group)
    found = []
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        found += commands(command, (*names, name))
    return found


def test_every_command_for_a_log_takes_a_group() -> None:
    assert {name for section in SECTIONS.values() for name in section} > WITHOUT_GROUP
    for names, command in commands(cli):
        options = {option for param in command.params for option in param.opts}
        is_without = names[0] in WITHOUT_GROUP or names == ("bench", "kv")
        is_for_a_log = names[0] == "log" or (not is_without and "--endpoints" in options)
        assert ("--group" in options) == is_for_a_log, names


@pytest.mark.parametrize(
    "arguments",
    [["append", "-d", "x"], ["get", "0"], ["tail"], ["status"], ["health"], ["bench", "append"], ["bench", "read"],
     ["admin", "add", "n5=h:1"], ["admin", "transfer"], ["admin", "preferred"], ["admin", "promote", "n1"],
     ["admin", "remove", "n1"], ["admin", "readmit", "n1"], ["admin", "retention"],
     ["admin", "retention", "--max-age", "1h"], ["admin", "trim", "--before", "0"]],
)  # fmt: skip
def test_the_group_named_is_the_one_that_is_asked(
    dledger: Run, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    groups: list[str] = []

    def connect(target: Target, *_: object, **__: object) -> FakeLog:
        groups.append(target.group)
        raise error(Code.NETWORK_ERROR, "nobody is asked here")

    monkeypatch.setattr(Target, "connect", connect)
    dledger(*arguments, "--group", "orders")
    assert {*groups} == {"orders"}
