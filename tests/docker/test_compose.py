"""Five containers of docker-compose.yml come up healthy, the leader's is killed, and appends go on. Needs root.

Run with ``make test-docker``.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from dledger.client import connect
from tests.docker.engine import ROOT, sh

pytestmark = [pytest.mark.root, pytest.mark.timeout(1200)]

NODES = {f"n{number}" for number in range(5)}
ENDPOINTS = ",".join(f"127.0.0.1:{20912 + 10 * node}" for node in range(5))
HEALTHY_WITHIN_S = 180.0
FAULTS = ("--nemesis", "kill-leader,partition-leader,pause-one", "--fault-seconds", "4", "--calm-seconds", "3")
"""Of the Jepsen run."""


def containers(environment: dict[str, str]) -> dict[str, dict[str, Any]]:
    """What docker knows of each service's container."""
    ids = sh("docker-compose", "ps", "-q", env=environment).split()
    told = json.loads(sh("docker", "inspect", *ids, env=environment))
    return {each["Config"]["Labels"]["com.docker.compose.service"]: each for each in told}


def wait_until_healthy(environment: dict[str, str]) -> None:
    deadline = time.monotonic() + HEALTHY_WITHIN_S
    while True:
        health = {name: each["State"]["Health"]["Status"] for name, each in containers(environment).items()}
        if health == dict.fromkeys(NODES, "healthy"):
            return
        assert time.monotonic() < deadline, health
        time.sleep(1)


async def append_and_kill_the_leader(environment: dict[str, str]) -> tuple[int, int]:
    """Appends before and after; the indexes of the last of each."""
    async with connect(ENDPOINTS, timeout_ms=30_000) as log:
        for number in range(100):
            before = await log.append(b"before %d" % number)
        leader = (await log.status()).leader
        assert leader is not None
        victim = containers(environment)[leader]["Id"]
        await asyncio.to_thread(sh, "docker", "kill", victim, env=environment)
        for number in range(100):
            after = await log.append(b"after %d" % number)
        values = [entry.value async for entry in log.read(0)]
    assert values == [b"before %d" % n for n in range(100)] + [b"after %d" % n for n in range(100)]
    return before.index, after.index


def test_five_containers_are_healthy_unprivileged_and_survive_the_death_of_the_leader(project: dict[str, str]) -> None:
    wait_until_healthy(project)
    for each in containers(project).values():
        assert each["Config"]["User"] == "10001:10001"
        assert each["HostConfig"]["ReadonlyRootfs"]
        assert all(port[0]["HostIp"] == "127.0.0.1" for port in each["NetworkSettings"]["Ports"].values() if port)
    scraped_by_prometheus(project)
    assert asyncio.run(append_and_kill_the_leader(project)) == (99, 199)


def scraped_by_prometheus(environment: dict[str, str]) -> None:
    """Debian's Prometheus takes the configuration, and gets the nodes' metrics with it."""
    written = (ROOT / "deploy" / "prometheus.yml").read_text()
    sh("promtool", "check", "config", ROOT / "deploy" / "prometheus.yml")
    for name, each in containers(environment).items():
        [network] = each["NetworkSettings"]["Networks"].values()
        written = written.replace(f'"{name}:', f'"{network["IPAddress"]}:')
    home = Path(environment["COMPOSE_FILE"]).parent / "prometheus"
    home.mkdir()
    (home / "prometheus.yml").write_text(written)
    flags = [f"--config.file={home}/prometheus.yml", f"--storage.tsdb.path={home}/data"]
    prometheus = subprocess.Popen(
        ["prometheus", *flags, "--web.listen-address=127.0.0.1:29090"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + 60
        while nodes_with_a_leader("http://127.0.0.1:29090") != NODES:
            assert time.monotonic() < deadline, "Prometheus does not have every node's metrics"
            time.sleep(1)
    finally:
        prometheus.terminate()
        prometheus.wait(30)


def nodes_with_a_leader(prometheus: str) -> set[str]:
    """Of every group that they hold."""
    try:
        with urlopen(f"{prometheus}/api/v1/query?query=min(dledger_has_leader)by(node)==1", timeout=5) as answer:
            return {each["metric"]["node"] for each in json.load(answer)["data"]["result"]}
    except OSError:
        return set()


def test_the_compose_file_is_valid_with_and_without_monitoring(engine: dict[str, str]) -> None:
    compose = ["docker-compose", "-f", str(ROOT / "docker-compose.yml")]
    for profile in ([], ["--profile", "monitoring"]):
        assert set(sh(*compose, *profile, "config", "--services", env=engine).split()) >= NODES
        sh(*compose, *profile, "config", "--quiet", env=engine)


def test_the_jepsen_suite_runs_on_containers_of_its_own(image: dict[str, str], tmp_path: Path) -> None:
    command = [sys.executable, "-m", "jepsen", "test", "--hosts", "compose", "--store", str(tmp_path), "--clients", "5"]
    done = subprocess.run(
        [*command, *FAULTS, "--time-limit", "45"],
        env=image | {"PYTHONPATH": str(ROOT)},
        cwd=Path(image["COMPOSE_FILE"]).parent,
        capture_output=True,
        text=True,
        check=False,
    )
    told = json.loads(done.stdout.strip().rpartition("\n")[2] or "{}")
    assert (done.returncode, told.get("valid")) == (0, True), done.stderr
