"""`barnabas quotas` beside a running broker."""

import json

import pytest
from compat.support import Wire
from quotas.asking import described

from barnabas import Broker
from barnabas.cli import main


@pytest.fixture(scope="module")
def broker():
    with Broker() as made:
        yield made


@pytest.fixture
def quotas(broker, capsys):
    def run(*arguments):
        status = main(["quotas", *arguments, "--bootstrap-server", broker.bootstrap_servers])
        printed = capsys.readouterr()
        return status, printed.out, printed.err

    return run


def test_quotas_are_set_listed_and_removed(broker, quotas):
    pair = ("--user", "alice", "--client-id", "etl")
    assert quotas("add", *pair, "producer_byte_rate=1024", "request_percentage=12.5")[0] == 0
    assert quotas("add", "--default-user", "consumer_byte_rate=2048")[0] == 0
    status, out, _ = quotas("list", "--json")
    assert status == 0 and json.loads(out) == [
        {
            "entity": {"user": "alice", "client-id": "etl"},
            "quotas": {"producer_byte_rate": 1024.0, "request_percentage": 12.5},
        },
        {"entity": {"user": None}, "quotas": {"consumer_byte_rate": 2048.0}},
    ]
    status, out, _ = quotas("list", "--user", "alice")
    assert [line.split() for line in out.splitlines()[1:]] == [
        ["alice", "etl", "-", "producer_byte_rate", "1024"],
        ["alice", "etl", "-", "request_percentage", "12.5"],
    ]
    status, out, _ = quotas("remove", *pair, "request_percentage", "--json")
    assert json.loads(out) == {
        "entity": {"user": "alice", "client-id": "etl"},
        "quotas": {"request_percentage": None},
    }
    assert quotas("remove", *pair)[0] == quotas("remove", "--default-user")[0] == 0
    with Wire(broker.bootstrap_servers) as wire:
        assert described(wire) == {}
    assert quotas("list")[2] == "there are no quotas\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("add", "producer_byte_rate=1"), "whose quotas?"),
        (("add", "--user", "u", "producer_byte_rate=fast"), "is not a number"),
        (("add", "--user", "u", "producer_byte_rate=0"), "must be greater than 0"),
        (("add", "--user", "u", "nonsense=1"), "Invalid configuration key nonsense"),
        (("remove", "--user", "nobody"), "has no quotas"),
    ],
)
def test_a_mistake_is_said_in_one_line(quotas, arguments, said):
    status, out, err = quotas(*arguments)
    assert (status, out) == (1, "")
    assert said in err and err.count("\n") == 1
