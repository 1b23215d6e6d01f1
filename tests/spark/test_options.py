"""Options: what is understood, and the one sentence for what is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from dledger.common.errors import ConfigError
from dledger.spark.source_options import EARLIEST, LATEST, ReadOptions, WriteOptions

HERE = {"dledger.endpoints": "127.0.0.1:20912"}


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({}, "neither is given"),
        ({**HERE, "path": "/nowhere"}, "both are given"),
        ({"path": "/nowhere"}, "is no directory"),
        ({"dledger.endpoints": "nonsense"}, "is not an address"),
        ({**HERE, "startingOffset": "5"}, "did you mean startingOffsets"),
        ({**HERE, "subscribe": "topic"}, "knows no option 'subscribe': there are"),
        ({**HERE, "startingOffsets": "-7"}, "startingOffsets is '-7': give earliest, latest, an index, or JSON"),
        ({**HERE, "startingOffsets": "²"}, "startingOffsets is '²': give earliest"),
        ({**HERE, "startingOffsets": '{"default": true}'}, "give earliest, latest, an index"),
        ({**HERE, "minPartitions": "²"}, "give a whole number from 0"),
        ({**HERE, "startingOffsets": "9", "endingOffsets": "5"}, "nothing lies between"),
        ({**HERE, "startingTimestamp": "9", "endingTimestamp": "5"}, "nothing lies between"),
        ({**HERE, "startingTimestamp": "yesterday"}, "startingTimestamp is 'yesterday': give 2026-11-21T20:15"),
        ({"option.dledger.endpoint": "127.0.0.1:20912"}, "did you mean dledger.endpoints"),
        ({**HERE, "startingOffsets": "{oops"}, "startingOffsets is no JSON"),
        ({**HERE, "startingOffsets": '{"other": 5}'}, "says nothing of group 'default'"),
        ({**HERE, "startingOffsets": "latest"}, "a batch read from there would be empty"),
        ({**HERE, "endingOffsets": "earliest"}, "a read to there would be empty"),
        ({**HERE, "startingOffsets": "5", "startingTimestamp": "5"}, "both given"),
        ({**HERE, "endingOffsets": "5", "endingTimestamp": "5"}, "both given"),
        ({**HERE, "columns": "index,key"}, "columns names 'key': there are group, index"),
        ({**HERE, "columns": "index,index"}, "names one twice"),
        ({**HERE, "failOnDataLoss": "maybe"}, "give true or false"),
        ({**HERE, "minPartitions": "some"}, "give a whole number from 0"),
        ({**HERE, "timeoutMs": "0"}, "timeoutMs is 0"),
    ],
)
def test_what_a_read_cannot_use_is_refused_in_a_sentence(given: dict[str, str], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem) as refused:
        ReadOptions.parse(given)
    assert "\n" not in str(refused.value)


def test_a_stream_has_no_end() -> None:
    with pytest.raises(ConfigError, match="a stream has no end"):
        ReadOptions.parse({**HERE, "endingOffsets": "9"}, streaming=True)


def test_a_stream_begins_with_what_comes_and_a_batch_with_what_is_there() -> None:
    assert ReadOptions.parse(HERE, streaming=True).starting == LATEST
    assert ReadOptions.parse(HERE).starting == EARLIEST


def test_names_are_compared_without_case() -> None:
    given = {"DLEDGER.ENDPOINTS": "127.0.0.1:20912", "startingoffsets": "5", "FAILONDATALOSS": "False"}
    options = ReadOptions.parse(given)
    assert (options.starting, options.fail_on_data_loss) == (5, False)


def test_times_are_milliseconds_or_iso() -> None:
    options = ReadOptions.parse({**HERE, "startingTimestamp": "1970-01-01T00:00:01Z", "endingTimestamp": "2000"})
    assert (options.starting_timestamp_ms, options.ending_timestamp_ms) == (1_000, 2_000)


def test_the_properties_of_a_table_are_no_options() -> None:
    properties = {"owner": "root", "provider": "dledger", "comment": "x", "mine": "b"}
    given = {f"option.{name}": value for name, value in {**HERE, "columns": "value"}.items()}
    assert ReadOptions.parse({**given, **properties}).columns == ("value",)


def test_a_path_may_be_a_url_of_a_file(tmp_path: Path) -> None:
    assert ReadOptions.parse({"path": f"file:{tmp_path}"}).place.path == str(tmp_path)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"txnAppId": "import"}, "belong together"),
        ({"txnAppId": "ü" * 121, "txnVersion": "1"}, "txnAppId has 242 bytes: give a name of 1 to 240"),
        ({"txnAppId": "", "txnVersion": "1"}, "txnAppId has 0 bytes"),
        ({"txnAppId": "import", "txnVersion": "1750000000000"}, "count the runs of a name, from 0 to 4294967295"),
    ],
)
def test_a_write_has_a_name_and_a_number_that_the_log_can_keep(given: dict[str, str], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        WriteOptions.parse({**HERE, **given})


def test_a_stream_is_named_by_its_query() -> None:
    with pytest.raises(ConfigError, match="leave txnAppId and txnVersion out"):
        WriteOptions.parse({**HERE, "txnAppId": "import", "txnVersion": "1"}, streaming=True)


def test_an_empty_range_may_be_asked_for() -> None:
    options = ReadOptions.parse({**HERE, "startingOffsets": "5", "endingOffsets": "5"})
    assert (options.starting, options.ending) == (5, 5)


def test_a_stream_writer_is_handed_sparks_own_options_too() -> None:
    assert WriteOptions.parse({**HERE, "checkpointLocation": "/somewhere"}).app_id == ""
