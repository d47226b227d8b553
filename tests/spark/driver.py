"""A driver that a test kills: python driver.py JSON runs a query from a topic into parquet.

JSON: settings of the session, options of the source (and its format), place, and `pause_s`, how
long each task waits before it passes its rows on.
"""

import json
import sys
import time

from pyspark.sql import SparkSession

from barnabas.spark import register


def main(text):
    given = json.loads(text)
    builder = SparkSession.builder.master("local[2]")
    for name, value in given["settings"].items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    register(spark)
    pause_s = given["pause_s"]

    def slowly(batches):
        for batch in batches:
            time.sleep(pause_s)
            yield batch

    frame = spark.readStream.format(given["format"]).options(**given["options"]).load()
    frame = frame.select("partition", "offset", "value").mapInArrow(
        slowly, "partition int, offset bigint, value binary"
    )
    writer = frame.writeStream.format("parquet").option("path", given["place"] + "/sink")
    writer = writer.option("checkpointLocation", given["place"] + "/checkpoint")
    writer.trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    main(sys.argv[1])
