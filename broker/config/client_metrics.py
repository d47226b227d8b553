"""The settings of a client metrics subscription (KIP-714): the clients, the metrics, the interval.

| name          | type | default | allowed                                                |
|---------------|------|---------|--------------------------------------------------------|
| `interval.ms` | INT  | 300000  | 100 to 3600000                                         |
| `match`       | LIST | ""      | `SELECTOR=REGEX,SELECTOR=REGEX,...`; "": every client  |
| `metrics`     | LIST | ""      | prefixes of metric names; `*`: all; "": none           |

They are not broker settings, and server.properties has no defaults for them. A client sets a list
as a whole: like Kafka, the broker does not append to them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from barnabas.config.dynamic_config import TEXT_BYTES_MAX
from barnabas.config.layers import CLIENT_METRICS, DEFAULT, TYPE_CODES, ConfigEntry
from barnabas.errors import InvalidConfig, InvalidRequest

INTERVAL_MS_MIN, INTERVAL_MS_MAX = 100, 3_600_000
SELECTORS = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)

# name -> type, default, meaning
SETTINGS = {
    "interval.ms": ("INT", "300000", "Metrics push interval in milliseconds"),
    "match": ("LIST", "", "which clients send metrics: pairs of a selector and a pattern"),
    "metrics": ("LIST", "", "prefixes of the names of the metrics that clients send"),
}


def check_client_metrics(texts: Mapping[str, str]) -> None:
    """Checks the settings of a subscription. Raises InvalidRequest or InvalidConfig in the same
    cases as Kafka."""
    for name, text in texts.items():
        if name not in SETTINGS:
            raise InvalidRequest(f"Unknown client metrics configuration: {name[:60]}")
        if len(text.encode("utf-8", "replace")) > TEXT_BYTES_MAX:
            raise InvalidConfig(f"{name}: the value is longer than {TEXT_BYTES_MAX} bytes")
        if name == "interval.ms":
            _check_interval(text)
        elif name == "match":
            patterns_of(text)


def _check_interval(text: str) -> None:
    if not re.fullmatch(r"[+-]?[0-9]{1,10}", text.strip()):
        raise InvalidConfig(
            f"Invalid value {text[:60]} for configuration interval.ms: Not a number of type INT"
        )
    if not INTERVAL_MS_MIN <= int(text) <= INTERVAL_MS_MAX:
        raise InvalidRequest(
            f"Invalid value {text} for interval.ms, interval must be between"
            f" {INTERVAL_MS_MIN} and {INTERVAL_MS_MAX} (1 hour)"
        )


def patterns_of(text: str) -> dict[str, re.Pattern[str]]:
    """Returns the pattern of each selector in a value of `match`; the last one counts if a selector
    occurs twice. Raises InvalidConfig."""
    found = {}
    for part in text.split(",") if text.strip() else ():
        selector, sign, pattern = (piece.strip() for piece in part.partition("="))
        if not sign or not pattern or "=" in pattern or selector not in SELECTORS:
            raise InvalidConfig(f"Illegal client matching pattern: {part[:60]}")
        try:
            found[selector] = re.compile(pattern)
        except (re.error, RecursionError, OverflowError) as error:
            raise InvalidConfig(f"Illegal client matching pattern: {part[:60]}") from error
    return found


def describe_client_metrics(
    texts: Mapping[str, str], names: Iterable[str] | None = None
) -> list[ConfigEntry]:
    """Returns the settings of a subscription, also those with their default. `names` selects some
    of them."""
    wanted = SETTINGS if names is None else set(names)
    found = []
    for name, (kind, default, meaning) in SETTINGS.items():
        if name in wanted:
            source = CLIENT_METRICS if name in texts else DEFAULT
            value = texts.get(name, default)
            found.append(
                ConfigEntry(
                    name=name,
                    value=value,
                    read_only=False,
                    source=source,
                    is_sensitive=False,
                    synonyms=[(name, value, source)] if name in texts else [],
                    type=TYPE_CODES[kind],
                    documentation=meaning,
                )
            )
    return found
