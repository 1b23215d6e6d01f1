"""A key-value store with the semantics of etcd's v3 API, as a state machine on a group's log. No IO, no clock."""
