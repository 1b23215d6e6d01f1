"""How get and tail print records: by a format in kcat's style, with index and time, or as JSON."""

from __future__ import annotations

import base64

import pytest

from dledger.cli.record_format import PARTS, by_template
from dledger.common.errors import ConfigError
from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_log import FakeLog

RECORD = (17, 3, 1_500, [b"\xffa"])


@pytest.mark.parametrize(
    ("template", "printed"),
    [
        ("%o %T %s\\n", b"17 1500 \xffa\n"),
        ("%S bytes%%", b"2 bytes%"),
        ("%D|%E", b"1970-01-01T00:00:01.500Z|3"),
        ("\\x00\\t%o\\\\é", "\0\t17\\é".encode()),
        ("", b""),
    ],
)
def test_a_format_says_every_byte_that_is_printed(template: str, printed: bytes) -> None:
    assert by_template(template)(*RECORD) == printed


def test_the_records_of_a_batch_have_one_index_each() -> None:
    assert by_template("%o=%s,")(5, 1, 0, [b"a", b"b"]) == b"5=a,6=b,"


@pytest.mark.parametrize("template", ["%k", "%", "%s\\q", "\\", "\\x1"])
def test_what_a_format_cannot_say_is_refused_with_what_it_can(template: str) -> None:
    with pytest.raises(ConfigError, match="there are ") as refused:
        by_template(template)
    if "%k" in template:
        assert all(f"%{letter} " in str(refused.value) for letter in PARTS)


def test_get_and_tail_print_by_a_format(dledger: Run) -> None:
    log = FakeLog([b"one", b"two"])
    assert dledger("get", "-f", "%o %T %s\\n", ":", log=log).out == b"0 1000 one\n1 1000 two\n"
    assert dledger("tail", "--format", "%o;", log=log).out == b"0;1;"


def test_index_and_time_stand_before_the_line(dledger: Run) -> None:
    log = FakeLog([b"one", b"two"])
    assert dledger("get", "1", "--show-index", log=log).out == b"1\ttwo\n"
    shown = dledger("tail", "-n", "1", "--show-index", "--show-time", log=log).out
    assert shown == b"1\t1970-01-01T00:00:01.000Z\ttwo\n"


@pytest.mark.parametrize(
    "flags", [["-f", "%s", "--show-index"], ["-f", "%s", "-o", "json"], ["--show-time", "-o", "raw"]]
)
def test_two_ways_to_print_at_once_are_refused(dledger: Run, flags: list[str]) -> None:
    outcome = dledger("get", ":", *flags, log=FakeLog([b"one"]))
    assert (outcome.code, outcome.out) == (2, b"")
    assert "leave" in outcome.err


def test_json_has_the_text_of_a_record_that_is_utf_8(dledger: Run) -> None:
    value = 'né "17"\n'.encode()
    line = dledger("get", "0", "-o", "json", log=FakeLog([value])).last_json
    assert (line["text"], line["value"]) == (value.decode(), base64.b64encode(value).decode())
