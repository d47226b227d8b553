"""Reads a topic's records as Arrow tables: this process reads and decodes the broker's files.

    from barnabas.scan import scan

    table = scan("news").to_arrow()                       # pyarrow.Table
    frame = scan("news", start=yesterday).to_polars()     # a datetime with a time zone
    duckdb.sql("select count(*) from records").show()     # records = scan("news").to_arrow()
    for columns in scan("news", partitions=[0]).batches():
        ...                                               # any user of Arrow's C interface

| column         | type                                                                       |
|----------------|----------------------------------------------------------------------------|
| partition      | int32                                                                      |
| offset         | int64                                                                      |
| timestamp      | timestamp[ms, UTC], null where a record has none                           |
| timestamp_type | int8: 0 CreateTime, 1 LogAppendTime, -1 none (messages of Kafka 0.8)       |
| key, value     | binary, null where the record has none                                     |
| headers        | list of {key binary, value binary}                                         |

The broker answers which offsets a consumer may read (high watermark, last stable offset) and where
its files are. When the files are on this machine, no record goes through the broker; otherwise the
scan reads them by Fetch, with the same rows. `snapshot` reads a sealed snapshot (`seal`) and needs
no broker. Only the methods that use pyarrow, pandas, polars and duckdb import them.

Read on: topic_scan.py, plan.py, readers.py, log_directory.py, sealed.py.
"""

from barnabas.scan.failures import (
    DamagedFiles,
    NoFilesHere,
    OutOfRange,
    ScanError,
    TopicRecreated,
)
from barnabas.scan.sealed import seal
from barnabas.scan.topic_scan import Scan, scan

__all__ = [
    "DamagedFiles",
    "NoFilesHere",
    "OutOfRange",
    "Scan",
    "ScanError",
    "TopicRecreated",
    "scan",
    "seal",
]
