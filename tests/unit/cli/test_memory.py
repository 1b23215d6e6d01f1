"""Memory that was freed is used again, not given back and fetched anew."""

from __future__ import annotations

import subprocess
import sys

import pytest

PAGE_BYTES = 4096
BATCH_BYTES = 1 << 20
ROUNDS = 50
COUNT_FAULTS = f"""
import resource
from dledger.common.memory import keep_freed_memory

{{preparation}}
record = bytes({BATCH_BYTES})
batch = b"".join((record, b"."))
del batch
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range({ROUNDS}):
    batches = [b"".join((record, b".")) for _ in range(8)]
    del batches
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def page_faults(preparation: str) -> int:
    script = COUNT_FAULTS.format(preparation=preparation)
    return int(subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's allocator")
def test_the_pages_of_freed_batches_are_kept() -> None:
    once = 8 * BATCH_BYTES // PAGE_BYTES
    assert page_faults("keep_freed_memory()") < 2 * once < page_faults("")
