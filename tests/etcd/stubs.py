"""etcd's messages, by the name of their package."""

from dledger.etcdpb import kv_pb2 as kv
from dledger.etcdpb import rpc_pb2 as rpc

__all__ = ["kv", "rpc"]
