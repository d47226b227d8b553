"""The pages of topics: what a user may see, and change."""

import pytest
from console.console_broker import ALICE

from barnabas.client import Resource, describe_configs
from barnabas.client.admin import TOPIC as OF_TOPIC
from barnabas.console import topics
from barnabas.security.acl_codes import (
    ALTER_CONFIGS,
    CREATE,
    DELETE,
    DESCRIBE,
    DESCRIBE_CONFIGS,
    TOPIC,
)


def config(ruled, topic, key):
    with ruled.client() as cluster:
        rows = describe_configs(cluster, Resource(OF_TOPIC, topic))
    return next(row.value for row in rows if row.name == key)


def test_a_user_sees_the_topics_that_the_user_may_describe(ruled):
    ruled.produce("shown", (None, b"1"))
    ruled.produce("veiled", (None, b"1"))
    browser = ruled.logged_in(ALICE)
    assert "There is no topic" in browser.get("/topics").words
    assert browser.get("/topic?name=shown").status == 403
    with ruled.rights((DESCRIBE, TOPIC, "shown")):
        page = browser.get("/topics")
        assert "shown" in page.words and "veiled" not in page.text
        page = browser.get("/topic?name=shown")
        assert page.status == 200 and "TOPIC_AUTHORIZATION_FAILED" in page.words  # the settings
        assert "Delete the topic" not in page.words and "Messages" not in page.words
        # A topic that may not be described looks like one that does not exist.
        assert browser.get("/topic?name=veiled").status == 403
        assert browser.get("/topic?name=absent").status == 403


def test_an_absent_topic_is_not_created_by_a_look(ruled):
    browser = ruled.logged_in()
    assert browser.get("/topic?name=absent-one").status == 404
    assert "absent-one" not in browser.get("/topics").text


def test_a_topic_shows_offsets_sizes_and_settings(ruled):
    ruled.produce("measured", *[(None, b"x" * 1000)] * 1234)
    page = ruled.logged_in().get("/topic?name=measured")
    assert "1,234" in page.words and "1.2 MB" in page.words
    assert "retention.ms" in page.words and "604800000" in page.words


def test_names_are_found_and_turned_over(ruled, monkeypatch):
    for name in ("page-a", "page-b", "page-c"):
        ruled.produce(name, (None, b"1"))
    monkeypatch.setattr(topics, "ROWS_MAX", 2)
    browser = ruled.logged_in()
    page = browser.get("/topics?find=page-")
    assert "page-a" in page.words and "page-c" not in page.words
    assert "/topics?page=1&amp;find=page-" in page.text
    page = browser.get("/topics?find=page-&page=1")
    assert "page-c" in page.words and "page-a" not in page.words
    assert browser.get("/topics?find=page-&page=77").text == page.text  # the last page


def test_a_topic_is_created_changed_and_deleted(ruled):
    browser = ruled.logged_in()
    token = browser.get("/topics").token
    form = {"token": token, "name": "made", "partitions": "3", "replicas": ""}
    assert browser.post("/topics/create", form).headers["Location"] == "/topic?name=made"
    page = browser.get("/topic?name=made")
    assert "Topic made was created." in page.words
    assert "was created" not in browser.get("/topic?name=made").words  # once
    with ruled.client() as cluster:
        assert len(cluster.topic("made").partitions) == 3
    change = {"token": token, "name": "made", "key": "retention.ms", "value": "12345"}
    assert browser.post("/topic/config", change).status == 303
    assert config(ruled, "made", "retention.ms") == "12345"
    assert browser.post("/topic/config", change | {"remove": "yes"}).status == 303
    assert config(ruled, "made", "retention.ms") == "604800000"
    assert browser.post("/topic/config", change | {"value": "x"}).status == 400
    gone = {"token": token, "name": "made", "confirmed": "other"}
    assert browser.post("/topic/delete", gone).status == 400
    assert browser.get("/topic?name=made").status == 200
    assert browser.post("/topic/delete", gone | {"confirmed": "made"}).status == 303
    assert browser.get("/topic?name=made").status == 404


@pytest.mark.parametrize(
    ("right", "path"),
    [
        (CREATE, "/topics/create"),
        (DELETE, "/topic/delete"),
        (ALTER_CONFIGS, "/topic/config"),
    ],
)
def test_a_change_needs_its_right(ruled, right, path):
    target = f"target-{right}"
    if right != CREATE:
        ruled.produce(target, (None, b"1"))
    browser = ruled.logged_in(ALICE)
    with ruled.rights((DESCRIBE, TOPIC, target), (DESCRIBE_CONFIGS, TOPIC, target)):
        form = {"name": target, "confirmed": target, "key": "retention.ms", "value": "777"}
        form["token"] = browser.get("/topics").token
        assert browser.post(path, form).status == 403
        with ruled.rights((right, TOPIC, target)):
            assert browser.post(path, form).status == 303


def test_a_get_changes_nothing(ruled):
    ruled.produce("still", (None, b"1"))
    browser = ruled.logged_in()
    token = browser.get("/topics").token
    query = f"name=still&confirmed=still&token={token}"
    assert browser.get(f"/topic/delete?{query}").status == 404
    assert browser.get("/topic?name=still").status == 200
