"""What each client can do beyond the matrix: sizes, seeks into a batch, times, idempotence."""

from collections.abc import Callable

import pytest
from compat.client import Client
from compat.matrix import CLIENTS, FAMILIES
from compat.support import VALUE_BYTES_MAX, Broker, Sent, produce_batch, stored_batches

ALL = [
    pytest.param(name, marks=[pytest.mark.java] if FAMILIES[name] == "java" else [])
    for name in CLIENTS
]
START = 1_700_000_000_000


def other(name: str) -> str:
    """A client of another family that needs nothing installed."""
    return "aiokafka" if FAMILIES[name] != "aiokafka" else "confluent_kafka"


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("size_bytes", [0, 1, 1000, 1_000_000, VALUE_BYTES_MAX])
def test_value_of_size(
    client: Callable[[str], Client], topic: Callable[..., str], name: str, size_bytes: int
) -> None:
    """A value with small records around it is sent, and read back unchanged by the client and by
    another."""
    at = topic()
    writer = client(name)
    value = (b"0123456789abcdef" * (size_bytes // 16 + 1))[:size_bytes]
    if not value and not writer.keeps_empty:
        value = None
    for record in (Sent(b"before", b"k"), Sent(value, b"k"), Sent(b"after", b"k")):
        writer.produce(at, 0, [record])
    for reader in (writer, client(other(name))):
        read = reader.read(at, 0, 0, 3)
        assert [r.offset for r in read] == [0, 1, 2]
        assert [r.value == v for r, v in zip(read, (b"before", value, b"after"), strict=True)] == [
            True
        ] * 3


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_fetch_that_starts_inside_a_batch(
    broker: Broker,
    client: Callable[[str], Client],
    topic: Callable[..., str],
    name: str,
    codec: str,
) -> None:
    at = topic()
    values = [b"record %d " % index * 20 for index in range(9)]
    produce_batch(broker.address, at, values, codec)
    (batch,) = stored_batches(broker, at)
    assert (batch.count, batch.codec) == (9, codec)
    read = client(name).read(at, 0, 5, 4)
    assert [(r.offset, r.value) for r in read] == [(i, values[i]) for i in range(5, 9)]


@pytest.mark.parametrize("name", ALL)
def test_offset_of_a_time(
    client: Callable[[str], Client], topic: Callable[..., str], name: str
) -> None:
    """Timestamps rise by 100 from offset to offset, over several batches."""
    at = topic()
    for base in (0, 3, 6):
        records = [Sent(b"v", timestamp=START + 100 * (base + i)) for i in range(3)]
        client("aiokafka").produce(at, 0, records)
    asker = client(name)
    assert asker.offset_at(at, 0, START - 1) == 0
    assert asker.offset_at(at, 0, START) == 0
    assert asker.offset_at(at, 0, START + 401) == 5
    assert asker.offset_at(at, 0, START + 700) == 7
    assert asker.offset_at(at, 0, START + 800) == 8
    beyond = asker.offset_at(at, 0, START + 801)
    assert beyond in ((9,) if FAMILIES[name] == "librdkafka" and beyond is not None else (None,))


@pytest.mark.parametrize("name", ALL)
def test_headers_of_every_sort(
    client: Callable[[str], Client], topic: Callable[..., str], name: str
) -> None:
    """The same name twice, an empty value, a null value, a non-ASCII name; in their order."""
    at = topic()
    writer = client(name)
    headers: tuple[tuple[str, bytes | None], ...] = (("a", b"1"), ("a", b"2"), ("größe", b"x"))
    if writer.null_header_values:
        headers += (("empty", b""), ("null", None))
    writer.produce(at, 0, [Sent(b"v", b"k", headers)])
    for reader in (writer, client(other(name))):
        (read,) = reader.read(at, 0, 0, 1)
        assert read.headers == headers


@pytest.mark.parametrize("name", ALL)
def test_idempotent_producer(
    broker: Broker, client: Callable[[str], Client], topic: Callable[..., str], name: str
) -> None:
    """The batches carry a producer id and sequences without a gap."""
    at = topic()
    writer = client(name)
    for group in range(3):
        writer.produce(at, 0, [Sent(b"%d" % (group * 4 + i)) for i in range(4)], idempotent=True)
    read = client(other(name)).read(at, 0, 0, 12)
    assert [r.value for r in read] == [b"%d" % i for i in range(12)]
    batches = stored_batches(broker, at)
    assert all(batch.producer_id >= 0 for batch in batches)
    if name != "kcat":  # each call of kcat is a new producer
        assert len({batch.producer_id for batch in batches}) == 1
        assert [batch.base_sequence for batch in batches] == [b.base_offset for b in batches]
