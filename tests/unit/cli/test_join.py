"""What a node that joins makes of what the cluster tells."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dledger.cli import join
from dledger.cli.join import joining
from dledger.client import MemberInfo, Metadata
from dledger.common.config_file import node_config
from dledger.common.errors import Code, ConfigError, DLedgerError, Unavailable, error

MEMBERS = tuple(MemberInfo(f"n{i}", f"h{i}:2", f"h{i}:1", f"h{i}:3", voter=True) for i in range(3))
TOLD = Metadata("default", "c1", 3, "n1", MEMBERS)
Tell = Callable[[Metadata | DLedgerError], None]


@pytest.fixture
def tell(monkeypatch: pytest.MonkeyPatch) -> Tell:
    """What the endpoints answer."""

    def answer(told: Metadata | DLedgerError) -> None:
        async def ask(endpoints: str) -> Metadata:
            assert endpoints == "h0:2,h1:2"
            if isinstance(told, DLedgerError):
                raise told
            return told

        monkeypatch.setattr(join, "_ask", ask)

    answer(TOLD)
    return answer


def settings(tmp_path: Path, **others: Any) -> dict[str, Any]:
    wanted = {"id": "n5", "address": "h5:1", "join": "h0:2,h1:2", "data": str(tmp_path / "n5")} | others
    return {key: value for key, value in wanted.items() if value}


@pytest.mark.usefixtures("tell")
def test_the_members_become_its_peers_and_the_cluster_its_own(tmp_path: Path) -> None:
    config = node_config(joining(settings(tmp_path)))
    assert config.peers == {"n0": "h0:1", "n1": "h1:1", "n2": "h2:1"}
    assert (config.peer_address, config.cluster_id, config.client_address) == ("h5:1", "c1", "h5:2")


@pytest.mark.usefixtures("tell")
def test_a_member_is_not_among_its_own_peers(tmp_path: Path) -> None:
    """Its directory may have been emptied: it must not take itself for a voter."""
    config = node_config(joining(settings(tmp_path, id="n2", address="h2:1")))
    assert config.peers == {"n0": "h0:1", "n1": "h1:1"}
    assert config.peer_address == "h2:1"


@pytest.mark.usefixtures("tell")
@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"id": "n2"}, "n2 is a member at h2:1 already, not at h5:1"),
        ({"address": "h2:1"}, "h2:1 is the address of the member n2"),
        ({"cluster_id": "other"}, "are of cluster c1, not other"),
        ({"peers": {"n0": "h0:1"}}, "give one"),
        ({"address": ""}, "give --address"),
        ({"id": ""}, "give --id"),
        ({"address": "nowhere"}, "is not an address"),
    ],
)
def test_what_does_not_fit_is_said(tmp_path: Path, given: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        joining(settings(tmp_path, **given))


def test_nobody_there_at_the_first_start_ends_it(tmp_path: Path, tell: Tell) -> None:
    tell(error(Code.NETWORK_ERROR, "no node answers"))
    with pytest.raises(Unavailable, match="n5 cannot join a cluster that it does not find"):
        joining(settings(tmp_path))


def test_nodes_that_know_no_members_are_no_cluster(tmp_path: Path, tell: Tell) -> None:
    tell(TOLD._replace(members=()))
    with pytest.raises(Unavailable, match="know no members"):
        joining(settings(tmp_path))


def test_a_log_with_frames_knows_the_members_itself(
    tmp_path: Path, tell: Tell, monkeypatch: pytest.MonkeyPatch
) -> None:
    tell(error(Code.NETWORK_ERROR, "no node answers"))
    monkeypatch.setattr(join, "_has_frames", lambda _: True)
    config = node_config(joining(settings(tmp_path)))
    assert (dict(config.peers), config.peer_address) == ({}, "h5:1")
