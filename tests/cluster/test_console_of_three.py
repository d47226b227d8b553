"""The console of one of three brokers: replicas, what is not in sync, and reassignments."""

import re
from pathlib import Path

import pytest
from cli.conftest import run_command
from cluster.three_brokers import Cluster
from confluent_kafka.admin import AdminClient, NewTopic
from console.console_broker import Browser
from waiting import soon

pytestmark = pytest.mark.takes(seconds=8)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory, zookeeper_server):
    folder = tmp_path_factory.mktemp("console")
    connect = zookeeper_server.connect(zookeeper_server.new_chroot())
    # A broker that a test pauses stays alive for the others; one that stops says so.
    settings = {"console_port": "0", "zookeeper_session_timeout_ms": "18000"}
    with Cluster(folder, connect, **settings) as started:
        yield started


def create(cluster, name, *assignments):
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    new = NewTopic(name, len(assignments), replica_assignment=[list(row) for row in assignments])
    admin.create_topics([new])[name].result(30)


def console(cluster, node_id):
    def told():
        return [line for line in cluster.brokers[node_id].lines if "console: http" in line]

    soon(told, "the broker does not name its console")
    return Browser(re.search(r"http://\S+", told()[-1]).group(0).rstrip("/"))


def cells(page, first):
    """The texts of the table row that begins with `first`."""
    for row in re.findall(r"<tr>(.*?)</tr>", page.text, re.DOTALL):
        texts = [re.sub(r"<[^>]*>", "", one).strip() for one in re.split(r"</t[hd]>", row)]
        if texts[0].split()[:1] == [first]:
            return texts[:-1]
    return None


def soon_row(browser, path, first, expected):
    """Waits until the row that begins with `first` has the `expected` texts at its end."""
    seen = []

    def right():
        seen[:] = cells(browser.get(path), first) or []
        return seen[len(seen) - len(expected) :] == expected

    try:
        soon(right)
    except AssertionError:
        raise AssertionError(f"{path}: {first} is {seen}, not {expected}") from None
    return seen


def test_each_broker_shows_what_all_brokers_have(cluster):
    create(cluster, "counted", [1, 2], [2, 1], [2, 3])
    for node_id in (1, 2, 3):
        browser = console(cluster, node_id)
        for asked, leads, has in (("1", "1", "2"), ("2", "2", "3"), ("3", "0", "1")):
            row = soon_row(browser, "/brokers", asked, [leads, has, "0"])
            assert row[1] == cluster.brokers[int(asked)].address
        assert browser.get("/brokers").text.count(">controller<") == 1
        assert soon_row(browser, "/topic?name=counted", "2", [])[1:4] == ["2", "2, 3", "2, 3"]
        page = browser.get("/broker?id=3")  # it asks broker 3
        assert page.status == 200 and str(cluster.brokers[3].data) in page.words
    run_command("topics", "delete", "counted", "-b", cluster.bootstrap_servers)


def test_a_replica_that_is_not_in_sync_is_shown(cluster):
    create(cluster, "watched", [3, 1])
    browser = console(cluster, 1)
    soon_row(browser, "/brokers", "3", ["1", "1", "0"])
    assert "Partitions without a leader" not in browser.get("/health").words
    cluster.brokers[3].stop()
    soon_row(browser, "/brokers", "1", ["1", "1", "0"])
    soon(lambda: cells(browser.get("/brokers"), "3") is None, "the stopped broker stays")
    assert '<span class="bad">1</span>' in browser.get("/topic?name=watched").text
    health = browser.get("/health").words
    assert "Partitions without a leader, or not in sync" in health and "watched" in health
    cluster.brokers[3].start()
    soon_row(browser, "/brokers", "3", ["1", "0"])  # it may lead again before the page is read
    run_command("topics", "delete", "watched", "-b", cluster.bootstrap_servers)


def test_a_reassignment_is_shown_while_it_lasts(cluster, tmp_path):
    create(cluster, "moving", [1])
    browser = console(cluster, 1)
    soon_row(browser, "/brokers", "1", ["1", "1", "0"])
    assert "None." in browser.get("/brokers").words
    plan = Path(tmp_path / "plan.json")
    plan.write_text('{"version":1,"partitions":[{"topic":"moving","partition":0,"replicas":[2]}]}')
    alive = cluster.brokers[1].address
    cluster.brokers[2].pause()
    try:
        begun = run_command("cluster", "reassign", "--execute", str(plan), "-b", alive)
        assert begun.status == 0, begun.err
        assert soon_row(browser, "/brokers", "moving", ["2", "1"])[1] == "0"
    finally:
        cluster.brokers[2].resume()
    soon(lambda: "None." in browser.get("/brokers").words, "the move does not end")
    soon_row(browser, "/brokers", "2", ["1", "1", "0"])
    run_command("topics", "delete", "moving", "-b", cluster.bootstrap_servers)
