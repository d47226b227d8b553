"""AlterClientQuotas and DescribeClientQuotas beside Apache Kafka 4.3.1 (scenario.py), and what is
stored."""

import json

import pytest
from compat.support import Wire
from quotas.asking import EXACT, SPECIFIED, alter, described, set_quota
from quotas.scenario import FILE, answers
from security.users import alter as alter_users
from security.users import described as described_users
from security.users import upsertion

from barnabas import Broker


@pytest.mark.parametrize("version", [0, 1])
def test_the_answers_are_kafkas(version):
    expected = json.loads(FILE.read_text())
    with Broker() as broker, Wire(broker.bootstrap_servers) as wire:
        found = answers(wire, version)
    assert found.keys() == expected.keys()
    for name in ("validate: an address with a user", "alter: an address with a user"):
        expected[name][0][2] = expected[name][0][2].replace("shouldnot", "should not")
    wrong = {name: (found[name], expected[name]) for name in found if found[name] != expected[name]}
    assert wrong == {}


@pytest.fixture
def broker(tmp_path):
    with Broker({"log.dirs": str(tmp_path / "data")}) as made:
        yield made


@pytest.fixture
def wire(broker):
    with Wire(broker.bootstrap_servers) as made:
        yield made


def stored(broker, path):
    tree = broker.node.bound.before.before.tree
    if tree.exists(path) is None:
        return None
    return json.loads(tree.get(path)[0] or b"null")


def test_nodes_have_kafkas_paths_and_form(broker, wire):
    set_quota(wire, {"user": "a b", "client-id": None}, producer_byte_rate=1024)
    set_quota(wire, {"client-id": "c"}, request_percentage=50)
    set_quota(wire, {"ip": "::1"}, connection_creation_rate=3)
    for path, config in (
        ("/config/users/a%20b/clients/<default>", {"producer_byte_rate": "1024"}),
        ("/config/clients/c", {"request_percentage": "50.0"}),
        ("/config/ips/::1", {"connection_creation_rate": "3"}),
    ):
        assert stored(broker, path) == {"version": 1, "config": config}
    set_quota(wire, {"client-id": "c"}, request_percentage=None)
    assert stored(broker, "/config/clients/c") is None


def test_a_user_with_client_ids_keeps_its_node(broker, wire):
    set_quota(wire, {"user": "u"}, producer_byte_rate=1)
    set_quota(wire, {"user": "u", "client-id": "c"}, producer_byte_rate=2)
    set_quota(wire, {"user": "u"}, producer_byte_rate=None)
    assert described(wire, ("user", EXACT, "u")) == {
        (("client-id", "c"), ("user", "u")): {"producer_byte_rate": 2}
    }
    assert alter_users(wire, upsertions=[upsertion("u", "p")]) == {"u": (0, None)}
    assert alter_users(wire, deletions=[("u", 1)]) == {"u": (0, None)}
    set_quota(wire, {"user": "u", "client-id": "c"}, producer_byte_rate=None)
    assert described(wire) == {}


def test_a_quota_and_a_credential_share_a_node(broker, wire):
    assert alter_users(wire, upsertions=[upsertion("u", "p")]) == {"u": (0, None)}
    set_quota(wire, {"user": "u"}, producer_byte_rate=1)
    # A quota's key that is a credential's name is refused, and removing it removes nothing.
    assert alter(wire, ({"user": "u"}, {"SCRAM-SHA-256": 1}))[0][1] == 42
    assert alter(wire, ({"user": "u"}, {"SCRAM-SHA-256": None}))[0][1] == 0
    assert described_users(wire, ["u"]) == {"u": (0, {1: 4096})}
    set_quota(wire, {"user": "u"}, producer_byte_rate=None)
    assert stored(broker, "/config/users/u")["config"].keys() == {"SCRAM-SHA-256"}
    assert alter_users(wire, deletions=[("u", 1)]) == {"u": (0, None)}
    assert stored(broker, "/config/users/u") is None


def test_quotas_survive_a_restart(tmp_path):
    for is_first in (True, False):
        with Broker({"log.dirs": str(tmp_path)}) as broker, Wire(broker.bootstrap_servers) as wire:
            if is_first:
                set_quota(wire, {"user": "u"}, producer_byte_rate=1)
            assert described(wire) == {(("user", "u"),): {"producer_byte_rate": 1}}


@pytest.mark.parametrize("text", ["", "x", "-1", "0", "nan"])
def test_a_stored_value_that_is_no_quota_counts_as_none(broker, wire, text):
    opened = broker.node.bound.before.before
    opened.tree.ensure_path("/config/clients/c")
    data = json.dumps({"version": 1, "config": {"producer_byte_rate": text}}).encode()
    opened.tree.set("/config/clients/c", data)
    opened.reader.refresh_config(["clients/c"])
    assert described(wire, ("client-id", SPECIFIED, None)) == {}
