"""The Spark pipeline: checkpoints, the planner of batches, source and sink.

Checkpoints and plans need no Spark (checkpoint.py, sink_log.py, planner.py, batch.py);
`register(spark)` registers the format `barnabas` with a session (source.py, sink.py); decode.py
decodes values in a schema registry's wire format.
"""

import os
import sys
from typing import Any


def register(spark: Any) -> None:
    """Registers the format `barnabas` with a session. Needs `barnabas[spark]`.

    It also sets spark.sql.python.filterPushdown.enabled, which the format requires: the session
    then passes filters to Python data sources. With a local master and without PYSPARK_PYTHON,
    workers run this process's Python. Spark's default, the first `python3` of PATH, lacks PySpark
    and barnabas unless the virtual environment is activated."""
    from barnabas.spark.source import BarnabasSource

    _use_this_python(spark)
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    spark.dataSource.register(BarnabasSource)


def _use_this_python(spark: Any) -> None:
    if "PYSPARK_PYTHON" in os.environ or not hasattr(spark, "_sc"):  # a Connect session has no _sc
        return
    context = spark.sparkContext
    if context.master.startswith("local") and not context.getConf().contains(
        "spark.pyspark.python"
    ):
        context.pythonExec = sys.executable
