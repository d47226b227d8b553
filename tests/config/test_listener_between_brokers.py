"""Which listeners between brokers refuse the start: as Kafka 4.3.1, and 3.9.2 on ZooKeeper.

kafka_starts.tsv has Kafka's verdict on each case of record_starts.py.
"""

import pytest
from config.record_starts import CASES, KRAFT, ZOOKEEPER, recorded, settings_of

from barnabas.config import BrokerConfig, ConfigError

STARTS = "starts"
KAFKA = recorded()
# What a broker of barnabas starts with, on purpose: why.
DIFFERS = {
    ("a mechanism that its listener lacks", KRAFT): "a single node connects to no other broker",
    ("a controller without a listener", KRAFT): (
        "nothing connects to it: a KRaft file starts with listeners of its own on the command line"
    ),
    ("names of a controller on ZooKeeper", ZOOKEEPER): (
        "a KRaft file with metadata.store=zookeeper: its listener of the controller is not bound"
    ),
}
SAID = {
    "both": "exclude each other",
    "both, an empty name": "exclude each other",
    "an empty name": "an empty name is not in advertised.listeners",
    "a name without a protocol": "X is not in advertised.listeners",
    "no listener of the default protocol's name": "Set inter.broker.listener.name to one of A",
    "a mechanism that its listener lacks": "sasl.mechanism.inter.broker.protocol=SCRAM-SHA-256",
    "a listener of the controller": "CONTROLLER is not in advertised.listeners",
    "a controller's listener at a broker": "process.roles has no controller",
}


def refusal(case, version):
    """One line, or None: the broker starts."""
    settings = settings_of(case, version)
    store = {"metadata.store": "zookeeper"} if version == ZOOKEEPER else {}
    try:
        BrokerConfig(settings | store)
    except ConfigError as error:
        [line] = error.problems
        return line
    return None


@pytest.mark.parametrize(("case", "version"), KAFKA, ids=lambda part: part.replace(" ", "-"))
def test_kafkas_verdict_is_ours(case, version):
    found = refusal(case, version)
    expected = KAFKA[case, version] == STARTS or (case, version) in DIFFERS
    assert (found is None) is expected, found
    if found is not None:
        assert SAID.get(case, "") in found


def test_each_case_was_asked_and_each_difference_is_one():
    asked = {(case, v) for case in CASES for v in (ZOOKEEPER, KRAFT) if settings_of(case, v)}
    assert asked == set(KAFKA)
    assert {KAFKA[row] == STARTS for row in DIFFERS} == {False}
    assert {case for case, _ in KAFKA} > set(SAID)
    verdicts = [answer == STARTS for answer in KAFKA.values()]
    assert verdicts.count(True) > 10 and verdicts.count(False) > 20
