"""The API keys: name and versions of each. The handlers (barnabas.api) define which of them this
broker serves.

Versions reach from the oldest that Kafka 2.7 spoke to the newest stable one of 4.4; a version that
4.4 marks as unstable is left out.
"""

from collections.abc import Mapping
from functools import cache
from typing import NamedTuple

from barnabas.errors import UnsupportedVersion
from barnabas.wire.schema import text_of

API_VERSIONS = 18
CONTROLLED_SHUTDOWN = 7
RELEASES = ("2.7", "3.9", "4.4")


class ApiKey(NamedTuple):
    """One API key. The flexible versions begin at `*_flexible_from`; None: no version is
    flexible."""

    key: int
    name: str
    version_min: int
    version_max: int
    request_flexible_from: int | None
    response_flexible_from: int | None
    listeners: tuple[str, ...]
    # by releases of Kafka: the first and last version that its brokers serve; without one: none
    of_releases: Mapping[str, tuple[int, int]]


@cache
def api_keys() -> dict[int, ApiKey]:
    """Returns all API keys, by number."""
    found: dict[int, ApiKey] = {}
    head, *lines = text_of("api-keys.tsv").splitlines()
    columns = head.split("\t")
    for line in lines:
        row = dict(zip(columns, line.split("\t"), strict=True))
        key = int(row["key"])
        found[key] = ApiKey(
            key=key,
            name=row["name"],
            version_min=int(row["all_min"]),
            version_max=int(row["all_max"]),
            request_flexible_from=_version(row["request_flexible_from"]),
            response_flexible_from=_version(row["response_flexible_from"]),
            listeners=tuple(row["listeners"].split(",")),
            of_releases={
                name: (int(low), int(high))
                for name in RELEASES
                if (low := row[f"in_{name}"].partition("-")[0])
                and (high := row[f"in_{name}"].partition("-")[2])
            },
        )
    return found


def _version(text: str) -> int | None:
    return None if text == "-" else int(text)


def api_key(key: int, version: int | None = None) -> ApiKey:
    """Returns the row of a key. Raises UnsupportedVersion for a key or version that Kafka does not
    have."""
    row = api_keys().get(key)
    if row is None:
        raise UnsupportedVersion(f"there is no API key {key}")
    if version is not None and not row.version_min <= version <= row.version_max:
        raise UnsupportedVersion(
            f"{row.name} has versions {row.version_min}-{row.version_max}, not {version}"
        )
    return row
