"""The load generators that are written in Java, and the peers themselves, from Maven Central."""

from __future__ import annotations

import shutil
from functools import cache

from bench.peers.api import BENCH, BUILT, build, require
from bench.work import PeerMissing

JAVA = BUILT / "java"


@cache
def build_java(module: str) -> str:
    """Builds drivers/java/MODULE with what it depends on; returns the class path, once. Raises PeerMissing."""
    require("javac", "openjdk-17-jdk-headless")
    maven = require("mvn", "maven")
    command = [maven, "--quiet", "--batch-mode", "--projects", module, "--also-make", "package"]
    # Nothing else empties it: the jars of another version would stay on the class path.
    shutil.rmtree(JAVA / module / "lib", ignore_errors=True)
    build(command, BENCH / "drivers" / "java", f"{module} (Java)")
    return f"{JAVA / module / f'{module}-1.jar'}:{JAVA / module / 'lib'}/*"


def version_in(module: str, artifact: str) -> str:
    """The version of the jar that stands in the module's class path. Raises PeerMissing."""
    jar = next((JAVA / module / "lib").glob(f"{artifact}-[0-9]*.jar"), None)
    if jar is None:
        raise PeerMissing(f"{artifact} did not come with the build of {module}")
    return jar.stem.removeprefix(f"{artifact}-")
