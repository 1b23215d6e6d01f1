"""Hosts by ssh: what a killed run left there is taken away by the next one, and by the run itself when it ends."""

from __future__ import annotations

import os
from pathlib import Path
from signal import Signals

import pytest

from dledger.common.errors import ConfigError
from jepsen.hosts.ssh import SshHosts

SSH = """#!/bin/sh
# What ssh does, on this machine: the options and the host are passed over.
shift 4
exec sh -c "$*"
"""


def program(directory: Path, name: str, script: str) -> str:
    file = directory / name
    file.write_text(script)
    file.chmod(0o755)
    return str(file)


@pytest.fixture
def cuts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """nft notes there what it is asked."""
    (tmp_path / "bin").mkdir()
    noted = tmp_path / "nft.txt"
    program(tmp_path / "bin", "nft", f'#!/bin/sh\necho "$*" >> {noted}\n')
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    return noted


def hosts_in(tmp_path: Path, node: str = "#!/bin/sh\nwhile :; do sleep 0.1; done\n") -> SshHosts:
    ssh, serve = program(tmp_path, "ssh", SSH), program(tmp_path, "dledger", node)
    return SshHosts(["127.0.0.1"], tmp_path, program=serve, home=str(tmp_path / "home"), ssh=ssh)


async def test_what_a_killed_run_left_is_taken_away_by_the_next(tmp_path: Path, cuts: Path) -> None:
    killed, later = hosts_in(tmp_path), hosts_in(tmp_path)
    await killed.up()
    pid = await killed.start("n0")
    assert await killed.state("n0", pid)
    cuts.unlink()
    await later.up()
    assert await killed.ended("n0", 10) is not None
    assert "delete table inet jepsen" in cuts.read_text()
    assert not list((tmp_path / "home" / "n0").iterdir())
    (tmp_path / "home" / "n0" / "node.log").touch()
    await later.down()
    await killed.down()


async def test_a_run_that_ends_leaves_nothing_cut(tmp_path: Path, cuts: Path) -> None:
    hosts = hosts_in(tmp_path)
    await hosts.up()
    pid = await hosts.start("n0")
    cuts.unlink()
    await hosts.down()
    assert "delete table inet jepsen" in cuts.read_text()
    assert not Path(f"/proc/{pid}").exists()


@pytest.mark.usefixtures("cuts")
async def test_a_number_that_is_another_process_by_now_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "home" / "n0").mkdir(parents=True)
    (tmp_path / "home" / "n0" / "pid").write_text(f"{os.getpid()}")
    hosts = hosts_in(tmp_path)
    await hosts.up()
    await hosts.down()


@pytest.mark.usefixtures("cuts")
async def test_a_node_that_ended_by_itself_is_heard_of_by_asking(tmp_path: Path) -> None:
    hosts = hosts_in(tmp_path, "#!/bin/sh\nexit 1\n")
    await hosts.up()
    await hosts.start("n0")
    assert await hosts.ended("n0", 10) == 0
    assert hosts.pid("n0") is None
    await hosts.signal("n0", Signals.SIGKILL)
    await hosts.down()


@pytest.mark.usefixtures("cuts")
async def test_a_machine_without_the_program_is_refused_in_a_few_words(tmp_path: Path) -> None:
    ssh = program(tmp_path, "ssh", SSH)
    hosts = SshHosts(["127.0.0.1"], tmp_path, program="no-such", home=str(tmp_path / "home"), ssh=ssh)
    with pytest.raises(ConfigError, match=r"127\.0\.0\.1 cannot be used by ssh: no-such is not on its PATH$"):
        await hosts.up()
    await hosts.down()
