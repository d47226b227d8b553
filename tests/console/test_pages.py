"""The other pages: health, groups with lag over time, transactions, quotas, plugins, rates."""

import re

from console.console_broker import ALICE, ruled_broker
from share.share_member import ShareMember, configure

from barnabas.client.groups import commit_offsets, list_groups
from barnabas.client.producer import Producer
from barnabas.client.quotas import alter_quotas
from barnabas.client.transactional_id import TransactionalId
from barnabas.console import history
from barnabas.console.history import History
from barnabas.security.acl_codes import (
    CLUSTER,
    CLUSTER_NAME,
    DESCRIBE,
    DESCRIBE_CONFIGS,
    GROUP,
    TOPIC,
    TRANSACTIONAL_ID,
)
from barnabas.telemetry.broker_metrics import BYTES_IN
from barnabas.telemetry.group_metrics import LAG_SUM

DESCRIBE_CLUSTER = (DESCRIBE, CLUSTER, CLUSTER_NAME)


def test_health_says_what_is_wrong(ruled):
    browser = ruled.logged_in()
    page = browser.get("/health")
    assert "This broker serves clients." in page.words and page.text.count("<polyline") == 3
    assert ruled.broker.node.cluster_id in page.words
    own = ruled.console.site.own
    ruled.console.site.own = own._replace(warning=lambda: "2 partitions are offline")
    try:
        assert "2 partitions are offline." in browser.get("/health").words
    finally:
        ruled.console.site.own = own


def test_rates_of_the_broker_need_describe_on_the_cluster(ruled):
    browser = ruled.logged_in(ALICE)
    for path in ("/health", "/live"):
        assert "<polyline" not in browser.get(path).text
    assert browser.get("/plugins").status == 403
    with ruled.rights(DESCRIBE_CLUSTER):
        for path in ("/health", "/live"):
            assert browser.get(path).text.count("<polyline") == 3
        assert "No plugin is in use." in browser.get("/plugins").words


def test_live_rates_are_of_the_last_samples_and_load_again(ruled):
    ruled.produce("busy", (None, b"1"))
    ruled.console.look()
    ruled.produce("busy", *[(None, b"x" * 1000)] * 500)
    ruled.console.look()
    page = ruled.logged_in().get("/live")
    assert '<meta http-equiv="refresh" content="5">' in page.text
    row = re.search(r"busy\s*([\d,]+)\s*([\d.]+ [kMG]?B)", page.words)
    assert row is not None and int(row.group(1).replace(",", "")) > 0
    browser = ruled.logged_in(ALICE)
    assert "busy" not in browser.get("/live").text
    with ruled.rights((DESCRIBE, TOPIC, "busy")):
        assert "busy" in browser.get("/live").words


def test_a_group_shows_its_offsets_and_its_lag_over_time(ruled):
    ruled.produce("lagging", *[(None, b"1")] * 1500)
    with ruled.client() as cluster:
        commit_offsets(cluster, "readers", {"lagging": {0: 200}})
    ruled.console.look()
    ruled.produce("lagging", *[(None, b"1")] * 200)
    ruled.console.look()
    assert ruled.console.history.lag("readers", "lagging")[-2:] == [1300, 1500]
    browser = ruled.logged_in()
    assert "readers" in browser.get("/groups").words
    page = browser.get("/group?id=readers")
    assert "1,700" in page.words and "1,500" in page.words and "Empty" in page.words
    assert 'aria-label="lagging of the last minutes"' in page.text
    assert browser.get("/group?id=absent").status == 404


def test_a_user_sees_groups_and_topics_of_groups_by_rules(ruled):
    ruled.produce("of-group", (None, b"1"))
    with ruled.client() as cluster:
        commit_offsets(cluster, "seen", {"of-group": {0: 0}})
        commit_offsets(cluster, "unseen", {"of-group": {0: 0}})
    ruled.console.look()
    browser = ruled.logged_in(ALICE)
    with ruled.rights((DESCRIBE, GROUP, "seen")):
        page = browser.get("/groups")
        assert "seen" in page.words and "unseen" not in page.text
        assert browser.get("/group?id=unseen").status == 403
        assert "of-group" not in browser.get("/group?id=seen").text
        with ruled.rights((DESCRIBE, TOPIC, "of-group")):
            assert "of-group" in browser.get("/group?id=seen").words


def test_a_group_is_deleted_with_its_right_and_its_name(ruled):
    ruled.produce("of-old", (None, b"1"))
    with ruled.client() as cluster:
        commit_offsets(cluster, "old", {"of-old": {0: 1}})
    browser = ruled.logged_in(ALICE)
    form = {"id": "old", "confirmed": "old"}
    with ruled.rights((DESCRIBE, GROUP, "old")):
        form["token"] = browser.get("/group?id=old").token
        assert browser.post("/group/delete", form).status == 403
    browser = ruled.logged_in()
    form["token"] = browser.get("/group?id=old").token
    assert browser.post("/group/delete", form | {"confirmed": "x"}).status == 400
    assert browser.post("/group/delete", form).status == 303
    with ruled.client() as cluster:
        assert "old" not in [row.group_id for row in list_groups(cluster)]


def test_a_share_group_shows_members_and_start_offsets(opened):
    opened.produce("shared", *[(None, b"1")] * 30)
    address = opened.broker.bootstrap_servers
    assert configure(address, "workers", share_auto_offset_reset="earliest") == 0
    member = ShareMember(address, "workers", "worker-1").join("shared")
    browser = opened.browser()
    assert "workers" in browser.get("/share-groups").words
    assert "workers" not in browser.get("/groups").words
    page = browser.get("/group?id=workers&kind=share")
    assert "worker-1" in page.words and "shared: 0" in page.words and "Stable" in page.words
    assert "Delete the group" not in page.words
    member.leave()


def test_transactions_are_shown_by_rules(ruled):
    ruled.produce("paid", (None, b"1"))
    with ruled.client() as cluster:
        held = TransactionalId(cluster, "payments-1")
        held.claim()
        with Producer(cluster, "paid", transaction=held) as producer:
            producer.send(b"one")
        page = ruled.logged_in().get("/transaction?id=payments-1")
        assert "Ongoing" in page.words and "paid" in page.words and "60,000 ms" in page.words
        held.end(commit=True)
    browser = ruled.logged_in(ALICE)
    assert "payments-1" not in browser.get("/transactions").text
    assert browser.get("/transaction?id=payments-1").status == 403
    with ruled.rights((DESCRIBE, TRANSACTIONAL_ID, "payments-1")):
        assert "payments-1" in browser.get("/transactions").words


def test_quotas_and_settings_of_brokers_need_describe_configs(ruled):
    with ruled.client() as cluster:
        alter_quotas(cluster, {"user": "bob"}, {"producer_byte_rate": 4321.0})
    browser = ruled.logged_in(ALICE)
    assert browser.get("/quotas").status == 403
    page = browser.get("/broker")
    assert page.status == 200 and "CLUSTER_AUTHORIZATION_FAILED" in page.words
    assert "log.retention.hours" not in page.words
    with ruled.rights((DESCRIBE_CONFIGS, CLUSTER, CLUSTER_NAME)):
        page = browser.get("/quotas")
        assert "user bob" in page.words and "4,321" in page.words
        page = browser.get("/broker")
        assert "log.retention.hours" in page.words and "in wonderland" not in page.text


def test_brokers_and_their_disks(ruled):
    page = ruled.logged_in().get("/brokers")
    assert "127.0.0.1:" in page.words and "Reassignments in progress" in page.words
    browser = ruled.logged_in(ALICE)
    assert "CLUSTER_AUTHORIZATION_FAILED" in browser.get("/brokers").words
    page = ruled.logged_in().get("/broker")
    assert str(ruled.broker.node.config.log_dirs[0]) in page.words
    assert ruled.logged_in().get("/broker?id=77").status == 404


def test_plugins_show_their_calls_and_metrics():
    settings = {"plugins": "audit"}
    with ruled_broker(**settings) as watched:
        page = watched.logged_in().get("/plugins")
        assert "audit" in page.words and "broker_started" in page.words


def families_of(counts, now):
    def families(page):
        yield BYTES_IN, [("", counts["all"]), (page.labels(topic="t"), counts["t"])]
        yield LAG_SUM, [(page.labels(consumergroup="g", topic="t"), counts["lag"])]

    return History(families, lambda: now[0])


def test_history_of_rates_and_lag():
    counts, now = {"all": 100, "t": 40, "lag": 7}, [0]
    found = families_of(counts, now)
    assert found.rates("bytes in") == [] and found.lag("g", "t") == []
    found.sample()
    now[0], counts["all"], counts["t"], counts["lag"] = 10 * 10**9, 300, 50, 9
    found.sample()
    assert found.rates("bytes in") == [20.0] and found.rates("bytes in", "t") == [1.0]
    assert found.lag("g", "t") == [7, 9] and found.lag("g", "other") == []


def test_history_is_limited(monkeypatch):
    monkeypatch.setattr(history, "SERIES_MAX", 2)
    counts, now = {"all": 0, "t": 0, "lag": 0}, [0]
    found = families_of(counts, now)
    for at in range(3 * history.SAMPLES_MAX):
        now[0] = at * 10**9
        found.sample()
    assert len(found._series) == 2
    assert {len(row) for row in found._series.values()} == {history.SAMPLES_MAX}


def test_history_drops_what_is_gone():
    rows = [[("", 1)], []]

    def families(_page):
        yield BYTES_IN, rows[0]

    found = History(families, lambda: 0)
    found.sample()
    rows.pop(0)
    found.sample()
    assert found._series == {}
