"""What a newcomer tries first: names are there to complete, endpoints come from the environment, and a client that is
used the wrong way says what to write."""

from __future__ import annotations

import importlib
import inspect
from typing import Any

import pytest

import dledger
from dledger.common import errors

HERE = "127.0.0.1:1"


@pytest.mark.parametrize("name", dledger.__all__)
def test_every_public_name_is_there_and_completes(name: str) -> None:
    assert name in dir(dledger)
    assert getattr(dledger, name) is not None


def test_nothing_that_is_not_public_completes() -> None:
    assert {name for name in dir(dledger) if not name.startswith("__")} <= set(dledger.__all__)


def test_every_error_can_be_caught_by_its_public_name() -> None:
    refusals = [
        each for _, each in inspect.getmembers(errors, inspect.isclass) if issubclass(each, dledger.DLedgerError)
    ]
    assert {each.__name__ for each in refusals} <= set(dledger.__all__)


def test_the_module_says_no_to_other_names() -> None:
    with pytest.raises(AttributeError):
        importlib.import_module("dledger").nonsense  # noqa: B018


@pytest.mark.parametrize("make", ["connect", "connect_blocking", "connect_cluster", "connect_cluster_blocking"])
def test_endpoints_are_those_of_the_environment_unless_they_are_given(
    monkeypatch: pytest.MonkeyPatch, make: str
) -> None:
    monkeypatch.delenv("DLEDGER_ENDPOINTS", raising=False)
    with pytest.raises(dledger.ConfigError, match="or set DLEDGER_ENDPOINTS"):
        getattr(dledger, make)()
    monkeypatch.setenv("DLEDGER_ENDPOINTS", "nonsense")
    with pytest.raises(dledger.ConfigError, match="'nonsense' is not an address"):
        getattr(dledger, make)()
    getattr(dledger, make)(HERE)


@pytest.mark.parametrize("make", ["connect", "connect_cluster"])
async def test_an_asyncio_client_says_how_it_is_entered(make: str) -> None:
    client: Any = getattr(dledger, make)(HERE)
    with pytest.raises(TypeError, match=rf"write `async with dledger.{make}\(…\) as …:`"):
        await client
    with pytest.raises(TypeError, match=rf"write `async with dledger.{make}\(…\) .*dledger.{make}_blocking"), client:
        pass


@pytest.mark.parametrize("make", ["connect_blocking", "connect_cluster_blocking"])
async def test_a_blocking_client_says_how_it_is_entered(make: str) -> None:
    client: Any = getattr(dledger, make)(HERE)
    with pytest.raises(TypeError, match=rf"write `with dledger.{make}\(…\) as …:`"):
        async with client:
            pass
