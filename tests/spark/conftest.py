"""One Spark session for all tests of this folder that need one, because a JVM takes 15 s.

`spark` has the format `barnabas`, and spark-sql-kafka's `kafka` where bench/spark_sql_kafka/fetch
has installed it (`kafka_format` skips otherwise), and Delta where tests/delta/fetch has (`delta`
skips otherwise). A test leaves no query running and no setting changed (`no_query_is_left` checks
the first). Spark retries a failed task once.

The tests that share it have the mark `spark_session`: tests/run runs them in one process, and in
another one at the same time the tests that start their own.
"""

import os
from pathlib import Path

import pytest
from spark import mini_hdfs
from spark.spark_home import CACHE, environment, installed, quick_java, spark_home
from spark.store_fixtures import place_of, s3_server

CONNECTOR = Path(os.environ.get("BARNABAS_SPARK_HOME") or CACHE / "spark") / "4.2.0"
DELTA = Path(os.environ.get("BARNABAS_DELTA_HOME") or CACHE / "delta") / "4.4.0"
HERE = Path(__file__).parent
# Fixtures of tests with the mark spark_session.
SHARED = {"spark", "secure", "loaded"}
# Delta's default is 50 tasks for each read of a table with ten files.
DELTA_SETTINGS = {"spark.databricks.delta.snapshotPartitions": "2"}


def fetched_jars(place):
    """The jars; none if they were not fetched."""
    return sorted((place / "libs").glob("*.jar")) if (place / "complete").exists() else []


def connector_jars():
    return fetched_jars(CONNECTOR)


def session_settings(warehouse):
    """The settings of a session, also for tests that start their own driver."""
    return {
        "spark.ui.enabled": "false",
        "spark.driver.memory": "512m",
        "spark.driver.extraJavaOptions": quick_java(),
        "spark.jars": ",".join(map(str, connector_jars())),
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(warehouse),
    }


@pytest.fixture(scope="session", autouse=True)
def home_of_spark():
    """Sets SPARK_HOME, also for the processes of tests."""
    with pytest.MonkeyPatch.context() as patch:
        if installed():
            patch.setenv("SPARK_HOME", str(spark_home()))
        yield


@pytest.hookimpl(tryfirst=True)  # before -m looks at the marks
def pytest_collection_modifyitems(items):
    for item in items:
        if item.path.parent == HERE and SHARED & set(item.fixturenames):
            item.add_marker(pytest.mark.spark_session)


@pytest.fixture(scope="session")
def spark(tmp_path_factory):
    pytest.importorskip("pyspark", reason="needs barnabas[spark]")
    from pyspark.sql import SparkSession

    from barnabas.spark import register
    from barnabas.spark.load.delta_table import delta_conf

    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment().items():
            patch.setenv(name, value)
        builder = SparkSession.builder.master("local[2,2]")
        settings = session_settings(tmp_path_factory.mktemp("warehouse"))
        if delta_jars := fetched_jars(DELTA):
            settings = delta_conf(settings | DELTA_SETTINGS)
            settings["spark.jars"] = ",".join(map(str, [*connector_jars(), *delta_jars]))
        for name, value in settings.items():
            builder = builder.config(name, value)
        session = builder.getOrCreate()
        session.sparkContext.setLogLevel("ERROR")
        register(session)
        yield session
        session.stop()


@pytest.fixture
def kafka_format():
    """The name of spark-sql-kafka's format."""
    if not connector_jars():
        pytest.skip("needs spark-sql-kafka's jars: bench/spark_sql_kafka/fetch")
    return "kafka"


@pytest.fixture(scope="session")
def delta_jars():
    found = fetched_jars(DELTA)
    if not found:
        pytest.skip("needs Delta's jars: tests/delta/fetch")
    return found


@pytest.fixture
def delta(spark, delta_jars):
    """A Spark session with Delta in it."""
    return spark


@pytest.fixture(autouse=True)
def no_query_is_left(request):
    yield
    if "spark" in request.fixturenames:
        left = request.getfixturevalue("spark").streams.active
        for query in left:
            query.stop()
        assert not left, "this test left its queries running"


@pytest.fixture(scope="session")
def hdfs(tmp_path_factory):
    """A real HDFS for all tests of this process."""
    reason = mini_hdfs.missing()
    if reason:
        pytest.skip(reason)
    cluster = mini_hdfs.MiniHdfs(tmp_path_factory.mktemp("hdfs"))
    yield cluster
    cluster.close()


@pytest.fixture(scope="session")
def s3():
    """An S3 server for all tests of this process."""
    yield from s3_server()


@pytest.fixture(
    params=["local", pytest.param("hdfs", marks=pytest.mark.java), "s3"],
)
def store(request, monkeypatch):
    """The URL of an empty place on each kind of store."""
    return place_of(request.param, request, monkeypatch)
