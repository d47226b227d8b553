"""The Spark pipeline's parts: checkpoints, the planner of what a batch reads, source and sink.

Checkpoints and plans need no Spark (checkpoint.py, sink_log.py, planner.py, batch.py);
`register(spark)` makes the format `barnabas` known to a session (source.py, sink.py); decode.py is
for values in a schema registry's wire format.
"""

from typing import Any


def register(spark: Any) -> None:
    """spark.read.format("barnabas") works after it. Needs `barnabas[spark]`.

    The session hands filters to Python data sources from then on
    (spark.sql.python.filterPushdown.enabled), which the format insists on."""
    from barnabas.spark.source import BarnabasSource

    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    spark.dataSource.register(BarnabasSource)
