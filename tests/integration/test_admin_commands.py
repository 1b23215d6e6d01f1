"""``dledger admin``, ``serve --join`` and ``status`` against real nodes, as an operator uses them."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import pytest_asyncio

from tests.integration.bad_input import refused
from tests.integration.nodes import DEADLINE_S, Nodes, Stubs, eventually, running

pytestmark = pytest.mark.asyncio(loop_scope="module")

FRAMES_A_SEGMENT = 20
DEFAULT = ("--group", "default")
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("DLEDGER_")}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def nodes(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Nodes]:
    """Three nodes with small segments. Every test leaves three voters behind."""
    directory = tmp_path_factory.mktemp("admin")
    (directory / "limits.toml").write_text(f"[limits]\nsegment_max_frames = {FRAMES_A_SEGMENT}\n")
    async with running(directory / "data", serve_flags=("--config", str(directory / "limits.toml"))) as started:
        yield started


class Done(NamedTuple):
    out: str
    err: str

    @property
    def last_json(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.out.splitlines()[-1])
        return found


async def dledger(nodes: Nodes, *arguments: str, code: int = 0) -> Done:
    """Runs the command against the nodes."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "dledger", *arguments,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        env={**ENVIRONMENT, "DLEDGER_ENDPOINTS": nodes.cluster.endpoints},
    )  # fmt: skip
    async with asyncio.timeout(DEADLINE_S + 10):
        out, err = await process.communicate()
    assert process.returncode == code, err.decode()
    return Done(out.decode(), err.decode())


async def admin(nodes: Nodes, *arguments: str, code: int = 0) -> dict[str, Any]:
    """``dledger admin … -o json``."""
    done = await dledger(nodes, "admin", *arguments, "-o", "json", code=code)
    return done.last_json if not code else {}


async def status(nodes: Nodes, *flags: str) -> dict[str, Any]:
    """Of the group `default`, unless ``flags`` name another."""
    return (await dledger(nodes, "status", *(flags or ("--group", "default")), "-o", "json")).last_json


def voters(told: dict[str, Any]) -> set[str]:
    return {member["id"] for member in told["members"] if member["voter"]}


async def fill(nodes: Nodes, frames: int) -> None:
    leader = nodes[await nodes.leader()]
    for _ in range(frames):
        await leader.append(bytes(100))


async def add(nodes: Nodes) -> str:
    """A node more, that runs; a learner of `default`."""
    node = await nodes.cluster.add()
    nodes.ids.append(node.id)
    nodes.stubs[node.id] = Stubs(node.client_address)
    assert (await admin(nodes, "add", f"{node.id}={node.peer_address}"))["changed"] is True
    assert (await admin(nodes, "add", node.id, *DEFAULT))["changed"] is True
    return node.id


async def remove(nodes: Nodes, node_id: str) -> None:
    """It is no node of the cluster, and runs no more."""
    await admin(nodes, "remove", node_id, *DEFAULT)
    await admin(nodes, "remove", node_id)
    if node_id in nodes.running:
        await nodes.cluster.kill(node_id)
    del nodes.cluster.nodes[node_id]
    nodes.ids.remove(node_id)
    await nodes.stubs.pop(node_id).channel.close()


async def test_a_node_is_added_promoted_restarted_and_removed(nodes: Nodes) -> None:
    await fill(nodes, 5)
    new = await add(nodes)
    assert voters(await admin(nodes, "promote", new, *DEFAULT)) == {"n0", "n1", "n2", new}
    await nodes.settled()
    told = await status(nodes)
    assert {node["id"]: (node["voter"], node["reachable"]) for node in told["nodes"]}[new] == (True, True)
    await nodes.cluster.kill(new)
    await nodes.restart(new)
    await nodes.settled()
    await remove(nodes, new)
    assert voters(await status(nodes)) == {"n0", "n1", "n2"}


async def test_a_learner_is_shown_as_one_also_before_it_runs(nodes: Nodes) -> None:
    await admin(nodes, "add", "n9=127.0.0.1:9")
    told = await status(nodes, "--group", "meta")
    [learner] = [node for node in told["nodes"] if node["id"] == "n9"]
    assert (learner["voter"], learner["reachable"], learner["peer_address"]) == (False, False, "127.0.0.1:9")
    assert learner["lag_frames"] > 0
    refusal = await dledger(nodes, "admin", "promote", "n9", "--timeout", "0.5", code=3)
    assert "n9 is not connected" in refusal.err.splitlines()[-1]
    assert (await admin(nodes, "remove", "n9"))["changed"] is True
    assert (await admin(nodes, "remove", "n9"))["changed"] is False


async def test_a_member_that_joined_starts_again_though_nobody_answers(nodes: Nodes) -> None:
    new = await add(nodes)
    await admin(nodes, "promote", new, *DEFAULT)
    await nodes.settled()
    for node_id in list(nodes.running):
        await nodes.cluster.kill(node_id)
    await nodes.cluster.restart(new)
    await nodes.restart("n0", "n1", "n2")
    assert (await nodes.settled())[3] in nodes.ids
    await remove(nodes, new)


async def test_what_cannot_join_is_told_why(nodes: Nodes, tmp_path: Path) -> None:
    flags = ["--data", str(tmp_path / "n7"), "--join"]
    nobody = await refused("--id", "n7", "--address", "127.0.0.1:7", *flags, "127.0.0.1:9", output=tmp_path / "log")
    assert (nobody.code, "n7 cannot join" in nobody.last_line) == (3, True)
    endpoints = nodes.cluster.endpoints
    taken = await refused("--id", "n1", "--address", "127.0.0.1:7", *flags, endpoints, output=tmp_path / "log")
    assert (taken.code, "n1 is a member at" in taken.last_line) == (2, True)
    assert not (tmp_path / "n7").exists()


async def test_a_leader_is_removed_and_added_again(nodes: Nodes) -> None:
    leader = await nodes.leader()
    address = nodes.cluster.nodes[leader].peer_address
    told = await admin(nodes, "remove", leader, *DEFAULT)
    assert voters(told) == {"n0", "n1", "n2"} - {leader}
    after = await status(nodes)
    assert after["leader"] in voters(told)
    assert leader not in {node["id"] for node in after["nodes"]}
    assert (await nodes.cluster.wait_ready(DEADLINE_S)).leader in voters(told)
    await admin(nodes, "add", f"{leader}={address}", *DEFAULT)
    assert voters(await admin(nodes, "promote", leader, *DEFAULT)) == {"n0", "n1", "n2"}
    await nodes.settled()


async def test_a_wiped_node_is_readmitted(nodes: Nodes) -> None:
    wiped = (await nodes.followers())[0]
    await nodes.cluster.kill(wiped)
    shutil.rmtree(nodes.cluster.nodes[wiped].data_dir)
    # Its --peers may name nodes that are gone: it asks who is there.
    nodes.cluster.nodes[wiped].joins = True
    await nodes.cluster.restart(wiped)
    done = await dledger(nodes, "admin", "readmit", wiped)
    groups = [line.split()[:3] for line in done.out.splitlines()]
    assert groups == [["readmitted", f"id={wiped}", f"group={group}"] for group in ("meta", "default")]
    assert f"{wiped} has caught up and votes again in default" in done.err
    assert voters(await status(nodes)) == {"n0", "n1", "n2"}
    await nodes.settled()


async def test_what_would_lose_the_quorum_is_refused_also_in_a_dry_run(nodes: Nodes) -> None:
    down, other = await nodes.followers()
    await nodes.cluster.kill(down)
    for flags in ([], ["--dry-run"]):
        done = await dledger(nodes, "admin", "remove", other, *DEFAULT, *flags, code=5)
        assert f"{down} is not connected" in done.err
    assert (await admin(nodes, "remove", down, *DEFAULT, "--dry-run"))["dry_run"] is True
    assert voters(await status(nodes)) == {"n0", "n1", "n2"}
    await nodes.restart(down)


async def test_the_cluster_keeps_a_node_that_a_group_needs_unless_it_is_moved(nodes: Nodes) -> None:
    for flags in ([], ["--dry-run"]):
        refusal = await dledger(nodes, "admin", "remove", "n1", *flags, code=5)
        assert "n1 is a member of default too: remove it there first" in refusal.err
    await dledger(nodes, "admin", "add", "n8", *DEFAULT, code=5)
    node = await nodes.cluster.add()
    nodes.stubs[node.id] = Stubs(node.client_address)
    nodes.ids.append(node.id)
    await admin(nodes, "add", f"{node.id}={node.peer_address}")
    told = await status(nodes, "--group", "meta")
    assert {each["id"]: each["groups"] for each in told["nodes"]} | {node.id: 1} == {
        "n0": 2, "n1": 2, "n2": 2, node.id: 1,
    }  # fmt: skip
    done = await dledger(nodes, "admin", "remove", "n1", "--move")
    assert f"default: n1 has left, and {node.id} took its place" in done.err
    assert voters(await status(nodes)) == {"n0", "n2", node.id}
    assert "n1" not in {each["id"] for each in (await status(nodes, "--group", "meta"))["nodes"]}
    await nodes.cluster.kill("n1")
    await nodes.settled()
    shutil.rmtree(nodes.cluster.nodes["n1"].data_dir)
    nodes.cluster.nodes["n1"].joins = True
    await nodes.cluster.restart("n1")
    await admin(nodes, "add", f"n1={nodes.cluster.nodes['n1'].peer_address}")
    await dledger(nodes, "admin", "remove", node.id, "--move")
    await nodes.cluster.kill(node.id)
    del nodes.cluster.nodes[node.id]
    nodes.ids.remove(node.id)
    await nodes.stubs.pop(node.id).channel.close()
    assert voters(await status(nodes)) == {"n0", "n1", "n2"}
    await nodes.settled()


async def test_the_leadership_goes_where_it_is_preferred(nodes: Nodes) -> None:
    target = (await nodes.followers())[0]
    assert (await admin(nodes, "preferred", f"{target}=10"))["preferred"] == {target: 10}

    async def leads() -> bool:
        return (await nodes[target].status()).role == "leader"

    await eventually(leads, f"{target} leads")
    assert (await status(nodes))["preferred"] == {target: 10}
    other = (await nodes.followers())[0]
    assert (await admin(nodes, "preferred", "--clear"))["preferred"] == {}
    assert (await admin(nodes, "transfer", "--to", other))["leader"] == other
    await dledger(nodes, "admin", "preferred", "n8=1", code=5)


async def test_a_trim_moves_the_start_of_every_log_alike(nodes: Nodes) -> None:
    await fill(nodes, 3 * FRAMES_A_SEGMENT)
    last_index, *_ = await nodes.settled()
    first_index = (await status(nodes))["nodes"][0]["first_index"]
    would = await admin(nodes, "trim", "--before", str(last_index), "--dry-run")
    assert first_index < would["first_index"] <= last_index
    assert {node["first_index"] for node in (await status(nodes))["nodes"]} == {first_index}
    done = await admin(nodes, "trim", "--before", str(last_index))
    assert (done["first_index"], done["trimmed_records"]) == (would["first_index"], would["trimmed_records"])

    async def trimmed() -> bool:
        return {each.first_index for each in await nodes.statuses()} == {done["first_index"]}

    await eventually(trimmed, "all logs begin there")
    assert "trimmed" in (await dledger(nodes, "get", str(done["first_index"] - 1), code=5)).err
    await dledger(nodes, "get", str(done["first_index"]))
    await dledger(nodes, "admin", "trim", "--before", str(last_index + 100), code=5)


async def test_retention_trims_by_itself_until_it_is_cleared(nodes: Nodes) -> None:
    await fill(nodes, 3 * FRAMES_A_SEGMENT)
    before = (await status(nodes))["nodes"][0]["first_index"]
    would = await admin(nodes, "retention", "--max-bytes", "1KiB", "--dry-run")
    assert (would["max_bytes"], would["trimmed_records"] > 0) == (1024, True)
    assert (await admin(nodes, "retention"))["max_bytes"] == 0
    await admin(nodes, "retention", "--max-bytes", "1KiB")

    async def trimmed() -> bool:
        return all(each.first_index > before for each in await nodes.statuses())

    await eventually(trimmed, "the oldest went")
    await admin(nodes, "retention", "--max-age", "72h")
    assert (await status(nodes))["retention"] == {"max_age_ms": 72 * 3_600_000, "max_bytes": 1024}
    cleared = await admin(nodes, "retention", "--max-age", "0", "--max-bytes", "0")
    assert (cleared["max_age_ms"], cleared["max_bytes"]) == (0, 0)


async def test_status_tells_of_disks_and_logs(nodes: Nodes) -> None:
    for node in (await status(nodes))["nodes"]:
        assert node["disk"]["state"] in ("ok", "low")
        assert node["disk"]["free_bytes"] > 0
        assert node["log_size_bytes"] > 0
        assert node["lag_frames"] is not None


async def test_who_changed_what_is_in_the_logs(nodes: Nodes) -> None:
    await admin(nodes, "retention", "--max-age", "71h")
    paths = [nodes.cluster.nodes[each].log_file for each in nodes.ids]
    told = "retention_max_age_ms=255600000"

    async def is_told() -> bool:
        return all(told in path.read_text() for path in paths)

    await eventually(is_told, "every node logs the change")
    lines = [line for path in paths for line in path.read_text().splitlines()]
    [carried_out] = [line for line in lines if "the retention was set" in line and "max_age_ms=255600000" in line]
    assert re.search(r"group=default .* caller=127\.0\.0\.1:\d+$", carried_out)
    await admin(nodes, "retention", "--max-age", "0")
