"""CreatePartitions, DeleteRecords, DescribeLogDirs, DescribeCluster and other descriptions."""

import json
import os
from contextlib import closing

from api.admin_calls import admin_on
from compat.support import Wire

from barnabas.cext.record.records import Record
from barnabas.wire import request
from barnabas.wire.batches import encode_batch

OUT_OF_RANGE, UNKNOWN_TOPIC, BAD_PARTITIONS, BAD_REPLICAS, INVALID_REQUEST = 1, 3, 37, 39, 42
POLICY, FENCED, FUTURE_EPOCH, STORAGE = 44, 74, 75, 56


def grow(admin, name, count, assignments=None, only=False, times=1):
    rows = None if assignments is None else [{"brokerIds": list(ids)} for ids in assignments]
    topics = [{"name": name, "count": count, "assignments": rows}] * times
    return admin.call(37, 3, topics=topics, timeoutMs=9000, validateOnly=only).results[0].errorCode


def test_added_partitions_can_be_written_and_stay(tmp_path):
    with admin_on(tmp_path, node_id="1", auto_create_topics_enable="false") as a:
        a.create("t")
        assert a.produce("t") == 0
        assert grow(a, "t", 4, only=True) == 0
        assert a.produce("t", partition=1) == UNKNOWN_TOPIC
        assert grow(a, "t", 3) == 0
        assert [a.produce("t", partition=index) for index in range(4)] == [0, 0, 0, UNKNOWN_TOPIC]
        assert grow(a, "t", 5, assignments=[[1], [1]]) == 0
        assert a.produce("t", partition=4) == 0
    with admin_on(tmp_path, node_id="1") as a:
        assert [a.offset("t", -1, index) for index in range(5)] == [2, 1, 1, 0, 1]


def test_minus_one_means_the_brokers_defaults_in_every_version(tmp_path):
    with admin_on(tmp_path, num_partitions="3") as a:
        for version in range(8):
            topic = {"name": f"t{version}", "numPartitions": -1, "replicationFactor": -1}
            topic |= {"assignments": [], "configs": []}
            asked = {"topics": [topic], "timeoutMs": 9000}
            if version >= 1:
                asked["validateOnly"] = False
            assert a.call(19, version, **asked).topics[0].errorCode == 0, version
            assert len(a.directories(f"t{version}")) == 3, version


def test_what_cannot_be_added(tmp_path):
    with admin_on(tmp_path, node_id="1") as a:
        a.create("t", 2)
        assert grow(a, "t", 2) == grow(a, "t", 1) == grow(a, "t", 0) == BAD_PARTITIONS
        assert grow(a, "t", 2**31 - 1) == BAD_PARTITIONS
        assert grow(a, "absent", 2) == UNKNOWN_TOPIC
        assert grow(a, "t", 3, times=2) == INVALID_REQUEST
        for wrong in ([], [[9]], [[1], [1]], [[1, 1]], [[]]):
            assert grow(a, "t", 3, assignments=wrong) == BAD_REPLICAS
        assert len(a.directories("t")) == 2


def test_create_partitions_answers_with_a_row_for_each_topic_of_any_fate(tmp_path):
    """Early versions answered with an empty list, which clients took for success or failed on."""
    with admin_on(tmp_path, node_id="1") as a:
        a.create("t")
        a.create("u")
        wanted = {"t": (3, 0), "u": (1, BAD_PARTITIONS), "absent": (2, UNKNOWN_TOPIC)}
        topics = [{"name": n, "count": c, "assignments": None} for n, (c, _) in wanted.items()]
        for version in (0, 1, 2, 3):
            for only in (True, version < 3):
                told = a.call(37, version, topics=topics, timeoutMs=9000, validateOnly=only)
                assert {row.name: row.errorCode for row in told.results} == {
                    name: code for name, (_, code) in wanted.items()
                }
        assert a.call(37, 3, topics=[], timeoutMs=9000, validateOnly=False).results == []
        assert len(a.directories("t")) == 3 and len(a.directories("u")) == 1


def delete_records(admin, offset, topic="t", partition=0, times=1):
    rows = [{"partitionIndex": partition, "offset": offset}] * times
    topics = [{"name": topic, "partitions": rows}]
    row = admin.call(21, 2, topics=topics, timeoutMs=9000).topics[0].partitions[0]
    return row.errorCode, row.lowWatermark


def test_deleted_records_do_not_come_back(tmp_path):
    with admin_on(tmp_path, auto_create_topics_enable="false") as a:
        a.create("t")
        a.produce("t", 4)
        a.produce("t", 4)
        assert delete_records(a, 5) == (0, 5)
        assert "t 0 5" in (a.data / "log-start-offset-checkpoint").read_text().splitlines()
        assert delete_records(a, 3) == (0, 5)
        assert delete_records(a, 9) == delete_records(a, -2) == (OUT_OF_RANGE, -1)
        assert delete_records(a, 5, times=2) == (INVALID_REQUEST, -1)
        assert delete_records(a, 0, topic="absent") == (UNKNOWN_TOPIC, -1)
        assert a.offset("t", -2) == 5
    with admin_on(tmp_path) as a:
        assert a.offset("t", -2) == 5
        assert delete_records(a, -1) == (0, 8)
        assert (a.offset("t", -2), a.offset("t", -1)) == (8, 8)
        assert a.produce("t") == 0 and a.offset("t", -1) == 9


def test_a_log_start_that_cannot_be_kept_is_an_error(tmp_path, monkeypatch):
    with admin_on(tmp_path) as a:
        a.create("t")
        a.produce("t", 4)

        def full(*_):
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr("barnabas.storage.checkpoints.replace_file", full)
            assert delete_records(a, 2) == (STORAGE, -1)
        assert delete_records(a, 2) == (0, 2)


def test_a_compacted_topic_keeps_its_records(tmp_path):
    with admin_on(tmp_path) as a:
        a.create("t", cleanup_policy="compact")
        assert delete_records(a, 0) == (POLICY, -1)
        a.create("both", cleanup_policy="compact,delete")
        assert delete_records(a, 0, topic="both") == (0, 0)


def test_log_dirs_show_sizes_and_free_space(tmp_path):
    more = f"{tmp_path}/data,{tmp_path}/more"
    with admin_on(tmp_path, **{"log.dirs": more}) as a:
        a.create("t", 2)
        a.produce("t", 10, size=100)
        results = a.call(35, 5, topics=None).results
        assert [row.logDir for row in results] == more.split(",")
        found = {
            (topic.name, row.partitionIndex): row.partitionSize
            for result in results
            for topic in result.topics
            for row in topic.partitions
        }
        files = {path.parent.name: path.stat().st_size for path in tmp_path.glob("*/t-*/*.log")}
        assert found == {("t", 0): files["t-0"], ("t", 1): files["t-1"]} and files["t-0"] > 1000
        volume = os.statvfs(tmp_path)
        assert results[0].totalBytes == volume.f_blocks * volume.f_frsize
        assert 0 <= results[0].usableBytes <= results[0].totalBytes
        [one] = [
            topic
            for row in a.call(35, 1, topics=[{"topic": "t", "partitions": [1]}]).results
            for topic in row.topics
        ]
        assert [row.partitionIndex for row in one.partitions] == [1]


def test_describe_cluster(tmp_path):
    with admin_on(tmp_path, node_id="4") as a:
        told = a.call(60, 2, includeClusterAuthorizedOperations=False, endpointType=1)
        [broker] = told.brokers
        assert f"{broker.host}:{broker.port}" == a.broker.bootstrap_servers
        assert (broker.brokerId, told.controllerId) == (4, 4)
        assert told.clusterId == a.broker.node.cluster_id
        assert a.call(60, 1, endpointType=2).errorCode == 114
        assert a.call(60, 1, endpointType=3).errorCode == 115


def pages(admin, limit, names=()):
    cursor, found = None, []
    while True:
        told = admin.call(
            75,
            0,
            topics=[{"name": name} for name in names],
            responsePartitionLimit=limit,
            cursor=cursor,
        )
        rows = [(t.name, p.partitionIndex) for t in told.topics for p in t.partitions]
        assert len(rows) <= limit
        found.append(rows)
        if told.nextCursor is None:
            return found
        following = told.nextCursor
        cursor = {"topicName": following.topicName, "partitionIndex": following.partitionIndex}
        assert len(found) < 50


def test_partitions_come_page_by_page(tmp_path):
    with admin_on(tmp_path) as a:
        for name, count in (("b", 3), ("a", 4), ("c", 1)):
            a.create(name, count)
        everything = [(n, i) for n, count in (("a", 4), ("b", 3), ("c", 1)) for i in range(count)]
        for limit in range(1, 10):
            told = pages(a, limit)
            assert [row for page in told for row in page] == everything
            assert all(len(page) == limit for page in told[:-1])
        assert pages(a, 100, ["c", "a", "a"]) == [everything[:4] + everything[7:]]
        missing = a.call(75, 0, topics=[{"name": "x"}, {"name": "a/b"}], responsePartitionLimit=9)
        assert {t.name: t.errorCode for t in missing.topics} == {"a/b": 17, "x": UNKNOWN_TOPIC}
        cursor = {"topicName": "a", "partitionIndex": -1}
        wrong = a.call(75, 0, topics=[{"name": "a"}], responsePartitionLimit=9, cursor=cursor)
        assert wrong.topics[0].errorCode == INVALID_REQUEST


def test_max_request_partition_size_limit(tmp_path):
    with admin_on(tmp_path, **{"max.request.partition.size.limit": "2"}) as a:
        a.create("t", 3)
        told = a.call(75, 0, topics=[], responsePartitionLimit=2000)
        assert [p.partitionIndex for p in told.topics[0].partitions] == [0, 1]
        assert (told.nextCursor.topicName, told.nextCursor.partitionIndex) == ("t", 2)


def end_of_epoch(admin, epoch, current=-1, partition=0):
    row = {"partition": partition, "currentLeaderEpoch": current, "leaderEpoch": epoch}
    topics = [{"topic": "t", "partitions": [row]}]
    told = admin.call(23, 4, replicaId=-1, topics=topics).topics[0].partitions[0]
    return told.errorCode, told.leaderEpoch, told.endOffset


def raise_epoch(path, epoch):
    """As a controller does when it elects a leader: it changes only the partition's state."""
    from barnabas.metadata.embedded import EmbeddedTree

    tree = EmbeddedTree(path / "data" / "metadata", clock_ms=lambda: 0)
    node = "/brokers/topics/t/partitions/0/state"
    state = json.loads(tree.get(node)[0])
    tree.set(node, json.dumps(state | {"leader_epoch": epoch, "leader": 1}).encode())
    tree.close()


def test_epochs_end_where_the_next_begins(tmp_path):
    with admin_on(tmp_path, node_id="1") as a:
        a.create("t")
        a.produce("t", 3)
        assert end_of_epoch(a, 0) == (0, 0, 3)
    raise_epoch(tmp_path, 5)
    with admin_on(tmp_path, node_id="1") as a:
        current = a.broker.node.loaded.replicas.partition("t", 0).leader_epoch
        assert current >= 5
        a.produce("t", 2)
        assert end_of_epoch(a, 0) == end_of_epoch(a, 4) == (0, 0, 3)
        assert end_of_epoch(a, current) == (0, current, 5)
        assert end_of_epoch(a, current + 1) == (0, -1, -1)
        assert end_of_epoch(a, 0, current=current) == (0, 0, 3)
        assert end_of_epoch(a, 0, current=0) == (FENCED, -1, -1)
        assert end_of_epoch(a, 0, current=99) == (FUTURE_EPOCH, -1, -1)
        assert end_of_epoch(a, 0, partition=9) == (UNKNOWN_TOPIC, -1, -1)


def test_idempotent_producers_are_described(tmp_path):
    with admin_on(tmp_path) as a:
        a.create("t", 2)
        records = [Record(b"%d" % i, timestamp=1_700_000_000_000 + i) for i in range(3)]
        ask = request(0)
        with closing(Wire(a.broker.bootstrap_servers)) as wire:
            for sequence in (0, 3):
                batch = encode_batch(
                    records, producer_id=77, producer_epoch=2, base_sequence=sequence
                )
                data = ask.struct("topicData")(name="t")
                row = ask.struct("topicData.partitionData")(index=0, records=batch)
                data.partitionData = [row]
                wire.call(0, 8, ask.cls(acks=-1, timeoutMs=9000, topicData=[data]))
        topics = [{"name": "t", "partitionIndexes": [0, 1]}]
        first, second = a.call(61, 0, topics=topics).topics[0].partitions
        [row] = first.activeProducers
        assert (row.producerId, row.producerEpoch, row.lastSequence) == (77, 2, 5)
        assert (row.lastTimestamp, row.currentTxnStartOffset) == (1_700_000_000_002, -1)
        assert second.activeProducers == []
