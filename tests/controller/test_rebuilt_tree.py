"""A metadata tree from inventories of log directories (controller/rebuilt_tree.py)."""

import json
import os

import pytest

from barnabas.controller.rebuilt_tree import (
    EPOCH_MARGIN,
    KEPT_FOREVER,
    PRODUCER_ID_MARGIN,
    CannotRebuild,
    FoundReplica,
    Inventory,
    rebuilt,
)
from barnabas.metadata import znodes
from barnabas.metadata.tree import parent_of
from barnabas.metadata.znode_json import ZnodeDataError
from barnabas.metadata.znodes import PartitionState, ProducerIdBlock, TopicAssignment, new_uuid

OLD, NEW = new_uuid(os.urandom), new_uuid(os.urandom)


def replica(index=0, topic="news", topic_id=NEW, epoch=3, last=3, end=10):
    return FoundReplica(topic, index, topic_id, epoch, last, end)


def broker(broker_id, *replicas, cluster_id="c", producer_id=-1, is_clean=True):
    return Inventory(broker_id, cluster_id, is_clean, producer_id, replicas)


ROW = broker(1, replica()).document()["replicas"][0]


def internal(name):
    return {"cleanup.policy": "compact"} if name == "__consumer_offsets" else None


def made(*inventories, **options):
    return rebuilt(inventories, internal, os.urandom, **options)


def data(found):
    return {node.path: node.data for node in found.nodes}


def state(found, index=0):
    return PartitionState.decode(data(found)[znodes.partition_state_path("news", index)])


def assignment(found):
    return TopicAssignment.decode(data(found)[znodes.topic_path("news")])


def problems(*inventories):
    with pytest.raises(CannotRebuild) as refused:
        made(*inventories)
    return " ".join(refused.value.problems)


@pytest.mark.parametrize(
    "one, two, isr",
    [
        (replica(end=10), replica(end=10), (1, 2)),
        (replica(end=10), replica(end=11), (2,)),
        (replica(end=11), replica(end=10), (1,)),
        # Fewer records of a later epoch: those of the other that lie above were never acknowledged.
        (replica(last=3, end=50), replica(epoch=4, last=4, end=20), (2,)),
        (replica(epoch=9, last=2, end=10), replica(last=3, end=10), (2,)),
    ],
)
def test_the_log_that_ends_last_leads(one, two, isr):
    found = made(broker(1, one), broker(2, two))
    assert (state(found).isr, state(found).leader) == (isr, isr[0])
    assert state(found).leader_epoch >= max(one.leader_epoch, two.leader_epoch) + EPOCH_MARGIN


def test_names_ids_partitions_and_replicas_are_those_of_the_directories():
    found = made(broker(1, replica(0), replica(1)), broker(2, replica(1, topic_id=None)))
    assert assignment(found) == TopicAssignment({0: (1,), 1: (2, 1)}, NEW, {}, {})
    assert found.cluster_id == "c"
    seen = {"/"}
    for node in found.nodes:
        assert parent_of(node.path) in seen and node.path not in seen
        seen.add(node.path)


def test_settings_keep_records_and_internal_topics_get_their_own():
    found = made(broker(1, replica(), replica(topic="__consumer_offsets", topic_id=OLD)))
    configs = {
        name: znodes.decode_config(data(found)[f"/config/topics/{name}"])
        for name in ("news", "__consumer_offsets")
    }
    assert configs == {"news": KEPT_FOREVER, "__consumer_offsets": internal("__consumer_offsets")}
    assert "settings of topics. 1 topics" in " ".join(found.lines)


def test_producer_ids_begin_above_those_in_logs():
    found = made(broker(1, replica(), producer_id=41_999), broker(2, replica(), producer_id=7))
    block = ProducerIdBlock.decode(data(found)[znodes.PRODUCER_ID_BLOCK_PATH])
    assert block.block_start >= 42_000 + PRODUCER_ID_MARGIN and block.block_start % 1000 == 0


def test_a_partition_without_a_directory_is_named_and_begins_empty_on_demand():
    one = broker(1, replica(2), replica(0))
    assert "no broker has a directory of news-1." in problems(one)
    found = made(one, may_lack_partitions=True)
    assert assignment(found).partitions == {0: (1,), 1: (1,), 2: (1,)}
    assert "without records: news-1" in found.lines


def test_contradictions_are_refused():
    assert "two inventories are of broker 1" in problems(broker(1, replica()), broker(1))
    assert "of 2 clusters: c, d" in problems(broker(1, replica()), broker(2, cluster_id="d"))
    assert "two directories of news-0" in problems(broker(1, replica(), replica()))
    assert "topic news have 2 topic ids" in problems(
        broker(1, replica()), broker(2, replica(topic_id=OLD))
    )


def test_an_unclean_stop_is_said():
    assert "broker 2 was not stopped cleanly" in " ".join(
        made(broker(1, replica()), broker(2, replica(), is_clean=False)).lines
    )


def test_an_inventory_is_read_back():
    written = broker(4, replica(), replica(1, topic_id=None), producer_id=9, is_clean=False)
    assert Inventory.decode(json.dumps(written.document()).encode()) == written


@pytest.mark.parametrize(
    "change",
    [
        {"version": 2},
        {"brokerId": -1},
        {"isClean": "yes"},
        {"replicas": {}},
        {"replicas": [7]},
        {"replicas": [ROW | {"topic": "../etc"}]},
        {"replicas": [ROW | {"partition": -1}]},
        {"replicas": [ROW | {"topicId": "short"}]},
        {"replicas": [ROW | {"endOffset": 1.5}]},
    ],
)
def test_a_damaged_inventory_is_one_error(change):
    document = broker(1, replica()).document() | change
    with pytest.raises(ZnodeDataError):
        Inventory.decode(json.dumps(document).encode())
