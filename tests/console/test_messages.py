"""The page of messages: what is read, found, decoded and shown, and to whom."""

import re

import pytest
from console.console_broker import ALICE, ruled_broker

from barnabas.client.producer import Producer
from barnabas.console import messages
from barnabas.security.acl_codes import DESCRIBE, READ, TOPIC

START_MS = 1_767_225_600_000  # 2026-01-01 00:00 UTC


@pytest.fixture(scope="module")
def numbered(ruled):
    """A topic with records 0 to 99, one a second, keys `k0` to `k9`, a batch each."""
    with ruled.client() as cluster:
        cluster.topic("numbered", create=True)
        for number in range(100):
            with Producer(cluster, "numbered") as producer:
                producer.send(
                    f"value {number}.".encode(),
                    key=f"k{number % 10}".encode(),
                    timestamp=START_MS + 1000 * number,
                    headers=[("trace", b"<i>7</i>")],
                )
    return ruled.logged_in()


def values(page):
    assert page.status == 200, page.words
    return [int(found) for found in re.findall(r"value (\d+)\.", page.words)]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("count=5", [95, 96, 97, 98, 99]),
        ("from=oldest&count=3", [0, 1, 2]),
        ("from=offset&offset=42&count=2", [42, 43]),
        ("from=offset&offset=9999&count=2", []),
        ("from=time&time=2026-01-01T00:00:30&count=2", [30, 31]),
        ("from=time&time=2026-01-01T01:00:30%2B01:00&count=1", [30]),
        (f"from=time&time={START_MS + 30_000}&count=1", [30]),
        ("from=time&time=2027-01-01", []),
        ("from=oldest&key=k7&count=3", [7, 17, 27]),
        ("from=oldest&value=9.&count=4", [9, 19, 29, 39]),
        ("from=offset&offset=50&key=k3&value=9", [93]),
        ("from=oldest&partition=0&count=1", [0]),
    ],
)
def test_records_are_found(numbered, query, expected):
    assert values(numbered.get(f"/messages?topic=numbered&{query}")) == expected


def test_the_next_page_goes_on(numbered):
    page = numbered.get("/messages?topic=numbered&from=oldest&count=40")
    seen = values(page)
    for _ in range(2):
        found = re.search(r'rel="next" href="([^"]+)"', page.text)
        assert found is not None
        page = numbered.get(found.group(1).replace("&amp;", "&"))
        seen += values(page)
    assert seen == list(range(100))
    assert "up to the end" in page.words


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("partition=7", 404),
        ("partition=x", 400),
        ("from=elsewhere", 400),
        ("from=time&time=never", 400),
        ("count=0", 400),
        ("count=201", 400),
        ("decoder=barnabas.plugins.audit:Audit", 400),
        ("at=x", 400),
    ],
)
def test_a_bad_parameter_is_refused(numbered, query, status):
    assert numbered.get(f"/messages?topic=numbered&{query}").status == status


def test_a_page_reads_no_more_than_its_limit(numbered, monkeypatch):
    monkeypatch.setattr(messages, "SCAN_RECORDS_MAX", 30)
    page = numbered.get("/messages?topic=numbered&from=oldest&value=absent")
    assert "Read 30 records." in page.words and "at=0%3A30" in page.text
    monkeypatch.setattr(messages, "SCAN_RECORDS_MAX", 20_000)
    monkeypatch.setattr(messages, "SCAN_BYTES_MAX", 100)
    page = numbered.get("/messages?topic=numbered&from=oldest&value=absent")
    assert int(re.search(r"Read (\d+) records", page.words).group(1)) < 15


def test_a_page_stops_after_its_time(ruled, numbered):
    clock = iter(range(1000))

    def shown(partition, record):
        return messages.Shown(partition, record.offset, 0, "", "", 0, 0, (), "")

    with ruled.client() as cluster:
        found = messages.find(
            cluster, "numbered", {0: 0}, 200, "x", "", shown, lambda: float(next(clock))
        )
    assert 0 < found.scanned < 10 and not found.is_over and found.next == {0: found.scanned}


def test_a_page_fetches_little(ruled):
    """Ten records of a topic with 40 MB: fetches of FETCH_BYTES, not the topic."""
    ruled.produce("large", *[(None, b"x" * 100_000)] * 400)

    def sent():
        values = ruled.broker.node.metrics.values()
        return values['kafka_server_brokertopicmetrics_bytesout_total{topic="large"}']

    before = sent()
    assert ruled.logged_in().get("/messages?topic=large&from=oldest&count=2").status == 200
    assert 0 < sent() - before <= 2 * messages.FETCH_BYTES


def test_no_message_is_shown_without_read(ruled):
    ruled.produce("secret", (b"the key", b"the content"))
    browser = ruled.logged_in(ALICE)
    with ruled.rights((DESCRIBE, TOPIC, "secret")):
        reply = browser.get("/messages?topic=secret&from=oldest")
        assert reply.status == 403 and "TOPIC_AUTHORIZATION_FAILED" in reply.words
        assert "the content" not in reply.text and "the key" not in reply.text
        with ruled.rights((READ, TOPIC, "secret")):
            assert "the content" in browser.get("/messages?topic=secret&from=oldest").words
        assert browser.get("/messages?topic=secret&from=oldest").status == 403


def test_a_decoder_shows_objects_and_its_failures(ruled):
    ruled.produce("events", (b'"a"', b'{"b": [1, 2]}'), (None, b"{not json"))
    browser = ruled.logged_in()
    page = browser.get("/messages?topic=events&from=oldest&decoder=json")
    assert '"b": [' in page.words and "\n  1," in page.words
    assert '"a"' in page.words and "key not decoded" not in page.words  # a key as text
    keys = browser.get("/messages?topic=events&from=oldest&key_decoder=json")
    assert '"a"' not in keys.words and "<pre>a</pre>" in keys.text
    assert "{not json" in page.words and "value not decoded: JSONDecodeError" in page.words
    assert '{"b": [1, 2]}' in browser.get("/messages?topic=events&from=oldest").words


def test_console_decoders_names_those_that_may_be_used():
    settings = {"console.decoders": "string", "plugin.string.encoding": "latin-1"}
    with ruled_broker(**settings) as watched:
        watched.produce("words", (None, "\xe4\xf6".encode("latin-1")))
        browser = watched.logged_in()
        page = browser.get("/messages?topic=words&from=oldest&decoder=string")
        assert "\xe4\xf6" in page.words
        assert browser.get("/messages?topic=words&decoder=json").status == 400


def test_bytes_null_and_long_values(ruled):
    ruled.produce("odd", (None, None), (b"\xff\x00", b"\xfe\xed"), (None, b"y" * 5000))
    page = ruled.logged_in().get("/messages?topic=odd&from=oldest")
    assert page.words.count("null") >= 2
    assert "ff 00" in page.words and "fe ed" in page.words
    assert "y" * messages.SHOWN_CHARS_MAX + "…" in page.words and "5.0 kB" in page.words
    one = ruled.logged_in().get("/messages?topic=odd&partition=0&from=offset&offset=2&count=1")
    assert "y" * 5000 in one.words and "…" not in one.words
