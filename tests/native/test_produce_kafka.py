"""The native handler's responses compared with those of Apache Kafka 4.3.1 to the same requests."""

import pytest
from oracle.produce import CASES, NOW_MS, TOPICS, partitions_of


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_answers_as_kafka(case, broker):
    broker.system.move_wall_clock(NOW_MS - broker.system.wall_ms())
    rules = TOPICS.get(case.topic, (None, None))[1]
    if rules is not None:
        broker.topic(case.topic, **rules)
    now = broker.system.wall_ms()
    answer = broker.send(
        [(case.topic, case.index, case.records(now))],
        version=case.version,
        acks=case.acks,
        transactional_id=case.transactional_id,
    )
    got = partitions_of(answer)[0]
    expected = case.ours or case.kafka
    assert (
        got.errorCode,
        got.errorMessage is not None,
        [error.batchIndex for error in got.recordErrors],
    ) == expected
    assert (got.baseOffset == -1) == (expected[0] != 0)
