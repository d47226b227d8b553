"""Topics into files or Delta tables, batch after batch, each record once: `barnabas spark-load`.

    TO/TOPIC/batch=N/date=2026-11-22/hour=04/TOPIC+PARTITION+OFFSET.parquet     records of that hour
    TO/TOPIC/batch=N/_offsets/PARTITION+START.json    what a task read, and which files are its own
    TO/TOPIC/batch=N/_SUCCESS                         the audit: all of it together, as JSON
    TO/TOPIC/_complete/2026-11-22T04.json             that hour is complete: its counts
    TO/TOPIC/_complete/2026-11-22T04+late+N.json      records of it that came afterwards
    TO/_staging/QUERY/RUN/...                         what is being written

Hours are of the records' own time, UTC; records without one stand below hour=__HIVE_DEFAULT_
PARTITION__. OFFSET is that of the file's first record. Columns: key, value, headers, topic,
partition, offset, timestamp, timestampType, with the types of spark-sql-kafka.

The checkpoint is a Spark checkpoint (checkpoint.py). One batch:

1. `offsets/N` says to where it reads. Who finds that name taken is a second loader, and stops.
2. A task for each range of a partition reads it, writes files and its offsets below _staging.
3. The files of a topic, offsets and audit with them, get their names by one rename (files.py).
4. `commits/N`.

After a crash batch N is run again with the same ranges. What step 3 had published is recognized by
its audit, and not written again. What a failed task wrote stays below _staging and is deleted with
it. So a topic's batch is there whole and once, or not.

Into a Delta table the files go by Delta's writer, and step 3 is Delta's commit: delta.py.

Read on: layout.py, task.py, hour_files.py, hours.py, batches.py, loader.py; delta.py and
delta_table.py; session.py and java.py for Spark itself.
"""
