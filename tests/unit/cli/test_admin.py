"""``dledger admin`` as the shell sees it."""

from __future__ import annotations

import click
import pytest

from dledger.cli import retention_commands
from dledger.client import ClusterStatus, SegmentInfo, TrimResult
from dledger.common.errors import Code, error
from dledger.common.types import GroupSettings, NodeId, PreferredLeader
from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_log import FakeLog, healthy, node

BEHIND = error(Code.CHANGE_REFUSED, "n5 is 5000 frames behind", waits_for="catch_up")
AWAY = error(Code.CHANGE_REFUSED, "n2 is not connected", waits_for="connection")


def test_transfer_names_the_new_leader(dledger: Run, fake: FakeLog) -> None:
    assert dledger("admin", "transfer", "--to", "n2", log=fake).out == b"transferred leader=n2 term=4\n"
    assert dledger("admin", "transfer", log=fake).code == 0
    assert dledger("admin", "transfer", "--dry-run", log=fake).out == b"dry-run leader=n1 term=4\n"
    assert dledger("admin", "transfer", "--to", "", log=fake).code == 2, "a variable that was not set names nobody"
    assert fake.admin.calls == [("transfer", "n2", False), ("transfer", None, False), ("transfer", None, True)]


# Who should lead -----------------------------------------------------------------------------------------------------


def test_preferred_leaders_are_set_and_cleared(dledger: Run, fake: FakeLog) -> None:
    assert dledger("admin", "preferred", "n1=10,n2=5", log=fake).out == b"preferred n1=10 n2=5\n"
    assert dledger("admin", "preferred", "--clear", log=fake).out == b"preferred nobody=-\n"
    assert dledger("admin", "preferred", "n1=10", "--dry-run", log=fake).out == b"dry-run n1=10\n"
    assert fake.admin.calls == [
        ("preferred", {"n1": 10, "n2": 5}, False),
        ("preferred", {}, False),
        ("preferred", {"n1": 10}, True),
    ]


def test_preferred_leaders_are_shown(dledger: Run) -> None:
    settings = GroupSettings((PreferredLeader(NodeId("n1"), 10),))
    log = FakeLog(status=ClusterStatus("default", 3, "n1", "", healthy().nodes, settings))
    assert dledger("admin", "preferred", "-o", "json", log=log).last_json == {
        "preferred": {"n1": 10}, "spread": False, "dry_run": False,
    }  # fmt: skip
    assert log.admin.calls == []


def test_the_clusters_own_choice_of_a_leader_is_not_called_nobodys(dledger: Run, fake: FakeLog) -> None:
    shown = dledger("admin", "preferred", "--group", "orders", log=fake)
    assert shown.out == b"preferred spread=-\n"
    assert "a leader of its own choice" in shown.err
    assert dledger("admin", "preferred", log=fake).out == b"preferred nobody=-\n"


@pytest.mark.parametrize("arguments", [["n1"], ["n1=0"], ["n1=-1"], ["n1=x"], ["n1=1,n1=2"], ["n1=1", "--clear"], [""],
                                       [f"n1={1 << 32}"], ["n1=" + "9" * 5_000]])  # fmt: skip
def test_a_preference_that_cannot_be_meant_is_refused(dledger: Run, fake: FakeLog, arguments: list[str]) -> None:
    assert dledger("admin", "preferred", *arguments, log=fake).code == 2
    assert fake.admin.calls == []


# Members -------------------------------------------------------------------------------------------------------------


def test_add_tells_how_to_start_and_how_to_promote(dledger: Run, fake: FakeLog) -> None:
    outcome = dledger("admin", "add", "n5=127.0.0.1:20961", "--endpoints", "h:1,h:2", log=fake)
    assert outcome.out == b"added id=n5 group=meta voters=n0,n1,n2 learners=n5\n"
    assert "dledger serve --id n5 --address 127.0.0.1:20961 --join h:1,h:2 --data DIR" in outcome.err
    assert "dledger admin add n5 --group default" in outcome.err
    assert fake.admin.calls == [("add", "n5", "127.0.0.1:20961", False)]


def test_a_node_of_the_cluster_is_added_to_a_group_by_its_id(dledger: Run, fake: FakeLog) -> None:
    assert dledger("admin", "add", "n5", "--group", "mine", log=fake).code == 0
    assert fake.admin.calls == [("add", "n5", "", False)]


def test_add_to_another_group_tells_how_to_promote_there(dledger: Run, fake: FakeLog) -> None:
    outcome = dledger("admin", "add", "n5=h:1", "--endpoints", "h:1", "--group", "mine", log=fake)
    assert fake.admin.calls == [("add", "n5", "h:1", False)]
    assert "dledger admin promote n5 --group mine\n" in outcome.err


@pytest.mark.parametrize("node_", ["n5", "n5=", "n5=host", "n5=h:1,n6=h:2", ""])
def test_add_takes_one_node_with_its_address(dledger: Run, fake: FakeLog, node_: str) -> None:
    assert dledger("admin", "add", node_, log=fake).code == 2


@pytest.mark.parametrize("command", [["add", "n5=h:1"], ["promote", "n5"], ["remove", "n2"], ["readmit", "n2"]])
def test_a_dry_run_asks_for_a_dry_run_and_nothing_else(dledger: Run, fake: FakeLog, command: list[str]) -> None:
    outcome = dledger("admin", *command, "--dry-run", log=fake)
    assert outcome.out.startswith(b"dry-run id=")
    assert len(fake.admin.calls) == 1
    assert fake.admin.calls[0][-1] is True


def test_a_change_in_json_lists_the_members(dledger: Run, fake: FakeLog) -> None:
    told = dledger("admin", "remove", "n2", "-o", "json", log=fake).last_json
    assert (told["id"], told["changed"], told["dry_run"], told["position"]) == ("n2", True, False, 7)
    assert told["members"] == [{"id": each, "peer_address": f"{each}:2", "voter": True} for each in ("n0", "n1")]


def test_what_an_earlier_attempt_of_the_same_command_did_is_not_called_unchanged(dledger: Run, fake: FakeLog) -> None:
    fake.admin.may_be_earlier = True
    assert dledger("admin", "remove", "n2", log=fake).out == b"removed id=n2 group=meta voters=n0,n1 learners=-\n"
    assert dledger("admin", "remove", "n2", "-o", "json", log=fake).last_json["changed"] is True


def test_remove_waits_for_a_voter_that_lags(dledger: Run, fake: FakeLog) -> None:
    fake.admin.refusals = [BEHIND]
    outcome = dledger("admin", "remove", "n2", log=fake)
    assert (outcome.code, outcome.err) == (0, "waiting: n5 is 5000 frames behind\n")


def test_promote_waits_until_the_node_has_caught_up_and_says_what_for(dledger: Run, fake: FakeLog) -> None:
    fake.admin.refusals = [BEHIND, BEHIND]
    outcome = dledger("admin", "promote", "n5", log=fake)
    assert outcome.out == b"promoted id=n5 group=meta voters=n0,n1,n2,n5 learners=-\n"
    assert outcome.err == "waiting: n5 is 5000 frames behind\n"


def test_promote_gives_up_after_its_timeout_with_what_is_missing(dledger: Run, fake: FakeLog) -> None:
    fake.admin.refusals = [BEHIND] * 100
    outcome = dledger("admin", "promote", "n5", "--timeout", "0.3", log=fake)
    assert (outcome.code, outcome.out) == (3, b"")
    assert "waited 0.3 s in vain: n5 is 5000 frames behind" in outcome.err


def test_a_dry_run_of_promote_does_not_wait(dledger: Run, fake: FakeLog) -> None:
    fake.admin.refusals = [BEHIND]
    assert dledger("admin", "promote", "n5", "--dry-run", log=fake).code == 5


def test_a_voter_is_readmitted_and_promoted(dledger: Run, fake: FakeLog) -> None:
    outcome = dledger("admin", "readmit", "n2", log=fake)
    assert outcome.out == b"readmitted id=n2 group=meta voters=n0,n1,n2 learners=-\n"
    assert [call[0] for call in fake.admin.calls] == ["readmit", "promote"]
    assert "n2 is a learner of meta with the disk it has now\nn2 has caught up and votes again in meta\n" in outcome.err


def test_a_node_is_readmitted_in_every_group_that_it_is_a_member_of(dledger: Run, fake: FakeLog) -> None:
    fake.cluster.groups.make("orders", ["n1", "n2"])
    fake.cluster.groups.make("bills", ["n0", "n1"])
    outcome = dledger("admin", "readmit", "n2", log=fake)
    groups = [line.split()[2] for line in outcome.out.decode().splitlines()]
    assert groups == ["group=meta", "group=orders"]
    assert [call[0] for call in fake.admin.calls] == ["readmit", "promote"] * 2
    fake.admin.calls.clear()
    assert dledger("admin", "readmit", "n2", "--group", "orders", log=fake).out.startswith(b"readmitted id=n2 group=or")
    assert len(fake.admin.calls) == 2


def test_readmit_waits_until_the_node_is_there(dledger: Run, fake: FakeLog) -> None:
    fake.admin.refusals = [AWAY]
    outcome = dledger("admin", "readmit", "n2", log=fake)
    assert outcome.code == 0
    assert outcome.err.startswith("waiting: n2 is not connected\n")


def test_what_does_not_pass_is_not_waited_for(dledger: Run, fake: FakeLog) -> None:
    fake.admin.refusals = [error(Code.CHANGE_REFUSED, "n5 is in doubt: readmit it first")]
    assert dledger("admin", "promote", "n5", log=fake).code == 5
    assert len(fake.admin.calls) == 1


@pytest.mark.parametrize("flags", [["n2", "--as-learner"], ["n9"]])
def test_a_learner_stays_one_and_so_does_a_voter_if_it_is_told(dledger: Run, fake: FakeLog, flags: list[str]) -> None:
    outcome = dledger("admin", "readmit", *flags, log=fake)
    assert outcome.code == 0
    assert [call[0] for call in fake.admin.calls] == ["readmit"]
    assert f"dledger admin promote {flags[0]}" in outcome.err


def test_a_refusal_is_one_line_and_its_exit_code(dledger: Run, fake: FakeLog) -> None:
    fake.admin.refusals = [error(Code.CHANGE_REFUSED, "n0 is the last voter: promote another first")]
    outcome = dledger("admin", "remove", "n0", log=fake)
    assert (outcome.code, outcome.out) == (5, b"")
    assert outcome.err == "dledger: n0 is the last voter: promote another first\n"


def test_an_unknown_outcome_has_its_own_exit_code(dledger: Run, fake: FakeLog) -> None:
    fake.admin.refusals = [error(Code.WAIT_QUORUM_ACK_TIMEOUT, "no answer")]
    assert dledger("admin", "remove", "n0", log=fake).code == 4


# Space ---------------------------------------------------------------------------------------------------------------


def test_trim_says_what_went_or_would_go(dledger: Run, fake: FakeLog) -> None:
    told = dledger("admin", "trim", "--before", "100", log=fake)
    assert told.out == b"trimmed first_index=99 trimmed_records=10 trimmed=2KiB\n"
    told = dledger("admin", "trim", "--before", "100", "--dry-run", "-o", "json", log=fake)
    assert told.last_json == {"first_index": 99, "trimmed_records": 10, "trimmed_bytes": 2048, "dry_run": True}
    assert fake.admin.calls == [("trim", 100, False), ("trim", 100, True)]


@pytest.mark.parametrize(
    ("cut", "before", "why"),
    [
        ([(40, 100)], 40, "the log begins at record 40 already"),
        ([(40, 100)], 90, "records 40 to 99 are in the segment that is written to, which stays"),
        ([(40, 100), (100, 120)], 90, "records 40 to 99 are in one segment, and only whole segments go"),
        ([(40, 100), (100, 120)], 110, "no whole segment before record 110 may go yet: try again after a moment"),
    ],
)
def test_a_trim_that_takes_nothing_says_why(
    dledger: Run, fake: FakeLog, cut: list[tuple[int, int]], before: int, why: str
) -> None:
    fake.admin.trims_to = TrimResult(40, 0, 0)
    fake.cut = [SegmentInfo(start, end, 1_000, 0) for start, end in cut]
    told = dledger("admin", "trim", "--before", str(before), log=fake)
    assert (told.code, told.out) == (0, b"trimmed first_index=40 trimmed_records=0 trimmed=0B\n")
    assert told.err == f"nothing: {why}\n"


@pytest.mark.parametrize("command", [("trim", "--before", "100"), ("retention", "--max-bytes", "1KiB")])
class TestQuestions:
    """What deletes records asks on a terminal, and only there."""

    answer = "n"

    @pytest.fixture(autouse=True)
    def _terminal(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(retention_commands, "is_at_terminal", lambda: True)
        monkeypatch.setattr(click.termui, "visible_prompt_func", lambda _: self.answer)

    def test_it_says_how_many_records_go_and_a_no_changes_nothing(
        self, dledger: Run, fake: FakeLog, command: tuple[str, ...]
    ) -> None:
        told = dledger("admin", *command, log=fake)
        assert told.code == 130
        assert "10 records (about 2KiB on each node) of the group default will be gone" in told.err
        assert [call[-1] for call in fake.admin.calls] == [True]

    def test_a_yes_does_it(self, dledger: Run, fake: FakeLog, command: tuple[str, ...]) -> None:
        self.answer = "y"
        assert dledger("admin", *command, log=fake).code == 0
        assert [call[-1] for call in fake.admin.calls] == [True, False]

    def test_yes_on_the_command_line_asks_nothing(self, dledger: Run, fake: FakeLog, command: tuple[str, ...]) -> None:
        assert dledger("admin", *command, "--yes", log=fake).code == 0
        assert [call[-1] for call in fake.admin.calls] == [False]


@pytest.mark.parametrize("arguments", [["trim"], ["trim", "--before", "-1"], ["trim", "--before", "x"]])
def test_trim_needs_an_index(dledger: Run, fake: FakeLog, arguments: list[str]) -> None:
    assert dledger("admin", *arguments, log=fake).code == 2


def test_retention_is_set_in_human_units_and_what_is_not_named_stays(dledger: Run, fake: FakeLog) -> None:
    told = dledger("admin", "retention", "--max-age", "72h", "--max-bytes", "10GiB", log=fake)
    assert told.out == b"retention max_age=72h max_bytes=10GiB next_trim_records=10 next_trim=2KiB\n"
    told = dledger("admin", "retention", "--max-age", "0", "--dry-run", "-o", "json", log=fake)
    assert told.last_json == {
        "max_age_ms": 0, "max_bytes": 0, "trimmed_records": 10, "trimmed_bytes": 2048, "dry_run": True,
    }  # fmt: skip
    assert fake.admin.calls == [("retention", 259_200_000, 10 << 30, False), ("retention", 0, None, True)]


def test_retention_is_shown(dledger: Run) -> None:
    settings = GroupSettings((), 0, 5 << 30)
    log = FakeLog(status=ClusterStatus("default", 3, "n1", "", (node("n1", "leader"),), settings))
    assert dledger("admin", "retention", log=log).out == b"retention max_age=- max_bytes=5GiB\n"
    assert dledger("admin", "retention", "-o", "json", log=log).last_json == {"max_age_ms": 0, "max_bytes": 5 << 30}
    assert log.admin.calls == []


@pytest.mark.parametrize("flags", [["--max-age", "72"], ["--max-bytes", "10G"], ["--max-age", "1h30m"]])
def test_a_quantity_without_its_unit_is_refused(dledger: Run, fake: FakeLog, flags: list[str]) -> None:
    outcome = dledger("admin", "retention", *flags, log=fake)
    assert outcome.code == 2
    assert fake.admin.calls == []


def test_a_dry_run_of_a_move_names_the_successors_and_changes_nothing(dledger: Run, fake: FakeLog) -> None:
    fake.cluster.groups.make("bills", ["n0", "n1", "n3"])
    in_a_group = error(Code.CHANGE_REFUSED, "n0 is a member of bills too", groups="bills")
    fake.admin.refusals_of["remove"] = in_a_group
    outcome = dledger("admin", "remove", "n0", "--move", "--dry-run", log=fake)
    assert outcome.out == b"dry-run id=n0 group=meta voters=n1,n2 learners=-\n"
    assert outcome.err == "bills: n0 would leave, and n2 take its place\n"
    assert fake.admin.calls == [("add", "n2", "", True), ("remove", "n0", True)]
    assert dledger("admin", "remove", "n0", "--dry-run", log=fake).code == 5, "without --move it is refused"
