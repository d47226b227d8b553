"""Plugins of `barnabas produce` and `barnabas consume`: encoders, decoders, partitioners.

Their names are those in the settings of the old producer. One call handles up to LINES_MAX records.
"""

import argparse
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from barnabas.cext.record.records import Record
from barnabas.client import Cluster
from barnabas.client.failures import ClientError
from barnabas.hooks.direct import ClientPlugins, caller
from barnabas.hooks.plugin import CannotLoad

LINES_MAX = 500

Line = tuple[bytes | None, bytes]
Placed = tuple[bytes | None, bytes | None, int | None]


class BadPlugin(ClientError):
    """A plugin cannot be used, or failed."""


def encoder_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("plugins (`barnabas plugins list`)")
    group.add_argument("--encoder", metavar="NAME", help="plugin that encodes values")
    group.add_argument("--key-encoder", metavar="NAME", help="plugin that encodes keys")
    group.add_argument("--from-json", action="store_true", help="encoders get parsed JSON")
    group.add_argument("--partitioner", metavar="NAME", help="plugin that chooses partitions")
    plugin_option(group)


def decoder_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("plugins (`barnabas plugins list`)")
    group.add_argument("--decoder", metavar="NAME", help="plugin that decodes values")
    group.add_argument("--key-decoder", metavar="NAME", help="the same for keys (--decoder)")
    plugin_option(group)


def plugin_option(group: Any) -> None:
    """Adds `--option plugin.NAME.KEY=VALUE` to a parser or to a group of one."""
    group.add_argument(
        "--option",
        metavar="plugin.NAME.KEY=VALUE",
        action="append",
        default=[],
        type=_setting,
        help="an option of a plugin; may be repeated",
    )


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.startswith("plugin."):
        raise argparse.ArgumentTypeError(f"{text!r} is not plugin.NAME.KEY=VALUE")
    return name, value


class Encoding:
    """Encodes lines by plugins, and chooses their partitions. Raises BadPlugin."""

    def __init__(self, arguments: argparse.Namespace, cluster: Cluster) -> None:
        self._topic, self._cluster = arguments.topic, cluster
        self._from_json = arguments.from_json
        plugins = ClientPlugins(dict(arguments.option))
        self._value = _called(plugins, "--encoder", arguments.encoder, "encode")
        self._key = _called(plugins, "--key-encoder", arguments.key_encoder, "encode")
        named = arguments.partitioner
        self._choose = _called(plugins, "--partitioner", named, "choose_partitions")

    @property
    def is_used(self) -> bool:
        return any((self._value, self._key, self._choose))

    def of(self, lines: Iterable[Line]) -> Iterator[Placed]:
        """Yields (key, value, partition or None) for each line."""
        found = iter(lines)
        while group := list(islice(found, LINES_MAX)):
            yield from self._of(group)

    def _of(self, lines: Sequence[Line]) -> Iterator[Placed]:
        given_keys = [key for key, _ in lines]
        keys: list[Any] = list(given_keys)
        if self._key is not None:
            there = [self._object(key) for key in given_keys if key is not None]
            data = iter(_asked(self._key, self._topic, there, True))
            keys = [None if key is None else next(data) for key in given_keys]
        values: Sequence[bytes | None] = [value for _, value in lines]
        if self._value is not None:
            objects = [self._object(value) for _, value in lines]
            values = _asked(self._value, self._topic, objects, False)
        places: Sequence[int | None] = [None] * len(lines)
        if self._choose is not None:
            places = self._places(given_keys, keys)
        yield from zip(keys, values, places, strict=True)

    def _object(self, text: bytes) -> Any:
        try:
            return json.loads(text) if self._from_json else text.decode()
        except ValueError as error:
            kind = "JSON" if self._from_json else "text in UTF-8"
            raise BadPlugin(f"{text[:60]!r} is no {kind}: {error}") from error

    def _places(
        self, given: Sequence[bytes | None], keys: Sequence[bytes | None]
    ) -> Sequence[int | None]:
        known = self._cluster.topic(self._topic, create=True).partitions
        available = [row.index for row in known.values() if row.leader >= 0] or list(known)
        texts: Sequence[Any] = [None if key is None else self._object(key) for key in given]
        if self._key is None and not self._from_json:
            texts = given
        assert self._choose is not None
        found = _asked(self._choose, self._topic, texts, keys, len(known), available)
        return [found] * len(given) if isinstance(found, int) else found


class Decoding:
    """Decodes records by plugins. Raises BadPlugin."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._topic = arguments.topic
        plugins = ClientPlugins(dict(arguments.option))
        self._value = _called(plugins, "--decoder", arguments.decoder, "decode")
        named = arguments.key_decoder or arguments.decoder
        self._key = _called(plugins, "--key-decoder", named, "decode")

    @property
    def is_used(self) -> bool:
        return self._value is not None or self._key is not None

    def of(self, records: Sequence[Record]) -> Iterator[tuple[Any, Any]]:
        """Yields the decoded key and value of each record."""
        keys = self._decoded(self._key, [record.key for record in records], True)
        values = self._decoded(self._value, [record.value for record in records], False)
        yield from zip(keys, values, strict=True)

    def _decoded(
        self, decode: Callable[..., Any] | None, data: Sequence[bytes | None], is_key: bool
    ) -> Sequence[Any]:
        there = [item for item in data if item is not None]
        if decode is None or not there:
            return data
        objects = _asked(decode, self._topic, there, is_key)
        if len(objects) != len(there):
            raise BadPlugin(f"the decoder gave {len(objects)} objects for {len(there)}")
        found = iter(objects)
        return [None if item is None else next(found) for item in data]


def _called(
    plugins: ClientPlugins, option: str, named: str | None, hook: str
) -> Callable[..., Any] | None:
    if named is None:
        return None
    try:
        return caller(plugins.plugin(option, named, hook), hook)
    except CannotLoad as error:
        raise BadPlugin(str(error)) from error


def _asked(call: Callable[..., Any], *given: Any) -> Any:
    try:
        return call(*given)
    except Exception as error:
        raise BadPlugin(f"the plugin failed: {type(error).__name__}: {error}") from error
