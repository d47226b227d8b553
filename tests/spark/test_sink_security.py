"""The sink over TLS with a user name and a password, with Apache Kafka: each row exactly once after
kills, no write by an unauthorized user, and the password in no log or file."""

import argparse
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from compat.secure_kafka import secure_kafka
from scan.scan_rows import consumed
from spark.loading import in_process, published
from spark.test_sink import FaultySource, run_query, seen, sink, write_inputs
from spark.test_sink_killed import Place

from barnabas.cli import spark_load
from barnabas.client import Cluster, NewTopic, NoTls, Producer, create_topics
from barnabas.client.groups import commit_offsets, committed_offsets
from barnabas.errors import SaslAuthenticationFailed
from barnabas.spark.load.loader import Loader
from barnabas.spark.progress import GroupCommits
from barnabas.spark.sink import CHECK_MS, check_brokers
from barnabas.spark.sink_options import LEDGER, parse_sink_options

pytestmark = pytest.mark.java

SECRETS = ("the-builder", "in wonderland", "not-this")


@pytest.fixture(scope="module")
def secure(tmp_path_factory):
    with secure_kafka(tmp_path_factory.mktemp("secure")) as found:
        yield found


@pytest.fixture
def topic(secure, request):
    name = request.node.name.partition("[")[0][:100]
    with Cluster(secure.bootstrap_servers) as cluster:
        create_topics(cluster, [NewTopic(name, 2, 1)])
    return name


def topics(secure):
    with Cluster(secure.bootstrap_servers) as cluster:
        return set(cluster.topics())


def given(options):
    """The options for the sink of tests, which sets the servers itself."""
    return {
        name.replace(".", "__"): value
        for name, value in options.items()
        if name != "kafka.bootstrap.servers"
    }


def plans(spark):
    """The plans in Spark's web pages and event log."""
    store = spark._jsparkSession.sharedState().statusStore()
    rows = store.executionsList()
    found = [rows.apply(i) for i in range(rows.size())]
    return [f"{one.description()}\n{one.physicalPlanDescription()}" for one in found]


def test_a_query_whose_task_is_killed_and_a_batch_write_row_by_row_once(
    spark, secure, topic, tmp_path, capfd
):
    spark.dataSource.register(FaultySource)
    wanted = write_inputs(tmp_path / "in")
    options = given(secure.options("SCRAM-SHA-512"))
    fault = {"fault__step": "task", "fault__flag": str(tmp_path / "fired")}
    place = spark, secure.address, topic, tmp_path
    query = run_query(*place, "faulty", **fault, **options)
    assert (tmp_path / "fired").exists()  # the task was killed and retried
    assert seen(secure, topic) == wanted
    frame = spark.createDataFrame(
        [("k", f"batch/{row}") for row in range(50)], "key string, value string"
    )
    by_another = given(secure.options("PLAIN"))
    sink(frame, SimpleNamespace(bootstrap_servers=secure.address), topic=topic, **by_another)
    assert seen(secure, topic) == sorted([*wanted, *(f"batch/{row}" for row in range(50))])

    told = capfd.readouterr()
    texts = [told.out, told.err, *(event.json for event in query.recentProgress), *plans(spark)]
    query.explain(extended=True)
    texts.append(capfd.readouterr().out)
    assert [row for row in consumed(secure, LEDGER) if b'"done"' in (row[5] or b"")]
    texts += [repr(row) for row in consumed(secure, LEDGER, isolation="read_uncommitted")]
    texts += [file.read_text("latin-1") for file in files_below(tmp_path / "checkpoint")]
    assert len(query.recentProgress) == 3 and "barnabas" in repr(texts)
    for secret in SECRETS:
        assert not [text for text in texts if secret in text]


def files_below(folder):
    return [path for path in Path(folder).rglob("*") if path.is_file()]


def test_driver_and_task_killed_over_tls(secure, tmp_path):
    """Recovery logs in, too: for the ledger, the ends of a decided batch, and open transactions;
    also if the query has another name then."""
    place = Place(tmp_path, secure.bootstrap_servers)
    steps = ["task 1 half", "decided"]
    for batch, step in enumerate(steps):
        place.options = secure.options(("SCRAM-SHA-256", "PLAIN")[batch % 2])
        place.options["ledgerTopic"] = "decisions"
        place.batches = batch + 1
        place.survive({"batch": batch, "step": step, "how": "kill"})
    place.end()
    place.check()
    rows = [repr(row) for row in consumed(secure, "decisions", isolation="read_uncommitted")]
    assert rows and not [row for row in rows for secret in SECRETS if secret in row]


WRONG = {
    "password": ({"password": "not-this"}, SaslAuthenticationFailed, "user bob at localhost:"),
    "certificate": ({"trusted": "other"}, NoTls, "certificate verify failed"),
    "no certificate": ({"trusted": "/none.pem"}, NoTls, "cannot read the truststore /none.pem: "),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_an_unauthorized_user_gets_one_clear_error_at_once_and_writes_nothing(secure, wrong):
    change, kind, words = WRONG[wrong]
    change = {name: secure.other if value == "other" else value for name, value in change.items()}
    options = secure.options("SCRAM-SHA-512", **change)
    found = parse_sink_options(options | {"topic": "nothing", "ledgerTopic": "no-ledger"})
    assert not [secret for secret in SECRETS if secret in repr(found)]
    began = time.monotonic()
    with pytest.raises(kind, match=words) as raised:
        check_brokers(found)
    assert time.monotonic() - began < CHECK_MS / 2000  # it is not retried
    assert "\n" not in str(raised.value)
    assert not [secret for secret in SECRETS if secret in str(raised.value)]
    assert not topics(secure) & {"nothing", "no-ledger"}


def test_sparks_own_error_has_the_reason_too(spark, secure, topic, tmp_path, capfd):
    write_inputs(tmp_path / "in")
    options = given(secure.options("SCRAM-SHA-512", password="not-this"))
    options["ledgerTopic"] = "no-ledger"
    frame = spark.createDataFrame([("k", "v")], "key string, value string")
    with pytest.raises(Exception, match="SaslAuthenticationFailed: user bob at localhost") as batch:
        sink(frame, SimpleNamespace(bootstrap_servers=secure.address), topic=topic, **options)
    with pytest.raises(Exception, match="SaslAuthenticationFailed: user bob at localhost") as query:
        run_query(spark, secure.address, topic, tmp_path, **options)
    told = capfd.readouterr()
    texts = [str(batch.value), str(query.value), told.out, told.err, *plans(spark)]
    assert not [secret for secret in SECRETS for text in texts if secret in text]
    assert not consumed(secure, topic, isolation="read_uncommitted")
    assert "no-ledger" not in topics(secure)


def test_a_load_logs_in_by_a_file(secure, topic, tmp_path):
    with parse_sink_options(secure.options("PLAIN")).cluster() as cluster:
        with Producer(cluster, topic) as producer:
            for row in range(40):
                producer.send(b"%d" % row, partition=row % 2)
        commit_offsets(cluster, "loader", {topic: {0: 5, 1: 0}})
    file = tmp_path / "client.properties"
    # Such files also have group.id and similar settings.
    settings = secure.settings("SCRAM-SHA-256") | {"group.id": "other"}
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    words = [topic, "-b", secure.address, "--to", f"{tmp_path}/lake", "--checkpoint"]
    words += [f"{tmp_path}/cp", "--first", "group", "--group", "loader", "--option", "source=wire"]
    parser = argparse.ArgumentParser()
    spark_load.configure(parser)
    found = spark_load.settings_of(parser.parse_args([*words, "--command-config", str(file)]))
    assert not [secret for secret in SECRETS if secret in repr(found)]
    list(Loader(found, in_process).batches())
    rows, _ = published(f"{tmp_path}/lake", topic)
    wanted = [(0, offset) for offset in range(5, 20)] + [(1, offset) for offset in range(20)]
    assert sorted(row[:2] for row in rows) == wanted
    texts = [path.read_text("latin-1") for path in files_below(tmp_path) if path != file]
    assert not [secret for secret in SECRETS for text in texts if secret in text]
    with Cluster(secure.bootstrap_servers) as cluster:
        assert committed_offsets(cluster, "loader") == {topic: {0: 20, 1: 20}}


def test_a_listener_commits_to_the_group_over_tls(secure, topic):
    listener = GroupCommits(secure.address, "nightly", options=secure.options("PLAIN"))
    source = {"endOffset": {topic: {"0": 7}}}
    progress = SimpleNamespace(name="any", sources=[source])
    listener.onQueryProgress(SimpleNamespace(progress=progress))
    with Cluster(secure.bootstrap_servers) as cluster:
        assert committed_offsets(cluster, "nightly") == {topic: {0: 7}}
