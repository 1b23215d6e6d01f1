"""Leases, locks and elections on the command line."""

from __future__ import annotations

import json
import signal
import sys

from tests.unit.cli.conftest import Kv, begin

HOLD = "import time; print(1, flush=True); time.sleep(60)"
SAY = "import os; print(os.environ['DLEDGER_LOCK_KEY'], os.environ['DLEDGER_LOCK_TOKEN'])"


def test_a_key_goes_with_its_lease(kv: Kv) -> None:
    granted = kv("lease-grant", "60", "-o", "json").last_json
    lease = granted["lease"]
    assert granted["ttl_s"] == 60
    assert kv("put", "a", "1", "--lease", lease).code == 0
    assert kv("get", "a", "-o", "json").last_json["lease"] == lease
    assert kv("lease-list").out.decode() == f"{lease}\n"
    assert kv("lease-keep-alive", lease, "--once").out.decode() == f"kept lease={lease} ttl_s=60\n"
    assert kv("lease-revoke", lease).out.decode() == f"revoked lease={lease}\n"
    assert kv("get", "a").code == 1
    assert kv("lease-list", "-o", "json").last_json == {"leases": []}


def test_a_lease_that_there_is_not_ends_with_5(kv: Kv) -> None:
    for command in ("lease-revoke", "lease-keep-alive"):
        outcome = kv(command, "ff")
        assert (outcome.code, outcome.err.count("\n")) == (5, 1)
    assert kv("lease-revoke", "0").code == 2


def test_a_lease_is_kept_until_the_command_is_interrupted(kv: Kv, address: str) -> None:
    lease = kv("lease-grant", "5", "-o", "json").last_json["lease"]
    with begin("lease", "keep-alive", lease, "--endpoints", address) as keeping:
        assert keeping.stdout is not None
        for _ in range(2):
            assert keeping.stdout.readline().startswith(b"kept ")
        keeping.send_signal(signal.SIGINT)
        assert keeping.wait(timeout=20) == 130


def test_a_command_runs_under_a_lock_and_knows_its_token(kv: Kv, address: str) -> None:
    with begin("lock", "job", "--endpoints", address, "--", sys.executable, "-c", SAY) as running:
        out, _ = running.communicate(timeout=30)
    key, token = out.decode().split()
    assert key.startswith("job/")
    assert running.returncode == 0
    with begin("lock", "job", "--endpoints", address, "--", sys.executable, "-c", SAY) as running:
        out, _ = running.communicate(timeout=30)
    assert int(out.split()[1]) > int(token)
    assert kv("get", "", "--prefix", "--count").out == b"0\n"


def test_the_exit_code_is_the_commands(address: str) -> None:
    with begin("lock", "job", "--endpoints", address, "--", sys.executable, "-c", "raise SystemExit(7)") as running:
        assert running.wait(timeout=30) == 7
    with begin("lock", "job", "--endpoints", address, "--", "/no/such/program") as running:
        assert running.wait(timeout=30) == 2


def test_a_lock_that_is_not_free_in_time_ends_with_3(address: str) -> None:
    with begin("lock", "job", "--endpoints", address, "--", sys.executable, "-c", HOLD) as one:
        assert one.stdout is not None
        one.stdout.readline()
        with begin("lock", "job", "--wait", "0.1", "--endpoints", address, "--", "true") as other:
            _, err = other.communicate(timeout=30)
            assert (other.returncode, b"not free" in err) == (3, True)
        one.send_signal(signal.SIGTERM)
        assert one.wait(timeout=30) == 130


def test_a_command_whose_lock_is_lost_is_ended(kv: Kv, address: str) -> None:
    with begin("lock", "job", "--ttl", "2", "--endpoints", address, "--", sys.executable, "-c", HOLD) as running:
        assert running.stdout is not None
        running.stdout.readline()
        kv("lease-revoke", kv("lease-list").out.decode().strip())
        _, err = running.communicate(timeout=30)
        assert running.returncode == 5
        assert b"is lost" in err


def test_the_elected_leads_until_it_is_interrupted(kv: Kv, address: str) -> None:
    with begin("elect", "boss", "one", "-o", "json", "--endpoints", address) as first:
        assert first.stdout is not None
        elected = json.loads(first.stdout.readline())
        assert kv("get", elected["key"]).out == b"one"
        with begin("elect", "boss", "two", "-o", "json", "--endpoints", address) as second:
            assert second.stdout is not None
            first.send_signal(signal.SIGINT)
            assert first.wait(timeout=30) == 130
            assert json.loads(second.stdout.readline())["token"] > elected["token"]
            second.send_signal(signal.SIGTERM)
            assert second.wait(timeout=30) == 130
    assert kv("get", "", "--prefix", "--count").out == b"0\n"
