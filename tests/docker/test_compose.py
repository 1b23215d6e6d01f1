"""The image is built, five containers come up healthy, the leader's is killed, and appends go on. Needs root, dockerd.

Nothing is pulled: the base is made by debootstrap from the machine's own mirror, and kept for the next time; packages
come from a directory of wheels. Run with ``make test-docker``.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from dledger.client import connect

pytestmark = [pytest.mark.root, pytest.mark.timeout(1200)]

ROOT = Path(__file__).parents[2]
CACHE = Path("/var/cache/dledger-tests")
SUITE = "bookworm"
ENDPOINTS = ",".join(f"127.0.0.1:{20912 + 10 * node}" for node in range(5))
HEALTHY_WITHIN_S = 180.0
TOOLS = ("dockerd", "docker", "docker-compose", "debootstrap", "prometheus", "promtool")


def sh(*command: str | Path, env: dict[str, str] | None = None, cwd: Path | None = None) -> str:
    done = subprocess.run(command, env=env, cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}: {done.stdout[-4000:]}{done.stderr[-4000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """A Docker engine of our own; yields the environment that reaches it."""
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing or os.geteuid() != 0:
        pytest.skip(f"needs root and {', '.join(missing) or 'nothing more'}")
    home = tmp_path_factory.mktemp("docker")
    socket = f"unix://{home}/docker.sock"
    flags = ["-H", socket, "--data-root", f"{home}/data", "--exec-root", f"{home}/exec", "--pidfile", f"{home}/pid"]
    with (home / "dockerd.log").open("wb") as log:
        daemon = subprocess.Popen(["dockerd", *flags, "--iptables=false", "--ip6tables=false"], stdout=log, stderr=log)
    environment = os.environ | {"DOCKER_HOST": socket, "DOCKER_BUILDKIT": "0", "COMPOSE_DOCKER_CLI_BUILD": "0"}
    try:
        deadline = time.monotonic() + 60
        while subprocess.run(["docker", "info"], env=environment, capture_output=True, check=False).returncode:
            assert daemon.poll() is None, (home / "dockerd.log").read_text()[-2000:]
            assert time.monotonic() < deadline, "dockerd did not come up"
            time.sleep(0.5)
        yield environment
    finally:
        daemon.terminate()
        daemon.wait(60)


@pytest.fixture(scope="module")
def project(engine: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The five containers, started from an image that was built here; yields the environment of docker-compose."""
    context = tmp_path_factory.mktemp("context")
    for name in ("Dockerfile", ".dockerignore", "docker-compose.yml", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, context)
    for name in ("dledger", "deploy"):
        shutil.copytree(ROOT / name, context / name, ignore=shutil.ignore_patterns("__pycache__"))
    sh(sys.executable, "-m", "pip", "download", "--quiet", "--dest", context / ".wheels", ROOT, "hatchling")
    sh("docker", "import", base_archive(), "dledger-test-base", env=engine)
    environment = engine | {
        "DLEDGER_BASE": "dledger-test-base",
        "DLEDGER_IMAGE": "dledger-test",
        "DLEDGER_PIP_FLAGS": "--no-index --find-links=/src/.wheels",
        "COMPOSE_PROJECT_NAME": "dledgertest",
        "COMPOSE_FILE": str(context / "docker-compose.yml"),
    }
    try:
        sh("docker-compose", "up", "--detach", "--build", env=environment, cwd=context)
        yield environment
    finally:
        subprocess.run(
            ["docker-compose", "down", "--volumes", "--timeout", "5"], env=environment, check=False, cwd=context
        )


def base_archive() -> Path:
    """A minimal Debian with Python, from the mirror that this machine's apt uses."""
    archive = CACHE / f"base-{SUITE}.tar"
    if not archive.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        tree = CACHE / f"base-{SUITE}.partial"
        shutil.rmtree(tree, ignore_errors=True)
        sh("debootstrap", "--variant=minbase", "--include=python3,python3-venv", SUITE, tree, apt_mirror())
        partial = archive.with_suffix(".partial-tar")
        sh("tar", "-C", tree, "-cf", partial, ".")
        shutil.rmtree(tree)
        partial.rename(archive)
    return archive


def apt_mirror() -> str:
    """Of the first source that the machine's apt has."""
    lists = [*Path("/etc/apt/sources.list.d").glob("*.sources"), Path("/etc/apt/sources.list")]
    text = "\n".join(path.read_text() for path in lists if path.exists())
    found = re.search(r"^(?:URIs:|deb)\s+(?:\[.*?\]\s+)?(\S+)", text, re.MULTILINE)
    assert found, "apt has no sources"
    return found.group(1)


def containers(environment: dict[str, str]) -> dict[str, dict[str, Any]]:
    """What docker knows of each service's container."""
    ids = sh("docker-compose", "ps", "-q", env=environment).split()
    told = json.loads(sh("docker", "inspect", *ids, env=environment))
    return {each["Config"]["Labels"]["com.docker.compose.service"]: each for each in told}


def wait_until_healthy(environment: dict[str, str]) -> None:
    deadline = time.monotonic() + HEALTHY_WITHIN_S
    while True:
        health = {name: each["State"]["Health"]["Status"] for name, each in containers(environment).items()}
        if set(health.values()) == {"healthy"} and len(health) == 5:
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


def test_five_containers_are_healthy_unprivileged_and_survive_the_death_of_the_leaders(project: dict[str, str]) -> None:
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
        while leaders_known("http://127.0.0.1:29090") != 5:
            assert time.monotonic() < deadline, "Prometheus does not have every node's metrics"
            time.sleep(1)
    finally:
        prometheus.terminate()
        prometheus.wait(30)


def leaders_known(prometheus: str) -> int:
    """How many nodes say that they have a leader."""
    try:
        with urlopen(f"{prometheus}/api/v1/query?query=dledger_has_leader==1", timeout=5) as answer:
            return len(json.load(answer)["data"]["result"])
    except OSError:
        return 0


def test_the_compose_file_is_valid_with_and_without_monitoring(engine: dict[str, str]) -> None:
    compose = ["docker-compose", "-f", str(ROOT / "docker-compose.yml")]
    for profile in ([], ["--profile", "monitoring"]):
        assert {f"n{node}" for node in range(5)} <= set(
            sh(*compose, *profile, "config", "--services", env=engine).split()
        )
        sh(*compose, *profile, "config", "--quiet", env=engine)


def test_the_jepsen_suite_runs_on_the_containers(project: dict[str, str], tmp_path: Path) -> None:
    faults = [
        "--nemesis",
        "kill-leader,partition-leader,pause-one",
        "--fault-seconds",
        "6",
        "--calm-seconds",
        "4",
        "--time-limit",
        "80",
    ]
    command = [sys.executable, "-m", "jepsen", "test", "--hosts", "compose", *faults, "--clients", "5"]
    environment = project | {"PYTHONPATH": str(ROOT)}
    context = Path(project["COMPOSE_FILE"]).parent
    done = subprocess.run(
        [*command, "--store", str(tmp_path)], env=environment, cwd=context, capture_output=True, text=True, check=False
    )
    told = json.loads(done.stdout.strip().rpartition("\n")[2] or "{}")
    assert (done.returncode, told.get("valid")) == (0, True), done.stderr
