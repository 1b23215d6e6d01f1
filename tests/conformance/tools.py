"""The foreign tools, from their own registries, below ``.make/conformance``: installed once, then used from there.

Deleting that folder brings the newest versions.
"""

from __future__ import annotations

import hashlib
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path

import google.rpc

from tests.conformance.judging import Ended, Unavailable, run

ROOT = Path(__file__).parents[2]
CACHE = ROOT / ".make" / "conformance"
PROTOS = ROOT / "proto"
COMMON_PROTOS = Path(google.rpc.__path__[0]).parents[1]
"""Where ``google/rpc/status.proto`` is, with googleapis-common-protos."""
INSTALL_S = 600.0
_BUILD_FILES = "conformance-built-of"


async def _install(command: list[str | Path], folder: Path, **environment: str) -> Ended:
    program = str(command[0])
    if shutil.which(program) is None:
        raise Unavailable(f"{program} is missing")
    ended = await run(command, within_s=INSTALL_S, folder=folder, environment=environment)
    if ended.code:
        raise Unavailable(f"{' '.join(map(str, command))} ended with {ended.code}: {ended.last_words}")
    return ended


async def go_tool(package: str) -> Path:
    """The program that ``go install`` makes of the package's newest version."""
    folder = CACHE / "bin" / package.replace("/", "-")
    program = folder / package.rsplit("/", 1)[-1]
    if not program.exists():
        folder.mkdir(parents=True, exist_ok=True)
        await _install(["go", "install", f"{package}@latest"], folder, GOBIN=str(folder))
    return program


async def go_program(sources: Path) -> Path:
    """Built of the folder, with stubs of the node's API as its package ``pb``."""
    folder = _copied(sources, "go")
    plugins = [await go_tool("google.golang.org/protobuf/cmd/protoc-gen-go")]
    plugins.append(await go_tool("google.golang.org/grpc/cmd/protoc-gen-go-grpc"))
    place = "Mdledger/v1/log.proto=conformance/pb;pb"
    if not _is_built(folder, [*sources.iterdir(), *plugins]):
        (folder / "pb").mkdir(exist_ok=True)
        compiler: list[str | Path] = [sys.executable, "-m", "grpc_tools.protoc", f"-I{PROTOS}", "dledger/v1/log.proto"]
        compiler += [f"--plugin={plugin.name}={plugin}" for plugin in plugins]
        compiler += [f"--{kind}_out=." for kind in ("go", "go-grpc")]
        compiler += [f"--{kind}_opt={place},module=conformance" for kind in ("go", "go-grpc")]
        await _install(compiler, folder)
        await _install(["go", "build", "-mod=mod", "-o", "check", "."], folder)
        _note_built(folder, [*sources.iterdir(), *plugins])
    return folder / "check"


async def java_classpath(sources: Path) -> str:
    """Of the project in the folder, compiled, with stubs of the node's API, and of what it depends on."""
    folder = _copied(sources, "java")
    inputs = [each for each in sources.rglob("*") if each.is_file()]
    listed = folder / "classpath"
    if not _is_built(folder, inputs):
        maven = ["mvn", "--quiet", "--batch-mode", f"-Ddledger.protos={PROTOS}", "compile"]
        await _install([*maven, "dependency:build-classpath", f"-Dmdep.outputFile={listed}"], folder)
        _note_built(folder, inputs)
    return f"{folder / 'target' / 'classes'}:{listed.read_text().strip()}"


async def node_program(sources: Path) -> Path:
    """The folder with its dependencies."""
    folder = _copied(sources, "node")
    if not _is_built(folder, sources.iterdir()):
        await _install(["npm", "install", "--no-audit", "--no-fund", "--silent"], folder)
        _note_built(folder, sources.iterdir())
    return folder / "check.js"


def _copied(sources: Path, name: str) -> Path:
    folder = CACHE / name
    shutil.copytree(sources, folder, dirs_exist_ok=True)
    return folder


def _is_built(folder: Path, inputs: Iterable[Path]) -> bool:
    note = folder / _BUILD_FILES
    return note.exists() and note.read_text() == _digest(inputs)


def _note_built(folder: Path, inputs: Iterable[Path]) -> None:
    (folder / _BUILD_FILES).write_text(_digest(inputs))


def _digest(inputs: Iterable[Path]) -> str:
    seen = hashlib.sha256()
    for each in sorted([*inputs, *PROTOS.rglob("*.proto")]):
        seen.update(str(each).encode() + b"\0" + each.read_bytes())
    return seen.hexdigest()
