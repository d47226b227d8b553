"""The Spark pipeline: checkpoints, the planner of batches, source and sink.

Checkpoints and plans need no Spark (checkpoint.py, sink_log.py, planner.py, batch.py);
`register(spark)` registers the format `barnabas` with a session (source.py, sink.py); decode.py
decodes values in a schema registry's wire format.
"""

from typing import Any


def register(spark: Any) -> None:
    """Registers the format `barnabas` with a session. Needs `barnabas[spark]`.

    It also sets spark.sql.python.filterPushdown.enabled, which the format requires: the session
    then hands filters to Python data sources."""
    from barnabas.spark.source import BarnabasSource

    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    spark.dataSource.register(BarnabasSource)
