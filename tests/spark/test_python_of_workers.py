"""The Python of the workers of a local master."""

import os
import subprocess
import sys

import pytest
from spark.spark_home import installed, quick_java, spark_home

DRIVER = """
import sys
from pyspark.sql import SparkSession
from barnabas.spark import register

builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
spark = builder.config("spark.driver.extraJavaOptions", sys.argv[3]).getOrCreate()
register(spark)
rows = spark.read.format("barnabas").option("kafka.bootstrap.servers", sys.argv[1])
print("rows:", rows.option("subscribe", sys.argv[2]).load().count())
"""
RUN_S = 120


@pytest.mark.skipif(not installed(), reason="PySpark is not installed")
def test_a_virtual_environment_need_not_be_activated(session_broker, topic, produce):
    """F38: after 18 s "Python worker failed to connect back": workers ran the python3 of PATH."""
    produce(topic, [b"a", b"b", b"c"])
    kept = ("HOME", "JAVA_HOME", "TMPDIR")
    environment = {name: os.environ[name] for name in kept if name in os.environ}
    environment |= {"PATH": "/usr/bin:/bin", "SPARK_LOCAL_IP": "127.0.0.1"}
    environment["SPARK_HOME"] = str(spark_home())
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, session_broker.bootstrap_servers, topic, quick_java()],
        env=environment,
        capture_output=True,
        text=True,
        timeout=RUN_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "rows: 3" in done.stdout
