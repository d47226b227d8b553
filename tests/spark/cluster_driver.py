"""A driver for spark-submit: cluster_driver.py JSON reads a topic in a batch and in a stream, which
it writes into another topic, and prints its results as JSON.

JSON: servers, topic, other, place. The first attempt of the stream's first task stops
after it has passed on some rows, so that only a copy of it ends.
"""

import json
import os
import sys
import time

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from barnabas.spark import register

STOPPED_S = 600
FREE_S = 30
ATTEMPT_DIGITS = 200


def slowly(batches):
    context = TaskContext.get()
    is_slow = context.partitionId() == 0 and context.attemptNumber() == 0
    for count, batch in enumerate(batches):
        # More than the buffers on the way hold, so that rows reach the sink.
        attempt = str(context.attemptNumber()).zfill(ATTEMPT_DIGITS)
        yield batch.append_column("attempt", pa.array([attempt] * len(batch)))
        if is_slow and count == 2:
            time.sleep(STOPPED_S)


def place(_):
    time.sleep(0.3)
    return os.getcwd()


def main(text):
    given = json.loads(text)
    spark = SparkSession.builder.getOrCreate()
    register(spark)
    options = {
        "kafka.bootstrap.servers": given["servers"],
        "subscribe": given["topic"],
        "startingOffsets": "earliest",
    }

    rows = spark.read.format("barnabas").options(**options).load()
    (counted,) = rows.select(
        F.count("*").alias("all"), F.count_distinct("partition", "offset").alias("distinct")
    ).collect()

    rows = spark.readStream.format("barnabas").options(**options, batchBytes=5000).load()
    rows = rows.select("partition", "offset").mapInArrow(
        slowly, "partition int, offset bigint, attempt string"
    )
    written = rows.select(F.concat_ws("/", "partition", "offset", "attempt").alias("value"))
    writer = written.writeStream.format("barnabas").trigger(availableNow=True)
    writer = writer.option("checkpointLocation", given["place"])
    writer = writer.option("kafka.bootstrap.servers", given["servers"])
    writer = writer.option("topic", given["other"]).option("kafka.batch.size", 1000)
    writer.start().awaitTermination()

    # The copy ran on the other executor; the first one is free after Spark has ended the worker
    # that hangs, which takes two seconds.
    places, deadline = set(), time.monotonic() + FREE_S
    while len(places) < 2 and time.monotonic() < deadline:
        places |= set(spark.sparkContext.parallelize(range(4), 4).map(place).collect())
    print(json.dumps({"places": sorted(places), "driver": os.getcwd(), "counted": list(counted)}))


if __name__ == "__main__":
    main(sys.argv[1])
