"""The Spark pipeline's parts: checkpoints, the planner of what a batch reads, the data source.

Checkpoints and plans need no Spark (checkpoint.py, sink_log.py, planner.py, batch.py);
`register(spark)` makes the format `barnabas` known to a session (source.py).
"""

from typing import Any


def register(spark: Any) -> None:
    """spark.read.format("barnabas") works after it. Needs `barnabas[spark]`."""
    from barnabas.spark.source import BarnabasSource

    spark.dataSource.register(BarnabasSource)
