"""The systems that are measured side by side."""

from bench.peers.api import Peer
from bench.peers.dledger_java import DLedgerJava
from bench.peers.dledger_python import DLedgerPython, DLedgerPythonUnsynced
from bench.peers.etcd import Etcd
from bench.peers.kafka import Kafka, KafkaSynced
from bench.peers.nats import Nats
from bench.peers.pysyncobj import PySyncObj

OURS = DLedgerPython.name

PEERS: dict[str, type[Peer]] = {
    peer.name: peer
    for peer in (DLedgerPython, DLedgerPythonUnsynced, Etcd, Nats, DLedgerJava, Kafka, KafkaSynced, PySyncObj)
}
"""By name, ours first."""
