"""Which consumer reads which partitions: topic filters, znodes of consumers, and the published
algorithm."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.clients import Blacklist, Whitelist
from barnabas.clients.consumer.subscription import (
    NOTHING,
    Subscription,
    assigned,
    subscription_of,
)


def test_filters_hold_the_whole_name_as_in_0_8():
    wanted = Whitelist(' "news.*, sport" ')
    allowed = [t for t in ("news", "newsletter", "sport", "sports", "my-news") if
               wanted.is_topic_allowed(t)]  # fmt: skip
    assert allowed == ["news", "newsletter", "sport"]
    assert wanted.regex == "news.*|sport"
    unwanted = Blacklist("news.*")
    assert [t for t in ("news", "sport") if unwanted.is_topic_allowed(t)] == ["sport"]
    assert not unwanted.is_topic_allowed("__consumer_offsets")
    assert unwanted.is_topic_allowed("__consumer_offsets", exclude_internal_topics=False)
    with pytest.raises(ValueError, match="not a regular expression"):
        Whitelist("news(")


@pytest.mark.parametrize(
    ("subscription", "pattern"),
    [
        (Subscription({"news": 2, "sport": 1}), "static"),
        (Subscription({"n.*": 3}, Whitelist("n.*")), "white_list"),
        (Subscription({"n.*": 1}, Blacklist("n.*")), "black_list"),
    ],
)
def test_a_document_is_that_of_kafka_0_8_and_comes_back(subscription: Subscription, pattern: str):
    document = subscription.document(1416000000000)
    counts = json.dumps(dict(subscription.counts), separators=(",", ":"))
    # As Kafka's own consumers write it, key by key.
    assert document.decode() == (
        f'{{"version":1,"subscription":{counts},"pattern":"{pattern}","timestamp":"1416000000000"}}'
    )
    back = subscription_of(document)
    assert back.counts == subscription.counts and back.pattern == pattern
    topics = ["news", "other", "sport"]
    assert back.topics(topics, True) == subscription.topics(topics, True)


@pytest.mark.parametrize(
    "document",
    [
        b"",
        b"{",
        b"[]",
        b"17",
        b'"news"',
        b"\xff\xfe",
        b'{"version":1}',
        b'{"version":1,"subscription":{}}',
        b'{"version":1,"subscription":{"t":0}}',
        b'{"version":1,"subscription":{"t":100000000}}',
        b'{"version":1,"subscription":{"t":"x"}}',
        b'{"version":1,"subscription":{"t":1},"pattern":"other"}',
        b'{"version":1,"subscription":{"(":1},"pattern":"white_list"}',
        b'{"version":1,"subscription":{"a":1,"b":1},"pattern":"white_list"}',
        b"[" * 100_000,
    ],
)
def test_a_broken_document_takes_nothing_from_others(document: bytes):
    assert subscription_of(document) is NOTHING
    assert NOTHING.threads("c", NOTHING.topics(["t"], True)) == {}


@given(st.binary())
def test_any_bytes_are_a_subscription_or_nothing(document: bytes):
    assert isinstance(subscription_of(document), Subscription)


def test_the_published_example():
    """Five partitions, two consumers with two streams and one stream: the runs that the algorithm
    gives."""
    threads = {"t": ["c2-0", "c1-1", "c1-0"]}
    assert assigned({"t": [4, 2, 0, 1, 3]}, threads) == {
        ("t", 0): "c1-0",
        ("t", 1): "c1-0",
        ("t", 2): "c1-1",
        ("t", 3): "c1-1",
        ("t", 4): "c2-0",
    }


counts = st.integers(min_value=0, max_value=40)


@given(st.dictionaries(st.sampled_from("abc"), counts), st.lists(st.integers(1, 12), max_size=8))
def test_shares_are_whole_disjoint_and_even(partition_counts, stream_counts):
    partitions = {topic: range(count) for topic, count in partition_counts.items()}
    threads = {topic: [] for topic in partitions}
    for number, streams in enumerate(stream_counts):
        subscription = Subscription(dict.fromkeys(partitions, streams))
        for topic, names in subscription.threads(f"c{number}", partitions).items():
            threads[topic] += names
    found = assigned(partitions, threads)
    if not stream_counts:
        assert found == {}
        return
    assert set(found) == {(t, p) for t, indexes in partitions.items() for p in indexes}
    for topic, indexes in partitions.items():
        shares = [
            [p for p in indexes if found[topic, p] == name] for name in sorted(threads[topic])
        ]
        assert [p for share in shares for p in share] == list(indexes)  # runs, in order
        sizes = [len(share) for share in shares]
        assert sizes == sorted(sizes, reverse=True) and max(sizes) - min(sizes) <= 1


@given(st.integers(1, 60), st.lists(st.integers(1, 12), min_size=1, max_size=6))
def test_splitting_a_members_share_among_its_streams_is_the_same(partition_count, stream_counts):
    """With a coordinator the leader assigns shares to members, and each member splits its own."""
    subscriptions = {f"m{n}": Subscription({"t": count}) for n, count in enumerate(stream_counts)}
    threads = [
        name
        for member, subscription in subscriptions.items()
        for name in subscription.threads(member, ["t"])["t"]
    ]
    whole = assigned({"t": range(partition_count)}, {"t": threads})
    for member, subscription in subscriptions.items():
        share = [p for (_, p), name in whole.items() if name.startswith(f"{member}-")]
        split = assigned({"t": share}, subscription.threads(member, ["t"]))
        assert split == {("t", p): whole["t", p] for p in share}
