"""etcd's v3 API over gRPC, in front of a store. The services translate; the store decides."""
