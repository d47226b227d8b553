"""The batches of a streaming query, without Spark: offsets, limits, losses, groups."""

import pytest
from scan.scan_rows import produce
from spark.some_rows import rows

from barnabas.client import (
    Cluster,
    create_partitions,
    delete_records,
    delete_topics,
)
from barnabas.client.groups import commit_offsets, committed_offsets
from barnabas.spark.options import BadOption, parse_options
from barnabas.spark.planner import DataLoss
from barnabas.spark.stream import Limit, Point, Stream, document, point


@pytest.fixture
def stream_of(session_broker, request):
    """Makes streams with the broker of the test; a later one is a restart of the query."""
    broker = request.getfixturevalue("broker") if "broker" in request.fixturenames else None
    made = []

    def make(now_ms=None, **options):
        given = {"kafka.bootstrap.servers": (broker or session_broker).bootstrap_servers}
        given |= {name.replace("_", "."): str(value) for name, value in options.items()}
        parsed = parse_options(given, stream=True)
        made.append(Stream(parsed) if now_ms is None else Stream(parsed, now_ms))
        return made[-1]

    yield make
    for one in made:
        one.close()


def ranges(tasks):
    return [(t.piece.topic, t.piece.partition, t.piece.start, t.piece.end) for t in tasks]


def fill(broker, topic, count, partition=0, **options):
    produce(broker, topic, rows(count), partition=partition, **options)


@pytest.mark.topic(partitions=2)
def test_a_query_begins_where_its_options_say(session_broker, topic, stream_of):
    fill(session_broker, topic, 100)
    first = {(topic, 0): 0, (topic, 1): 0}
    last = {(topic, 0): 100, (topic, 1): 0}
    assert stream_of(subscribe=topic).initial().offsets == last  # as spark-sql-kafka
    earliest = stream_of(subscribe=topic, startingOffsets="earliest")
    assert earliest.initial().offsets == first
    given = f'{{"{topic}":{{"0":7,"1":-1}}}}'
    begun = stream_of(subscribe=topic, startingOffsets=given).initial()
    assert begun.offsets == first | {(topic, 0): 7}
    with Cluster(session_broker.bootstrap_servers) as cluster:
        commit_offsets(cluster, "begin", {topic: {0: 33}})
    started = stream_of(subscribe=topic, startingOffsets="group", kafka_group_id="begin").initial()
    assert started.offsets == first | {(topic, 0): 33}
    late = {"startingTimestamp": 4_000_000_000_000, "startingOffsetsByTimestampStrategy": "latest"}
    assert stream_of(subscribe=topic, **late).initial().offsets == last
    with pytest.raises(BadOption, match="has no record at or after the starting time"):
        stream_of(subscribe=topic, startingTimestamp=4_000_000_000_000).initial()


def test_where_a_query_begins_outlives_a_crash_in_its_first_batch(session_broker, topic, stream_of):
    """offsets/0 exists, commits/0 does not: the batch is run again after the topic has grown."""
    fill(session_broker, topic, 10)
    query = stream_of(subscribe=topic)
    begun = query.initial()
    fill(session_broker, topic, 5)
    kept = query.latest(begun)
    assert kept == begun and kept.offsets == {(topic, 0): 10}
    again = stream_of(subscribe=topic)
    assert again.tasks(again.initial(), kept) == []
    end = again.latest(kept)
    assert ranges(again.tasks(kept, end)) == [(topic, 0, 10, 15)]


@pytest.mark.topic(partitions=2, configs={"segment.bytes": 20_000})
def test_a_batch_keeps_within_its_limits(session_broker, topic, stream_of):
    fill(session_broker, topic, 3000)
    fill(session_broker, topic, 1000, partition=1)
    earliest = {"subscribe": topic, "startingOffsets": "earliest"}

    query = stream_of(**earliest, maxOffsetsPerTrigger=400)
    start = query.initial()
    end = query.latest(start)
    assert end.offsets == {(topic, 0): 300, (topic, 1): 100}  # in proportion to the waiting records
    all_of_it = query.latest(start, Limit(everything=True))
    assert all_of_it.offsets == {(topic, 0): 3000, (topic, 1): 1000}
    few = query.latest(start, Limit(offsets_max=40))
    assert few.offsets == {(topic, 0): 30, (topic, 1): 10}
    assert query.newest() == {(topic, 0): 3000, (topic, 1): 1000}

    now = [0]
    held = stream_of(lambda: now[0], **earliest, minOffsetsPerTrigger=5000, maxTriggerDelay="2m")
    start = held.initial()
    end = held.latest(start)
    assert end.offsets == {(topic, 0): 3000, (topic, 1): 1000}  # the first one does not wait
    fill(session_broker, topic, 10)
    now[0] = 119_999
    assert held.latest(end) == end
    now[0] = 120_000
    assert held.latest(end).offsets == end.offsets | {(topic, 0): 3010}
    held.stop_at_latest()
    late = held.latest(end)  # AvailableNow does not wait
    assert late.offsets == end.offsets | {(topic, 0): 3010}

    for source in ("files", "wire"):
        query = stream_of(**earliest, maxBytesPerTrigger=60_000, source=source)
        at, sizes = query.initial(), []
        while (end := query.latest(at)) != at:
            sizes.append(sum(end.offsets.values()) - sum(at.offsets.values()))
            at = end
        assert at.offsets == {(topic, 0): 3010, (topic, 1): 1000}
        assert len(sizes) > 1 and sizes[0] < 3000, (source, sizes)


def test_new_partitions_and_topics_join(broker, stream_of):
    broker.create_topic("news-1")
    fill(broker, "news-1", 10)
    query = stream_of(subscribePattern="news-.*", startingOffsets="latest")
    at = query.initial()
    assert query.latest(at) == at  # its start offset is kept
    with Cluster(broker.bootstrap_servers) as cluster:
        create_partitions(cluster, {"news-1": 2})
    fill(broker, "news-1", 3, partition=1)
    broker.create_topic("news-2")
    broker.create_topic("olds")
    fill(broker, "news-2", 4)
    fill(broker, "olds", 4)
    end = query.latest(at)
    assert end.offsets == {("news-1", 0): 10, ("news-1", 1): 3, ("news-2", 0): 4}
    assert ranges(query.tasks(at, end)) == [("news-1", 1, 0, 3), ("news-2", 0, 0, 4)]


def test_an_available_now_run_ends(session_broker, topic, stream_of):
    fill(session_broker, topic, 10)
    query = stream_of(subscribe=topic, startingOffsets="earliest")
    query.stop_at_latest()
    fill(session_broker, topic, 10)
    end = query.latest(query.initial())
    assert end.offsets == {(topic, 0): 10}
    assert query.latest(end) == end


def test_lost_records_are_named_before_the_checkpoint_knows_of_them(broker, stream_of):
    broker.create_topic("t")
    fill(broker, "t", 50)
    with Cluster(broker.bootstrap_servers) as cluster:
        delete_records(cluster, "t", {0: 20})
    asked = Point({("t", 0): 5})
    words = "partition 0 of topic t: offset 5 is wanted, but the log has offsets 20 to 50"
    with pytest.raises(DataLoss, match=words):
        stream_of(subscribe="t").latest(asked)
    with pytest.raises(DataLoss, match=words):
        stream_of(subscribe="t").tasks(asked, Point({("t", 0): 30}))
    beyond = "partition 0 of topic t: offsets up to 60 are wanted, but the log has offsets 20 to 50"
    with pytest.raises(DataLoss, match=beyond):
        stream_of(subscribe="t").tasks(Point({("t", 0): 30}), Point({("t", 0): 60}))
    allowed = stream_of(subscribe="t", failOnDataLoss="false")
    assert allowed.latest(asked).offsets == {("t", 0): 50}
    assert ranges(allowed.tasks(asked, Point({("t", 0): 30}))) == [("t", 0, 20, 30)]


def make_anew(broker, topic, count):
    with Cluster(broker.bootstrap_servers) as cluster:
        delete_topics(cluster, [topic])
    broker.create_topic(topic)
    fill(broker, topic, count)


# The old offset is inside the new topic, at its end, or beyond it.
@pytest.mark.parametrize("count", [70, 50, 30])
@pytest.mark.parametrize("restarted", [False, True])
def test_a_topic_made_anew_is_seen_by_its_id(session_broker, stream_of, topic, count, restarted):
    fill(session_broker, topic, 50)
    begun = {"subscribe": topic, "startingOffsets": "earliest"}
    strict, lenient = stream_of(**begun), stream_of(**begun, failOnDataLoss="false")
    ends = [query.latest(query.initial()) for query in (strict, lenient)]
    assert [end.offsets for end in ends] == [{(topic, 0): 50}] * 2
    make_anew(session_broker, topic, count)
    if restarted:
        strict, lenient = stream_of(**begun), stream_of(**begun, failOnDataLoss="false")
    with pytest.raises(DataLoss, match=f"topic {topic} was deleted and created again") as raised:
        strict.latest(ends[0])
    told = f"of topic {topic}: offset 50 is wanted, but the log has offsets 0 to {count}"
    assert told in str(raised.value)
    end = lenient.latest(ends[1])
    for _ in range(2):  # the second time, as after a crash before the batch's commit
        assert ranges(lenient.tasks(ends[1], end)) == [(topic, 0, 0, count)]
        lenient = stream_of(**begun, failOnDataLoss="false")
    assert lenient.latest(end) == end
    with pytest.raises(DataLoss, match="was deleted and created again"):
        stream_of(**begun).tasks(ends[1], end)


def test_a_topic_made_anew_before_its_batch_is_run_again(session_broker, stream_of, topic):
    fill(session_broker, topic, 50)
    begun = {"subscribe": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": 20}
    query = stream_of(**begun)
    start = query.initial()
    end = query.latest(start)
    make_anew(session_broker, topic, 70)
    with pytest.raises(DataLoss, match="offset 0 is wanted, but the log has offsets 0 to 70"):
        stream_of(**begun).tasks(start, end)
    lenient = stream_of(**begun, failOnDataLoss="false")
    assert lenient.tasks(start, end) == []  # those records belonged to the old topic
    following = lenient.latest(end)
    assert ranges(lenient.tasks(end, following)) == [(topic, 0, 0, 20)]


def test_ends_without_ids_get_them(session_broker, stream_of, topic):
    """Offsets of spark-sql-kafka have no topic ids: they are applied to the existing topics."""
    fill(session_broker, topic, 50)
    end = Point({(topic, 0): 50})
    query = stream_of(subscribe=topic)
    known = query.latest(end)
    assert known != end and known.offsets == end.offsets
    assert query.tasks(end, known) == [] and query.latest(known) == known
    make_anew(session_broker, topic, 70)
    for later in (query, stream_of(subscribe=topic)):
        with pytest.raises(DataLoss, match="was deleted and created again"):
            later.latest(known)


@pytest.mark.topic(partitions=2)
def test_the_group_gets_only_offsets_that_are_done(session_broker, topic, stream_of):
    fill(session_broker, topic, 20)
    options = {"subscribe": topic, "startingOffsets": "earliest"}
    query = stream_of(**options, commitOffsetsToGroup="told", maxOffsetsPerTrigger=8)

    def stands():
        with Cluster(session_broker.bootstrap_servers) as cluster:
            return committed_offsets(cluster, "told").get(topic)

    start = query.initial()
    first = query.latest(start)
    assert stands() == {0: 0, 1: 0}  # no part of it is finished
    query.tasks(start, first)
    assert stands() == {0: 0, 1: 0}
    query.latest(first)
    assert stands() == {0: 8, 1: 0}
    query.latest(first)
    query.done(Point({(topic, 0): 16, (topic, 1): 0}))
    assert stands() == {0: 16, 1: 0}


def test_a_topic_that_is_gone_does_not_hold_up_the_group(broker, stream_of):
    for topic in ("news-1", "news-2"):
        broker.create_topic(topic)
        fill(broker, topic, 5)
    options = {"subscribePattern": "news-.", "startingOffsets": "earliest"}
    query = stream_of(**options, failOnDataLoss="false", commitOffsetsToGroup="told")
    end = query.latest(query.initial())
    with Cluster(broker.bootstrap_servers) as cluster:
        delete_topics(cluster, ["news-2"])
        assert query.latest(end).offsets == {("news-1", 0): 5}
        assert committed_offsets(cluster, "told")["news-1"] == {0: 5}


def test_the_json_is_spark_sql_kafkas():
    offsets = {("b", 10): 1, ("b", 9): 2, ("a", 0): 3}
    found = document(Point(offsets))
    assert found == {"a": {"0": 3}, "b": {"9": 2, "10": 1}}
    assert list(found["b"]) == ["9", "10"]
    marked = Point(offsets, {"a": b"\1" * 16})
    assert document(marked) == found | {"a#AQEBAQEBAQEBAQEBAQEBAQ": {}}
    assert point(document(marked)) == marked and point(found) == Point(offsets)


def test_options_of_streams_are_checked():
    base = {"kafka.bootstrap.servers": "h:1", "subscribe": "t"}
    parsed = parse_options(base | {"maxTriggerDelay": "90s"}, stream=True)
    assert (parsed.delay_ms, parsed.start) == (90_000, "latest")
    for wrong, words in [
        ({"endingOffsets": "latest"}, "endingOffsets is an option of batches only"),
        (
            {"startingOffsets": "middle"},
            "startingOffsets of a stream must be latest, earliest, group",
        ),
        ({"maxTriggerDelay": "soon"}, "maxTriggerDelay must be a number with"),
        (
            {"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"},
            "minOffsetsPerTrigger 9 is above maxOffsetsPerTrigger 8",
        ),
    ]:
        with pytest.raises(BadOption, match=words):
            parse_options(base | wrong, stream=True)
    with pytest.raises(BadOption, match="commitOffsetsToGroup is an option of streams only"):
        parse_options(base | {"commitOffsetsToGroup": "g"})
