"""The hook client_quota: a plugin limits clients in place of the metadata tree, or fails."""

import math

import pytest
from compat.support import Wire, create_topic
from hooks.test_decision_hooks import registered
from installed_plugins import install
from quotas.asking import set_quota
from quotas.test_enforcement import CLIENT, produce
from quotas.test_mutations import EXCEEDED, create

from barnabas import Broker
from barnabas.stages.configured import CannotStart

CALL = {"user": "ANONYMOUS", "client_id": "compat"}


@pytest.fixture
def broker(tmp_path):
    with Broker({"log.dirs": str(tmp_path)}) as made:
        create_topic(made.bootstrap_servers, "t")
        yield made


@pytest.fixture
def wire(broker):
    with Wire(broker.bootstrap_servers) as made:
        yield made


def test_client_quota_callback_class(tmp_path, monkeypatch):
    """client.quota.callback.class: names a plugin with the hook client_quota."""
    source = """
        from barnabas import hookimpl

        class Thousand:
            @hookimpl
            def client_quota(self, quota):
                return 1000 if quota == "producer_byte_rate" else None
    """
    install(tmp_path / "installed", monkeypatch, "thousand", source, thousand="Thousand")
    settings = {"log.dirs": str(tmp_path / "data"), "client.quota.callback.class": "thousand"}
    with Broker(settings) as broker:
        create_topic(broker.bootstrap_servers, "t")
        with Wire(broker.bootstrap_servers) as wire:
            assert 9000 < produce(wire, 19_000) < 11_000
    with pytest.raises(CannotStart, match="does not implement client_quota"):
        Broker(settings | {"client.quota.callback.class": "audit"}).start()


def limited(broker, answer):
    plugin, calls = registered(broker, "client_quota", answer)
    broker.node.serving.quotas.plugins_changed()
    return plugin, calls


def test_a_plugin_limits_without_any_quota_in_the_tree(broker, wire):
    assert produce(wire, 19_000) == 0
    answer = lambda quota, **_: 1000 if quota == "producer_byte_rate" else None  # noqa: E731
    _, calls = limited(broker, answer)
    assert 9000 < produce(wire, 19_000) < 11_000
    asked = [row for row in calls if row["quota"] == "producer_byte_rate"]
    assert asked == [{"quota": "producer_byte_rate", **CALL}]


def test_a_plugin_counts_before_the_tree(broker, wire):
    set_quota(wire, CLIENT, producer_byte_rate=1, controller_mutation_rate=1)
    limited(broker, lambda quota, **_: 2 if quota == "controller_mutation_rate" else math.inf)
    assert produce(wire, 19_000) == 0
    # 22 tokens at 2 a second: 11 too many are 5.5 s, so that a slow machine does not wait them out.
    assert create(wire, 7, ("a", 22), ("b", 11)) == ([0, 0], 0)
    codes, throttle_ms = create(wire, 7, ("c", 1))
    assert codes == [EXCEEDED] and 0 < throttle_ms <= 5500


@pytest.mark.parametrize("answer", [RuntimeError("no"), 0, -1, math.nan, "many", True, None])
def test_when_it_fails_or_says_none_the_tree_counts(broker, wire, answer):
    set_quota(wire, CLIENT, producer_byte_rate=1000)
    plugin, _ = limited(broker, answer)
    assert 9000 < produce(wire, 19_000) < 11_000
    assert bool(sum(plugin.failures.values())) == (answer is not None)
