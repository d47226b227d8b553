"""Other clients read every client's records, with every codec and both timestamp types."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest
from compat.client import Client
from compat.matrix import CELLS, CLIENTS, FAMILIES, PAIRS, in_short_form
from compat.support import (
    APPEND_TIME,
    CODECS,
    CREATE_TIME,
    Broker,
    Read,
    Sent,
    clock_ms,
    create_topic,
    stored_batches,
)
from long_form import LONG

pytestmark = pytest.mark.takes(seconds=20)

COUNT = 6
MARKS = {name: [pytest.mark.java] for name in CLIENTS if FAMILIES[name] == "java"}


@dataclass
class Cell:
    """The records that were sent to one partition, and their times."""

    topic: str
    partition: int
    sent: list[Sent]
    offsets: list[int] | None
    began: int
    ended: int


def records_for(client: Client, codec: str) -> list[Sent]:
    """Records that every codec makes smaller, with null and empty values where the client
    distinguishes them."""
    common = (("from", client.name.encode()), ("codec", codec.encode()))
    start = 1_700_000_000_000
    records = []
    for index in range(COUNT):
        headers = (*common, ("index", b"%d" % index)) if client.headers_differ else common
        timestamp = start + 10 * index if client.sets_timestamps else None
        value = f"{client.name} {codec} {index} ".encode() * 40
        records.append(Sent(value, f"key-{index}".encode(), headers, timestamp))
    first, second = records[0], records[1]
    records[0] = Sent(first.value, None, first.headers, first.timestamp)
    records[1] = Sent(None, second.key, second.headers, second.timestamp)
    if client.keeps_empty:
        third = records[2]
        records[2] = Sent(b"", b"", third.headers, third.timestamp)
    return records


@pytest.fixture(scope="module")
def produced(broker: Broker, client: Callable[[str], Client]) -> Callable[[str, str, str], Cell]:
    """Produces the records of a cell once for all its readers."""
    cells: dict[tuple[str, str, str], Cell] = {}
    topics: set[str] = set()

    def get(name: str, codec: str, kind: str) -> Cell:
        if (name, codec, kind) not in cells:
            producer = client(name)
            topic = f"matrix-{name}-{kind}"
            if topic not in topics:
                configs = {"message.timestamp.type": kind}
                create_topic(broker.address, topic, len(CODECS), configs)
                topics.add(topic)
            partition = CODECS.index(codec)
            records = records_for(producer, codec)
            began = clock_ms()
            offsets = producer.produce(topic, partition, records, codec=codec)
            cells[name, codec, kind] = Cell(topic, partition, records, offsets, began, clock_ms())
        return cells[name, codec, kind]

    return get


def check_read(cell: Cell, kind: str, read: list[Read]) -> None:
    assert [record.offset for record in read] == list(range(COUNT))
    for sent, got in zip(cell.sent, read, strict=True):
        assert (got.key, got.value, got.headers) == (sent.key, sent.value, sent.headers)
        if kind == CREATE_TIME and sent.timestamp is not None:
            assert got.timestamp == sent.timestamp
        else:
            assert cell.began <= got.timestamp <= cell.ended
        assert got.timestamp_type in (kind, None)
    if kind == APPEND_TIME:
        assert len({record.timestamp for record in read}) <= 2  # one for each batch


def marks(row: tuple[str, ...], who: tuple[int, ...]) -> list[pytest.MarkDecorator]:
    return [mark for at in who for mark in MARKS.get(row[at], [])]


CELL_CASES = [pytest.param(*cell, marks=marks(cell, (0,))) for cell in CELLS]
PAIR_CASES = [
    pytest.param(
        *pair,
        marks=[*marks(pair, (0, 3)), *([] if in_short_form(pair) else [pytest.mark.only_long])],
    )
    for pair in PAIRS
]


@pytest.mark.parametrize("name, codec, kind", CELL_CASES)
def test_stored_as_sent(
    broker: Broker,
    produced: Callable[[str, str, str], Cell],
    name: str,
    codec: str,
    kind: str,
) -> None:
    """The producer got the offsets, and the segment file has its codec and timestamp type."""
    cell = produced(name, codec, kind)
    assert cell.offsets in (None, list(range(COUNT)))
    batches = stored_batches(broker, cell.topic, cell.partition)
    assert sum(batch.count for batch in batches) == COUNT
    assert {batch.codec for batch in batches} == {codec}
    assert {batch.timestamp_type for batch in batches} == {kind}


@pytest.mark.parametrize("name, codec, kind, reader", PAIR_CASES)
def test_read_by_another(
    client: Callable[[str], Client],
    produced: Callable[[str, str, str], Cell],
    name: str,
    codec: str,
    kind: str,
    reader: str,
) -> None:
    cell = produced(name, codec, kind)
    check_read(cell, kind, client(reader).read(cell.topic, cell.partition, 0, COUNT))


def test_the_matrix_is_whole(request: pytest.FixtureRequest) -> None:
    """All clients, all codecs, both timestamp types, and for each a reader of every other
    family. In the short form every client reads each other one, and every codec."""
    families = set(FAMILIES.values())
    assert len(CELLS) == len(CLIENTS) * 5 * 2
    for cell in CELLS:
        readers = {FAMILIES[pair[3]] for pair in PAIRS if pair[:3] == cell}
        assert readers == families - {FAMILIES[cell[0]]}
    short = [pair for pair in PAIRS if in_short_form(pair)]
    for one, other in ((0, 3), (0, 1), (1, 3), (2, 3), (0, 2), (1, 2)):
        assert {(row[one], row[other]) for row in short} == {
            (row[one], row[other]) for row in PAIRS
        }
    here = [item for item in request.session.items if item.path == request.path]
    found = {item.name for item in here}
    wanted = {f"test_read_by_another[{'-'.join(pair)}]" for pair in (PAIRS if LONG else short)}
    wanted |= {f"test_stored_as_sent[{'-'.join(cell)}]" for cell in CELLS}
    options = request.config.option
    chosen = (
        options.keyword or options.markexpr or any("::" in name for name in options.file_or_dir)
    )
    assert chosen or found >= wanted, sorted(wanted - found)
