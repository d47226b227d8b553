"""The states of a coordinator's partitions, which network threads read without a lock."""

import random
from dataclasses import replace

from barnabas import Broker
from barnabas.cext.coordinator.partition_states import LED, LOADING, NOT_LED, PartitionStates
from barnabas.coordinator.journal import CoordinatorLog
from barnabas.wire.internal import CONSUMER_OFFSETS


def test_a_new_partition_is_not_led():
    states = PartitionStates()
    assert states.count == 0 and states.get(0) == NOT_LED
    states.set(0, LED)  # not a partition of the topic
    states.count = 3
    states.set(2, LED)
    states.set(1, LOADING)
    assert [states.get(at) for at in range(-1, 4)] == [NOT_LED, NOT_LED, LOADING, LED, NOT_LED]


def test_states_outlive_a_topic_that_grows_and_is_deleted():
    chance = random.Random(1)
    states, model = PartitionStates(), []
    for _ in range(300):
        count = chance.choice([0, len(model) + chance.randrange(40), chance.randrange(500)])
        states.count = count
        model = (model + [NOT_LED] * count)[:count]
        for at in chance.sample(range(count), min(count, 9)):
            model[at] = chance.choice([NOT_LED, LOADING, LED])
            states.set(at, model[at])
        assert [states.get(at) for at in range(count)] == model and states.count == count


def test_a_journal_writes_the_states_of_its_partitions(tmp_path):
    with Broker({"log.dirs": str(tmp_path), "offsets.topic.num.partitions": "4"}) as broker:
        broker.node.serving.coordinators.group_log.ensure()
        states = PartitionStates()
        journal = CoordinatorLog(
            CONSUMER_OFFSETS,
            node_id=broker.node.node_id,
            replicas=broker.node.loaded.replicas,
            create=lambda: None,
            wall_ms=lambda: 0,
            commit_timeout_ms=lambda: 0,
            states=states,
        )
        state = broker.node.cluster()
        journal.apply(state)
        assert [states.get(at) for at in range(5)] == [LED] * 4 + [NOT_LED]
        journal.apply(replace(state, topics={}))
        assert states.count == 0 and journal.led_partitions() == {}
        journal.stop()
