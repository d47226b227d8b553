"""A driver for spark-submit: cluster_driver.py JSON reads a topic in a batch and in a stream, which
it writes into another topic, and says as JSON what it saw.

JSON: servers, topic, other, place. Of the stream's tasks the first attempt of the first one stops
when it has handed over some rows: only a copy of it ever ends.
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


def slowly(batches):
    context = TaskContext.get()
    is_slow = context.partitionId() == 0 and context.attemptNumber() == 0
    for count, batch in enumerate(batches):
        attempt = pa.array([context.attemptNumber()] * len(batch), pa.int64())
        yield batch.append_column("attempt", attempt)
        if is_slow and count == 1:
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
        slowly, "partition int, offset bigint, attempt bigint"
    )
    written = rows.select(F.concat_ws("/", "partition", "offset", "attempt").alias("value"))
    writer = written.writeStream.format("barnabas").trigger(availableNow=True)
    writer = writer.option("checkpointLocation", given["place"])
    writer = writer.option("kafka.bootstrap.servers", given["servers"])
    writer = writer.option("topic", given["other"]).option("kafka.batch.size", 1000)
    writer.start().awaitTermination()

    # Both executors are there by now: the copy ran on the other one.
    tasks = spark.sparkContext.parallelize(range(4), 4)
    places = sorted(set(tasks.map(place).collect()))
    print(json.dumps({"places": places, "driver": os.getcwd(), "counted": list(counted)}))


if __name__ == "__main__":
    main(sys.argv[1])
