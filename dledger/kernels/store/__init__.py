"""Checks of a key-value store with etcd's semantics, each a pure function of a history: linearizability, transactions,
watches, leases and locks.

An operation of unknown outcome is never a failure. A check takes it as carried out where answers show its effect, and
otherwise as carried out or not, whichever the answers allow.
"""
