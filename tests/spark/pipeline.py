"""A pipeline that is killed: reads one log and writes another, as a process of its own.

python -m tests.spark.pipeline SOURCE-ENDPOINTS TARGET-ENDPOINTS CHECKPOINT
"""

from __future__ import annotations

import sys

from dledger.spark.session import local_session

BATCH_RECORDS = 2_000
PARTITIONS = 2


def main(source: str, target: str, checkpoint: str) -> None:
    """Runs until it is killed."""
    spark = local_session("pipeline", master="local[2,3]")
    records = (
        spark.readStream.format("dledger")
        .option("dledger.endpoints", source)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", BATCH_RECORDS)
        .option("minPartitions", PARTITIONS)
        .load()
    )
    query = (
        records.writeStream.format("dledger")
        .option("dledger.endpoints", target)
        .option("checkpointLocation", checkpoint)
        .trigger(processingTime="0 seconds")
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
