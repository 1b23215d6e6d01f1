"""The store under faults: its clients, by etcd's API on every node, and the judgement of their histories."""
