"""A Docker engine of our own, and an image that is built from what this machine has.

Nothing is pulled: the base is made by debootstrap from the machine's own mirror, and kept for the next time; packages
come from a directory of wheels.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[2]
CACHE = Path("/var/cache/dledger-tests")
SUITE = "bookworm"
BASE, IMAGE = "dledger-test-base", "dledger-test"
STARTED_WITHIN_S = 60.0
TOOLS = {
    "dockerd": "docker.io",
    "docker": "docker.io",
    "docker-compose": "docker-compose",
    "iptables": "iptables",
    "debootstrap": "debootstrap",
    "prometheus": "prometheus",
    "promtool": "prometheus",
}
"""And the Debian packages that have them."""


def sh(*command: str | Path, env: dict[str, str] | None = None, cwd: Path | None = None) -> str:
    done = subprocess.run(command, env=env, cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}: {done.stdout[-4000:]}{done.stderr[-4000:]}"
    return done.stdout


@contextmanager
def docker_engine(home: Path) -> Iterator[dict[str, str]]:
    """Runs dockerd with all of its files in ``home``; yields the environment that reaches it."""
    socket, said = f"unix://{home}/docker.sock", home / "dockerd.log"
    flags = ["-H", socket, "--data-root", f"{home}/data", "--exec-root", f"{home}/exec", "--pidfile", f"{home}/pid"]
    with said.open("wb") as log:
        daemon = subprocess.Popen(["dockerd", *flags, "--iptables=false", "--ip6tables=false"], stdout=log, stderr=log)
    environment = os.environ | {"DOCKER_HOST": socket, "DOCKER_BUILDKIT": "0", "COMPOSE_DOCKER_CLI_BUILD": "0"}
    try:
        deadline = time.monotonic() + STARTED_WITHIN_S
        while subprocess.run(["docker", "info"], env=environment, capture_output=True, check=False).returncode:
            assert daemon.poll() is None, said.read_text()[-2000:]
            assert time.monotonic() < deadline, "dockerd did not come up"
            time.sleep(0.5)
        yield environment
    finally:
        daemon.terminate()
        daemon.wait(60)


def build_image(engine: dict[str, str], context: Path) -> dict[str, str]:
    """Builds the image from a copy of the sources in ``context``; the environment in which docker-compose takes it."""
    for name in ("Dockerfile", ".dockerignore", "docker-compose.yml", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, context)
    for name in ("dledger", "deploy"):
        shutil.copytree(ROOT / name, context / name, ignore=shutil.ignore_patterns("__pycache__"))
    sh(sys.executable, "-m", "pip", "download", "--quiet", "--dest", context / ".wheels", ROOT, "hatchling")
    sh("docker", "import", _base_archive(), BASE, env=engine)
    environment = engine | {
        "DLEDGER_BASE": BASE,
        "DLEDGER_IMAGE": IMAGE,
        "DLEDGER_PIP_FLAGS": "--no-index --find-links=/src/.wheels",
        "COMPOSE_PROJECT_NAME": "dledgertest",
        "COMPOSE_FILE": str(context / "docker-compose.yml"),
    }
    sh("docker-compose", "build", "n0", env=environment, cwd=context)
    return environment


def _base_archive() -> Path:
    """A minimal Debian with Python, from the mirror that this machine's apt uses."""
    archive = CACHE / f"base-{SUITE}.tar"
    if not archive.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        tree = CACHE / f"base-{SUITE}.partial"
        shutil.rmtree(tree, ignore_errors=True)
        sh("debootstrap", "--variant=minbase", "--include=python3,python3-venv", SUITE, tree, _apt_mirror())
        partial = archive.with_suffix(".partial-tar")
        sh("tar", "-C", tree, "-cf", partial, ".")
        shutil.rmtree(tree)
        partial.rename(archive)
    return archive


def _apt_mirror() -> str:
    """Of the first source that the machine's apt has."""
    lists = [*Path("/etc/apt/sources.list.d").glob("*.sources"), Path("/etc/apt/sources.list")]
    text = "\n".join(path.read_text() for path in lists if path.exists())
    found = re.search(r"^(?:URIs:|deb)\s+(?:\[.*?\]\s+)?(\S+)", text, re.MULTILINE)
    assert found, "apt has no sources"
    return found.group(1)
