"""PySpark writes into topics: rows as spark-sql-kafka writes them, each exactly once after every
kill."""

import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from compat.killable import killable
from scan.scan_rows import consumed
from spark.conftest import session_settings
from spark.spark_home import environment

pytest.importorskip("pyspark", reason="needs barnabas[spark]")

import pyspark.cloudpickle
from pyspark.sql.types import StructType

from barnabas import Broker
from barnabas.client import (
    LATEST,
    CannotConnect,
    Cluster,
    NewTopic,
    create_topics,
    list_offsets,
)
from barnabas.client.partitioner import partition_of
from barnabas.errors import UnknownTopicOrPartition
from barnabas.spark.failures import BadRows, SinkError
from barnabas.spark.options import BadOption
from barnabas.spark.sink import StreamWriter, check_brokers, check_schema
from barnabas.spark.sink_commit import commit_batch
from barnabas.spark.sink_options import parse_sink_options
from barnabas.spark.source import BarnabasSource

pyspark.cloudpickle.register_pickle_by_value(sys.modules[__name__])

HERE = Path(__file__).parent
FILES, ROWS = 3, 60
WAITS = 0  # in place of a JVM's pid
SCHEMA = "key string, value string"


def wait_for(file):
    deadline = time.monotonic() + 100
    while not file.exists():
        assert time.monotonic() < deadline, f"{file} does not come"
        time.sleep(0.02)


class FaultyWriter(StreamWriter):
    """Kills the first process that reaches a step, and a JVM with it; or makes it
    wait there for a file."""

    def __init__(self, options, schema, step, flag, whom):
        super().__init__(options, schema)
        self.step, self.flag, self.whom = step, flag, whom

    def kill(self):
        try:
            os.close(os.open(self.flag, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return
        if self.whom == WAITS:
            wait_for(Path(f"{self.flag}.go"))
            return
        if self.whom is not None:
            os.kill(self.whom, signal.SIGKILL)  # the JVM
        os.kill(os.getpid(), signal.SIGKILL)

    def write(self, iterator):
        def pieces():
            yield from iterator
            if self.step == "task":
                self.kill()

        return super().write(pieces())

    def commit(self, messages, batchId):
        commit_batch(
            self.options,
            [one.written for one in messages],
            reached=lambda step: self.kill() if step == self.step else None,
        )


class FaultySource(BarnabasSource):
    """Additional options: fault.step, fault.flag (a file that is created then), fault.jvm (a
    pid)."""

    @classmethod
    def name(cls):
        return "faulty"

    def streamWriter(self, schema, overwrite):
        given = {name.lower(): value for name, value in self._given().items()}
        return FaultyWriter(
            parse_sink_options(given),
            schema,
            given.get("fault.step"),
            given.get("fault.flag"),
            int(given["fault.jvm"]) if "fault.jvm" in given else None,
        )


def sink(frame, broker, form="barnabas", **options):
    writer = frame.write.format(form).mode("append")
    writer = writer.option("kafka.bootstrap.servers", broker.bootstrap_servers)
    for name, value in options.items():
        writer = writer.option(name.replace("__", "."), value)
    writer.save()


def end_offsets(broker, topic, isolation=0):
    with Cluster(broker.bootstrap_servers) as cluster:
        times = dict.fromkeys(cluster.topic(topic).partitions, LATEST)
        rows = list_offsets(cluster, topic, times, isolation=isolation)
        return {index: row.offset for index, row in rows.items()}


def write_inputs(folder):
    folder.mkdir()
    for file in range(FILES):
        rows = [{"key": f"k{row}", "value": f"{file}/{row}"} for row in range(ROWS)]
        (folder / f"{file}.json").write_text("\n".join(map(json.dumps, rows)))
    return sorted(f"{file}/{row}" for file in range(FILES) for row in range(ROWS))


def run_query(spark, bootstrap_servers, topic, folder, form="barnabas", **options):
    """Runs a query over all input files, one in each batch. Returns the ended query."""
    rows = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(f"{folder}/in")
    writer = rows.repartition(2).writeStream.format(form).trigger(availableNow=True)
    writer = writer.option("checkpointLocation", f"{folder}/checkpoint")
    writer = writer.option("kafka.bootstrap.servers", bootstrap_servers).option("topic", topic)
    for name, value in options.items():
        writer = writer.option(name.replace("__", "."), value)
    query = writer.start()
    query.awaitTermination(200)
    assert not query.isActive
    return query


def seen(broker, topic):
    """Waits until no transaction is open, because markers come after the sink's commit."""
    deadline = time.monotonic() + 60
    while end_offsets(broker, topic, 0) != end_offsets(broker, topic, 1):
        assert time.monotonic() < deadline, "something stayed open"
        time.sleep(0.05)
    return sorted(row[5].decode() for row in consumed(broker, topic))


@pytest.mark.java
@pytest.mark.topic(partitions=3)
def test_a_batch_write_has_spark_sql_kafkas_rows(spark, session_broker, topic):
    other = session_broker.create_topic(f"{topic}-other")
    rows = [
        (topic, "a", "1", None, 2),
        (topic, None, "2", [("h", bytearray(b"x")), ("n", None)], 0),
        (topic, "c", None, [], 1),
        (other, "d", "4", None, None),
    ]
    frame = spark.createDataFrame(
        rows,
        "topic string, key string, value string,"
        " headers array<struct<key: string, value: binary>>, partition int",
    )
    sink(frame.selectExpr("*", "'passed over' as more"), session_broker)
    found = [(row[0], *row[4:]) for row in consumed(session_broker, topic)]
    assert found == [
        (0, None, b"2", ((b"h", b"x"), (b"n", None))),
        (1, b"c", None, ()),
        (2, b"a", b"1", ()),
    ]
    assert [row[4:] for row in consumed(session_broker, other)] == [(b"d", b"4", ())]
    # Partitioned by key with murmur2, as Java's clients do; and the option overrides the column.
    keyed = spark.createDataFrame([("ä",), ("b",), ("c",)], "key string")
    frame = keyed.selectExpr("cast(key as binary) as KEY", "key as value", "'nowhere' as topic")
    sink(frame, session_broker, topic=topic, kafka__compression__type="zstd")
    placed = {
        row[4].decode(): row[0] for row in consumed(session_broker, topic) if row[4] == row[5]
    }
    assert placed == {key: partition_of(key.encode(), 3) for key in ("ä", "b", "c")}
    session_broker.delete_topic(other)


@pytest.mark.java
@pytest.mark.topic(partitions=5)
def test_spark_sql_kafka_writes_the_same_rows(spark, session_broker, topic, kafka_format):
    other = session_broker.create_topic(f"{topic}-other", partitions=5)
    frame = spark.range(200).selectExpr(
        "if(id % 9 = 0, null, concat('key-', id)) as key",
        "if(id % 7 = 0, null, cast(concat('ü', id) as binary)) as value",
        "if(id % 5 = 0, array(struct('h' as key, cast(string(id) as binary) as value),"
        " struct('n' as key, cast(null as binary) as value)), null) as headers",
        "if(id % 9 = 0 or id % 4 = 0, cast(id % 5 as int), null) as partition",
    )
    sink(frame, session_broker, topic=topic)
    sink(frame, session_broker, form=kafka_format, topic=other)
    found = [
        sorted(((row[0], *row[4:]) for row in consumed(session_broker, name)), key=repr)
        for name in (topic, other)
    ]
    assert len(found[0]) == 200 and found[0] == found[1]
    session_broker.delete_topic(other)


@pytest.mark.java
def test_a_batch_that_fails_leaves_nothing(spark, session_broker, topic):
    frame = spark.createDataFrame([(i,) for i in range(100)], "i int").selectExpr(
        "cast(i as string) as value",
        f"if(i = 99, null, '{topic}') as topic",
    )
    with pytest.raises(Exception, match="a row's topic is null"):
        sink(frame.coalesce(1), session_broker)
    assert seen(session_broker, topic) == []


@pytest.mark.java
@pytest.mark.topic(partitions=2)
def test_a_query_writes_each_row_once_though_its_last_commit_is_gone(
    spark, session_broker, topic, tmp_path
):
    wanted = write_inputs(tmp_path / "in")
    run_query(spark, session_broker.bootstrap_servers, topic, tmp_path)
    assert seen(session_broker, topic) == wanted
    ends = end_offsets(session_broker, topic)
    # As if the driver died after the sink's commit and before Spark's.
    for name in (str(FILES - 1), f".{FILES - 1}.crc"):
        (tmp_path / "checkpoint" / "commits" / name).unlink()
    run_query(spark, session_broker.bootstrap_servers, topic, tmp_path)
    assert (tmp_path / "checkpoint" / "commits" / str(FILES - 1)).exists()  # it was run again
    assert seen(session_broker, topic) == wanted
    assert end_offsets(session_broker, topic) == ends  # and wrote nothing, not even a marker


@pytest.mark.java
@pytest.mark.parametrize("step", ["task", "claimed", "decided", "ended 1"])
def test_a_query_whose_worker_is_killed_writes_each_row_once(
    spark, session_broker, topic, tmp_path, step
):
    spark.dataSource.register(FaultySource)
    wanted = write_inputs(tmp_path / "in")
    fault = {"fault__step": step, "fault__flag": str(tmp_path / "fired")}
    place = spark, session_broker.bootstrap_servers, topic, tmp_path
    if step == "task":  # the task is retried
        run_query(*place, "faulty", **fault)
    else:
        with pytest.raises(Exception, match=r"(?i)python worker|crashed|eof|ended"):
            run_query(*place, "faulty", **fault)
    assert (tmp_path / "fired").exists()
    run_query(*place, "faulty", **fault)
    assert seen(session_broker, topic) == wanted


def main():
    """The driver of the next test, with another Spark."""
    from pyspark.sql import SparkSession

    given = json.loads(sys.argv[1])
    session = SparkSession.builder.master("local[2]").config(map=given["settings"]).getOrCreate()
    session.dataSource.register(FaultySource)
    jvm = session.sparkContext._jvm.java.lang.ProcessHandle.current().pid()
    place = given["servers"], given["topic"], given["folder"]
    run_query(session, *place, "faulty", fault__jvm=jvm, **given["fault"])


@pytest.mark.java
def test_a_query_whose_driver_is_killed_goes_on_in_another_spark(
    spark, session_broker, topic, tmp_path
):
    """The JVM and its processes are killed between the decision and the ends of transactions."""
    wanted = write_inputs(tmp_path / "in")
    servers = session_broker.bootstrap_servers
    fault = {"fault__step": "decided", "fault__flag": str(tmp_path / "fired")}
    given = {"servers": servers, "topic": topic, "folder": str(tmp_path)}
    given |= {"fault": fault, "settings": session_settings(tmp_path / "warehouse")}
    code = "from spark import test_sink; test_sink.main()"
    found = subprocess.run(
        [sys.executable, "-c", code, json.dumps(given)],
        env=os.environ | environment() | {"PYTHONPATH": str(HERE.parent)},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert (tmp_path / "fired").exists(), found.stderr[-3000:]
    assert found.returncode != 0
    assert not list((tmp_path / "checkpoint" / "commits").glob("[0-9]*"))
    spark.dataSource.register(FaultySource)
    run_query(spark, servers, topic, tmp_path, "faulty", **fault)
    assert seen(session_broker, topic) == wanted


def kill_at(broker, flag):
    wait_for(flag)
    broker.kill()
    broker.start()
    Path(f"{flag}.go").touch()


@pytest.mark.java
def test_a_broker_that_is_killed_and_comes_back_is_waited_for(spark, tmp_path):
    """The kill comes while a task writes, or between the decision and the ends; the query
    continues."""
    spark.dataSource.register(FaultySource)
    wanted = write_inputs(tmp_path / "in")
    settings = {"transaction.state.log.num.partitions": "2", "offsets.topic.num.partitions": "1"}
    killed = killable("barnabas", tmp_path / "broker", settings)
    killed.start()
    try:
        with Cluster(killed.address, patient=True) as cluster:
            create_topics(cluster, [NewTopic("t", 2, 1)])
        for step, files in (("task", FILES - 1), ("decided", FILES)):
            flag = tmp_path / step
            shown = tmp_path / "in" / f"{FILES - 1}.json"
            hidden = tmp_path / "later.json"
            os.rename(*((shown, hidden) if files < FILES else (hidden, shown)))
            fault = {"fault__step": step, "fault__flag": str(flag), "fault__jvm": WAITS}
            with ThreadPoolExecutor(1) as pool:
                killer = pool.submit(kill_at, killed, flag)
                run_query(spark, killed.address, "t", tmp_path, "faulty", **fault)
                killer.result()
        broker = SimpleNamespace(bootstrap_servers=killed.address)
        assert seen(broker, "t") == wanted
    finally:
        killed.stop()


# ------------------------------------------------------------------------------ what is wrong


def options(broker, **more):
    given = {"kafka.bootstrap.servers": broker.bootstrap_servers}
    given |= {name.replace("__", "."): value for name, value in more.items()}
    return parse_sink_options(given)


def schema_of(text):
    return StructType.fromDDL(text)


@pytest.mark.java
@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ("key string", "there is no column value"),
        ("value int, topic string", "column value is string or binary, not int"),
        ("value string", "there is no column topic"),
        ("value string, topic binary", "column topic is string, not binary"),
        ("value string, topic string, partition string", "column partition is int, not string"),
        ("value string, topic string, key double", "column key is string or binary, not double"),
        (
            "value string, topic string, headers array<string>",
            "headers is array<struct<key: string, value: binary>>, not array<string>",
        ),
    ],
)
def test_columns_are_checked(spark, session_broker, columns, words):
    with pytest.raises(BadRows, match=words):
        check_schema(schema_of(columns), options(session_broker))


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"kafka.bootstrap.servers": ""}, "bootstrap.servers is needed"),
        ({"kafka.transactional.id": "x"}, "names its transactional ids itself"),
        ({"kafka.acks": "1"}, "kafka.acks must be all"),
        ({"kafka.enable.idempotence": "false"}, "kafka.enable.idempotence must be true"),
        ({"kafka.compression.type": "rar"}, "kafka.compression.type must be one of"),
        ({"kafka.security.protocol": "TLS"}, "kafka.security.protocol is one of"),
        ({"kafka.security.protocol": "SASL_SSL"}, "kafka.sasl.jaas.config is not set"),
        ({"batchLimitMs": "60000", "kafka.transaction.timeout.ms": "60000"}, "is not below"),
        ({"batchLimitMs": "x"}, "batchLimitMs must be a number above 0"),
        ({"failOnLostRows": "perhaps"}, "failOnLostRows must be true"),
    ],
)
def test_options_of_the_sink_are_checked(wrong, words):
    base = {"kafka.bootstrap.servers": "h:1", "topic": "t"}
    assert parse_sink_options({k.upper(): v for k, v in base.items()}).topic == "t"
    with pytest.raises(BadOption, match=words):
        parse_sink_options(base | wrong)


def test_what_would_fail_in_every_task_fails_at_the_driver(session_broker, topic):
    with pytest.raises(BadOption, match=r"more than the brokers' transaction.max.timeout.ms=\d+"):
        check_brokers(options(session_broker, kafka__transaction__timeout__ms="999999999"))
    with pytest.raises(SinkError, match=f"ledger topic {topic} has cleanup.policy=delete"):
        check_brokers(options(session_broker, ledgerTopic=topic))


def test_a_closed_broker_and_an_unknown_topic_are_one_line():
    with Broker({"auto.create.topics.enable": "false"}) as broker:
        found = replace(options(broker, topic="absent"), delivery_ms=500)
        with pytest.raises(UnknownTopicOrPartition, match="there is no topic absent"):
            check_brokers(found)
    with pytest.raises(CannotConnect, match="cannot connect to 127.0.0.1"):
        check_brokers(found)
