"""The offsets of a Kafka source, as Spark writes them: {"topic":{"partition":offset,...},...}.

It is one line of JSON without spaces. An offset is the end of a batch: the first offset that the
batch does not read. -2 and -1, earliest and latest, occur in starting offsets only.

After the offsets we write the topic ids: TOPIC#ID as a topic without partitions,

    {"news":{"0":5,"1":7},"news#kxVd3sZ5TTy9Q7yS1fWb9A":{}}

because a Python source gets back only the offsets from Spark after a restart; it does not even
learn the path of its checkpoint. spark-sql-kafka converts the JSON to a list of partitions, in all
its versions (we tried 4.2), so it ignores such a topic. Its own lines have no ids; the ids are then
unknown. No topic name contains a `#`.
"""

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import TypeAlias

from barnabas.wire.uuids import uuid_bytes, uuid_text

Offsets: TypeAlias = dict[str, dict[int, int]]
TopicIds: TypeAlias = dict[str, bytes]
ID_SIGN = "#"


def offsets_json(
    offsets: Mapping[str, Mapping[int, int]], ids: Mapping[str, bytes] | None = None
) -> str:
    """Returns the line of JSON, topics and partitions in order, so that equal offsets have equal
    bytes."""
    rows = {
        topic: {str(index): offset for index, offset in sorted(partitions.items())}
        for topic, partitions in sorted(offsets.items())
    }
    return json.dumps(rows | id_marks(ids or {}), separators=(",", ":"), ensure_ascii=False)


def id_marks(ids: Mapping[str, bytes]) -> dict[str, dict[str, int]]:
    """Returns the entries with topic ids, for the end of the line."""
    return {f"{topic}{ID_SIGN}{uuid_text(i)}": {} for topic, i in sorted(ids.items())}


def marked_ids(names: Iterable[str]) -> TopicIds:
    """Returns the topic ids in such entries, and ignores other names."""
    found: TopicIds = {}
    for name in names:
        topic, sign, text = name.partition(ID_SIGN)
        if sign:
            with suppress(ValueError):
                found[topic] = uuid_bytes(text)
    return found


def parse_offsets(text: str) -> Offsets:
    """Returns the offsets in a line of JSON. Raises ValueError when the text does not have this
    form."""
    try:
        found = json.loads(text)
    except RecursionError:
        raise ValueError("the JSON is nested too deeply") from None
    if not isinstance(found, dict):
        raise ValueError("offsets must be a JSON object")
    offsets: Offsets = {}
    for topic, partitions in found.items():
        if ID_SIGN in topic:
            continue
        if not isinstance(partitions, dict):
            raise ValueError(f"topic {topic} has no partitions")
        rows = offsets[topic] = {}
        for index, offset in partitions.items():
            if not (index.isascii() and index.isdigit()):
                raise ValueError(f"{index!r} is not a partition of topic {topic}")
            if not isinstance(offset, int) or isinstance(offset, bool) or offset < -2:
                raise ValueError(f"{offset!r} is not an offset of topic {topic}, partition {index}")
            rows[int(index)] = offset
    return offsets


def kafka_offsets(line: str) -> Offsets | None:
    """Returns the offsets in a line; None for the line of another kind of source."""
    try:
        return parse_offsets(line)
    except ValueError:
        return None


def topic_ids(line: str) -> TopicIds:
    """Returns the ids of the topics in a line, without those that it lacks."""
    return marked_ids(json.loads(line)) if kafka_offsets(line) is not None else {}
