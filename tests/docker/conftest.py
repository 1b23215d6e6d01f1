"""These tests are asked for by name (``make test-docker``), so none is ever skipped: what is missing ends the run."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docker.engine import TOOLS, build_image, docker_engine
from tests.support.lacking import missing_tools


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.option.collectonly or not any(Path(__file__).parent in item.path.parents for item in items):
        return
    if lacking := missing_tools(TOOLS):
        raise pytest.UsageError(f"the tests of docker-compose.yml need more than is here: {lacking}")
    if os.geteuid() != 0:
        raise pytest.UsageError("the tests of docker-compose.yml run a Docker engine of their own: run them as root")


@pytest.fixture(scope="session")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The environment that reaches a Docker engine of our own."""
    with docker_engine(tmp_path_factory.mktemp("docker")) as environment:
        yield environment


@pytest.fixture(scope="session")
def image(engine: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment in which docker-compose takes the image that was built here."""
    return build_image(engine, tmp_path_factory.mktemp("context"))


@pytest.fixture
def project(image: dict[str, str]) -> Iterator[dict[str, str]]:
    """Five new containers with empty volumes; the environment of docker-compose."""
    context = Path(image["COMPOSE_FILE"]).parent
    try:
        subprocess.run(["docker-compose", "up", "--detach"], env=image, cwd=context, check=True)
        yield image
    finally:
        down = ["docker-compose", "down", "--volumes", "--timeout", "5"]
        subprocess.run(down, env=image, cwd=context, check=False)
