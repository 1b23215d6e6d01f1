"""A long command that is interrupted ends, with all its processes, and says one word."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

COMMAND = """
import signal, sys, time
from tests.support.pool import processes, until_interrupted

def main():
    with processes(2) as pool:
        waiting = pool.submit(time.sleep, 600)
        pool.submit(int).result()
        print("ready", flush=True)
        waiting.result()
    return 0

sys.exit(until_interrupted(main))
"""


@pytest.mark.timeout(60)
def test_an_interrupt_ends_all_of_it_with_one_word() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", COMMAND], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "ready\n"
        running.send_signal(signal.SIGINT)
        _, said = running.communicate(timeout=30)
        assert said == "stopped\n"
        assert running.returncode == 130
