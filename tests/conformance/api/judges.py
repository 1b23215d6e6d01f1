"""A node's API through other gRPC libraries: each has a program that says of each check whether it holds."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from dledger.cli.cluster import LocalCluster
from tests.conformance.judging import Case, Ended, case_of, run
from tests.conformance.tools import COMMON_PROTOS, PROTOS, go_program, go_tool, java_classpath, node_program

PROGRAMS = Path(__file__).parent
CHECKS = ("append", "get", "read_follow", "large", "metadata", "deadline", "cancel", "refusal")
"""What every program says something of."""
WITHIN_S = 120.0
FAR_INDEX = 1_000_000_000


async def judge() -> list[Case]:
    async with _node() as address:
        cases = []
        for kind in ("python_sync", "python_aio"):
            program = [sys.executable, "-m", f"tests.conformance.api.{kind}", address]
            cases += await judged(f"grpcio {kind.removeprefix('python_')}", program)
        cases += await _grpcurl(address)
        cases += await judged("grpc-go", [await go_program(PROGRAMS / "go"), address])
        node: list[str | Path] = ["node", await node_program(PROGRAMS / "node"), address, PROTOS, COMMON_PROTOS]
        cases += await judged("grpc-js", node)
        java = ["java", "-XX:TieredStopAtLevel=1", "-cp", await java_classpath(PROGRAMS / "java"), "ApiCheck", address]
        cases += await judged("grpc-java", java)
    return cases


@asynccontextmanager
async def _node() -> AsyncIterator[str]:
    """The address of a node that leads its cluster of one."""
    with tempfile.TemporaryDirectory(prefix="dledger-conformance-") as folder:
        cluster = LocalCluster(Path(folder), nodes=1)
        await cluster.start()
        try:
            await cluster.wait_ready()
            yield cluster.endpoints
        finally:
            await cluster.stop()


async def judged(kind: str, program: Sequence[str | Path]) -> list[Case]:
    ended = await run(program, within_s=WITHIN_S)
    said = dict(_said(line) for line in ended.output.splitlines() if line.startswith(("ok ", "failed ")))
    silent = f"nothing was said of it; the program ended with {ended.code}: {ended.last_words}"
    return [Case(f"{kind}, {name}", said.get(name, silent)) for name in CHECKS]


def _said(line: str) -> tuple[str, str]:
    """A check's name, and why it does not hold: nothing if it does."""
    word, _, rest = line.partition(" ")
    name, _, why = rest.partition(": ")
    return name, "" if word == "ok" else why or "failed"


# grpcurl, which learns the API from the node --------------------------------------------------------------------------


async def _grpcurl(address: str) -> list[Case]:
    asked = _Grpcurl(await go_tool("github.com/fullstorydev/grpcurl/cmd/grpcurl"), address)
    checks = (asked.list, asked.describe, asked.append_and_get, asked.read, asked.deadline, asked.refusal)
    return [await case_of(f"grpcurl, {check.__name__}", check()) for check in checks]


class _Grpcurl:
    def __init__(self, program: Path, address: str) -> None:
        self._program = program
        self._address = address

    async def _run(self, *arguments: str) -> Ended:
        return await run([self._program, "-plaintext", *arguments], within_s=WITHIN_S)

    async def _call(self, method: str, request: dict[str, object], *flags: str) -> Ended:
        return await self._run(*flags, "-d", json.dumps(request), self._address, f"dledger.v1.LogService/{method}")

    async def list(self) -> None:
        ended = await self._run(self._address, "list")
        assert "dledger.v1.LogService" in ended.output.split(), ended.last_words
        assert "grpc.health.v1.Health" in ended.output.split(), ended.last_words

    async def describe(self) -> None:
        ended = await self._run(self._address, "describe", "dledger.v1.AppendRequest")
        assert "repeated bytes records" in ended.output, ended.last_words

    async def _appended(self) -> int:
        ended = await self._call("Append", {"records": ["Z3JwY3VybA=="]}, "-H", "x-text: some text")
        assert not ended.code, ended.last_words
        return int(json.loads(ended.output).get("base_index", 0))

    async def append_and_get(self) -> None:
        ended = await self._call("Get", {"index": await self._appended()})
        assert json.loads(ended.output)["entry"]["value"] == "Z3JwY3VybA==", ended.last_words

    async def read(self) -> None:
        ended = await self._call("Read", {"start_index": await self._appended()})
        assert json.loads(ended.output)["batches"], ended.last_words

    async def deadline(self) -> None:
        request: dict[str, object] = {"start_index": await self._appended() + 1, "follow": True}
        ended = await self._call("Read", request, "-max-time", "0.3")
        assert "DeadlineExceeded" in ended.output, ended.last_words

    async def refusal(self) -> None:
        ended = await self._call("Get", {"index": FAR_INDEX}, "-format-error")
        [detail] = json.loads(ended.output)["details"]
        assert (detail["domain"], detail["reason"]) == ("dledger", "INDEX_OUT_OF_RANGE"), ended.last_words
