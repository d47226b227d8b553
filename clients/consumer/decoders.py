"""From the bytes of a key or a message to what the caller wants: `serializer.class`, and the
decoders that create_message_streams takes.

A decoder is a name of the list below, or a callable of one argument, or an object with the old
`from_bytes`. The argument is bytes, or None where there is no key or message.
"""

from __future__ import annotations

import json
from typing import Any

from barnabas.clients.consumer.config import InvalidConfig
from barnabas.clients.consumer.messages import Decoder


def as_bytes(data: bytes | None) -> bytes | None:
    """kafka.serializer.DefaultDecoder."""
    return data


def as_string(data: bytes | None) -> str | None:
    """kafka.serializer.StringDecoder: UTF-8. Raises UnicodeDecodeError."""
    return None if data is None else data.decode()


def as_json(data: bytes | None) -> Any:
    """Any JSON. Raises ValueError."""
    return None if data is None else json.loads(data)


DECODERS: dict[str, Decoder] = {
    "bytes": as_bytes,
    "string": as_string,
    "json": as_json,
    "kafka.serializer.DefaultDecoder": as_bytes,
    "kafka.serializer.DefaultEncoder": as_bytes,
    "kafka.serializer.StringDecoder": as_string,
    "kafka.serializer.StringEncoder": as_string,
}


def decoder_of(what: Any) -> Decoder:
    """Raises InvalidConfig."""
    if isinstance(what, str):
        if what in DECODERS:
            return DECODERS[what]
        raise InvalidConfig(f"there is no decoder {what!r}: there are {', '.join(DECODERS)}")
    found: Decoder | None = getattr(what, "from_bytes", what)
    if not callable(found):
        raise InvalidConfig(f"{what!r} is no decoder: it cannot be called")
    return found
