"""Apache Kafka: three brokers that are controllers too (KRaft), and its own producer, from Maven Central."""

from __future__ import annotations

import subprocess
from pathlib import Path

from bench.peers.api import Peer
from bench.peers.java import build_java, version_in
from bench.processes import Child, answers, free_ports, wait_until
from bench.work import BULK, MeasurementFailed, Work
from dledger.cli.ports import LOOPBACK

BROKERS = 3
CLUSTER_ID = "ZGxlZGdlcnMgYmVuY2hlcw"
"""Sixteen bytes in base64. One of chance may begin with a dash, which its tools take for a flag."""
TOPIC = "bench"
AT_ONCE, BATCHING = ("0", str(256 << 10)), ("5", str(512 << 10))
"""Milliseconds that a producer lingers for more, and the bytes of a batch: for a call's latency, and for many."""
FORMAT_WITHIN_S = 60.0
MEMORY = ("-Xms1g", "-Xmx1g", "-XX:+UseG1GC")
CONFIG = """
process.roles=broker,controller
node.id={number}
listeners=PLAINTEXT://{host}:{port},CONTROLLER://{host}:{controller}
advertised.listeners=PLAINTEXT://{host}:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
controller.quorum.voters={voters}
log.dirs={logs}
offsets.topic.replication.factor=3
num.network.threads=2
num.io.threads=4
"""


class Kafka(Peer):
    """One partition, three replicas, acks=all: all in-sync replicas, not a majority."""

    name = "kafka"
    title = "Kafka, acks=all"
    client = "Java, its own"
    promise = "written by all in-sync replicas, not synced"
    syncs = False
    bulk = Work(BULK, 64_000)
    bulk_note = "64,000 sends at a time; the producer batches: linger.ms=5, batch.size=512 KiB"
    warmup_s = 1.5
    just_in_time = True
    topic_settings: tuple[str, ...] = ()

    def install(self) -> str:
        self._classes = build_java("kafka")
        return version_in("kafka", "kafka_2.13")

    def start(self, data: Path) -> None:
        data.mkdir(parents=True, exist_ok=True)
        ports = free_ports(2 * BROKERS)
        brokers, controllers = ports[:BROKERS], ports[BROKERS:]
        voters = ",".join(f"{number}@{LOOPBACK}:{port}" for number, port in enumerate(controllers))
        configs = [data / f"k{number}.properties" for number in range(BROKERS)]
        for number, config in enumerate(configs):
            addresses = {"port": brokers[number], "controller": controllers[number], "voters": voters}
            config.write_text(CONFIG.format(number=number, host=LOOPBACK, logs=data / f"k{number}", **addresses))
        self._format(configs)
        for number, config in enumerate(configs):
            self.servers.append(Child(self._java("kafka.Kafka", str(config), *MEMORY), data / f"k{number}.log"))
        wait_until(lambda: all(map(answers, brokers)), "Kafka's brokers serve", children=self.servers)
        bootstrap = ",".join(f"{LOOPBACK}:{port}" for port in brokers)
        self._driven_by(self._load(bootstrap, AT_ONCE, data / "client.log"))
        self._driven_by(self._load(bootstrap, BATCHING, data / "bulk.log"), BULK)

    def _load(self, bootstrap: str, producing: tuple[str, str], log: Path) -> Child:
        command = [*self._java("dev.dledger.bench.KafkaLoad", bootstrap), TOPIC, *producing, *self.topic_settings]
        return Child(command, log, talks=True)

    def _format(self, configs: list[Path]) -> None:
        commands = [
            [*self._java("kafka.tools.StorageTool", "format"), "-t", CLUSTER_ID, "-c", str(each)] for each in configs
        ]
        formatting = [
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            for command in commands
        ]
        try:
            said = [process.communicate(timeout=FORMAT_WITHIN_S)[0] for process in formatting]
        except subprocess.TimeoutExpired:
            for process in formatting:
                process.kill()
            raise MeasurementFailed(f"Kafka's storage was not formatted within {FORMAT_WITHIN_S:.0f} s") from None
        for process, words in zip(formatting, said, strict=True):
            if process.returncode:
                raise MeasurementFailed(f"Kafka's storage could not be formatted: {words.strip()}")

    def _java(self, name: str, argument: str, *flags: str) -> list[str]:
        return ["java", *flags, "-cp", self._classes, name, argument]


class KafkaSynced(Kafka):
    """With an fsync of every replica's log before it acknowledges."""

    name = "kafka-fsync"
    title = "Kafka, acks=all, flush.messages=1"
    promise = "fsync on all in-sync replicas"
    syncs = True
    topic_settings = ("flush.messages=1",)
