"""The README's lines for grpcurl, at a node that leads and at one that does not."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.clients.programs import ROOT
from tests.integration.nodes import Nodes, running

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(400)]

GRPCURL = "github.com/fullstorydev/grpcurl/cmd/grpcurl@v1.9.4"
ENDPOINT = "127.0.0.1:20912"


@pytest.fixture(scope="module")
def grpcurl(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("go") is None:
        pytest.skip("needs go")
    binaries = tmp_path_factory.mktemp("bin")
    subprocess.run(["go", "install", GRPCURL], env={**os.environ, "GOBIN": str(binaries)}, check=True, timeout=300)
    return binaries / "grpcurl"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def nodes(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Nodes]:
    async with running(tmp_path_factory.mktemp("cluster")) as started:
        yield started


async def test_the_lines_for_grpcurl_work_at_every_node(grpcurl: Path, nodes: Nodes) -> None:
    await nodes.leader()
    readme = (ROOT / "README.md").read_text()
    append, get, read = re.findall(r"^grpcurl (.*)$", readme, re.MULTILINE)
    for number, node_id in enumerate(nodes.ids):
        answers = []
        for line in (append, get, read):
            arguments = shlex.split(line.replace(ENDPOINT, nodes[node_id].address), comments=True)
            process = await asyncio.create_subprocess_exec(grpcurl, *arguments, stdout=-1, stderr=-1)
            out, err = await process.communicate()
            assert process.returncode == 0, f"{node_id}: {line}: {err.decode()}"
            answers.append(out.decode())
        assert json.loads(answers[0]).get("base_index", "0") == str(number)
        assert json.loads(answers[1])["entry"]["value"] == "aGVsbG8="
        assert answers[2].count('"value"') == number + 1
