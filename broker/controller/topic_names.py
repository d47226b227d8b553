"""Checks the names of topics.

A topic's name is a directory name, a path of the metadata tree and part of metric names: 1 to 249
letters of `a-z A-Z 0-9 . _ -`, not `.` or `..`. Two names that differ in `.` and `_` only would
share one metric, so that the broker refuses the second.
"""

import re
from collections.abc import Iterable

from barnabas.errors import InvalidTopicException

NAME_LETTERS_MAX = 249
LEGAL = r"[a-zA-Z0-9._-]+"
CLUSTER_METADATA = "__cluster_metadata"  # the metadata log of KRaft, which no client creates
INTERNAL = frozenset(("__consumer_offsets", "__transaction_state", "__share_group_state"))


def check_topic_name(name: str) -> None:
    """Raises InvalidTopicException with the reason."""
    if not name:
        raise InvalidTopicException("a topic name must not be empty")
    if name in (".", ".."):
        raise InvalidTopicException("a topic name cannot be '.' or '..'")
    if len(name) > NAME_LETTERS_MAX:
        raise InvalidTopicException(f"a topic name has at most {NAME_LETTERS_MAX} letters")
    if not re.fullmatch(LEGAL, name):
        raise InvalidTopicException("a topic name has only letters, digits, '.', '_' and '-'")


def check_collision(name: str, others: Iterable[str]) -> None:
    """Raises InvalidTopicException when `name` and one of `others` share their metric names."""
    plain = name.replace(".", "_")
    for other in others:
        if other != name and other.replace(".", "_") == plain:
            raise InvalidTopicException(
                f"topic {name} collides with {other}: '.' and '_' are the same in metric names"
            )
