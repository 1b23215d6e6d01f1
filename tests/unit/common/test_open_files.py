"""Some of the files that a process may open are kept back for the process itself."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys

import pytest

from dledger.common.open_files import KEPT_BACK, needed

ALL_TAKEN = f"""
import errno, os, resource, sys
most = int(sys.argv[1])
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
from dledger.common.open_files import keep_files_back, needed
limit = keep_files_back()
assert limit == most - min({KEPT_BACK}, most // 4), limit
taken = 0
try:
    while True:
        os.open(os.devnull, os.O_RDONLY)
        taken += 1
except OSError as reason:
    assert reason.errno == errno.EMFILE
assert taken < limit
opened = [needed(lambda: os.open(os.devnull, os.O_RDONLY)) for _ in range(most - limit)]
assert resource.getrlimit(resource.RLIMIT_NOFILE) == (limit, most)
try:
    needed(lambda: os.open(os.devnull, os.O_RDONLY))
except OSError as reason:
    assert reason.errno == errno.EMFILE
else:
    raise AssertionError("a file beyond the limit")
"""


@pytest.mark.parametrize("limit", [64, 4096])
def test_what_is_needed_is_opened_though_strangers_have_taken_all(limit: int) -> None:
    done = subprocess.run([sys.executable, "-c", ALL_TAKEN, str(limit)], capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr


def test_another_failure_is_raised_as_it_is() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    with pytest.raises(FileNotFoundError) as failure:
        needed(lambda: os.open("/nonexistent/file", os.O_RDONLY))
    assert failure.value.errno == errno.ENOENT
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == before
