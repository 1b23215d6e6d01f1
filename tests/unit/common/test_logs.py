from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from dledger.common.errors import ConfigError
from dledger.common.logs import JsonFormatter, TextFormatter, setup_default_logging, setup_logging
from dledger.common.types import Role


def record(event: str, /, **fields: Any) -> logging.LogRecord:
    made = logging.makeLogRecord({"name": "dledger.x", "levelno": logging.INFO, "levelname": "INFO", "msg": event})
    made.created = 1_795_222_327.1234
    vars(made).update(fields)
    return made


def text(event: str, **fields: Any) -> str:
    return TextFormatter().format(record(event, **fields))


def test_a_text_line_has_time_level_logger_event_and_fields_in_order() -> None:
    line = text("became leader", term=3, node="n0")
    assert line == "2026-11-21T00:52:07.123Z info  dledger.x: became leader term=3 node=n0"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("two words", '"two words"'),
        ('say "x"', r'"say \"x\""'),
        ("a=b", '"a=b"'),
        ("", '""'),
        ("line\nbreak", r'"line\nbreak"'),
        (b"\x01\xff", "01ff"),
        (Role.LEADER, "leader"),
        (None, "null"),
        (True, "true"),
        (0.25, "0.25"),
        ("127.0.0.1:20911", "127.0.0.1:20911"),
        ("n0,n1", "n0,n1"),
        (ValueError("no"), "no"),
        (["n1", "n2"], "n1,n2"),
        ((1, Role.LEADER), "1,leader"),
        ([], '""'),
        ({"n1": 10, "n2": 5}, '"n1=10,n2=5"'),
    ],
)
def test_field_values_are_quoted_where_they_must_be(value: object, shown: str) -> None:
    assert text("event", field=value).endswith(f" event field={shown}")


def test_a_json_line_is_one_object_with_the_fields_as_they_are() -> None:
    line = JsonFormatter().format(record("became leader", term=3, role=Role.LEADER, raw=b"\x0a", ids=["n0"]))
    assert json.loads(line) == {
        "time": "2026-11-21T00:52:07.123Z",
        "level": "info",
        "logger": "dledger.x",
        "event": "became leader",
        "term": 3,
        "role": "leader",
        "raw": "0a",
        "ids": ["n0"],
    }


@pytest.mark.parametrize("formatter", [TextFormatter(), JsonFormatter()])
def test_an_event_is_one_line_whatever_it_holds(formatter: logging.Formatter) -> None:
    try:
        raise ValueError("first\nsecond")
    except ValueError:
        made = record("event\nwith break\r", peer="x\ny", exc_info=sys.exc_info())
    line = formatter.format(made)
    assert "\n" not in line
    assert "\r" not in line
    assert "ValueError: first" in line


@pytest.fixture
def _root_logger() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    root.handlers = []
    yield
    root.handlers, root.level = handlers, level


@pytest.mark.usefixtures("_root_logger")
def test_logs_go_to_stderr_once_however_often_they_are_set_up(capsys: pytest.CaptureFixture[str]) -> None:
    setup_logging("text", "info")
    setup_logging("json", "warning")
    log = logging.getLogger("dledger.x")
    log.info("quiet")
    log.warning("loud", extra={"node": "n0"})
    logging.getLogger().handlers[0].flush()
    out, err = capsys.readouterr()
    assert out == ""
    assert [json.loads(line)["event"] for line in err.splitlines()] == ["loud"]


@pytest.mark.usefixtures("_root_logger")
def test_libraries_say_nothing_of_their_insides_at_debug(capsys: pytest.CaptureFixture[str]) -> None:
    setup_logging("text", "debug")
    for name in ("grpc._cython.cygrpc", "asyncio"):
        logging.getLogger(name).debug("a library's %s", name)
    logging.getLogger("dledger.x").debug("our own")
    logging.getLogger().handlers[0].flush()
    assert "our own" in (said := capsys.readouterr().err)
    assert "a library's" not in said


def test_a_program_without_logs_of_its_own_is_shown_warnings_with_their_fields() -> None:
    program = (
        "import logging; from dledger.common.logs import setup_default_logging as setup;"
        "setup(); setup();"
        "log = logging.getLogger('dledger.x'); log.info('quiet'); log.warning('cannot connect', extra={'peer': 'n1'})"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    [line] = done.stderr.splitlines()
    assert line.endswith("dledger.x: cannot connect peer=n1")


@pytest.mark.usefixtures("_root_logger")
def test_a_program_with_logs_of_its_own_keeps_them_as_they_are() -> None:
    logging.basicConfig(handlers=[logging.NullHandler()], force=True)
    before = logging.getLogger("dledger").handlers[:]
    setup_default_logging()
    assert logging.getLogger("dledger").handlers == before


@pytest.mark.parametrize(("format_", "level"), [("xml", "info"), ("text", "chatty")])
def test_an_unknown_format_or_level_is_a_config_error(format_: str, level: str) -> None:
    with pytest.raises(ConfigError, match="is not a log"):
        setup_logging(format_, level)


def test_no_field_can_pose_as_the_event() -> None:
    line = JsonFormatter().format(record("as it was", event="forged", level="forged"))
    assert (json.loads(line)["event"], json.loads(line)["level"]) == ("as it was", "info")
