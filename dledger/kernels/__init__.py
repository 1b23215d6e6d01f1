"""Checks of a history of operations, as kernels over Arrow batches: their results come together in any order.

The same code judges a history in one process (``checks.check_history``) and, by Spark, one beyond a machine's disks.
Needs numpy and pyarrow, which the extras [spark] and [jepsen] bring; nothing else of dledger imports it.
"""
