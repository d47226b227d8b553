"""Names of partition directories, and of what deletion leaves behind.

    TOPIC-PARTITION                the partition is what follows the last dash
    TOPIC-PARTITION.HEX32-delete   on its way out; removed after file.delete.delay.ms
    TOPIC-PARTITION.HEX32-stray    a log that the metadata does not know; kept, never served
    TOPIC-PARTITION.HEX32-future   a copy in the making in another directory

HEX32 is a random uuid without dashes; the topic is cut so that a name keeps within 255 letters.
"""

import os
import re
from typing import NamedTuple

NAME_LETTERS_MAX = 255
_PLAIN = re.compile(r"([a-zA-Z0-9._-]{1,249})-(0|[1-9][0-9]{0,9})")
_MARKED = re.compile(r"(.+)\.[0-9a-f]{32}-(delete|stray|future)")


class PartitionDir(NamedTuple):
    """What a directory's name says; topic and partition are for `mark` None only."""

    topic: str
    partition: int
    mark: str | None


def parse(name: str) -> PartitionDir | None:
    """None for a name that is no partition's."""
    if marked := _MARKED.fullmatch(name):
        return PartitionDir("", -1, marked[2])
    plain = _PLAIN.fullmatch(name)
    if plain is None or plain[1] in (".", "..") or int(plain[2]) > 2**31 - 1:
        return None
    return PartitionDir(plain[1], int(plain[2]), None)


def plain_name(topic: str, partition: int) -> str:
    return f"{topic}-{partition}"


def marked_name(topic: str, partition: int, mark: str) -> str:
    """A new name for a directory that is deleted or put aside."""
    tail = f"-{partition}.{os.urandom(16).hex()}-{mark}"
    return topic[: NAME_LETTERS_MAX - len(tail)] + tail
