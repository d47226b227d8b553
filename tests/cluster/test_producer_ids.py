"""Tests that the brokers of a cluster take blocks of producer ids from ZooKeeper, and that no id is
given twice."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest
from cluster.three_brokers import Cluster
from compat.support import Wire

from barnabas.wire import request

pytestmark = [pytest.mark.takes(seconds=15), pytest.mark.slow]

BLOCK = 1000
ASKED = 3 * BLOCK // 2  # of each broker: more than one block


def ids_of(broker, count):
    body = request(22).cls(transactionalId=None, transactionTimeoutMs=60_000)
    with closing(Wire(broker.address)) as wire:
        answers = [wire.call(22, 4, body) for _ in range(count)]
    assert {answer.errorCode for answer in answers} == {0}
    return [answer.producerId for answer in answers]


def test_two_brokers_never_give_the_same_id(own_zookeeper, tmp_path):
    with Cluster(tmp_path, own_zookeeper.connect("/ids"), count=2) as cluster:
        brokers = list(cluster.brokers.values())
        with ThreadPoolExecutor(len(brokers)) as threads:
            found = [
                one for ids in threads.map(lambda row: ids_of(row, ASKED), brokers) for one in ids
            ]
        assert {one // BLOCK for one in found} == {0, 1, 2, 3}
        brokers[0].kill()
        brokers[0].start()  # the rest of its block is given to nobody
        found += ids_of(brokers[0], 10)
        assert len(set(found)) == len(found) == 2 * ASKED + 10
