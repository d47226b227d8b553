"""Names, ids, keys and values of clients are text in every page, whatever is in them."""

import re
import threading
from html import unescape
from urllib.parse import quote

import pytest
from confluent_kafka import Consumer
from console.console_broker import open_broker

from barnabas.client.groups import commit_offsets
from barnabas.client.producer import Producer
from barnabas.client.quotas import alter_quotas
from barnabas.client.transactional_id import TransactionalId
from barnabas.console.rendering import shown

EVIL = """<script>alert('x')</script><img src=x onerror="a()">'"&lt;{{7*7}}{% x %}\u202e</pre>"""
ID = EVIL.replace("\u202e", "")


@pytest.fixture(scope="module")
def hostile():
    with open_broker(**{"console.decoders": "json"}) as watched:
        with watched.client() as cluster:
            cluster.topic("texts", create=True)
            with Producer(cluster, "texts") as producer:
                data = EVIL.encode()
                producer.send(data, key=data, headers=[(EVIL, data)])
            commit_offsets(cluster, ID, {"texts": {0: 0}})
            alter_quotas(cluster, {"client-id": ID}, {"producer_byte_rate": 77.0})
            TransactionalId(cluster, ID).claim()
        address = watched.broker.bootstrap_servers
        consumer = Consumer(
            {
                "bootstrap.servers": address,
                "group.id": "named",
                "client.id": ID,
                "session.timeout.ms": 45_000,
            }
        )
        has_joined = threading.Event()
        consumer.subscribe(["texts"], on_assign=lambda *_: has_joined.set())
        while not has_joined.is_set():
            consumer.poll(0.1)
        yield watched
        consumer.close()


def safe(page):
    """Whether the page has no tag or attribute of EVIL, and shows its text."""
    assert page.status == 200, page.words
    assert "<script" not in page.text and "<img" not in page.text
    assert not re.search(r"<[^>]*onerror=\"", page.text)
    assert "\u202e" not in page.text
    assert "{{7*7}}{% x %}" in page.words and "<script>alert('x')</script>" in page.words
    return page


def test_keys_values_and_headers(hostile):
    page = safe(hostile.browser().get("/messages?topic=texts&from=oldest"))
    assert page.words.count("<script>alert('x')</script>") == 4
    assert "\\u202e" in page.words


def test_filters_come_back_as_text(hostile):
    for name in ("key", "value"):
        page = hostile.browser().get(f"/messages?topic=texts&from=oldest&{name}={quote(ID)}")
        assert page.status == 200 and "<script" not in page.text and "<img" not in page.text
        assert ID in unescape(page.text)
    page = hostile.browser().get(f"/topics?find={quote(EVIL)}")
    assert page.status == 200 and "<script" not in page.text
    for path in ("/topic?name=", "/group?id=", "/transaction?id=", "/messages?topic="):
        page = hostile.browser().get(path + quote(EVIL))
        assert page.status in (400, 404) and "<script" not in page.text


def test_groups_and_client_ids(hostile):
    page = safe(hostile.browser().get("/groups"))
    target = next(
        row for row in re.findall(r'href="(/group\?[^"]+)"', page.text) if "script" in row
    )
    safe(hostile.browser().get(target.replace("&amp;", "&")))
    safe(hostile.browser().get("/group?id=named"))


def test_transactional_ids(hostile):
    page = safe(hostile.browser().get("/transactions"))
    (target,) = re.findall(r'href="(/transaction\?[^"]+)"', page.text)
    safe(hostile.browser().get(target))


def test_quotas(hostile):
    assert "77" in safe(hostile.browser().get("/quotas")).words


def test_characters_that_are_not_seen_are_shown():
    assert shown("a\x00\x1b[31m\u202eb\ufeff\n\t") == "a\\x00\\x1b[31m\\u202eb\\ufeff\n\t"
    assert shown("Grüße, 世界 🙂") == "Grüße, 世界 🙂"
