"""JSON from the tree, which is untrusted: other brokers, tools and users of ZooKeeper write there.

`read_object` and the `*_of` functions raise ZnodeDataError, which names the field and its value.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from barnabas.metadata.tree import MetadataError

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1
USE_LATER = "Use the version that wrote it, or a later one."
_MISSING = object()


class ZnodeDataError(MetadataError):
    """The data of a node does not have the format of its path."""


class ZnodeTooNew(ZnodeDataError):
    """A later version of barnabas, or a later Kafka, wrote the node."""


def to_json(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is not a JSON number")


def read_object(data: bytes, versions: range | None = None) -> dict[str, Any]:
    """Returns the object in a node's data. Its `version` (a number, or text as in /cluster/id) must
    be one of `versions`. Raises ZnodeDataError; ZnodeTooNew for a later version."""
    try:
        found = json.loads(data.decode("utf-8"), parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise ZnodeDataError(f"not JSON: {error}; it begins {data[:60]!r}") from error
    if not isinstance(found, dict):
        raise ZnodeDataError(f"not a JSON object; it begins {data[:60]!r}")
    if versions is not None:
        version = integer_of(found, "version")
        if version > versions[-1]:
            raise ZnodeTooNew(f"version {version} is newer than {versions[-1]}, the latest known")
        if version not in versions:
            raise ZnodeDataError(
                f"version {version} is not known; {versions[0]} to {versions[-1]} are"
            )
    return found


def _wrong(name: str, value: object, wanted: str) -> ZnodeDataError:
    if value is _MISSING:
        return ZnodeDataError(f"{name} is missing")
    return ZnodeDataError(f"{name} is {repr(value)[:60]}, not {wanted}")


def integer(
    value: object, name: str, low: int = -(2**31), high: int = INT32_MAX, text: bool = False
) -> int:
    """Returns a number within bounds; `text`: it may be written as a string, as Kafka sometimes
    does. Raises ZnodeDataError."""
    if text and isinstance(value, str) and value.lstrip("-").isdecimal() and value.isascii():
        if len(value) > 20 or "--" in value:
            raise _wrong(name, value, f"a number of {low} to {high}")
        value = int(value)
    if type(value) is not int or not low <= value <= high:
        raise _wrong(name, value, f"a number of {low} to {high}")
    return value


def integer_of(found: dict[str, Any], name: str, low: int = -(2**31), high: int = INT32_MAX) -> int:
    return integer(found.get(name, _MISSING), name, low, high, text=True)


def time_of(found: dict[str, Any], name: str = "timestamp") -> int:
    return integer(found.get(name, _MISSING), name, -1, INT64_MAX, text=True)


def text_of(found: dict[str, Any], name: str) -> str:
    value = found.get(name, _MISSING)
    if not isinstance(value, str):
        raise _wrong(name, value, "text")
    return value


def text_or_none_of(found: dict[str, Any], name: str) -> str | None:
    return None if found.get(name) is None else text_of(found, name)


def list_of(found: dict[str, Any], name: str) -> list[Any]:
    value = found.get(name, _MISSING)
    if not isinstance(value, list):
        raise _wrong(name, value, "a list")
    return value


def object_of(found: dict[str, Any], name: str) -> dict[str, Any]:
    value = found.get(name, _MISSING)
    if not isinstance(value, dict):
        raise _wrong(name, value, "an object")
    return value


def broker_ids(value: object, name: str) -> tuple[int, ...]:
    """Returns distinct broker ids in their order. Raises ZnodeDataError."""
    if not isinstance(value, list):
        raise _wrong(name, value, "a list of broker ids")
    for each in value:
        if type(each) is not int or not 0 <= each <= INT32_MAX:
            raise _wrong(name, each, "a broker id")
    if len(value) > 1 and len(set(value)) != len(value):
        raise ZnodeDataError(f"{name} names a broker twice: {repr(value)[:60]}")
    return tuple(value)


def plain_number(data: bytes, name: str, low: int = 0, high: int = INT32_MAX) -> int:
    """Returns the number in a node that contains a number as text and nothing else. Raises
    ZnodeDataError."""
    try:
        return integer(data.decode("ascii"), name, low, high, text=True)
    except UnicodeDecodeError as error:
        raise ZnodeDataError(f"{name} is {data[:60]!r}, not a number") from error
