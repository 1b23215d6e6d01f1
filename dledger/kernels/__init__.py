"""Checks of a history of operations, as kernels over Arrow batches with partial results that merge in any order.

The same code judges a history in one process (``kernel.judge``) and, by ``mapInArrow``, one beyond a machine's memory.
Needs numpy and pyarrow, which the extras [spark] and [jepsen] bring; nothing else of dledger imports it.
"""
