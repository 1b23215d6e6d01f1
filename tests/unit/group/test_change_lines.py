"""Every node tells in its log what the group's log changes: the members, and the settings."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from dledger.common.types import GroupSettings, Member, NodeId, PreferredLeader
from dledger.group.change_lines import ChangeLines

FOUNDERS = (Member(NodeId("n0"), "n0:1"), Member(NodeId("n1"), "n1:1"))


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> Any:
    """``told(members=…)``: what is said when the log has these members, or settings, from now on."""
    caplog.set_level("INFO")
    log: Any = SimpleNamespace(state=SimpleNamespace(members=FOUNDERS, settings=GroupSettings()))
    lines = ChangeLines("g", log)

    def change(**changed: Any) -> list[dict[str, Any]]:
        caplog.clear()
        vars(log.state).update(changed)
        lines.tell()
        return [vars(record) | {"event": record.getMessage()} for record in caplog.records]

    return change


def test_members_are_told_by_what_they_may_do(told: Any) -> None:
    [line] = told(members=(*FOUNDERS, Member(NodeId("n2"), "n2:1", voter=False)))
    assert (line["event"], line["voters"], line["learners"]) == ("the members changed", ["n0", "n1"], ["n2"])


def test_of_the_settings_only_what_changed_is_told(told: Any) -> None:
    [line] = told(settings=GroupSettings(retention_max_bytes=7))
    assert (line["event"], line["retention_max_bytes"]) == ("the settings changed", 7)
    assert "preferred" not in line
    [line] = told(settings=GroupSettings((PreferredLeader(NodeId("n1"), 10),), retention_max_bytes=7))
    assert line["preferred"] == {"n1": 10}


def test_a_change_that_is_cut_off_is_told_as_a_change_back(told: Any) -> None:
    told(members=FOUNDERS[:1])
    [line] = told(members=FOUNDERS)
    assert line["voters"] == ["n0", "n1"]


def test_nothing_is_told_where_nothing_changed(told: Any) -> None:
    assert told() == []
    assert told(members=(*FOUNDERS,), settings=GroupSettings()) == []
