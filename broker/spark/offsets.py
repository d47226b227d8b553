"""The offsets of a Kafka source, as Spark writes them: {"topic":{"partition":offset,...},...}.

One line of JSON without spaces; what is read may have some. An offset is the end of what a batch
reads: the first one it does not. -2 and -1, earliest and latest, are for starting offsets alone.
"""

import json
from collections.abc import Mapping
from typing import TypeAlias

Offsets: TypeAlias = dict[str, dict[int, int]]


def offsets_json(offsets: Mapping[str, Mapping[int, int]]) -> str:
    """Topics and partitions in their order, so that equal offsets are equal bytes."""
    rows = {
        topic: {str(index): offset for index, offset in sorted(partitions.items())}
        for topic, partitions in sorted(offsets.items())
    }
    return json.dumps(rows, separators=(",", ":"), ensure_ascii=False)


def parse_offsets(text: str) -> Offsets:
    """Raises ValueError for what is not of this form."""
    found = json.loads(text)
    if not isinstance(found, dict):
        raise ValueError("offsets are a JSON object")
    offsets: Offsets = {}
    for topic, partitions in found.items():
        if not isinstance(partitions, dict):
            raise ValueError(f"of topic {topic} there are no partitions")
        rows = offsets[topic] = {}
        for index, offset in partitions.items():
            if not (index.isascii() and index.isdigit()):
                raise ValueError(f"{index!r} is no partition of topic {topic}")
            if not isinstance(offset, int) or isinstance(offset, bool) or offset < -2:
                raise ValueError(f"{offset!r} is no offset of topic {topic}, partition {index}")
            rows[int(index)] = offset
    return offsets


def kafka_offsets(line: str) -> Offsets | None:
    """None for a line of another kind of source."""
    try:
        return parse_offsets(line)
    except ValueError:
        return None
