"""Hosts by docker-compose: a run has containers and volumes of its own, so it never finds what another one appended."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from dledger.cli.ports import free_base
from dledger.common.errors import ConfigError
from jepsen.hosts import compose
from jepsen.hosts.compose import ComposeHosts

HOSTS = 2
DOCKER = """\
case $1 in
compose) exit 1;;  # there is only v1
inspect) echo '[]';;
esac"""


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file in which docker-compose notes what it is asked. It and docker are the only programs on PATH."""
    noted, programs = tmp_path / "asked.txt", tmp_path / "bin"
    programs.mkdir()
    for name, script in (("docker-compose", f'echo "$*" >> {noted}'), ("docker", DOCKER)):
        (programs / name).write_text(f"#!/bin/sh\n{script}\n")
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(programs))
    return noted


@pytest.fixture
def free_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    """The hosts publish ports that nobody has, instead of those of docker-compose.yml."""
    monkeypatch.setattr(compose, "FIRST_PORT", free_base(HOSTS))


@pytest.mark.usefixtures("free_ports")
async def test_a_run_begins_with_containers_of_its_own_and_empty_volumes(tmp_path: Path, asked: Path) -> None:
    file = tmp_path / "docker-compose.yml"
    hosts = ComposeHosts(file, tmp_path, HOSTS)
    await hosts.up()
    assert asked.read_text().splitlines() == [
        f"--file {file} --project-name dledger-jepsen down --volumes --timeout 0",
        f"--file {file} --project-name dledger-jepsen up --no-start",
    ]
    await hosts.down()


@pytest.mark.usefixtures("free_ports")
async def test_a_cluster_that_runs_at_the_same_ports_is_named_and_left_alone(tmp_path: Path, asked: Path) -> None:
    hosts = ComposeHosts(tmp_path / "docker-compose.yml", tmp_path, HOSTS)
    with (
        socket.create_server(("127.0.0.1", compose.FIRST_PORT)),
        pytest.raises(ConfigError, match=f"127.0.0.1:{compose.FIRST_PORT} is in use"),
    ):
        await hosts.up()
    await hosts.down()
    assert "up" not in asked.read_text().split()


async def test_what_docker_compose_says_when_it_fails_is_handed_on(tmp_path: Path, asked: Path) -> None:
    (asked.parent / "bin" / "docker-compose").write_text("#!/bin/sh\necho no engine >&2\nexit 1\n")
    hosts = ComposeHosts(tmp_path / "docker-compose.yml", tmp_path, HOSTS)
    with pytest.raises(ConfigError, match="no engine"):
        await hosts.up()
