"""The page of messages: records of one topic, decoded, found by offset, time, key or value.

A page reads from its start until it has `count` records, and never more than SCAN_RECORDS_MAX
records, SCAN_BYTES_MAX bytes or SCAN_S_MAX seconds; then it says where it stopped, and the next
page goes on there. The broker asks for READ on the topic, as of every consumer. Records are read
without a group: nothing is committed.

Keys and values are shown as text in UTF-8, as hexadecimal bytes where they are not text, or decoded
by an encoder plugin of `console.decoders`. A plugin that fails for one record says so beside it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from barnabas.cext.record.records import Record
from barnabas.client import EARLIEST, LATEST, Cluster, Reader, list_offsets
from barnabas.console.visit import BadParameter, Page, Visit
from barnabas.hooks.direct import caller
from barnabas.hooks.plugin import CannotLoad

COUNT, COUNT_MAX = 20, 200
SCAN_RECORDS_MAX, SCAN_BYTES_MAX, SCAN_S_MAX = 20_000, 16 * 1024 * 1024, 3.0
FETCH_BYTES, PARTITION_BYTES = 1024 * 1024, 256 * 1024
BATCH_BYTES_MAX = 32 * 1024 * 1024
SHOWN_CHARS_MAX, ONE_SHOWN_CHARS_MAX = 1000, 100_000  # in a list; of a single record
PARTITIONS_MAX = 200  # read on one page
FROM = ("newest", "oldest", "offset", "time")
TEXT = ""  # the decoder that is built in

Decode = Callable[..., Any]


class Shown(NamedTuple):
    """One record of the page."""

    partition: int
    offset: int
    timestamp: int
    key: str | None
    value: str | None
    key_size: int
    value_size: int
    headers: Sequence[tuple[str, str | None]]
    problem: str


class Found(NamedTuple):
    """The records of a page; `next`: offsets at which the next page begins; `scanned`: how many
    records were read; `is_over`: whether the ends of all partitions were reached."""

    rows: Sequence[Shown]
    next: Mapping[int, int]
    scanned: int
    is_over: bool


def messages(visit: Visit) -> Page:
    """The records of a topic: `topic`, `partition` (empty: all), `from` (FROM), `offset`, `time`,
    `key` and `value` (parts of the text as shown), `decoder`, `key_decoder`, `count`; `at`: where
    the page before stopped, as PARTITION:OFFSET,..."""
    name = visit.needed("topic")
    client = visit.client
    client.forget(name)
    topic = client.topic(name)
    asked = visit.number("partition", -1, -1, 2**31 - 1)
    if asked >= 0:
        topic.partition(asked)
    partitions = [asked] if asked >= 0 else list(topic.partitions)[:PARTITIONS_MAX]
    decoder, key_decoder = visit.text("decoder"), visit.text("key_decoder")
    count = visit.number("count", COUNT, 1, COUNT_MAX)
    start = visit.text("from", "newest")
    if start not in FROM:
        raise BadParameter(f"from is one of {', '.join(FROM)}.")
    key, value = visit.text("key"), visit.text("value")
    offsets = _starts(visit, client, name, partitions, start, count)
    chars_max = ONE_SHOWN_CHARS_MAX if count == 1 else SHOWN_CHARS_MAX
    decode, decode_key = _decoder(visit, decoder), _decoder(visit, key_decoder)

    def shown(partition: int, record: Record) -> Shown:
        return _shown(name, partition, record, decode_key, decode, chars_max)

    found = find(client, name, offsets, count, key, value, shown)
    given = {
        "topic": name,
        "partition": "" if asked < 0 else asked,
        "from": start,
        "offset": visit.text("offset"),
        "time": visit.text("time"),
        "key": key,
        "value": value,
        "decoder": decoder,
        "key_decoder": key_decoder,
        "count": count,
    }
    return Page(
        "messages.html",
        {
            "name": name,
            "partitions": list(topic.partitions)[:PARTITIONS_MAX],
            "decoders": visit.own.decoders,
            "given": given,
            "found": found,
            "at": ",".join(f"{index}:{offset}" for index, offset in found.next.items()),
            "is_cut": asked < 0 and len(topic.partitions) > PARTITIONS_MAX,
            "chars_max": chars_max,
            "count_max": COUNT_MAX,
        },
    )


def _starts(
    visit: Visit, client: Cluster, name: str, partitions: Sequence[int], start: str, count: int
) -> dict[int, int]:
    """Returns the first offset to read in each partition."""
    earliest = list_offsets(client, name, dict.fromkeys(partitions, EARLIEST))
    latest = list_offsets(client, name, dict.fromkeys(partitions, LATEST))

    def within(index: int, offset: int) -> int:
        return min(max(offset, earliest[index].offset), latest[index].offset)

    at = visit.text("at")
    if at:
        return {index: within(index, offset) for index, offset in _places(at) if index in earliest}
    if start == "offset":
        offset = visit.number("offset", 0)
        return {index: within(index, offset) for index in partitions}
    if start == "time":
        times = dict.fromkeys(partitions, _time_ms(visit.text("time")))
        rows = list_offsets(client, name, times)
        return {
            index: row.offset if row.offset >= 0 else latest[index].offset
            for index, row in rows.items()
        }
    if start == "newest":
        each = -(-count // len(partitions)) if partitions else 0
        return {index: within(index, latest[index].offset - each) for index in partitions}
    return {index: row.offset for index, row in earliest.items()}


def _places(text: str) -> list[tuple[int, int]]:
    try:
        pairs = [part.split(":") for part in text.split(",")]
        return [(int(index), int(offset)) for index, offset in pairs][:PARTITIONS_MAX]
    except ValueError:
        raise BadParameter("at is not a list PARTITION:OFFSET,...") from None


def _time_ms(text: str) -> int:
    """Returns a time in ms since 1970; one without a zone is UTC, as the console shows times."""
    if text.isascii() and text.isdigit() and len(text) < 16:
        return int(text)
    try:
        found = datetime.fromisoformat(text)
        if found.tzinfo is None:
            found = found.replace(tzinfo=UTC)
        return max(round(1000 * found.timestamp()), 0)
    except (ValueError, OverflowError):
        raise BadParameter(
            f"time={text[:40]} is not a time: write 2026-01-31T12:00:00, or ms since 1970."
        ) from None


def find(
    client: Cluster,
    topic: str,
    offsets: Mapping[int, int],
    count: int,
    key: str,
    value: str,
    shown: Callable[[int, Record], Shown],
    now_s: Callable[[], float] = time.monotonic,
) -> Found:
    """Returns the first `count` records from `offsets` on whose shown key and value have the texts
    `key` and `value` in them. Raises KafkaError, ClientError."""
    reader = Reader(
        client,
        topic,
        offsets,
        to_end=True,
        wait_ms=0,
        fetch_bytes=FETCH_BYTES,
        partition_bytes=PARTITION_BYTES,
        batch_bytes_max=BATCH_BYTES_MAX,
    )
    rows: list[Shown] = []
    scanned = size_bytes = 0
    deadline_s = now_s() + SCAN_S_MAX
    for partition, record in reader:
        scanned += 1
        size_bytes += len(record.key or b"") + len(record.value or b"")
        row = shown(partition, record)
        if key in (row.key or "") and value in (row.value or ""):
            rows.append(row)
        if len(rows) == count or scanned == SCAN_RECORDS_MAX or size_bytes >= SCAN_BYTES_MAX:
            break
        if now_s() > deadline_s:
            break
    return Found(rows, reader.offsets, scanned, reader.is_at_end)


def _decoder(visit: Visit, name: str) -> Decode | None:
    """Returns the function `decode` of a plugin. Raises BadParameter when it cannot be used."""
    if name == TEXT:
        return None
    if name not in visit.own.decoders:
        raise BadParameter(f"the decoder {name[:60]} is not in console.decoders.")
    try:
        plugin = visit.own.decoder_plugins.plugin("console.decoders", name, "decode")
    except CannotLoad as error:
        raise BadParameter(str(error)) from None
    return caller(plugin, "decode")


def _shown(
    topic: str,
    partition: int,
    record: Record,
    decode_key: Decode | None,
    decode: Decode | None,
    chars_max: int,
) -> Shown:
    problems: list[str] = []

    def text(data: bytes | None, decode: Decode | None, is_key: bool) -> str | None:
        if data is None:
            return None
        if decode is not None:
            try:
                (found,) = decode(topic, [data], is_key)
                return _text_of(found)
            except Exception as error:
                what = "key" if is_key else "value"
                problems.append(f"{what} not decoded: {type(error).__name__}: {str(error)[:200]}")
        return text_of_bytes(data)

    def cut(found: str | None) -> str | None:
        return found if found is None or len(found) <= chars_max else f"{found[:chars_max]}…"

    key, value = text(record.key, decode_key, True), text(record.value, decode, False)
    return Shown(
        partition,
        record.offset,
        record.timestamp,
        cut(key),
        cut(value),
        len(record.key or b""),
        len(record.value or b""),
        [
            (name, None if data is None else cut(text_of_bytes(data)))
            for name, data in record.headers
        ],
        "; ".join(problems),
    )


def text_of_bytes(data: bytes) -> str:
    """Returns bytes as text in UTF-8, or as hexadecimal numbers."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return data.hex(" ")


def _text_of(found: object) -> str:
    if isinstance(found, bytes):
        return text_of_bytes(found)
    if isinstance(found, str):
        return found
    return json.dumps(found, indent=1, ensure_ascii=False, default=str)
