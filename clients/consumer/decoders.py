"""Decoders of keys and messages: `serializer.class`, `key.serializer.class`, and the decoders that
create_message_streams takes.

A decoder is a plugin: a built-in or installed one, by its name, `module:Class`, or an object with
the hook `decode`. It decodes a batch at a time. When it fails for a batch, the stream decodes each
record alone when the caller reads it, so a bad record raises an error for itself only.

A decoder may also be a function, or an object with the old design's `from_bytes`. The stream calls
it when the caller reads a key or a message, with its bytes, or None for a missing one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from barnabas.clients.consumer.config import ConsumerConfig
from barnabas.clients.consumer.messages import Undecoded
from barnabas.clients.failures import InvalidConfig
from barnabas.hooks.builtin import ALIASES
from barnabas.hooks.direct import ClientPlugins, caller
from barnabas.hooks.plugin import CannotLoad

AS_THEY_ARE = "bytes"
HOOK = "decode"

# Turns the bytes of a topic into objects, in the same order; None: the caller gets the bytes.
Column = Callable[[str, Sequence[bytes | None]], Sequence[Any]]


class Decoders:
    """The decoders of one connector; `close` ends the child processes of plugins."""

    def __init__(self, config: ConsumerConfig) -> None:
        self._plugins = ClientPlugins(config.plugin_options)
        self._key = self.column("key.serializer.class", config.key_serializer_class, is_key=True)
        self._value = self.column("serializer.class", config.serializer_class, is_key=False)

    def pair(self, key: Any, value: Any) -> tuple[Column | None, Column | None]:
        """Returns the decoders for keys and for messages; None selects the one of the settings.
        Raises InvalidConfig."""
        return (
            self._key if key is None else self.column("key_decoder", key, is_key=True),
            self._value if value is None else self.column("value_decoder", value, is_key=False),
        )

    def column(self, setting: str, what: Any, *, is_key: bool) -> Column | None:
        """Returns the decoder as a function of a column. Raises InvalidConfig."""
        if isinstance(what, str) and ALIASES.get(what, what) == AS_THEY_ARE:
            return None
        function = getattr(what, "from_bytes", None) or (what if callable(what) else None)
        if function is not None and not isinstance(what, str):
            return _by_function(function)
        try:
            call = caller(self._plugins.plugin(setting, what, HOOK), HOOK)
        except CannotLoad as error:
            raise InvalidConfig(error.problems) from error
        assert call is not None
        return _by_plugin(call, is_key)

    def close(self) -> None:
        self._plugins.close()


def _by_function(function: Callable[[bytes | None], Any]) -> Column:
    def column(_topic: str, data: Sequence[bytes | None]) -> Sequence[Any]:
        return [Undecoded(function, item) for item in data]

    return column


def _by_plugin(call: Callable[..., Any], is_key: bool) -> Column:
    def column(topic: str, data: Sequence[bytes | None]) -> Sequence[Any]:
        there = [item for item in data if item is not None]
        if not there:
            return data
        try:
            found = _whole(call(topic, there, is_key), there)
        except Exception:  # reading the bad record raises the error again
            found = [
                Undecoded(lambda one: _whole(call(topic, [one], is_key), [one])[0], item)
                for item in there
            ]
        if len(there) == len(data):
            return found
        objects = iter(found)
        return [None if item is None else next(objects) for item in data]

    return column


def _whole(objects: Sequence[Any], data: Sequence[bytes]) -> Sequence[Any]:
    if len(objects) != len(data):
        raise ValueError(f"the decoder returned {len(objects)} objects for {len(data)} records")
    return objects
