"""Names of partition directories, and of directories that a deletion leaves.

    TOPIC-PARTITION                the partition's number follows the last dash
    TOPIC-PARTITION.HEX32-delete   deleted; removed after file.delete.delay.ms
    TOPIC-PARTITION.HEX32-stray    a log that the metadata does not know; kept, never served
    TOPIC-PARTITION.HEX32-future   an unfinished copy of a log in another log directory (KIP-113)

HEX32 is a random uuid without dashes; the topic is truncated so that the name has at most 255
characters.
"""

import os
import re
from string import ascii_letters, digits
from typing import NamedTuple

NAME_LETTERS_MAX = 255
TOPIC_LETTERS_MAX = 249
_TOPIC_LETTERS = frozenset(f"{ascii_letters}{digits}._-")
MARKS = ("delete", "stray", "future")
ADDRESSES = "addresses07"  # the file of address_index.py in a partition directory
ORIGINAL_SEGMENT = ".kafka"  # segments of Kafka 0.7 beside it (legacy07/original_segments.py)
_MARKED = r"(.+)\.[0-9a-f]{32}-(delete|stray|future)"
_NUMBER = r".+-(\d{1,10})\.[0-9a-f]{32}-(stray|future)"


class PartitionDir(NamedTuple):
    """A parsed directory name; topic and partition are set for `mark` None only."""

    topic: str
    partition: int
    mark: str | None


def parse(name: str) -> PartitionDir | None:
    """Parses a directory name; None when it is not the name of a partition directory."""
    # Regular expressions would have to be compiled at each start; mostly nothing is marked.
    if name.endswith(MARKS) and (marked := re.fullmatch(_MARKED, name)):
        return PartitionDir("", -1, marked[2])
    topic, _, number = name.rpartition("-")
    if not 1 <= len(topic) <= TOPIC_LETTERS_MAX or topic in (".", ".."):
        return None
    if not (number.isascii() and number.isdigit()) or str(int(number[:11])) != number:
        return None
    if int(number) > 2**31 - 1 or not _TOPIC_LETTERS.issuperset(topic):
        return None
    return PartitionDir(topic, int(number), None)


def marked_partition(name: str) -> int:
    """Returns the partition number in the name of a directory of mark `stray` or `future`; -1 when
    the name has none."""
    found = re.fullmatch(_NUMBER, name)
    return -1 if found is None else int(found[1])


def plain_name(topic: str, partition: int) -> str:
    return f"{topic}-{partition}"


def marked_name(topic: str, partition: int, mark: str) -> str:
    """Returns a new name for a directory with that mark."""
    tail = f"-{partition}.{os.urandom(16).hex()}-{mark}"
    return topic[: NAME_LETTERS_MAX - len(tail)] + tail
