"""kill -9 of a Spark pipeline in the middle, again and again: is every record in the target once?

    python -m tests.spark.kills --kills 20

Kills the driver with its JVM and workers, or the JVM alone, or the leader of the target and then the driver, at a
random moment after the first record that a run appended. Prints one line of JSON, and exits with 0 only if nothing is
missing and nothing doubled, and kills met a micro-batch half-way.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle, islice
from pathlib import Path

from dledger.spark.session import BRIEF_JAVA
from tests.spark.clusters import Cluster, running

RECORDS_A_RUN = 20_000
"""So many are there to be copied when a run begins."""
RECORD_BYTES = 1_200
"""So that a task of a micro-batch appends several chunks."""
PATIENCE_S = 900.0
POLL_S = 0.02
LATEST_KILL_S = 2.0
MOST_RESTARTS = 10
VICTIMS = ("jvm", "driver", "leader", "driver")
"""Dealt in turn, so that every manner of killing is among the first few."""


class Pipeline:
    """A driver, its JVM and its workers in a process group; started again where it ends by itself, as Spark does on a
    machine that is too busy to connect in time."""

    def __init__(self, source: Cluster, target: Cluster, checkpoint: Path, log_file: Path) -> None:
        self._command = (sys.executable, "-m", "tests.spark.pipeline", source.endpoints, target.endpoints, checkpoint)
        self._log_file = log_file
        self._process = self._start()
        self._restarts = 0

    def _start(self) -> subprocess.Popen[bytes]:
        environment = {**os.environ, "JAVA_TOOL_OPTIONS": BRIEF_JAVA}
        with self._log_file.open("ab") as log:
            return subprocess.Popen(self._command, stdout=log, stderr=log, env=environment, start_new_session=True)

    def keep_running(self) -> None:
        if not self.runs:
            self._restarts += 1
            assert self._restarts <= MOST_RESTARTS, f"the pipeline ends by itself: {self.last_words()}"
            self._end_the_rest()
            self._process = self._start()

    @property
    def runs(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        """Everything that it started, at once."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def kill_jvm(self) -> None:
        """The JVM alone; the driver finds that out by itself, and is killed if it does not."""
        for pid in self._group():
            if "java" in (Path("/proc") / pid / "comm").read_text():
                os.kill(int(pid), signal.SIGKILL)
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self.kill()
        else:
            self._end_the_rest()

    def _group(self) -> Iterator[str]:
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    if os.getpgid(int(entry.name)) == self._process.pid:
                        yield entry.name
                except ProcessLookupError:
                    continue

    def _end_the_rest(self) -> None:
        for pid in self._group():
            os.kill(int(pid), signal.SIGKILL)

    def last_words(self) -> str:
        return self._log_file.read_text()[-2_000:]


def end_index(cluster: Cluster) -> int:
    with cluster.log() as log:
        return log.bounds()[1] + 1


def record_of(number: int) -> bytes:
    return (b"%d" % number).ljust(RECORD_BYTES, b".")


def fill(source: Cluster, start: int, end: int) -> None:
    source.append([record_of(number) for number in range(start, end)], batch=500)


def wait_until(grown: Cluster, beyond: int, pipeline: Pipeline) -> None:
    """Until the log has more than ``beyond`` records."""
    deadline = time.monotonic() + PATIENCE_S
    with grown.log() as log:
        while log.bounds()[1] + 1 <= beyond:
            pipeline.keep_running()
            assert time.monotonic() < deadline, f"nothing was appended: {pipeline.last_words()}"
            time.sleep(POLL_S)


@contextmanager
def pipeline_of(source: Cluster, target: Cluster, data: Path) -> Iterator[Pipeline]:
    pipeline = Pipeline(source, target, data / "checkpoint", data / "pipeline.log")
    try:
        yield pipeline
    finally:
        if pipeline.runs:
            pipeline.kill()


def play(data: Path, kills: int, seed: int) -> dict[str, int]:
    """The numbers of one whole story. ``mid_batch``: kills that left a micro-batch begun and not noted as done."""
    rng, done, mid_batch = random.Random(seed), Counter[str](), 0
    with running(data / "source") as source, running(data / "target", nodes=3) as target:
        records = 0
        for victim in islice(cycle(VICTIMS), kills):
            before = end_index(target)
            fill(source, records, before + RECORDS_A_RUN)
            records = before + RECORDS_A_RUN
            with pipeline_of(source, target, data) as pipeline:
                wait_until(target, before, pipeline)
                time.sleep(rng.uniform(0, LATEST_KILL_S))  # a random moment is what is wanted
                if victim == "leader":
                    kill_leader(target)
                    wait_until(target, end_index(target), pipeline)
                (pipeline.kill_jvm if victim == "jvm" else pipeline.kill)()
            done[victim] += 1
            mid_batch += is_mid_batch(data / "checkpoint")
            sys.stderr.write(f"{sum(done.values())} of {kills}: killed {victim}, {end_index(target)} records\n")
        with pipeline_of(source, target, data) as pipeline:
            wait_until(target, records - 1, pipeline)
        kinds = {f"{name}_kills": done[name] for name in sorted(set(VICTIMS))}
        return {"kills": kills, **kinds, "mid_batch": mid_batch, **judge(target, records)}


def is_mid_batch(checkpoint: Path) -> bool:
    """Whether Spark noted what a micro-batch is to be, and not that it is done."""
    begun, done = (
        max((int(each.name) for each in (checkpoint / folder).iterdir() if each.name.isdigit()), default=-1)
        for folder in ("offsets", "commits")
    )
    return begun > done


def kill_leader(target: Cluster) -> None:
    """And brings it back."""
    with target.log() as log:
        leader = log.status().leader
    if leader is not None:
        target.run(target.nodes.kill(leader))
        target.run(target.nodes.restart(leader))


def judge(target: Cluster, records: int) -> dict[str, int]:
    """The target against what was appended to the source, record by record."""
    found, unexpected = Counter[int](), 0
    with target.log() as log:
        for batch in log.read_batches():
            for record in batch.records():
                number = int(digits) if (digits := record.rstrip(b".")).isdigit() else -1
                if 0 <= number < records and record == record_of(number):
                    found[number] += 1
                else:
                    unexpected += 1
    return {
        "records": records,
        "missing": records - len(found),
        "doubled": found.total() - len(found),
        "unexpected": unexpected,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description="kill -9 of a Spark pipeline in the middle, again and again")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="dledger-kills-") as data:
        found = play(Path(data), arguments.kills, arguments.seed)
    sys.stdout.write(json.dumps(found) + "\n")
    bad = found["missing"] or found["doubled"] or found["unexpected"]
    return 1 if bad or not found["mid_batch"] else 0


if __name__ == "__main__":
    sys.exit(main())
