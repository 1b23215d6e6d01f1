"""A Spark session for one command, and how the command shows what it does and found. Needs the extra [spark]."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from dledger.cli.output import Progress, print_fields, print_json
from dledger.common.errors import ConfigError, DLedgerError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL_MASTER = "local[*,3]"
NEEDED_LOCALLY = ("pyarrow", "numpy")
NEEDED = ("pyspark", *NEEDED_LOCALLY)


def require_extra(needed: Sequence[str] = NEEDED) -> None:
    """Raises CONFIG_ERROR if Spark is not installed."""
    missing = [name for name in needed if find_spec(name) is None]
    if missing:
        raise ConfigError(f"dledger spark needs {missing[0]}: pip install 'dledger[spark]'")


@contextmanager
def session(name: str, master: str, *, is_brief: bool = False) -> Iterator[SparkSession]:
    """A session of this command, ended with it. What fails in it is told in one sentence. ``is_brief``: one of minutes
    at most, on this machine."""
    require_extra()
    from dledger.spark.session import (  # noqa: PLC0415  # not for --help
        BRIEF_CONF,
        ended_quietly,
        local_session,
        sentence_of,
    )

    logging.getLogger("py4j").setLevel(logging.ERROR)
    made = local_session(f"dledger {name}", master=master, conf=BRIEF_CONF if is_brief else None)
    try:
        yield made
    except DLedgerError:
        raise
    except ConnectionError as gone:  # to the JVM: the log's own are DLedgerErrors
        raise ConfigError(
            "Spark's JVM ended in the middle, most likely for want of memory: give it more, SPARK_DRIVER_MEMORY=4g"
        ) from gone
    except Exception as failure:
        sentence = sentence_of(failure)
        if sentence is None:  # Spark's own: what it says is asked of the JVM, which ends here
            raise RuntimeError(f"Spark failed: {failure}") from None
        raise sentence from failure
    finally:
        ended_quietly(made)


@contextmanager
def progress_of(label: str) -> Iterator[Callable[[str, float], None]]:
    """A line on stderr that follows the job."""
    with Progress(label, 1.0) as line:
        yield lambda what, share: line.update(max(0.0, share), what)


def show(word: str, found: dict[str, Any], output: str) -> None:
    """The job's one line."""
    if output == "json":
        print_json(found)
    else:
        print_fields(word, found)
