"""The programs of docs/clients, built and run by the commands on their pages."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "clients"
BUILT_WITHIN_S = 400.0
_COLOURS = re.compile(r"\x1b\[\d*m")
"""Maven resets them before it ends, also where it wrote none."""
_FENCED = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Program(NamedTuple):
    """One language. ``tools`` are the commands that its page needs."""

    name: str
    source: str
    tools: tuple[str, ...]

    @property
    def missing(self) -> list[str]:
        return [tool for tool in self.tools if shutil.which(tool) is None]

    @property
    def commands(self) -> list[str]:
        """As its page tells them: the last one runs it."""
        return self._blocks[0].splitlines()

    @property
    def shown(self) -> str:
        """The source, as its page shows it."""
        return self._blocks[1]

    @property
    def _blocks(self) -> list[str]:
        page = (PAGES / f"{self.name}.md").read_text()
        return [text for _, text in _FENCED.findall(page)]


PROGRAMS = (
    Program("python", "python/main.py", ()),
    Program("go", "go/main.go", ("go",)),
    Program("node", "node/main.mjs", ("node", "npm")),
    Program("java", "java/src/main/java/Main.java", ("mvn", "java")),
)


class Built(NamedTuple):
    """A program in a directory of its own."""

    program: Program
    directory: Path
    environment: dict[str, str]

    async def run(self, endpoints: str, count: int) -> list[str]:
        """What it prints, line by line."""
        command = re.sub(r"127\.0\.0\.1:\S+ \d+", f"{endpoints} {count}", self.program.commands[-1])
        process = await asyncio.create_subprocess_shell(
            command, cwd=self.directory, env=self.environment, stdout=-1, stderr=-1
        )
        try:
            out, err = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
        assert process.returncode == 0, f"{command}: {err.decode()[-4000:]}"
        return list(filter(None, _COLOURS.sub("", out.decode()).splitlines()))


def build(program: Program, directory: Path) -> Built:
    """All commands of its page but the last. What they download is kept where their tools keep it."""
    work = directory / program.name
    shutil.copytree(PAGES / program.name, work)
    binaries = work / "bin"
    binaries.mkdir()
    for tool, module in (("protoc", "grpc_tools.protoc"), ("python", "")):
        shim = binaries / tool
        arguments = f"-m {module} " if module else ""
        shim.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {arguments}"$@"\n')
        shim.chmod(0o755)
    environment = {
        **os.environ, "DLEDGER": str(ROOT), "GOBIN": str(binaries), "PATH": f"{binaries}:{os.environ['PATH']}"
    }  # fmt: skip
    for command in program.commands[:-1]:
        if "pip install" in command:  # the tests' own environment has both
            continue
        done = subprocess.run(
            command, shell=True, cwd=work, env=environment, capture_output=True, text=True, timeout=BUILT_WITHIN_S,
            check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{command}: {done.stdout[-2000:]}{done.stderr[-4000:]}"
    for package in (work / "dledger", work / "dledger" / "v1"):
        if program.name == "python":  # before the dledger that is installed here
            (package / "__init__.py").touch()
    return Built(program, work, environment)
