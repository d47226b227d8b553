"""Faults on demand: each is set on a broker and hits a real client."""

import asyncio
import socket
import threading
import time

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as Partition
from kafka.errors import NotEnoughReplicasError
from testing.processes import address
from waiting import soon

from barnabas import Broker
from barnabas.client import admin
from barnabas.client.cluster import Cluster
from barnabas.client.offsets import list_offsets
from barnabas.errors import NotLeaderOrFollower, TopicAuthorizationFailed


@pytest.fixture(scope="module")
def one_broker():
    with Broker() as running:
        yield running


@pytest.fixture
def broker(one_broker):
    yield one_broker
    one_broker.clear_faults()


@pytest.fixture
def topic(broker, request):
    name = "".join(c if c.isalnum() else "-" for c in request.node.name)
    return broker.create_topic(name)


def producer_to(broker, **options):
    options = {name.replace("_", "."): value for name, value in options.items()}
    return Producer({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0} | options)


def produce(broker, topic, value, **options):
    """The delivery report of one record: None or its error."""
    said = []
    producer = producer_to(broker, **options)
    producer.produce(topic, value, on_delivery=lambda error, _: said.append(error))
    producer.flush(30)
    return said[0]


def consumed(broker, topic, count):
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "g",
            "enable.auto.commit": False,
            "log_level": 0,
            "fetch.error.backoff.ms": 10,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    values = []
    while len(values) < count:
        message = consumer.poll(20)
        assert message is not None, values
        if message.error() is None:
            values.append(message.value())
    consumer.close()
    return values


def test_produce_gets_the_error_as_often_as_asked_and_then_succeeds(broker, topic):
    fault = broker.fail("Produce", "NOT_LEADER_OR_FOLLOWER", times=2)
    assert produce(broker, topic, b"v", retry_backoff_ms=10) is None
    assert fault.fired == 2
    fault.wait(0)
    assert [row.value for row in broker.records(topic)] == [b"v"]


def test_an_error_that_no_retry_cures_reaches_the_application(broker, topic):
    broker.fail("Produce", NotLeaderOrFollower, times=None)
    broker.clear_faults()
    broker.fail("Produce", "TOPIC_AUTHORIZATION_FAILED")
    error = produce(broker, topic, b"v")
    assert error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert broker.records(topic) == []


def test_an_error_meets_each_client_library(broker, topic):
    fault = broker.fail("Produce", "NOT_ENOUGH_REPLICAS", times=1)
    with KafkaProducer(bootstrap_servers=broker.bootstrap_servers, retries=0) as producer:
        with pytest.raises(NotEnoughReplicasError):
            producer.send(topic, b"kafka-python").get(20)
    fault.wait(5)

    async def send():
        async with AIOKafkaProducer(
            bootstrap_servers=broker.bootstrap_servers, retry_backoff_ms=10
        ) as producer:
            await producer.send_and_wait(topic, b"aiokafka")

    with broker.fail("Produce", "NOT_LEADER_OR_FOLLOWER", times=3) as fault:
        asyncio.run(send())
        fault.wait(0)
    broker.assert_records(topic, ["aiokafka"])


def test_fetch_gets_an_error_with_and_without_a_session(broker, topic):
    assert produce(broker, topic, b"v") is None
    with broker.fail("Fetch", "NOT_LEADER_OR_FOLLOWER", times=2) as fault:
        assert consumed(broker, topic, 1) == [b"v"]  # librdkafka: no session
        fault.wait(0)
    consumer = KafkaConsumer(
        topic, bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest"
    )
    assert next(consumer).value == b"v"
    soon(lambda: consumer.poll(timeout_ms=50) == {})  # its session is incremental now
    with broker.fail("Fetch", "NOT_LEADER_OR_FOLLOWER", times=2) as fault:
        assert produce(broker, topic, b"w") is None  # ends the Fetch that was already waiting
        found = []
        soon(lambda: found.extend(got(consumer)) or fault.left == 0)
        assert produce(broker, topic, b"x") is None
        soon(lambda: found.extend(got(consumer)) or len(found) == 2)
    assert found == [b"w", b"x"]
    consumer.close()


def got(consumer):
    return [row.value for rows in consumer.poll(timeout_ms=100).values() for row in rows]


def test_a_fetch_whose_offset_is_out_of_range_starts_over(broker, topic):
    assert produce(broker, topic, b"v") is None
    consumer = KafkaConsumer(
        bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest"
    )
    consumer.assign([Partition(topic, 0)])
    consumer.seek(Partition(topic, 0), 1)
    with broker.fail("Fetch", "OFFSET_OUT_OF_RANGE") as fault:
        found = soon(lambda: consumer.poll(timeout_ms=100))
        fault.wait(0)
    assert [row.value for row in found[Partition(topic, 0)]] == [b"v"]
    consumer.close()


def test_metadata_keeps_its_brokers_and_fails_its_topics(broker, topic):
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
    with broker.fail("Metadata", "TOPIC_AUTHORIZATION_FAILED", topic=topic, times=None) as fault:
        found = admin.list_topics(topic, timeout=10)
        assert fault.fired >= 1
    assert found.topics[topic].error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert len(found.brokers) == 1
    assert admin.list_topics(topic, timeout=10).topics[topic].error is None


def test_an_administrator_gets_an_error(broker):
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
    with broker.fail("CreateTopics", "POLICY_VIOLATION") as fault:
        with pytest.raises(KafkaException) as raised:
            admin.create_topics([NewTopic("not-made", 1)])["not-made"].result(20)
        fault.wait(0)
    assert raised.value.args[0].code() == KafkaError.POLICY_VIOLATION
    assert "not-made" not in broker.topics


def test_a_delayed_request_is_carried_out_later(broker, topic):
    for api in ("Produce", "Metadata"):
        began = time.monotonic()
        with broker.delay(api, ms=300, client_id="late") as fault:
            assert produce(broker, topic, b"v", client_id="late") is None
            fault.wait(0)
        assert time.monotonic() - began >= 0.3
    assert len(broker.records(topic)) == 2


def test_a_delay_holds_up_no_other_request(broker, topic):
    broker.delay("Produce", ms=60_000, client_id="slow")
    slow = producer_to(broker, client_id="slow")
    slow.produce(topic, b"slow")
    slow.poll(0.2)
    for number in range(20):
        assert produce(broker, topic, b"%d" % number) is None
    assert len(broker.records(topic)) == 20
    slow.purge()


def test_an_error_may_come_late(broker, topic):
    began = time.monotonic()
    with broker.fail("Produce", "TOPIC_AUTHORIZATION_FAILED", delay_ms=200) as fault:
        assert produce(broker, topic, b"v").code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
        fault.wait(0)
    assert time.monotonic() - began >= 0.2


def test_a_dropped_request_was_not_carried_out(broker, topic):
    with broker.drop("Produce") as fault:
        error = produce(broker, topic, b"v", retries=0)
        fault.wait(0)
    assert error.code() == KafkaError._TRANSPORT or error.code() == KafkaError._MSG_TIMED_OUT
    assert broker.records(topic) == []


def test_a_request_dropped_after_was_carried_out_and_comes_again(broker, topic):
    with broker.drop("Produce", after=True) as fault:
        assert produce(broker, topic, b"twice", retry_backoff_ms=10) is None
        fault.wait(0)
    broker.assert_records(topic, ["twice", "twice"])
    once = broker.create_topic(f"{topic}-once")
    with broker.drop("Produce", after=True) as fault:
        assert produce(broker, once, b"once", retry_backoff_ms=10, enable_idempotence=True) is None
        fault.wait(0)
    broker.assert_records(once, ["once"])


def test_a_python_api_dropped_after_was_carried_out(broker):
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
    with broker.drop("CreateTopics", after=True) as fault:
        made = admin.create_topics([NewTopic("made-unheard", 1)], request_timeout=2)
        fault.wait(10)
        soon(lambda: "made-unheard" in broker.topics)
        with pytest.raises(KafkaException):
            made["made-unheard"].result(20)


def test_acks_0_has_no_answer_and_so_its_connection_closes(broker, topic):
    with broker.fail("Produce", "NOT_LEADER_OR_FOLLOWER") as fault:
        produce(broker, topic, b"lost", acks=0)
        fault.wait(10)
    assert produce(broker, topic, b"kept", acks=0) is None
    broker.assert_records(topic, ["kept"])


def test_a_rule_strikes_only_whom_it_names(broker, topic):
    other = broker.create_topic(f"{topic}-other")
    with broker.fail("Produce", "TOPIC_AUTHORIZATION_FAILED", topic=topic, times=None) as fault:
        assert produce(broker, other, b"v") is None
        assert fault.fired == 0
        assert produce(broker, topic, b"v").code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
        assert fault.fired == 1
    with broker.fail("Produce", "TOPIC_AUTHORIZATION_FAILED", client_id="a") as fault:
        assert produce(broker, topic, b"v", client_id="b") is None
        assert fault.fired == 0
        assert produce(broker, topic, b"v", client_id="a") is not None


def test_rules_strike_in_the_order_they_were_laid(broker, topic):
    first = broker.fail("Produce", "TOPIC_AUTHORIZATION_FAILED")
    second = broker.fail("Produce", "INVALID_RECORD")
    assert produce(broker, topic, b"v").code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert (first.fired, second.fired) == (1, 0)
    assert produce(broker, topic, b"v").code() == KafkaError.INVALID_RECORD
    assert produce(broker, topic, b"v") is None


def test_two_clients_share_the_strikes(broker, topic):
    fault = broker.fail("Produce", "NOT_LEADER_OR_FOLLOWER", times=5)
    threads = [
        threading.Thread(target=produce, args=(broker, topic, b"v"), kwargs={"retry_backoff_ms": 5})
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert (fault.fired, fault.left) == (5, 0)
    assert len(broker.records(topic)) == 8


def test_without_rules_produce_and_fetch_never_come_to_python(broker, topic):
    def counted():
        return broker.node.reactor.counters()["python_requests"]

    with broker.fail("Produce", "NOT_LEADER_OR_FOLLOWER"):
        assert produce(broker, topic, b"v", retry_backoff_ms=10) is None
    producer = producer_to(broker)
    producer.produce(topic, b"v")
    assert producer.flush(10) == 0
    before = counted()
    for _ in range(50):
        producer.produce(topic, b"v")
        assert producer.flush(10) == 0
    assert counted() - before < 10
    with broker.delay("Produce", ms=0, times=None):
        before = counted()
        for _ in range(50):
            producer.produce(topic, b"v")
            assert producer.flush(10) == 0
        assert counted() - before >= 50


def test_a_full_disk_fails_produces_until_space_is_free():
    with Broker() as broker:
        broker.create_topic("t")
        assert produce(broker, "t", b"before") is None
        with broker.fill_disk() as fault:
            error = produce(broker, "t", b"v", retries=0)
            assert error.code() == KafkaError.KAFKA_STORAGE_ERROR
            assert fault.fired >= 1
        assert [row.value for row in broker.records("t")] == [b"before"]
        broker.restart()
        assert produce(broker, "t", b"after") is None
        broker.assert_records("t", ["before", "after"])


def test_disk_faults_are_counted_each_for_itself():
    with Broker(durable=True) as broker:
        broker.create_topic("t")
        once = broker.fail_disk("fdatasync", 5, times=1)
        never = broker.fail_disk("unlink", 5)
        assert produce(broker, "t", b"v", retries=0) is not None
        never.clear()
        assert (once.fired, never.fired) == (1, 0)
        broker.clear_faults()
        assert once.fired == 1


def test_a_fault_that_cannot_be_is_refused_with_what_can(broker):
    with pytest.raises(ValueError, match="serves no API 'Fetsch'; it serves .*fetch"):
        broker.fail("Fetsch", "NOT_LEADER_OR_FOLLOWER")
    with pytest.raises(ValueError, match="no error 'NotLeader'"):
        broker.fail("Fetch", "NotLeader")
    with pytest.raises(ValueError, match="times is 0"):
        broker.fail("Fetch", "NOT_LEADER_OR_FOLLOWER", times=0)
    with pytest.raises(ValueError, match="delay_ms is -1"):
        broker.delay("Fetch", ms=-1)
    with pytest.raises(TimeoutError, match="applied 0 times within 0.01 s; 2 more"):
        broker.fail("Fetch", "NOT_LEADER_OR_FOLLOWER", times=2).wait(0.01)


def test_faults_are_those_of_the_protocol_for_every_api_that_is_served(broker):
    """The broker's own client sends each request of the request handlers for which it has a
    function."""
    broker.create_topic("asked")
    with Cluster(broker.bootstrap_servers) as cluster:
        asked = {
            "ListOffsets": lambda: list_offsets(cluster, "asked", {0: -1}),
            "DescribeConfigs": lambda: admin.describe_configs(
                cluster, admin.Resource(admin.TOPIC, "asked")
            ),
            "DescribeCluster": lambda: admin.describe_cluster(cluster),
            "DeleteTopics": lambda: admin.delete_topics(cluster, ["asked"]),
        }
        for api, ask in asked.items():
            with broker.fail(api, "TOPIC_AUTHORIZATION_FAILED", times=None) as fault:
                with pytest.raises(TopicAuthorizationFailed):
                    ask()
                assert fault.fired >= 1, api


def test_faults_laid_before_the_start_and_kept_over_a_restart():
    broker = Broker()
    fault = broker.fail("Produce", "NOT_LEADER_OR_FOLLOWER", times=2)
    with broker:
        broker.create_topic("t")
        broker.restart()
        assert produce(broker, "t", b"v", retry_backoff_ms=10) is None
        assert fault.fired == 2


def test_a_stop_lets_go_of_what_is_delayed():
    broker = Broker().start()
    broker.delay("ApiVersions", ms=60_000)
    with socket.create_connection(address(broker), timeout=10) as connection:
        connection.sendall(bytes.fromhex("0000000b 0012 0000 00000001 0001 78".replace(" ", "")))
        soon(lambda: broker.node.reactor.counters()["python_requests"] == 1)
        began = time.monotonic()
        broker.stop()
        assert time.monotonic() - began < 3
        assert connection.recv(1) == b""


def test_a_consumer_of_a_group_survives_errors_of_its_coordinator(broker, topic):
    assert produce(broker, topic, b"v") is None
    faults = [
        broker.fail("FindCoordinator", "COORDINATOR_NOT_AVAILABLE"),
        broker.fail("JoinGroup", "COORDINATOR_LOAD_IN_PROGRESS", client_id="member"),
        broker.fail("SyncGroup", "REBALANCE_IN_PROGRESS", client_id="member"),
        broker.fail("OffsetFetch", "COORDINATOR_LOAD_IN_PROGRESS", client_id="member"),
    ]
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "client.id": "member",
            "group.id": topic,
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
    )
    consumer.subscribe([topic])
    message = soon(lambda: consumer.poll(0.2))
    assert message.value() == b"v"
    assert [fault.fired for fault in faults] == [1, 1, 1, 1]
    with broker.fail("OffsetCommit", "GROUP_AUTHORIZATION_FAILED") as fault:
        with pytest.raises(KafkaException) as raised:
            consumer.commit(message, asynchronous=False)
        fault.wait(0)
    assert raised.value.args[0].code() == KafkaError.GROUP_AUTHORIZATION_FAILED
    consumer.close()


def test_offsets_of_transactions_are_struck_where_network_threads_take_them(broker, topic):
    producer = producer_to(broker, transactional_id=topic)
    producer.init_transactions(30)
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": topic})
    member = consumer.consumer_group_metadata()
    native = broker.node.serving.coordinators.groups._native
    for offset in range(3):
        producer.begin_transaction()
        served = native.served
        producer.send_offsets_to_transaction([TopicPartition(topic, 0, offset)], member, 30)
        assert native.served == served + 1
        producer.commit_transaction(30)
    producer.begin_transaction()
    with broker.fail("TxnOffsetCommit", "GROUP_AUTHORIZATION_FAILED") as fault:
        with pytest.raises(KafkaException) as raised:
            producer.send_offsets_to_transaction([TopicPartition(topic, 0, 9)], member, 30)
        fault.wait(0)
    assert raised.value.args[0].code() == KafkaError.GROUP_AUTHORIZATION_FAILED
    assert native.served == served + 1
    producer.abort_transaction(30)
    consumer.close()
