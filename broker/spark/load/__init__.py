"""Loads topics into files or Delta tables in batches, each record once: `barnabas spark-load`.

    TO/TOPIC/batch=N/date=2026-11-22/hour=04/TOPIC+PARTITION+OFFSET.parquet     records of that hour
    TO/TOPIC/batch=N/_offsets/PARTITION+START.json    the range of a task, and its files
    TO/TOPIC/batch=N/_SUCCESS                         the audit of the whole batch, as JSON
    TO/TOPIC/_complete/2026-11-22T04.json             this hour is complete: its counts
    TO/TOPIC/_complete/2026-11-22T04+late+N.json      the hour's records that came later, in batch N
    TO/_staging/QUERY/RUN/...                         files in progress

The hour of a record comes from its timestamp, UTC; records without one are below
hour=__HIVE_DEFAULT_PARTITION__. OFFSET is that of the file's first record. Columns: key, value,
headers, topic, partition, offset, timestamp, timestampType, with the types of spark-sql-kafka.

The checkpoint is a Spark checkpoint (checkpoint.py). One batch:

1. The loader writes `offsets/N`, the end offsets. If the name exists, a second loader runs, and
   this one stops.
2. For each range of a partition a task reads it, and writes files and its offsets below _staging.
3. One rename publishes the files of a topic, with offsets and audit (files.py).
4. The loader writes `commits/N`.

After a crash batch N runs again with the same ranges. The loader finds the topics that step 3 had
published by their audits, and does not write them again. Files of a failed task stay below _staging
and are deleted with it. So a topic's batch exists completely and once, or not at all.

For a Delta table, Delta's writer writes the files, and step 3 is Delta's commit: delta.py.

Read on: layout.py, task.py, hour_files.py, hours.py, batches.py, loader.py; delta.py and
delta_table.py; session.py and java.py for Spark itself.
"""
