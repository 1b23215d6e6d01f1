"""Programs that use other people's clients of etcd, built with those clients from their own registries."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests.etcd.programs import CACHE, GO_FLAGS, Lacking

SOURCES = Path(__file__).resolve().parent


def foreign_program(name: str) -> list[str]:
    """The command that runs the program of this folder. The first call builds it: minutes. Raises Lacking."""
    tools, build = BUILDERS[name]
    if missing := [tool for tool in tools if not shutil.which(tool)]:
        raise Lacking(f"{' and '.join(missing)} is needed to build tests/etcd/foreign/{name}")
    folder = CACHE / f"foreign-{name}"
    digest, note = _digest(SOURCES / name), folder / "built-of"
    is_built = note.exists() and note.read_text() == digest
    if not is_built:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    command = build(SOURCES / name, folder, is_built)
    note.write_text(digest)
    return command


def _go(sources: Path, folder: Path, is_built: bool) -> list[str]:
    program = folder / "foreign"
    if not is_built:
        command = ["go", "build", "-C", str(sources), "-o", str(program), "-ldflags=-s -w", "."]
        subprocess.run(command, env=os.environ | {"GOFLAGS": GO_FLAGS}, check=True)
    return [str(program)]


def _java(sources: Path, folder: Path, is_built: bool) -> list[str]:
    listed, project = folder / "classpath", folder / "project"
    if not is_built:
        shutil.copytree(sources, project)
        command = ["mvn", "--quiet", "--batch-mode", "compile", "dependency:build-classpath"]
        subprocess.run([*command, f"-Dmdep.outputFile={listed}"], cwd=project, check=True)
    classes = f"{project / 'target' / 'classes'}:{listed.read_text().strip()}"
    return ["java", "-XX:TieredStopAtLevel=1", "-cp", classes, "Main"]


def _python(sources: Path, folder: Path, is_built: bool) -> list[str]:
    python = folder / "venv" / "bin" / "python"
    if not is_built:
        subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
        install = [str(python), "-m", "pip", "--disable-pip-version-check", "--quiet", "install"]
        subprocess.run([*install, "--requirement", str(sources / "requirements.txt")], check=True)
    return [str(python), str(sources / "main.py")]


Builder = Callable[[Path, Path, bool], list[str]]
BUILDERS: dict[str, tuple[tuple[str, ...], Builder]] = {
    "go": (("go",), _go),
    "java": (("mvn", "java"), _java),
    "python": ((), _python),
}
"""By folder: the tools, and who builds with them. A builder only tells the command where all is built already."""


def _digest(sources: Path) -> str:
    seen = hashlib.sha256()
    for each in sorted(each for each in sources.rglob("*") if each.is_file() and "__pycache__" not in each.parts):
        seen.update(str(each.relative_to(sources)).encode() + b"\0" + each.read_bytes())
    return seen.hexdigest()
